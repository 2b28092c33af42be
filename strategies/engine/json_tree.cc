// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The parser is event driven: it uses no recursion, whatever the nesting of the text.

#include "lockstep/strategies/engine/json_tree.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "nlohmann/json.hpp"

namespace lockstep::engine {
namespace {

// Characters of the text; the parser takes each once and in order, and the line is counted on the
// way. When it reports a key, it has read the key's last quote and no further.
class CountingIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* position, int* line) : position_(position), line_(line) {}
  reference operator*() const { return *position_; }
  CountingIterator& operator++() {
    if (*position_ == '\n') ++*line_;
    ++position_;
    return *this;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.position_ == b.position_;
  }

 private:
  const char* position_;
  int* line_;
};

class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeBuilder(const int* line) : line_(line) {}

  bool null() override { return Add({}); }
  bool boolean(bool value) override {
    JsonNode node;
    node.kind = JsonNode::Kind::kBool;
    node.boolean = value;
    return Add(std::move(node));
  }
  bool number_integer(number_integer_t value) override { return AddInteger(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) {
      return Fail(absl::StrCat("the number ", value, " is beyond 2^63"));
    }
    return AddInteger(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!std::isfinite(value)) return Fail(absl::StrCat("the number ", text, " is too large"));
    JsonNode node;
    node.kind = JsonNode::Kind::kReal;
    node.real = value;
    return Add(std::move(node));
  }
  bool string(string_t& text) override {
    JsonNode node;
    node.kind = JsonNode::Kind::kString;
    node.text = std::move(text);
    return Add(std::move(node));
  }
  bool binary(binary_t&) override { return Fail("binary data"); }

  bool start_object(std::size_t) override { return Open(JsonNode::Kind::kObject); }
  bool start_array(std::size_t) override { return Open(JsonNode::Kind::kArray); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& text) override {
    key_line_ = *line_;
    std::vector<JsonMember>& members = open_.back().members;
    if (members.size() >= kMaximumJsonMembers) {
      return Fail(absl::StrCat("more than ", kMaximumJsonMembers, " keys in one object"));
    }
    for (const JsonMember& member : members) {
      if (member.key == text) {
        return Fail(absl::StrCat("\"", Printable(text), "\" is there a second time, first on line ",
                                 member.value.line, "; keep one"));
      }
    }
    members.push_back({std::move(text), {}});
    members.back().value.line = key_line_;
    return true;
  }

  bool parse_error(std::size_t, const std::string& token,
                   const nlohmann::detail::exception&) override {
    if (!reason_.empty()) return false;
    // What was read last; the end of it is what does not fit.
    const size_t shown = std::min<size_t>(token.size(), 40);
    if (token.empty()) return Fail("this is no valid JSON");
    return Fail(absl::StrCat("this is no valid JSON at '", token.substr(token.size() - shown),
                             "'; JSON has no comments, no comma before a closing bracket, no NaN "
                             "and no Infinity"));
  }

  JsonNode& root() { return root_; }
  // "line 3: ..."; REQUIRES: the parser returned false.
  const std::string& reason() const { return reason_; }

 private:
  bool Fail(absl::string_view what) {
    reason_ = absl::StrCat("line ", *line_, ": ", what);
    return false;
  }

  bool AddInteger(int64_t value) {
    JsonNode node;
    node.kind = JsonNode::Kind::kInteger;
    node.integer = value;
    node.real = static_cast<double>(value);
    return Add(std::move(node));
  }

  bool Add(JsonNode node) {
    node.line = key_line_;
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (open_.back().kind == JsonNode::Kind::kArray) {
      open_.back().elements.push_back(std::move(node));
    } else {
      node.line = open_.back().members.back().value.line;
      open_.back().members.back().value = std::move(node);
    }
    return true;
  }

  bool Open(JsonNode::Kind kind) {
    if (open_.size() >= kMaximumJsonDepth) {
      return Fail(absl::StrCat("more than ", kMaximumJsonDepth, " objects and arrays in another"));
    }
    JsonNode& node = open_.emplace_back();
    node.kind = kind;
    return true;
  }

  bool Close() {
    JsonNode node = std::move(open_.back());
    open_.pop_back();
    return Add(std::move(node));
  }

  const int* line_;
  int key_line_ = 1;
  std::vector<JsonNode> open_;  // outermost first
  JsonNode root_;
  std::string reason_;
};

}  // namespace

std::string Printable(absl::string_view text) { return absl::Utf8SafeCHexEscape(text); }

std::string JsonNode::ToString() const {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return boolean ? "true" : "false";
    case Kind::kInteger:
      return absl::StrCat(integer);
    case Kind::kReal:
      return absl::StrCat(real);
    case Kind::kString:
      return absl::StrCat("\"", Printable(text.substr(0, 80)), text.size() > 80 ? "..." : "", "\"");
    case Kind::kObject:
      return "an object";
    case Kind::kArray:
      return "an array";
  }
  return "";
}

JsonNode ParseJsonTree(absl::string_view text) {
  if (text.size() > kMaximumJsonBytes) {
    throw InvalidArgumentError(absl::StrCat("the text has ", text.size(), " bytes; at most ",
                                            kMaximumJsonBytes, " are read"));
  }
  int line = 1;
  TreeBuilder builder(&line);
  const CountingIterator begin(text.data(), &line), end(text.data() + text.size(), &line);
  if (!nlohmann::json::sax_parse(begin, end, &builder)) {
    throw InvalidArgumentError(builder.reason());
  }
  if (builder.root().kind != JsonNode::Kind::kObject) {
    throw InvalidArgumentError(
        absl::StrCat("line 1: the text is ", builder.root().ToString(), "; it must be an object"));
  }
  return std::move(builder.root());
}

}  // namespace lockstep::engine
