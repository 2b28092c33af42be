// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/ema.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/optim/option_checks.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/update.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::optim {
namespace {

constexpr absl::string_view kSuffix = ".average";

Tensor NewAverage(const Tensor& weight) {
  CategoryScope category(MemoryCategory::kOptimizer);
  const DType dtype = IsReducedFloat(weight.dtype()) ? DType::kFloat32 : weight.dtype();
  const Tensor average = Empty(weight.shape(), {dtype, weight.device()});
  CopyInto(average, Detach(weight));
  return average;
}

// What goes into one LerpInto call.
struct DeviceLists {
  std::vector<Tensor> averages, weights;
};

}  // namespace

Ema::Ema(const nn::Module& model, const EmaOptions& options)
    : options_(options), weights_(model.NamedParameters()) {
  autograd::NoGradScope no_grad;
  RequireFraction("Ema", "decay", options.decay);
  RequireOption(options.update_after >= 0, "Ema", "update_after", options.update_after,
                "it is not negative");
  if (weights_.empty()) throw InvalidArgumentError("Ema: the model has no parameters to average");
  if (options.use_buffers) weights_.InsertAll(model.NamedBuffers());
  for (const auto& [name, weight] : weights_) averages_.Insert(name, NewAverage(weight));
}

void Ema::RequireNoScope(const char* call) const {
  if (in_scope_) {
    throw FailedPreconditionError(
        absl::StrCat(call, ": the averages are in the model; end the Ema::Scope first"));
  }
}

void Ema::Update() {
  RequireNoScope("Ema::Update");
  autograd::NoGradScope no_grad;
  const bool copy = updates_ <= options_.update_after;
  std::vector<std::pair<Device, DeviceLists>> devices;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const Tensor& average = averages_[i].second;
    const Tensor weight = Detach(weights_[i].second);
    if (copy || !IsFloatingPoint(weight.dtype())) {
      CopyInto(average, weight);
      continue;
    }
    DeviceLists* lists = nullptr;
    for (auto& [device, candidate] : devices) {
      if (device == weight.device()) lists = &candidate;
    }
    if (lists == nullptr) lists = &devices.emplace_back(weight.device(), DeviceLists()).second;
    lists->averages.push_back(average);
    lists->weights.push_back(weight);
  }
  for (const auto& [device, lists] : devices) {
    LerpInto(lists.averages, lists.weights, 1 - options_.decay);
  }
  ++updates_;
}

Ema::Scope::Scope(Ema& ema) : ema_(ema) {
  ema_.RequireNoScope("Ema::Scope");
  autograd::NoGradScope no_grad;
  own_.reserve(ema_.weights_.size());
  for (const auto& [name, weight] : ema_.weights_) own_.push_back(Clone(Detach(weight)));
  for (size_t i = 0; i < own_.size(); ++i) {
    CopyInto(ema_.weights_[i].second, ema_.averages_[i].second);
  }
  ema_.in_scope_ = true;
}

Ema::Scope::~Scope() {
  autograd::NoGradScope no_grad;
  for (size_t i = 0; i < own_.size(); ++i) CopyInto(ema_.weights_[i].second, own_[i]);
  ema_.in_scope_ = false;
}

OptimizerState Ema::SaveState() const {
  OptimizerState state;
  for (const auto& [name, average] : averages_) {
    state.tensors.Insert(absl::StrCat(name, kSuffix), average);
  }
  state.numbers["updates"] = updates_;
  return state;
}

void Ema::LoadState(const OptimizerState& state) {
  RequireNoScope("Ema::LoadState");
  autograd::NoGradScope no_grad;
  std::vector<std::string> wrong;
  std::vector<Tensor> loaded;
  for (const auto& [name, average] : averages_) {
    const std::string key = absl::StrCat(name, kSuffix);
    const Tensor* tensor = state.tensors.Find(key);
    if (tensor == nullptr) {
      wrong.push_back(absl::StrCat(key, " is missing"));
    } else if (tensor->shape() != average.shape()) {
      wrong.push_back(absl::StrCat(key, " has shape ", ToString(tensor->shape()),
                                   " and the weight ", ToString(average.shape())));
    } else if (tensor->dtype() != average.dtype() &&
               !(IsFloatingPoint(tensor->dtype()) && IsFloatingPoint(average.dtype()))) {
      wrong.push_back(absl::StrCat(key, " is ", DTypeName(tensor->dtype()), " and the weight ",
                                   DTypeName(average.dtype())));
    } else {
      loaded.push_back(*tensor);
    }
  }
  for (const auto& [key, tensor] : state.tensors) {
    const bool known = absl::EndsWith(key, kSuffix) &&
                       averages_.Contains(key.substr(0, key.size() - kSuffix.size()));
    if (!known) wrong.push_back(absl::StrCat(key, " is unknown here"));
  }
  const auto updates = state.numbers.find("updates");
  if (updates == state.numbers.end() || updates->second < 0 || state.numbers.size() != 1) {
    wrong.push_back("the numbers are not one \"updates\" that is not negative");
  }
  if (!wrong.empty()) {
    throw InvalidArgumentError(
        absl::StrCat("Ema::LoadState: the state does not fit; nothing was loaded\n  ",
                     absl::StrJoin(wrong, "\n  ")));
  }
  for (size_t i = 0; i < loaded.size(); ++i) {
    const Tensor& average = averages_[i].second;
    CopyInto(average, To(Detach(loaded[i]), average.device()));
  }
  updates_ = updates->second;
}

}  // namespace lockstep::optim
