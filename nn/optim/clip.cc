// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/clip.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"

namespace lockstep::optim {
namespace {

struct DeviceGradients {
  Device device;
  std::vector<Tensor> gradients;
};

std::vector<DeviceGradients> GradientsByDevice(TensorSpan parameters) {
  std::vector<DeviceGradients> result;
  for (const Tensor& parameter : parameters) {
    Tensor gradient = autograd::Grad(parameter);
    if (!gradient.defined()) continue;
    DeviceGradients* group = nullptr;
    for (DeviceGradients& candidate : result) {
      if (candidate.device == gradient.device()) group = &candidate;
    }
    if (group == nullptr) group = &result.emplace_back(DeviceGradients{gradient.device(), {}});
    group->gradients.push_back(std::move(gradient));
  }
  return result;
}

void CheckLimit(absl::string_view call, absl::string_view name, double value) {
  if (!(value >= 0)) {
    throw InvalidArgumentError(
        absl::StrCat(call, ": ", name, " is ", value, "; it is a number that is not negative"));
  }
}

}  // namespace

Tensor ClipGradNorm(TensorSpan parameters, double max_norm, const ClipGradNormOptions& options) {
  CheckLimit("ClipGradNorm", "max_norm", max_norm);
  autograd::NoGradScope no_grad;
  const std::vector<DeviceGradients> groups = GradientsByDevice(parameters);
  if (groups.empty()) return Zeros({});
  // The norm of the devices' norms is the norm of everything, for either kind.
  std::vector<Tensor> norms;
  for (const DeviceGradients& group : groups) {
    norms.push_back(To(GlobalNorm(group.gradients, options.kind), groups[0].device));
  }
  const Tensor norm = norms.size() == 1 ? norms[0] : GlobalNorm(norms, options.kind);
  if (options.error_if_nonfinite && !std::isfinite(norm.Item<double>())) {
    throw FailedPreconditionError(absl::StrCat("ClipGradNorm: the norm of the gradients is ",
                                               norm.Item<double>(),
                                               "; nothing was scaled. Lower the learning rate or "
                                               "look for the first step whose loss is not finite"));
  }
  for (const DeviceGradients& group : groups) {
    ClipByNorm(group.gradients, To(norm, group.device), max_norm);
  }
  return norm;
}

void ClipGradValue(TensorSpan parameters, double limit) {
  CheckLimit("ClipGradValue", "limit", limit);
  autograd::NoGradScope no_grad;
  for (const Tensor& parameter : parameters) {
    const Tensor gradient = autograd::Grad(parameter);
    if (gradient.defined()) ClampInPlace(gradient, -limit, limit);
  }
}

}  // namespace lockstep::optim
