// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/init.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"

namespace lockstep::nn::init {
namespace {

RandomOptions OptionsFor(absl::string_view call, const Tensor& tensor, Generator* generator) {
  if (!IsFloatingPoint(tensor.dtype())) {
    throw InvalidArgumentError(absl::StrCat(call, ": the tensor is ", tensor.DebugString(),
                                            "; random values are floating point"));
  }
  return {generator != nullptr ? generator : &ThreadGenerators().parameters,
          {tensor.dtype(), tensor.device()}};
}

}  // namespace

Tensor Constant(const Tensor& tensor, double value) {
  autograd::NoGradScope no_grad;
  return FillInPlace(tensor, value);
}

Tensor Zeros(const Tensor& tensor) { return Constant(tensor, 0); }
Tensor Ones(const Tensor& tensor) { return Constant(tensor, 1); }

Tensor Normal(const Tensor& tensor, double mean, double std, Generator* generator) {
  autograd::NoGradScope no_grad;
  const RandomOptions options = OptionsFor("init::Normal", tensor, generator);
  return CopyInto(tensor, RandomNormal(tensor.shape(), mean, std, options));
}

Tensor Uniform(const Tensor& tensor, double low, double high, Generator* generator) {
  autograd::NoGradScope no_grad;
  const RandomOptions options = OptionsFor("init::Uniform", tensor, generator);
  return CopyInto(tensor, RandomUniform(tensor.shape(), low, high, options));
}

Fans FansOf(const Tensor& weight) {
  if (weight.rank() < 2) {
    throw InvalidArgumentError(absl::StrCat("init::FansOf: a tensor of shape ",
                                            ToString(weight.shape()),
                                            " has no fan in and fan out; it takes two dimensions"));
  }
  int64_t receptive_field = 1;
  for (int64_t i = 2; i < weight.rank(); ++i) receptive_field *= weight.size(i);
  return {weight.size(1) * receptive_field, weight.size(0) * receptive_field};
}

Tensor KaimingUniform(const Tensor& weight, const KaimingOptions& options) {
  const Fans fans = FansOf(weight);
  const int64_t fan = options.fan_out ? fans.out : fans.in;
  // A weight without elements has no fan, and nothing to fill.
  const double bound =
      fan == 0 ? 0 : std::sqrt(6 / ((1 + options.a * options.a) * static_cast<double>(fan)));
  return Uniform(weight, -bound, bound, options.generator);
}

Tensor XavierUniform(const Tensor& weight, double gain, Generator* generator) {
  const Fans fans = FansOf(weight);
  const int64_t sum = fans.in + fans.out;
  const double bound = sum == 0 ? 0 : gain * std::sqrt(6 / static_cast<double>(sum));
  return Uniform(weight, -bound, bound, generator);
}

}  // namespace lockstep::nn::init
