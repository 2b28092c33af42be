// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// TensorTree: tensors and plain values in nested lists and dictionaries, for functions whose inputs
// and outputs have a structure that their callers do not know.
//
//   TensorTree inputs = {ids, targets};                                  // a list
//   TensorTree output = TensorTree::Dict{{"logits", logits}, {"states", TensorTree::List{h, c}}};
//   output.At("states")[1].tensor();
//   inputs.Map([](const std::string& path, const Tensor& t) { return To(t, Cpu(1)); });
//
// A value type; the tensors are handles. As thread-safe as a std::vector. Braces make lists, so
// `TensorTree a{b}` is a list of one: copy with `=` or parentheses.
#ifndef LOCKSTEP_TENSOR_TENSOR_TREE_H_
#define LOCKSTEP_TENSOR_TENSOR_TREE_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

class TensorTree {
 public:
  using List = std::vector<TensorTree>;
  // In order; names are not checked to be distinct, At() finds the first.
  using Dict = std::vector<std::pair<std::string, TensorTree>>;

  TensorTree() = default;     // nothing
  TensorTree(Tensor tensor);  // NOLINT: nothing for an undefined one
  // NOLINTNEXTLINE
  TensorTree(const NamedTensors& tensors);                     // a Dict
  TensorTree(List list) : value_(std::move(list)) {}           // NOLINT
  TensorTree(Dict dict) : value_(std::move(dict)) {}           // NOLINT
  TensorTree(std::initializer_list<TensorTree> list);          // NOLINT
  TensorTree(bool value) : value_(value) {}                    // NOLINT
  TensorTree(int value) : value_(int64_t{value}) {}            // NOLINT
  TensorTree(int64_t value) : value_(value) {}                 // NOLINT
  TensorTree(double value) : value_(value) {}                  // NOLINT
  TensorTree(std::string text) : value_(std::move(text)) {}    // NOLINT
  TensorTree(const char* text) : value_(std::string(text)) {}  // NOLINT

  bool is_nothing() const { return Is<std::monostate>(); }
  bool is_tensor() const { return Is<Tensor>(); }
  bool is_list() const { return Is<List>(); }
  bool is_dict() const { return Is<Dict>(); }
  // A bool, number or text.
  bool is_plain() const { return !is_nothing() && !is_tensor() && !is_list() && !is_dict(); }

  // Each throws InvalidArgument, naming what is there, when it is something else.
  const Tensor& tensor() const;
  bool boolean() const;
  int64_t integer() const;
  double number() const;  // of an integer too
  const std::string& text() const;
  const List& list() const;
  const Dict& dict() const;

  // Elements of a list or dictionary; 0 for everything else.
  size_t size() const;
  // An element of a list. Throws InvalidArgument (no list), OutOfRange.
  const TensorTree& operator[](size_t index) const;
  // A value of a dictionary. Throws InvalidArgument (no dictionary), NotFound that lists the names.
  const TensorTree& At(absl::string_view name) const;

  // Calls `fn` on every tensor, in order. Paths: "[0]", "[1].mask"; "" for the tree itself.
  using Visitor = absl::FunctionRef<void(const std::string& path, const Tensor& tensor)>;
  void ForEachTensor(Visitor fn) const;
  // The same tree with fn's results in place of the tensors.
  using Mapper = absl::FunctionRef<Tensor(const std::string& path, const Tensor& tensor)>;
  TensorTree Map(Mapper fn) const;
  size_t TensorCount() const;

  // Of plain values: the same kind and value. Of anything else: false.
  bool SamePlainValue(const TensorTree& other) const;

  // "[float32[2, 3] on cpu:0, {mask: nothing, scale: 0.5}]".
  std::string DebugString() const;
  // "a tensor", "a list of 2", "a dictionary of a, b", "an integer", ...
  std::string Kind() const;

 private:
  using Value =
      std::variant<std::monostate, Tensor, bool, int64_t, double, std::string, List, Dict>;

  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(value_);
  }
  template <typename T>
  const T& Get(absl::string_view wanted) const;
  void Visit(const std::string& path, Visitor fn) const;
  TensorTree MapFrom(const std::string& path, Mapper fn) const;

  Value value_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_TENSOR_TREE_H_
