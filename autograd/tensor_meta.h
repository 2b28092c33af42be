// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Shape, dtype and device of a tensor that may be gone.
#ifndef LOCKSTEP_AUTOGRAD_TENSOR_META_H_
#define LOCKSTEP_AUTOGRAD_TENSOR_META_H_

#include <string>

#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd {

struct TensorMeta {
  Shape shape;
  DType dtype = DType::kFloat32;
  Device device;
  bool defined = false;

  TensorMeta() = default;
  // Of an undefined tensor: a default one, with defined == false.
  explicit TensorMeta(const Tensor& tensor);

  bool Matches(const Tensor& tensor) const;
  // "float32[2, 3] on cpu:0", as Tensor::DebugString().
  std::string DebugString() const;
};

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_TENSOR_META_H_
