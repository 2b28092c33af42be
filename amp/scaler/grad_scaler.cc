// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/amp/scaler/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/amp/non_finite/first_non_finite.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/update.h"

namespace lockstep::amp {
namespace {

constexpr double kSmallestNormal = std::numeric_limits<float>::min();
constexpr double kLargest = std::numeric_limits<float>::max();

// The scale is a float32 number everywhere, as PyTorch's is: the factors act on it in that
// precision, and it reads back from files as what it was.
double RoundToFloat(double value) { return static_cast<double>(static_cast<float>(value)); }

template <typename... Parts>
void Require(bool condition, const Parts&... parts) {
  if (!condition) throw InvalidArgumentError(absl::StrCat(parts...));
}

// REQUIRES: the bounds are float32 numbers. Returns `scale` as one.
double CheckedScale(absl::string_view call, double scale, const GradScalerOptions& options) {
  scale = RoundToFloat(scale);
  Require(scale >= options.min_scale && scale <= options.max_scale, call, ": the scale ", scale,
          " is not within min_scale ", options.min_scale, " and max_scale ", options.max_scale);
  return scale;
}

void CheckFactors(absl::string_view call, const GradScalerOptions& options) {
  Require(options.growth_factor > 1 && std::isfinite(options.growth_factor), call,
          ": growth_factor is ", options.growth_factor, "; it is finite and above 1");
  Require(options.backoff_factor > 0 && options.backoff_factor < 1, call, ": backoff_factor is ",
          options.backoff_factor, "; it lies between 0 and 1");
  Require(options.growth_interval >= 1, call, ": growth_interval is ", options.growth_interval,
          "; it is at least 1");
  Require(options.hysteresis >= 1, call, ": hysteresis is ", options.hysteresis,
          "; it is at least 1, which shrinks the scale at the first overflow");
}

void CheckOptions(absl::string_view call, const GradScalerOptions& options) {
  CheckFactors(call, options);
  Require(options.min_scale >= kSmallestNormal && options.min_scale <= kLargest, call,
          ": min_scale is ", options.min_scale, "; it is a normal float32 number, at least ",
          kSmallestNormal);
  Require(options.max_scale >= options.min_scale && options.max_scale <= kLargest, call,
          ": max_scale is ", options.max_scale, "; it is at least min_scale ", options.min_scale,
          " and at most ", kLargest);
  Require(options.max_consecutive_skips >= 0, call, ": max_consecutive_skips is ",
          options.max_consecutive_skips, "; it is 0 (never an error) or more");
}

struct DeviceGradients {
  Device device;
  std::vector<Tensor> gradients;
};

std::vector<DeviceGradients> GradientsByDevice(absl::string_view call,
                                               const optim::Optimizer& optimizer) {
  std::vector<DeviceGradients> groups;
  for (const auto& [name, parameter] : optimizer.parameters()) {
    Tensor gradient = autograd::Grad(parameter);
    if (!gradient.defined()) continue;
    Require(gradient.dtype() != DType::kFloat16, call, ": the gradient of \"", name, "\" is ",
            gradient.DebugString(),
            "; divided by the scale in 16 bits it would underflow. Keep the parameters in float32 "
            "(master weights) and run the forward pass under Autocast");
    auto group = std::find_if(groups.begin(), groups.end(), [&](const DeviceGradients& candidate) {
      return candidate.device == gradient.device();
    });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), DeviceGradients{gradient.device(), {}});
    }
    group->gradients.push_back(std::move(gradient));
  }
  return groups;
}

// Divides, and says whether an element was not finite. One flag a device; all devices work before
// the first flag is waited for.
bool UnscaleAll(const std::vector<DeviceGradients>& groups, double scale) {
  // As PyTorch: the reciprocal in float64, rounded once.
  const double inverse = RoundToFloat(1 / scale);
  std::vector<Tensor> flags;
  for (const DeviceGradients& group : groups) {
    flags.push_back(Zeros({}, {.device = group.device}));
    lockstep::UnscaleAndCheck(group.gradients, flags.back(), inverse);
  }
  bool found = false;
  for (const Tensor& flag : flags) found |= flag.Item<float>() != 0;
  return found;
}

// Names that only one side has.
template <typename Value>
void ListDifferences(const std::map<std::string, Value>& expected,
                     const std::map<std::string, Value>& given, std::vector<std::string>& wrong) {
  for (const auto& [name, value] : expected) {
    if (given.count(name) == 0) wrong.push_back(absl::StrCat("missing: ", name));
  }
  for (const auto& [name, value] : given) {
    if (expected.count(name) == 0) wrong.push_back(absl::StrCat("unknown: ", name));
  }
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  const char* const call = "GradScaler";
  CheckOptions(call, options_);
  options_.min_scale = RoundToFloat(options_.min_scale);
  options_.max_scale = RoundToFloat(options_.max_scale);
  scale_ = CheckedScale(call, options_.init_scale, options_);
  hysteresis_tracker_ = options_.hysteresis;
}

Tensor GradScaler::Scale(const Tensor& output) const {
  if (!options_.enabled) return output;
  Require(output.defined() && IsFloatingPoint(output.dtype()), "GradScaler::Scale: the output is ",
          output.DebugString(), "; it is floating-point, such as a loss");
  const Tensor wide = IsReducedFloat(output.dtype()) ? To(output, DType::kFloat32) : output;
  return Mul(wide, scale_);
}

std::vector<Tensor> GradScaler::Scale(TensorSpan outputs) const {
  std::vector<Tensor> scaled;
  scaled.reserve(outputs.size());
  for (const Tensor& output : outputs) scaled.push_back(Scale(output));
  return scaled;
}

void GradScaler::UnscaleGradients(optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  const char* const call = "GradScaler::UnscaleGradients";
  const auto progress = progress_.find(&optimizer);
  if (progress != progress_.end()) {
    throw FailedPreconditionError(absl::StrCat(
        call,
        progress->second.stepped
            ? ": this optimizer has stepped since the last Update(); unscale before Step(), and "
              "call Update() after all optimizers"
            : ": this optimizer's gradients have been unscaled since the last Update(); twice "
              "would divide them by the square of the scale"));
  }
  Unscale(call, optimizer);
}

GradScaler::OptimizerProgress& GradScaler::Unscale(absl::string_view call,
                                                   optim::Optimizer& optimizer) {
  const autograd::NoGradScope no_grad;
  const std::vector<DeviceGradients> groups = GradientsByDevice(call, optimizer);
  bool found = UnscaleAll(groups, scale_);
  bool any_gradient = !groups.empty();
  if (options_.group != nullptr) {
    const Tensor agreed = FromVector<float>({found ? 1.0f : 0.0f, any_gradient ? 1.0f : 0.0f}, {2});
    options_.group->AllReduce(agreed, {.op = comm::ReduceOp::kMax}).Wait();
    found = agreed.Item<float>({0}) != 0;
    any_gradient = agreed.Item<float>({1}) != 0;
  }
  if (!any_gradient) {
    throw FailedPreconditionError(
        absl::StrCat(call, ": none of the optimizer's ", optimizer.parameters().size(),
                     " parameters has a gradient", options_.group != nullptr ? " on any rank" : "",
                     "; run Backward(scaler.Scale(loss)) first"));
  }
  return progress_[&optimizer] = {.stepped = false, .found_inf = found};
}

bool GradScaler::FoundInf(const optim::Optimizer& optimizer) const {
  if (!options_.enabled) return false;
  const auto progress = progress_.find(&optimizer);
  if (progress == progress_.end()) {
    throw FailedPreconditionError(
        "GradScaler::FoundInf: this optimizer's gradients have not been unscaled since the last "
        "Update(); call UnscaleGradients() first");
  }
  return progress->second.found_inf;
}

bool GradScaler::Step(optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.Step();
    return true;
  }
  const char* const call = "GradScaler::Step";
  const auto known = progress_.find(&optimizer);
  if (known != progress_.end() && known->second.stepped) {
    throw FailedPreconditionError(
        absl::StrCat(call,
                     ": this optimizer has stepped since the last Update(); call Update() once an "
                     "iteration, after all optimizers"));
  }
  OptimizerProgress& progress = known != progress_.end() ? known->second : Unscale(call, optimizer);
  if (!progress.found_inf) optimizer.Step();
  progress.stepped = true;
  return !progress.found_inf;
}

void GradScaler::Update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  const char* const call = "GradScaler::Update";
  if (new_scale.has_value()) {
    scale_ = CheckedScale(call, *new_scale, options_);
    progress_.clear();
    return;
  }
  if (progress_.empty()) {
    throw FailedPreconditionError(
        absl::StrCat(call,
                     ": no optimizer has been unscaled or stepped since the last Update(); call "
                     "Step(optimizer) first"));
  }
  const bool found = std::any_of(progress_.begin(), progress_.end(),
                                 [](const auto& entry) { return entry.second.found_inf; });
  if (!found) {
    GrowOrWait();
    progress_.clear();
    return;
  }
  ShrinkOrWait();
  const bool too_many =
      options_.max_consecutive_skips > 0 && consecutive_skips_ >= options_.max_consecutive_skips;
  const std::string culprit = too_many ? DescribeNonFiniteGradient() : "";
  progress_.clear();
  if (too_many) ThrowTooManySkips(culprit);
}

void GradScaler::ShrinkOrWait() {
  growth_tracker_ = 0;
  ++consecutive_skips_;
  hysteresis_tracker_ = std::max<int64_t>(hysteresis_tracker_ - 1, 0);
  if (hysteresis_tracker_ > 0) return;
  scale_ = std::max(RoundToFloat(scale_ * options_.backoff_factor), options_.min_scale);
}

void GradScaler::GrowOrWait() {
  consecutive_skips_ = 0;
  if (options_.consecutive_hysteresis) hysteresis_tracker_ = options_.hysteresis;
  // Equality, as in PyTorch: an interval loaded below the tracker does not grow the scale at once.
  if (++growth_tracker_ != options_.growth_interval) return;
  growth_tracker_ = 0;
  hysteresis_tracker_ = options_.hysteresis;
  const double grown = RoundToFloat(scale_ * options_.growth_factor);
  if (std::isfinite(grown)) scale_ = std::min(grown, options_.max_scale);
}

std::string GradScaler::DescribeNonFiniteGradient() const {
  for (const auto& [optimizer, progress] : progress_) {
    for (const auto& [name, parameter] : optimizer->parameters()) {
      const Tensor gradient = autograd::Grad(parameter);
      if (const auto element = FirstNonFinite(gradient)) {
        return absl::StrCat("the gradient of \"", name, "\", ", Describe(gradient, *element));
      }
    }
  }
  return "gradients that are finite here, so another rank's or cleared";
}

void GradScaler::ThrowTooManySkips(const std::string& culprit) const {
  throw FailedPreconditionError(absl::StrCat(
      "GradScaler::Update: ", consecutive_skips_,
      " updates in a row had gradients that are not finite, and the scale is down to ", scale_,
      ". This is not overflow, which a smaller scale ends: the loss, an input or a parameter is "
      "not finite. Found in ",
      culprit, ". amp::FindNonFinite names the op that makes the first one"));
}

void GradScaler::CheckBetweenIterations(absl::string_view call) const {
  if (progress_.empty()) return;
  throw FailedPreconditionError(
      absl::StrCat(call, ": ", progress_.size(),
                   " optimizers have been unscaled since the last Update(); call Update() first"));
}

GradScalerState GradScaler::SaveState() const {
  CheckBetweenIterations("GradScaler::SaveState");
  if (!options_.enabled) return {};
  return {.reals = {{"scale", scale_},
                    {"growth_factor", options_.growth_factor},
                    {"backoff_factor", options_.backoff_factor}},
          .integers = {{"growth_interval", options_.growth_interval},
                       {"growth_tracker", growth_tracker_},
                       {"hysteresis", options_.hysteresis},
                       {"hysteresis_tracker", hysteresis_tracker_},
                       {"consecutive_skips", consecutive_skips_}}};
}

void GradScaler::LoadState(const GradScalerState& state) {
  const char* const call = "GradScaler::LoadState";
  CheckBetweenIterations(call);
  const bool state_disabled = state.reals.empty() && state.integers.empty();
  if (state_disabled != !options_.enabled) {
    throw FailedPreconditionError(absl::StrCat(
        call, state_disabled ? ": the state is that of a disabled scaler, but this one is enabled; "
                               "leave the state out to begin with the initial scale"
                             : ": this scaler is disabled, but the state is that of an enabled "
                               "one; enable it, or leave the state out"));
  }
  if (!options_.enabled) return;
  const GradScalerState own = SaveState();
  std::vector<std::string> wrong;
  ListDifferences(own.reals, state.reals, wrong);
  ListDifferences(own.integers, state.integers, wrong);
  Require(wrong.empty(), call, ": ", absl::StrJoin(wrong, "; "));

  GradScalerOptions options = options_;
  options.growth_factor = state.reals.at("growth_factor");
  options.backoff_factor = state.reals.at("backoff_factor");
  options.growth_interval = state.integers.at("growth_interval");
  options.hysteresis = state.integers.at("hysteresis");
  CheckFactors(call, options);
  const double scale = CheckedScale(call, state.reals.at("scale"), options);
  for (const char* const name : {"growth_tracker", "hysteresis_tracker", "consecutive_skips"}) {
    Require(state.integers.at(name) >= 0, call, ": ", name, " is ", state.integers.at(name),
            "; it is not negative");
  }
  options_ = std::move(options);
  scale_ = scale;
  growth_tracker_ = state.integers.at("growth_tracker");
  hysteresis_tracker_ = state.integers.at("hysteresis_tracker");
  consecutive_skips_ = state.integers.at("consecutive_skips");
}

}  // namespace lockstep::amp
