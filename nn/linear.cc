// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/linear.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/init.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/contraction.h"

namespace lockstep::nn {

Linear::Linear(int64_t inputs, int64_t outputs, const LinearOptions& options) {
  if (inputs < 0 || outputs < 0) {
    throw InvalidArgumentError(absl::StrCat("nn::Linear: ", inputs, " inputs and ", outputs,
                                            " outputs; sizes cannot be negative"));
  }
  if (options.weight.defined() && options.weight.shape() != Shape{outputs, inputs}) {
    throw InvalidArgumentError(absl::StrCat(
        "nn::Linear: the shared weight has shape ", lockstep::ToString(options.weight.shape()),
        " instead of ", lockstep::ToString(Shape{outputs, inputs})));
  }
  CategoryScope category(MemoryCategory::kParameter);
  const bool own = !options.weight.defined();
  // A shared weight may be frozen.
  RegisterParameter("weight", &weight, own ? Empty({outputs, inputs}) : options.weight,
                    own || autograd::RequiresGrad(options.weight));
  RegisterParameter("bias", &bias, options.bias ? Empty({outputs}) : Tensor());
  if (own) ResetWeight();
  ResetBias();
}

void Linear::ResetParameters() {
  ResetWeight();
  ResetBias();
}

void Linear::ResetWeight() { init::KaimingUniform(weight, {.a = std::sqrt(5.0)}); }

void Linear::ResetBias() {
  if (!bias.defined()) return;
  const int64_t inputs = weight.size(1);
  const double bound = inputs == 0 ? 0 : 1 / std::sqrt(static_cast<double>(inputs));
  init::Uniform(bias, -bound, bound);
}

Tensor Linear::Forward(const Tensor& x) { return lockstep::Linear(x, weight, bias); }

std::string Linear::Description() const {
  return absl::StrCat("Linear(", weight.size(1), ", ", weight.size(0),
                      bias.defined() ? ")" : ", no bias)");
}

}  // namespace lockstep::nn
