// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Reading an object of a configuration file key by key, so that no key is overlooked: what was not
// asked for is refused, with the nearest key that was.
//
//   JsonSection zero(root_node, "zero_optimization", &notes);
//   zero.Integer("reduce_bucket_size", &config.reduce_bucket_size, 0);
//   zero.Ignored({"override_module_apply"});
//   zero.Finish();
//
// A key that is absent leaves the value as it is. All throw InvalidArgument that names the line,
// the key with its path, the value and what was expected.
#ifndef LOCKSTEP_STRATEGIES_ENGINE_JSON_SECTION_H_
#define LOCKSTEP_STRATEGIES_ENGINE_JSON_SECTION_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/strategies/engine/json_tree.h"

namespace lockstep::engine {

// What stands for "auto": `value`, which is the caller's field `field`.
template <typename T>
struct AutoValue {
  const char* field;
  std::optional<T> value;
};

class JsonSection {
 public:
  // `node` must outlive the section; null is an absent section, which has no keys. `ignored` gets
  // the paths of ignored keys. Throws unless the node is an object.
  JsonSection(const JsonNode* node, std::string path, std::vector<std::string>* ignored);

  // Null when the key is absent or null. The key counts as known.
  const JsonNode* Find(absl::string_view key);
  bool Has(absl::string_view key) { return Find(key) != nullptr; }

  // Integers may be written as reals without a fraction: 5e8.
  void Integer(absl::string_view key, int64_t* value, int64_t minimum,
               int64_t maximum = std::numeric_limits<int64_t>::max(),
               std::optional<AutoValue<int64_t>> automatic = std::nullopt);
  void Real(absl::string_view key, double* value, double minimum,
            double maximum = std::numeric_limits<double>::max(),
            std::optional<AutoValue<double>> automatic = std::nullopt);
  void Bool(absl::string_view key, bool* value,
            std::optional<AutoValue<bool>> automatic = std::nullopt);
  // The index of the value, in any case, among `choices`.
  void Choice(absl::string_view key, size_t* index, const std::vector<std::string>& choices);

  // A name for the same key. Throws when both are there.
  absl::string_view Alias(absl::string_view key, absl::string_view other);

  // Keys that cannot change results; those present go onto the list.
  void Ignored(std::initializer_list<absl::string_view> keys);
  // A feature that does not exist here: absent, null, false, 0, or an object that is not "enabled".
  // Anything else throws Unimplemented with `remedy`.
  void Off(absl::string_view key, absl::string_view remedy);
  // One that its presence switches on: absent, null, false, 0, or an object of nulls only.
  void Absent(absl::string_view key, absl::string_view remedy);
  // An option that has one value only here.
  void Only(absl::string_view key, bool value, absl::string_view remedy);

  // Refuses the keys that none of the above has named.
  void Finish() const;

  // "line 7: zero_optimization.stage is 4; remedy".
  std::string Message(absl::string_view key, absl::string_view remedy) const;
  const std::string& path() const { return path_; }

 private:
  const JsonNode* Lookup(absl::string_view key) const;
  std::string PathOf(absl::string_view key) const;
  [[noreturn]] void Refuse(absl::string_view key, absl::string_view expected) const;
  template <typename T>
  bool TakeAuto(absl::string_view key, const JsonNode& node, T* value,
                const std::optional<AutoValue<T>>& automatic) const;

  const JsonNode* node_;
  std::string path_;
  std::vector<std::string>* ignored_;
  std::vector<std::string> known_;
};

}  // namespace lockstep::engine

#endif  // LOCKSTEP_STRATEGIES_ENGINE_JSON_SECTION_H_
