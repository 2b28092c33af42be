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

// The norm of the devices' norms is the norm of everything, for either kind. They stay float64, in
// which the kernel sums, until the end, so that it does not matter which gradients are where.
Tensor NormOf(const std::vector<DeviceGradients>& groups, NormKind kind) {
  if (groups.size() == 1) return GlobalNorm(groups[0].gradients, kind);
  std::vector<Tensor> norms;
  DType dtype = DType::kFloat32;
  for (const DeviceGradients& group : groups) {
    std::vector<Tensor> gradients = group.gradients;
    for (const Tensor& gradient : gradients) {
      if (gradient.dtype() == DType::kFloat64) dtype = DType::kFloat64;
    }
    // One of nothing makes the norm float64.
    gradients.push_back(Empty({0}, {.dtype = DType::kFloat64, .device = group.device}));
    norms.push_back(To(GlobalNorm(gradients, kind), groups[0].device));
  }
  return To(GlobalNorm(norms, kind), dtype);
}

void CheckLimit(absl::string_view call, absl::string_view name, double value) {
  if (!(value >= 0)) {
    throw InvalidArgumentError(
        absl::StrCat(call, ": ", name, " is ", value, "; it is a number that is not negative"));
  }
}

void Clip(absl::string_view call, const std::vector<DeviceGradients>& groups, const Tensor& norm,
          double max_norm, const ClipGradNormOptions& options) {
  if (options.error_if_nonfinite && !std::isfinite(norm.Item<double>())) {
    throw FailedPreconditionError(
        absl::StrCat(call, ": the norm of the gradients is ", norm.Item<double>(),
                     "; nothing was scaled. Lower the learning rate or look for the first step "
                     "whose loss is not finite"));
  }
  for (const DeviceGradients& group : groups) {
    ClipByNorm(group.gradients, To(norm, group.device), max_norm);
  }
}

}  // namespace

Tensor ClipGradNorm(TensorSpan parameters, double max_norm, const ClipGradNormOptions& options) {
  constexpr char kCall[] = "ClipGradNorm";
  CheckMaxNorm(kCall, max_norm);
  autograd::NoGradScope no_grad;
  const std::vector<DeviceGradients> groups = GradientsByDevice(parameters);
  if (groups.empty()) return Zeros({});
  const Tensor norm = NormOf(groups, options.kind);
  Clip(kCall, groups, norm, max_norm, options);
  return norm;
}

void CheckMaxNorm(absl::string_view call, double max_norm) {
  CheckLimit(call, "max_norm", max_norm);
}

void ClipGradsWithNorm(absl::string_view call, TensorSpan parameters, const Tensor& norm,
                       double max_norm, const ClipGradNormOptions& options) {
  CheckMaxNorm(call, max_norm);
  autograd::NoGradScope no_grad;
  Clip(call, GradientsByDevice(parameters), norm, max_norm, options);
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
