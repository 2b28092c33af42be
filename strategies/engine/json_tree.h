// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A small JSON document as a tree whose nodes know their line, for configuration files whose errors
// must say where.
//
//   JsonNode root = ParseJsonTree(text);          // an object
//   for (const JsonMember& member : root.members) Use(member.key, member.value, member.value.line);
#ifndef LOCKSTEP_STRATEGIES_ENGINE_JSON_TREE_H_
#define LOCKSTEP_STRATEGIES_ENGINE_JSON_TREE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::engine {

inline constexpr size_t kMaximumJsonBytes = 1 << 20;
inline constexpr int kMaximumJsonDepth = 16;
inline constexpr size_t kMaximumJsonMembers = 1000;  // of one object

struct JsonMember;

struct JsonNode {
  enum class Kind : uint8_t { kNull, kBool, kInteger, kReal, kString, kObject, kArray };
  Kind kind = Kind::kNull;
  int line = 0;  // from 1; of the key for members of objects and all below them in arrays
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;  // of an integer too
  std::string text;
  std::vector<JsonMember> members;  // in the document's order, each key once
  std::vector<JsonNode> elements;

  // "true", "12", "\"text\"", "an object": for error messages.
  std::string ToString() const;
};

struct JsonMember {
  std::string key;
  JsonNode value;
};

// Text from a file as it is put into an error message: control characters, which would start a line
// there or steer a terminal, as escapes.
std::string Printable(absl::string_view text);

// Throws InvalidArgument with the line for text that is no JSON object, is beyond a limit above,
// has a key twice in one object, or a number beyond int64 and double.
JsonNode ParseJsonTree(absl::string_view text);

}  // namespace lockstep::engine

#endif  // LOCKSTEP_STRATEGIES_ENGINE_JSON_TREE_H_
