// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// NamedTensors: an ordered map from names to tensors. State dictionaries, parameters with their
// names, optimizer state and the contents of weight files all have this type.
//
//   NamedTensors state;
//   state.Insert("0.weight", weight);
//   for (const auto& [name, tensor] : state) Print(name, tensor.shape());
//   if (const Tensor* bias = state.Find("0.bias")) Use(*bias);
//
// The tensors are handles: a copy of the map refers to the same tensors. As thread-safe as a
// std::vector.
#ifndef LOCKSTEP_TENSOR_NAMED_TENSORS_H_
#define LOCKSTEP_TENSOR_NAMED_TENSORS_H_

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

class NamedTensors {
 public:
  using value_type = std::pair<std::string, Tensor>;
  using const_iterator = std::vector<value_type>::const_iterator;

  NamedTensors() = default;
  NamedTensors(std::initializer_list<value_type> entries);

  // Adds at the end. Throws AlreadyExists for a name in use, InvalidArgument for an undefined
  // tensor.
  void Insert(absl::string_view name, Tensor tensor);
  // Adds every entry of `other` as `prefix` + name. Throws as Insert does, before adding any.
  void InsertAll(const NamedTensors& other, absl::string_view prefix = "");
  // Puts another tensor in place of an entry's, or adds the entry at the end.
  void Set(absl::string_view name, Tensor tensor);

  // Null when there is no such entry; valid until the map changes.
  const Tensor* Find(absl::string_view name) const;
  bool Contains(absl::string_view name) const { return Find(name) != nullptr; }
  // Throws NotFound, with the number of entries and the nearest names.
  const Tensor& At(absl::string_view name) const;

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }
  const value_type& operator[](size_t position) const { return entries_[position]; }

  std::vector<std::string> Names() const;
  std::vector<Tensor> Tensors() const;

  // The entries for which `keep(name, tensor)` is true, in order: for parameter groups.
  //   NamedTensors matrices = parameters.Filter(
  //       [](const std::string&, const Tensor& t) { return t.rank() >= 2; });
  template <typename Predicate>
  NamedTensors Filter(Predicate&& keep) const {
    NamedTensors result;
    for (const auto& [name, tensor] : entries_) {
      if (keep(name, tensor)) result.Insert(name, tensor);
    }
    return result;
  }

 private:
  std::vector<value_type> entries_;
  absl::flat_hash_map<std::string, size_t> index_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_NAMED_TENSORS_H_
