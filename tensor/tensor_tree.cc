// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/tensor_tree.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string ListPath(const std::string& path, size_t index) {
  return absl::StrCat(path, "[", index, "]");
}

std::string DictPath(const std::string& path, const std::string& name) {
  return path.empty() ? name : absl::StrCat(path, ".", name);
}

std::string Names(const TensorTree::Dict& dict) {
  return absl::StrJoin(
      dict, ", ", [](std::string* out, const auto& entry) { absl::StrAppend(out, entry.first); });
}

}  // namespace

TensorTree::TensorTree(Tensor tensor) {
  if (tensor.defined()) value_ = std::move(tensor);
}

TensorTree::TensorTree(const NamedTensors& tensors) {
  Dict dict;
  for (const auto& [name, tensor] : tensors) dict.emplace_back(name, TensorTree(tensor));
  value_ = std::move(dict);
}

TensorTree::TensorTree(std::initializer_list<TensorTree> list) : value_(List(list)) {}

template <typename T>
const T& TensorTree::Get(absl::string_view wanted) const {
  if (const T* value = std::get_if<T>(&value_)) return *value;
  throw InvalidArgumentError(absl::StrCat("TensorTree: this is ", Kind(), ", not ", wanted));
}

const Tensor& TensorTree::tensor() const { return Get<Tensor>("a tensor"); }
bool TensorTree::boolean() const { return Get<bool>("a bool"); }
int64_t TensorTree::integer() const { return Get<int64_t>("an integer"); }
double TensorTree::number() const {
  if (const int64_t* integer = std::get_if<int64_t>(&value_)) return static_cast<double>(*integer);
  return Get<double>("a number");
}
const std::string& TensorTree::text() const { return Get<std::string>("a text"); }
const TensorTree::List& TensorTree::list() const { return Get<List>("a list"); }
const TensorTree::Dict& TensorTree::dict() const { return Get<Dict>("a dictionary"); }

size_t TensorTree::size() const {
  if (is_list()) return list().size();
  return is_dict() ? dict().size() : 0;
}

const TensorTree& TensorTree::operator[](size_t index) const {
  const List& elements = list();
  if (index >= elements.size()) {
    throw OutOfRangeError(
        absl::StrCat("TensorTree: element ", index, " of a list of ", elements.size()));
  }
  return elements[index];
}

const TensorTree& TensorTree::At(absl::string_view name) const {
  for (const auto& [key, value] : dict()) {
    if (name == key) return value;
  }
  throw NotFoundError(absl::StrCat("TensorTree: no \"", name, "\"; the names are ", Names(dict())));
}

void TensorTree::ForEachTensor(Visitor fn) const { Visit("", fn); }

void TensorTree::Visit(const std::string& path, Visitor fn) const {
  if (is_tensor()) fn(path, tensor());
  if (is_list()) {
    for (size_t i = 0; i < size(); ++i) list()[i].Visit(ListPath(path, i), fn);
  }
  if (is_dict()) {
    for (const auto& [name, value] : dict()) value.Visit(DictPath(path, name), fn);
  }
}

TensorTree TensorTree::Map(Mapper fn) const { return MapFrom("", fn); }

TensorTree TensorTree::MapFrom(const std::string& path, Mapper fn) const {
  if (is_tensor()) return TensorTree(fn(path, tensor()));
  if (is_list()) {
    List mapped;
    for (size_t i = 0; i < size(); ++i) mapped.push_back(list()[i].MapFrom(ListPath(path, i), fn));
    return TensorTree(std::move(mapped));
  }
  if (is_dict()) {
    Dict mapped;
    for (const auto& [name, value] : dict()) {
      mapped.emplace_back(name, value.MapFrom(DictPath(path, name), fn));
    }
    return TensorTree(std::move(mapped));
  }
  return *this;
}

size_t TensorTree::TensorCount() const {
  size_t count = 0;
  ForEachTensor([&count](const std::string&, const Tensor&) { ++count; });
  return count;
}

bool TensorTree::SamePlainValue(const TensorTree& other) const {
  if (!is_plain() || value_.index() != other.value_.index()) return false;
  if (Is<bool>()) return boolean() == other.boolean();
  if (Is<int64_t>()) return integer() == other.integer();
  if (Is<double>()) return number() == other.number();
  return text() == other.text();
}

std::string TensorTree::DebugString() const {
  if (is_tensor()) return tensor().DebugString();
  if (Is<bool>()) return boolean() ? "true" : "false";
  if (Is<int64_t>()) return absl::StrCat(integer());
  if (Is<double>()) return absl::StrCat(number());
  if (Is<std::string>()) return absl::StrCat("\"", text(), "\"");
  if (is_list()) {
    return absl::StrCat("[",
                        absl::StrJoin(list(), ", ",
                                      [](std::string* out, const TensorTree& element) {
                                        absl::StrAppend(out, element.DebugString());
                                      }),
                        "]");
  }
  if (is_dict()) {
    return absl::StrCat("{",
                        absl::StrJoin(dict(), ", ",
                                      [](std::string* out, const auto& entry) {
                                        absl::StrAppend(out, entry.first, ": ",
                                                        entry.second.DebugString());
                                      }),
                        "}");
  }
  return "nothing";
}

std::string TensorTree::Kind() const {
  if (is_tensor()) return "a tensor";
  if (Is<bool>()) return "a bool";
  if (Is<int64_t>()) return "an integer";
  if (Is<double>()) return "a number";
  if (Is<std::string>()) return "a text";
  if (is_list()) return absl::StrCat("a list of ", size());
  if (is_dict()) return absl::StrCat("a dictionary of ", Names(dict()));
  return "nothing";
}

}  // namespace lockstep
