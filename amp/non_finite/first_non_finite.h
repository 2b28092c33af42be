// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Where a tensor stops being finite. Reads the tensor, and so waits for its device.
#ifndef LOCKSTEP_AMP_NON_FINITE_FIRST_NON_FINITE_H_
#define LOCKSTEP_AMP_NON_FINITE_FIRST_NON_FINITE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::amp {

enum class Finiteness : uint8_t { kFinite = 0, kInfinite, kNan };  // the later, the worse

// The worst over all elements. Tensors without values to look at (undefined, on the meta device,
// not floating-point, empty) are finite.
Finiteness FinitenessOf(const Tensor& tensor);

struct NonFiniteElement {
  Shape index;
  double value = 0;  // NaN or an infinity
};
// The first element, in row-major order, that is at least as bad as `worst`.
std::optional<NonFiniteElement> FirstNonFinite(const Tensor& tensor,
                                               Finiteness worst = Finiteness::kInfinite);

// "float32[2, 3] on cpu:0 has nan at [1, 2]". REQUIRES: `tensor` is defined.
std::string Describe(const Tensor& tensor, const NonFiniteElement& element);

}  // namespace lockstep::amp

#endif  // LOCKSTEP_AMP_NON_FINITE_FIRST_NON_FINITE_H_
