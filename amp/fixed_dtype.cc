// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/amp/fixed_dtype.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::amp {
namespace {

DeviceType DeviceTypeOf(TensorSpan inputs) {
  for (const Tensor& input : inputs) {
    if (input.defined()) return input.device().type;
  }
  return CurrentDevice().type;
}

}  // namespace

std::vector<Tensor> ApplyInDType(std::shared_ptr<autograd::CustomFunction> function,
                                 TensorSpan inputs, DType dtype) {
  if (!IsFloatingPoint(dtype)) {
    throw InvalidArgumentError(absl::StrCat("ApplyInDType: dtype ", DTypeName(dtype),
                                            " is not floating point; give float32, bfloat16, "
                                            "float16 or float64"));
  }
  DeviceType type = DeviceTypeOf(inputs);
  if (!AutocastEnabled(type)) return autograd::Apply(std::move(function), inputs);
  if (type != DeviceType::kCuda) type = DeviceType::kCpu;
  const Autocast off({.device_type = type,
                      .dtype = AutocastDType(type),
                      .enabled = false,
                      .cache_enabled = AutocastCacheEnabled()});
  std::vector<Tensor> cast;
  for (const Tensor& input : inputs) {
    const bool casts = input.defined() && IsFloatingPoint(input.dtype()) &&
                       input.dtype() != DType::kFloat64 && input.dtype() != dtype;
    cast.push_back(casts ? To(input, dtype) : input);
  }
  return autograd::Apply(std::move(function), cast);
}

}  // namespace lockstep::amp
