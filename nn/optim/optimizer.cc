// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::optim {

StateName SplitStateName(absl::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == absl::string_view::npos) return {std::string(name), ""};
  return {std::string(name.substr(0, dot)), std::string(name.substr(dot + 1))};
}

std::vector<Tensor> Optimizer::Batch::State(size_t kind, double initial) const {
  std::vector<Tensor> tensors;
  tensors.reserve(slots.size());
  for (Slot* slot : slots) {
    Tensor& state = slot->state[kind];
    if (!state.defined()) state = NewState(slot->parameter, initial);
    tensors.push_back(state);
  }
  return tensors;
}

Optimizer::Optimizer(absl::string_view call, std::vector<std::string> state_kinds)
    : call_(call), state_kinds_(std::move(state_kinds)) {}

void Optimizer::AddParameters(const NamedTensors& parameters, size_t group) {
  for (const auto& [name, parameter] : parameters) {
    if (!IsFloatingPoint(parameter.dtype()) || !autograd::IsLeaf(parameter)) {
      throw InvalidArgumentError(
          absl::StrCat(call_, ": \"", name, "\" is ", parameter.DebugString(),
                       autograd::IsLeaf(parameter) ? "" : " and the result of an op",
                       "; an optimizer takes floating-point leaves"));
    }
    for (const Slot& slot : slots_) {
      if (slot.name == name || slot.parameter.IsSame(parameter)) {
        throw InvalidArgumentError(absl::StrCat(
            call_, ": \"", name, "\" is ",
            slot.name == name ? "given twice" : "the same tensor as \"",
            slot.name == name ? "" : slot.name + "\"", "; each parameter belongs to one group"));
      }
    }
    slots_.push_back({name, parameter, group, std::vector<Tensor>(state_kinds_.size()), 0});
    parameters_.Insert(name, parameter);
  }
}

void Optimizer::CheckNotEmpty() const {
  if (slots_.empty()) {
    throw InvalidArgumentError(absl::StrCat(call_, ": there are no parameters to optimize"));
  }
}

void Optimizer::ZeroGrad(bool set_to_none) {
  autograd::NoGradScope no_grad;
  for (const auto& [name, parameter] : parameters_) {
    if (set_to_none) {
      autograd::SetGrad(parameter, {});
    } else if (const Tensor grad = autograd::Grad(parameter); grad.defined()) {
      ZeroInPlace(grad);
    }
  }
}

double Optimizer::LearningRate(size_t group) const {
  const double base = BaseLearningRate(group);
  return learning_rate_rule_ == nullptr ? base : learning_rate_rule_(group, base);
}

std::optional<double> Optimizer::Momentum(size_t group) const {
  const std::optional<double> base = BaseMomentum(group);
  if (!base.has_value() || momentum_rule_ == nullptr) return base;
  return momentum_rule_(group, *base);
}

void Optimizer::SetLearningRateRule(GroupRule rule) { learning_rate_rule_ = std::move(rule); }

void Optimizer::SetMomentumRule(GroupRule rule) {
  if (rule != nullptr && !BaseMomentum().has_value()) {
    throw InvalidArgumentError(absl::StrCat(
        call_,
        "::SetMomentumRule: this optimizer has no momentum; leave the rule out (OneCycleLr: "
        "cycle_momentum = false)"));
  }
  momentum_rule_ = std::move(rule);
}

void Optimizer::SetLearningRateFactor(double factor) {
  if (!(factor >= 0) || std::isinf(factor)) {
    throw InvalidArgumentError(absl::StrCat("Optimizer::SetLearningRateFactor: ", factor,
                                            "; the factor is finite and not negative"));
  }
  SetLearningRateRule([factor](size_t, double rate) { return rate * factor; });
}

void Optimizer::StepOnly(TensorSpan parameters) {
  only_ = parameters;
  try {
    Step();
  } catch (...) {
    only_.reset();
    throw;
  }
  only_.reset();
}

void Optimizer::CheckStateDevice(const Slot& slot) const {
  for (size_t kind = 0; kind < slot.state.size(); ++kind) {
    const Tensor& state = slot.state[kind];
    if (!state.defined() || state.device() == slot.parameter.device()) continue;
    throw FailedPreconditionError(
        absl::StrCat(call_, ": ", slot.name, " is on ", ToString(slot.parameter.device()),
                     " and its ", state_kinds_[kind], " on ", ToString(state.device()),
                     "; move modules before the first step, or bring the state after them with "
                     "LoadState(SaveState())"));
  }
}

std::vector<Optimizer::Batch> Optimizer::Batches(bool same_step) {
  std::vector<Batch> batches;
  for (Slot& slot : slots_) {
    Tensor gradient = autograd::Grad(slot.parameter);
    if (!gradient.defined()) continue;
    const auto is_slot = [&](const Tensor& tensor) { return tensor.IsSame(slot.parameter); };
    if (only_ && std::none_of(only_->begin(), only_->end(), is_slot)) continue;
    CheckStateDevice(slot);
    Batch* batch = nullptr;
    for (Batch& candidate : batches) {
      const bool steps_fit =
          same_step ? candidate.step == slot.step : (candidate.step == 0) == (slot.step == 0);
      if (candidate.group == slot.group && steps_fit &&
          candidate.parameters[0].device() == slot.parameter.device()) {
        batch = &candidate;
      }
    }
    if (batch == nullptr) {
      batch = &batches.emplace_back();
      batch->group = slot.group;
      batch->step = slot.step;
    }
    batch->slots.push_back(&slot);
    batch->parameters.push_back(slot.parameter);
    batch->gradients.push_back(std::move(gradient));
  }
  return batches;
}

bool Optimizer::NeedsState(size_t, size_t) const { return true; }

Tensor Optimizer::NewState(const Tensor& parameter, double initial) {
  CategoryScope category(MemoryCategory::kOptimizer);
  const DType dtype = IsReducedFloat(parameter.dtype()) ? DType::kFloat32 : parameter.dtype();
  return Full(parameter.shape(), initial, {dtype, parameter.device()});
}

OptimizerState Optimizer::SaveState() const {
  OptimizerState state;
  for (const Slot& slot : slots_) {
    if (slot.step == 0) continue;
    for (size_t kind = 0; kind < slot.state.size(); ++kind) {
      if (!slot.state[kind].defined()) continue;
      state.tensors.Insert(absl::StrCat(slot.name, ".", state_kinds_[kind]),
                           Detach(slot.state[kind]));
    }
    state.numbers[absl::StrCat(slot.name, ".step")] = slot.step;
  }
  return state;
}

void Optimizer::LoadState(const OptimizerState& state) {
  autograd::NoGradScope no_grad;
  std::vector<std::string> wrong;
  std::vector<std::pair<std::vector<Tensor>, int64_t>> loaded;
  size_t used_tensors = 0, used_numbers = 0;
  for (const Slot& slot : slots_) {
    auto& [tensors, step] = loaded.emplace_back();
    const auto number = state.numbers.find(absl::StrCat(slot.name, ".step"));
    if (number != state.numbers.end()) {
      step = number->second;
      ++used_numbers;
    }
    if (step < 0) wrong.push_back(absl::StrCat(slot.name, ".step is ", step));
    tensors.resize(state_kinds_.size());
    for (size_t kind = 0; kind < state_kinds_.size(); ++kind) {
      const std::string name = absl::StrCat(slot.name, ".", state_kinds_[kind]);
      const Tensor* tensor = state.tensors.Find(name);
      if (tensor == nullptr) {
        if (step > 0 && NeedsState(kind, slot.group)) {
          wrong.push_back(absl::StrCat(name, " is missing"));
        }
        continue;
      }
      ++used_tensors;
      if (step == 0) {
        wrong.push_back(absl::StrCat(slot.name, ".step is missing"));
      } else if (tensor->shape() != slot.parameter.shape()) {
        wrong.push_back(absl::StrCat(name, " has shape ", ToString(tensor->shape()),
                                     " and the parameter ", ToString(slot.parameter.shape())));
      } else if (!IsFloatingPoint(tensor->dtype())) {
        wrong.push_back(absl::StrCat(name, " is ", DTypeName(tensor->dtype())));
      } else {
        tensors[kind] = *tensor;
      }
    }
  }
  // Listed only when the counts differ, so that the usual case builds no set of names.
  if (used_tensors != state.tensors.size() || used_numbers != state.numbers.size()) {
    ListUnknown(state, wrong);
  }
  if (!wrong.empty()) {
    throw InvalidArgumentError(
        absl::StrCat(call_, "::LoadState: the state does not fit; nothing was loaded\n  ",
                     absl::StrJoin(wrong, "\n  ")));
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    for (Tensor& tensor : loaded[i].first) {
      if (!tensor.defined()) continue;
      const Tensor copy = NewState(slots_[i].parameter);
      CopyInto(copy, To(Detach(tensor), copy.device()));
      tensor = copy;
    }
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].state = std::move(loaded[i].first);
    slots_[i].step = loaded[i].second;
  }
}

void Optimizer::ListUnknown(const OptimizerState& state, std::vector<std::string>& wrong) const {
  NamedTensors known;
  std::map<std::string, bool> steps;
  for (const Slot& slot : slots_) {
    for (const std::string& kind : state_kinds_) {
      known.Set(absl::StrCat(slot.name, ".", kind), slot.parameter);
    }
    steps[absl::StrCat(slot.name, ".step")] = true;
  }
  for (const auto& [name, tensor] : state.tensors) {
    if (!known.Contains(name)) wrong.push_back(absl::StrCat(name, " is unknown here"));
  }
  for (const auto& [name, number] : state.numbers) {
    if (!steps.contains(name)) wrong.push_back(absl::StrCat(name, " is unknown here"));
  }
}

}  // namespace lockstep::optim
