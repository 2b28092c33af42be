// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Copies and casts of elementwise.h.

#include "absl/types/span.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/op_util.h"

namespace lockstep {

using ops::RequireDefined;

Tensor Clone(const Tensor& x) {
  RequireDefined(x, "Clone", "x");
  return Dispatch1(OpId::kClone, absl::MakeConstSpan(&x, 1));
}

Tensor Contiguous(const Tensor& x) {
  RequireDefined(x, "Contiguous", "x");
  return x.is_contiguous() ? x : Clone(x);
}

Tensor To(const Tensor& x, DType dtype) {
  RequireDefined(x, "To", "x");
  return ops::CastTo(x, dtype);
}

Tensor To(const Tensor& x, Device device, const ToOptions& options) {
  RequireDefined(x, "To", "x");
  if (x.device() == device) return x;
  DeviceAttributes attributes;
  attributes.device = device;
  attributes.non_blocking = options.non_blocking;
  return Dispatch1(OpId::kCopyToDevice, absl::MakeConstSpan(&x, 1), {}, attributes);
}

Tensor CopyInto(const Tensor& destination, const Tensor& source) {
  RequireDefined(destination, "CopyInto", "destination");
  RequireDefined(source, "CopyInto", "source");
  const Tensor inputs[] = {destination, source};
  Dispatch({OpId::kCopyInto, inputs, Scalars(), EmptyAttributes()});
  return destination;
}

}  // namespace lockstep
