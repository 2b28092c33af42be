// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/tensor_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::state {

const TensorDescription* FindTensor(const TensorSource& source, absl::string_view name) {
  for (const TensorDescription& tensor : source.tensors()) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

NamedTensors LoadAll(const TensorSource& source) {
  NamedTensors all;
  for (const TensorDescription& tensor : source.tensors()) {
    const int64_t numel = NumElements(tensor.shape, "LoadAll");
    all.Insert(tensor.name, Reshape(source.LoadRange(tensor.name, 0, numel), tensor.shape));
  }
  return all;
}

NamedTensorsSource::NamedTensorsSource(NamedTensors tensors) : tensors_(std::move(tensors)) {
  for (const auto& [name, tensor] : tensors_) {
    descriptions_.push_back({name, tensor.dtype(), tensor.shape()});
  }
}

Tensor NamedTensorsSource::LoadRange(absl::string_view name, int64_t begin, int64_t end) const {
  const Tensor& tensor = tensors_.At(name);
  if (begin < 0 || begin > end || end > tensor.numel()) {
    throw OutOfRangeError(absl::StrCat("NamedTensorsSource::LoadRange: elements [", begin, ", ",
                                       end, ") of '", name, "', which has ", tensor.numel()));
  }
  return Slice(Reshape(tensor, {tensor.numel()}), 0, begin, end);
}

}  // namespace lockstep::state
