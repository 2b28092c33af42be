// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/amp/non_finite/first_non_finite.h"

#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::amp {
namespace {

// No layer sees the ops of a look at a tensor: neither recorded nor cast nor reported.
class BareDispatch {
 public:
  BareDispatch() : saved_(CurrentThreadState().layer_mask) { MutableThreadState().layer_mask = 0; }
  ~BareDispatch() { MutableThreadState().layer_mask = saved_; }
  BareDispatch(const BareDispatch&) = delete;
  BareDispatch& operator=(const BareDispatch&) = delete;

 private:
  uint32_t saved_;
};

bool HasValues(const Tensor& tensor) {
  return tensor.defined() && IsFloatingPoint(tensor.dtype()) && tensor.device() != kMeta &&
         tensor.numel() > 0;
}

Shape IndexOf(int64_t position, const Shape& shape) {
  Shape index(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = position % shape[dim];
    position /= shape[dim];
  }
  return index;
}

}  // namespace

Finiteness FinitenessOf(const Tensor& tensor) {
  if (!HasValues(tensor)) return Finiteness::kFinite;
  const BareDispatch bare;
  if (All(IsFinite(tensor)).Item<bool>()) return Finiteness::kFinite;
  return Any(NotEqual(tensor, tensor)).Item<bool>() ? Finiteness::kNan : Finiteness::kInfinite;
}

std::optional<NonFiniteElement> FirstNonFinite(const Tensor& tensor, Finiteness worst) {
  if (FinitenessOf(tensor) < worst || worst == Finiteness::kFinite) return std::nullopt;
  const std::vector<double> values = tensor.ToVector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(worst == Finiteness::kNan ? std::isnan(values[i]) : !std::isfinite(values[i]))) continue;
    return NonFiniteElement{IndexOf(static_cast<int64_t>(i), tensor.shape()), values[i]};
  }
  return std::nullopt;
}

std::string Describe(const Tensor& tensor, const NonFiniteElement& element) {
  return absl::StrCat(tensor.DebugString(), " has ", element.value, " at ",
                      ToString(element.index));
}

}  // namespace lockstep::amp
