// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/named_tensors.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Names that share the last component with `name` (a wrong prefix is the usual mistake), or else
// the first few: enough to see what went wrong without printing a large model.
std::string Hints(const std::vector<NamedTensors::value_type>& entries, absl::string_view name) {
  constexpr size_t kMost = 3;
  const absl::string_view last = name.substr(name.rfind('.') + 1);
  std::vector<absl::string_view> hints;
  for (const auto& [candidate, tensor] : entries) {
    if (hints.size() == kMost) break;
    if (absl::EndsWith(candidate, last)) hints.push_back(candidate);
  }
  for (size_t i = 0; hints.empty() && i < entries.size() && i < kMost; ++i) {
    hints.push_back(entries[i].first);
  }
  return absl::StrJoin(hints, ", ");
}

}  // namespace

NamedTensors::NamedTensors(std::initializer_list<value_type> entries) {
  for (const auto& [name, tensor] : entries) Insert(name, tensor);
}

void NamedTensors::Insert(absl::string_view name, Tensor tensor) {
  if (!tensor.defined()) {
    throw InvalidArgumentError(
        absl::StrCat("NamedTensors: the tensor for \"", name, "\" is undefined"));
  }
  if (!index_.try_emplace(std::string(name), entries_.size()).second) {
    throw AlreadyExistsError(
        absl::StrCat("NamedTensors: the name \"", name, "\" is in use; names must differ"));
  }
  entries_.emplace_back(std::string(name), std::move(tensor));
}

void NamedTensors::InsertAll(const NamedTensors& other, absl::string_view prefix) {
  for (const auto& [name, tensor] : other) {
    if (Contains(absl::StrCat(prefix, name))) {
      throw AlreadyExistsError(absl::StrCat("NamedTensors: the name \"", prefix, name,
                                            "\" is in use; names must differ"));
    }
  }
  // By position and count: `other` may be this map.
  for (size_t i = 0, count = other.size(); i < count; ++i) {
    const value_type entry = other[i];
    Insert(absl::StrCat(prefix, entry.first), entry.second);
  }
}

void NamedTensors::Set(absl::string_view name, Tensor tensor) {
  const auto it = index_.find(name);
  if (it == index_.end()) return Insert(name, std::move(tensor));
  if (!tensor.defined()) {
    throw InvalidArgumentError(
        absl::StrCat("NamedTensors: the tensor for \"", name, "\" is undefined"));
  }
  entries_[it->second].second = std::move(tensor);
}

const Tensor* NamedTensors::Find(absl::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

const Tensor& NamedTensors::At(absl::string_view name) const {
  if (const Tensor* tensor = Find(name)) return *tensor;
  throw NotFoundError(absl::StrCat("NamedTensors: no \"", name, "\" among ", size(),
                                   empty() ? " names" : " names, such as ", Hints(entries_, name)));
}

std::vector<std::string> NamedTensors::Names() const {
  std::vector<std::string> names;
  names.reserve(size());
  for (const auto& entry : entries_) names.push_back(entry.first);
  return names;
}

std::vector<Tensor> NamedTensors::Tensors() const {
  std::vector<Tensor> tensors;
  tensors.reserve(size());
  for (const auto& entry : entries_) tensors.push_back(entry.second);
  return tensors;
}

}  // namespace lockstep
