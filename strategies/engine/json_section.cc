// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/engine/json_section.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"

namespace lockstep::engine {
namespace {

using Kind = JsonNode::Kind;

// Insertions, deletions and exchanges of characters that make `b` of `a` (Levenshtein).
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, exchanged});
    }
  }
  return row[b.size()];
}

bool IsFalse(const JsonNode& node) {
  if (node.kind == Kind::kBool) return !node.boolean;
  return (node.kind == Kind::kInteger || node.kind == Kind::kReal) && node.real == 0;
}

// Longer keys are no misspelling of a known one, and comparing them would take long.
constexpr size_t kLongestKey = 100;

std::string Nearest(absl::string_view key, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  size_t best_distance = 0;
  if (key.size() > kLongestKey) return "";
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(key, candidate);
    if (best == nullptr || distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : *best;
}

}  // namespace

JsonSection::JsonSection(const JsonNode* node, std::string path, std::vector<std::string>* ignored)
    : node_(node), path_(std::move(path)), ignored_(ignored) {
  if (node_ != nullptr && node_->kind != Kind::kObject) {
    throw InvalidArgumentError(absl::StrCat("line ", node_->line, ": ", path_, " is ",
                                            node_->ToString(), "; it must be an object"));
  }
}

std::string JsonSection::PathOf(absl::string_view key) const {
  return path_.empty() ? std::string(key) : absl::StrCat(path_, ".", key);
}

const JsonNode* JsonSection::Lookup(absl::string_view key) const {
  if (node_ == nullptr) return nullptr;
  for (const JsonMember& member : node_->members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const JsonNode* JsonSection::Find(absl::string_view key) {
  known_.emplace_back(key);
  const JsonNode* found = Lookup(key);
  return found == nullptr || found->kind == Kind::kNull ? nullptr : found;
}

std::string JsonSection::Message(absl::string_view key, absl::string_view remedy) const {
  const JsonNode* node = Lookup(key);
  if (node == nullptr) return absl::StrCat(PathOf(key), " is absent; ", remedy);
  return absl::StrCat("line ", node->line, ": ", PathOf(key), " is ", node->ToString(), "; ",
                      remedy);
}

void JsonSection::Refuse(absl::string_view key, absl::string_view expected) const {
  throw InvalidArgumentError(Message(key, absl::StrCat("it must be ", expected)));
}

template <typename T>
bool JsonSection::TakeAuto(absl::string_view key, const JsonNode& node, T* value,
                           const std::optional<AutoValue<T>>& automatic) const {
  if (node.kind != Kind::kString || node.text != "auto") return false;
  if (!automatic.has_value()) {
    throw InvalidArgumentError(Message(key, "this key has no automatic value; write one"));
  }
  if (!automatic->value.has_value()) {
    throw InvalidArgumentError(
        Message(key, absl::StrCat("write a value, or give the program's in ", automatic->field)));
  }
  *value = *automatic->value;
  return true;
}

void JsonSection::Integer(absl::string_view key, int64_t* value, int64_t minimum, int64_t maximum,
                          std::optional<AutoValue<int64_t>> automatic) {
  const JsonNode* node = Find(key);
  if (node == nullptr) return;
  int64_t found = 0;
  if (!TakeAuto(key, *node, &found, automatic)) {
    const bool whole = node->kind == Kind::kReal && std::abs(node->real) < 0x1p62 &&
                       node->real == std::floor(node->real);
    if (node->kind != Kind::kInteger && !whole) Refuse(key, "a whole number, below 2^62");
    found = whole ? static_cast<int64_t>(node->real) : node->integer;
  }
  if (found < minimum || found > maximum) {
    const bool bounded = maximum != std::numeric_limits<int64_t>::max();
    throw InvalidArgumentError(
        Message(key, absl::StrCat(found, " is out of range: it must be at least ", minimum,
                                  bounded ? absl::StrCat(" and at most ", maximum) : "")));
  }
  *value = found;
}

void JsonSection::Real(absl::string_view key, double* value, double minimum, double maximum,
                       std::optional<AutoValue<double>> automatic) {
  const JsonNode* node = Find(key);
  if (node == nullptr) return;
  double found = 0;
  if (!TakeAuto(key, *node, &found, automatic)) {
    if (node->kind != Kind::kInteger && node->kind != Kind::kReal) Refuse(key, "a number");
    found = node->real;
  }
  if (!(found >= minimum && found <= maximum)) {
    const bool bounded = maximum != std::numeric_limits<double>::max();
    throw InvalidArgumentError(
        Message(key, absl::StrCat(found, " is out of range: it must be at least ", minimum,
                                  bounded ? absl::StrCat(" and at most ", maximum) : "")));
  }
  *value = found;
}

void JsonSection::Bool(absl::string_view key, bool* value,
                       std::optional<AutoValue<bool>> automatic) {
  const JsonNode* node = Find(key);
  if (node == nullptr || TakeAuto(key, *node, value, automatic)) return;
  if (node->kind != Kind::kBool) Refuse(key, "true or false");
  *value = node->boolean;
}

void JsonSection::Choice(absl::string_view key, size_t* index,
                         const std::vector<std::string>& choices) {
  const JsonNode* node = Find(key);
  if (node == nullptr) return;
  for (size_t i = 0; node->kind == Kind::kString && i < choices.size(); ++i) {
    if (absl::EqualsIgnoreCase(node->text, choices[i])) {
      *index = i;
      return;
    }
  }
  Refuse(key, absl::StrCat("one of ", absl::StrJoin(choices, ", ")));
}

absl::string_view JsonSection::Alias(absl::string_view key, absl::string_view other) {
  known_.emplace_back(other);
  if (Lookup(other) == nullptr) return key;
  if (Lookup(key) != nullptr) {
    throw InvalidArgumentError(
        Message(other, absl::StrCat(key, " is the same key and is there too; keep one")));
  }
  return other;
}

void JsonSection::Ignored(std::initializer_list<absl::string_view> keys) {
  for (const absl::string_view key : keys) {
    if (Find(key) != nullptr) ignored_->push_back(PathOf(key));
  }
}

void JsonSection::Off(absl::string_view key, absl::string_view remedy) {
  const JsonNode* node = Find(key);
  if (node == nullptr) return;
  bool off = IsFalse(*node) || node->kind == Kind::kObject;
  for (const JsonMember& member : node->members) {
    if (member.key == "enabled" && !IsFalse(member.value)) off = false;
  }
  if (!off) throw UnimplementedError(Message(key, remedy));
}

void JsonSection::Absent(absl::string_view key, absl::string_view remedy) {
  const JsonNode* node = Find(key);
  if (node == nullptr) return;
  bool absent = IsFalse(*node) || node->kind == Kind::kObject;
  for (const JsonMember& member : node->members) {
    if (member.value.kind != Kind::kNull) absent = false;
  }
  if (!absent) throw UnimplementedError(Message(key, remedy));
}

void JsonSection::Only(absl::string_view key, bool value, absl::string_view remedy) {
  bool found = value;
  Bool(key, &found);
  if (found != value) throw UnimplementedError(Message(key, remedy));
}

void JsonSection::Finish() const {
  if (node_ == nullptr) return;
  for (const JsonMember& member : node_->members) {
    if (std::find(known_.begin(), known_.end(), member.key) != known_.end()) continue;
    const std::string nearest = Nearest(member.key, known_);
    throw InvalidArgumentError(absl::StrCat(
        "line ", member.value.line, ": ", PathOf(Printable(member.key.substr(0, kLongestKey))),
        " is no key that is known here",
        nearest.empty() ? "" : absl::StrCat("; the nearest is ", PathOf(nearest))));
  }
}

}  // namespace lockstep::engine
