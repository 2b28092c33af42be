// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/layer_norm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/init.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/neural.h"

namespace lockstep::nn {

LayerNorm::LayerNorm(const ShapeArg& shape, const LayerNormOptions& options)
    : shape_(shape.value()), epsilon_(options.epsilon) {
  if (shape_.empty() || !(epsilon_ >= 0)) {
    throw InvalidArgumentError(
        absl::StrCat("nn::LayerNorm: shape ", lockstep::ToString(shape_), " and epsilon ", epsilon_,
                     "; at least one dimension is normalised, and epsilon is not negative"));
  }
  CategoryScope category(MemoryCategory::kParameter);
  RegisterParameter("weight", &weight, options.affine ? Empty(shape_) : Tensor());
  RegisterParameter("bias", &bias, options.affine && options.bias ? Empty(shape_) : Tensor());
  ResetParameters();
}

void LayerNorm::ResetParameters() {
  if (weight.defined()) init::Ones(weight);
  if (bias.defined()) init::Zeros(bias);
}

Tensor LayerNorm::Forward(const Tensor& x) {
  const Shape& given = x.shape();
  if (given.size() < shape_.size() ||
      !std::equal(shape_.begin(), shape_.end(), given.end() - shape_.size())) {
    throw InvalidArgumentError(
        absl::StrCat("nn::LayerNorm: the input has shape ", lockstep::ToString(given),
                     "; its last dimensions must be ", lockstep::ToString(shape_)));
  }
  return lockstep::LayerNorm(x, weight, bias, epsilon_, static_cast<int64_t>(shape_.size()));
}

std::string LayerNorm::Description() const {
  return absl::StrCat("LayerNorm(", lockstep::ToString(shape_), ")");
}

}  // namespace lockstep::nn
