// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/tensor_meta.h"

#include "absl/strings/str_cat.h"

namespace lockstep::autograd {

TensorMeta::TensorMeta(const Tensor& tensor) {
  if (!tensor.defined()) return;
  const TensorImpl& impl = tensor.impl();
  shape = impl.shape;
  dtype = impl.dtype;
  device = impl.device;
  defined = true;
}

bool TensorMeta::Matches(const Tensor& tensor) const {
  const TensorImpl& impl = tensor.impl();
  return impl.shape == shape && impl.dtype == dtype && impl.device == device;
}

std::string TensorMeta::DebugString() const {
  if (!defined) return "undefined";
  return absl::StrCat(DTypeName(dtype), ToString(shape), " on ", ToString(device));
}

}  // namespace lockstep::autograd
