// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/measure_units.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/nn/buffer_scope.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::checkpoint {
namespace {

void CheckUnits(absl::string_view call, const UnitList& units) {
  for (size_t i = 0; i < units.size(); ++i) {
    if (units[i] == nullptr) {
      throw InvalidArgumentError(absl::StrCat(call, ": unit ", i, " is null"));
    }
    if (units[i]->has_forward_wrapper()) {
      throw AlreadyExistsError(absl::StrCat(call, ": unit ", i, " (", units[i]->Description(),
                                            ") has a forward wrapper already; call "
                                            "RemoveCheckpointing() first"));
    }
    const auto first = std::find(units.begin(), units.end(), units[i]) - units.begin();
    if (first != static_cast<std::ptrdiff_t>(i)) {
      throw InvalidArgumentError(absl::StrCat(call, ": units ", first, " and ", i,
                                              " are the same module (", units[i]->Description(),
                                              "); list it once, however often it is called"));
    }
  }
}

// One unit under measurement.
class Meter {
 public:
  Meter(std::shared_ptr<nn::Module> unit, int64_t number, const MeasureOptions& options,
        const autograd::SavedBytesScope& saved)
      : unit_(std::move(unit)), options_(options), saved_(saved) {
    cost_.name = absl::StrCat(number);
  }

  TensorList Call(TensorSpan inputs, const nn::ForwardFunction& forward) {
    if (calls_++ == 0) Measure(inputs, forward);
    const int64_t before = saved_.bytes();
    TensorList outputs = forward(inputs);
    trial_bytes_ += saved_.bytes() - before;
    return outputs;
  }

  UnitCost cost() const {
    UnitCost cost = cost_;
    for (int64_t& bytes : cost.saved_bytes) bytes *= calls_;
    for (double& seconds : cost.extra_seconds) seconds *= static_cast<double>(calls_);
    return cost;
  }
  int64_t calls() const { return calls_; }
  // What the unit's calls in the trial added: less than its cost where it shares tensors with other
  // units, which a plan does not count on.
  int64_t trial_bytes() const { return trial_bytes_; }

 private:
  void Measure(TensorSpan inputs, const nn::ForwardFunction& forward) {
    std::array<double, kUnitModeCount> seconds;
    seconds.fill(std::numeric_limits<double>::infinity());
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      for (int mode = 0; mode < kUnitModeCount; ++mode) {
        const double time = RunOnce(inputs, forward, static_cast<UnitMode>(mode));
        seconds[mode] = std::min(seconds[mode], time);
      }
    }
    for (int mode = 0; mode < kUnitModeCount; ++mode) {
      cost_.extra_seconds[mode] = std::max(0.0, seconds[mode] - seconds[0]);
      cost_.saved_bytes[mode] = std::min(cost_.saved_bytes[mode], cost_.saved_bytes[0]);
    }
  }

  // Forward and backward; sets the mode's saved bytes and returns the seconds.
  double RunOnce(TensorSpan inputs, const nn::ForwardFunction& forward, UnitMode mode) {
    const ScopedThreadState state(CurrentThreadState());  // drops what the run draws
    const nn::BufferScope buffers(*unit_);
    TensorList
        copies;  // results of an op, as the inputs in the trial are, in storages of their own
    std::vector<Tensor> targets;
    for (const Tensor& input : inputs) {
      Tensor leaf = input.defined() ? Detach(input) : Tensor();
      if (input.defined() && autograd::RequiresGrad(input)) {
        targets.push_back(autograd::SetRequiresGrad(leaf, true));
      }
      copies.push_back(leaf.defined() ? Clone(leaf) : leaf);
    }
    for (const Tensor& parameter : unit_->Parameters()) {
      if (autograd::RequiresGrad(parameter)) targets.push_back(parameter);
    }
    const int64_t before = saved_.bytes();
    const int64_t start = MonotonicNanoseconds();
    TensorList outputs = RunForward(copies, forward, mode);
    cost_.saved(mode) = saved_.bytes() - before;
    const auto useless = [](const Tensor& output) {
      return !output.defined() || !autograd::RequiresGrad(output);
    };
    outputs.erase(std::remove_if(outputs.begin(), outputs.end(), useless), outputs.end());
    if (outputs.empty()) {
      throw FailedPreconditionError(
          absl::StrCat("MeasureUnits: the result of unit ", cost_.name, " (", unit_->Description(),
                       ") requires no gradient, so there is nothing to save; leave it out"));
    }
    autograd::GradientsOptions options{.allow_unused = true};
    for (const Tensor& output : outputs) {
      options.grad_outputs.push_back(
          Ones(output.shape(), {.dtype = output.dtype(), .device = output.device()}));
    }
    autograd::Gradients(outputs, targets, options);
    return static_cast<double>(MonotonicNanoseconds() - start) * 1e-9;
  }

  TensorList RunForward(TensorSpan inputs, const nn::ForwardFunction& forward, UnitMode mode) {
    switch (mode) {
      case UnitMode::kSaveAll:
        return forward(inputs);
      case UnitMode::kSelective:
        return Checkpoint(forward, inputs, {.policy = options_.selective});
      case UnitMode::kRecomputeAll:
        return Checkpoint(forward, inputs);
    }
    return {};
  }

  const std::shared_ptr<nn::Module> unit_;
  const MeasureOptions& options_;
  const autograd::SavedBytesScope& saved_;
  UnitCost cost_;
  int64_t calls_ = 0;
  int64_t trial_bytes_ = 0;
};

// Scope: the units' forward passes go through the meters.
class MeterScope {
 public:
  MeterScope(const UnitList& units, std::vector<Meter>& meters) : units_(units) {
    for (size_t i = 0; i < units.size(); ++i) {
      units[i]->SetForwardWrapper(
          [meter = &meters[i]](nn::Module&, TensorSpan inputs, const nn::ForwardFunction& forward) {
            return meter->Call(inputs, forward);
          });
    }
  }
  ~MeterScope() {
    for (const auto& unit : units_) unit->SetForwardWrapper(nullptr);
  }
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;

 private:
  const UnitList& units_;
};

}  // namespace

UnitMeasurement MeasureUnits(const UnitList& units, const std::function<Tensor()>& trial,
                             const MeasureOptions& options) {
  CheckUnits("MeasureUnits", units);
  if (!trial || options.repeats < 1) {
    throw InvalidArgumentError(absl::StrCat("MeasureUnits: ", trial ? "" : "an empty trial, ",
                                            "repeats ", options.repeats,
                                            "; give a forward pass and at least 1 repeat"));
  }
  if (!autograd::GradEnabled()) {
    throw FailedPreconditionError(
        "MeasureUnits: nothing is recorded here; call it outside of NoGradScope and "
        "InferenceScope");
  }
  const ScopedThreadState state(CurrentThreadState());
  // Of this thread alone: ranks that are threads measure at the same time.
  const autograd::SavedBytesScope saved;
  std::vector<Meter> meters;
  meters.reserve(units.size());
  for (size_t i = 0; i < units.size(); ++i) {
    meters.emplace_back(units[i], static_cast<int64_t>(i), options, saved);
  }
  UnitMeasurement result;
  {
    const MeterScope scope(units, meters);
    std::vector<std::unique_ptr<nn::BufferScope>> buffers;
    for (const auto& unit : units) buffers.push_back(std::make_unique<nn::BufferScope>(*unit));
    const Tensor loss = trial();
    result.rest_bytes = saved.bytes();
  }
  for (const Meter& meter : meters) {
    const UnitCost cost = meter.cost();
    if (meter.calls() == 0) {
      throw FailedPreconditionError(absl::StrCat("MeasureUnits: the trial did not call unit ",
                                                 cost.name, "; leave it out of the list"));
    }
    result.rest_bytes -= meter.trial_bytes();
    result.costs.push_back(cost);
  }
  result.rest_bytes = std::max<int64_t>(result.rest_bytes, 0);
  return result;
}

void ApplyPlan(const UnitList& units, const BudgetPlan& plan, const OpPolicy& selective) {
  CheckUnits("ApplyPlan", units);
  if (plan.modes.size() != units.size()) {
    throw InvalidArgumentError(absl::StrCat("ApplyPlan: a plan for ", plan.modes.size(),
                                            " units and ", units.size(), " of them"));
  }
  for (size_t i = 0; i < units.size(); ++i) {
    if (plan.modes[i] == UnitMode::kSelective) CheckpointModule(units[i], {.policy = selective});
    if (plan.modes[i] == UnitMode::kRecomputeAll) CheckpointModule(units[i]);
  }
}

}  // namespace lockstep::checkpoint
