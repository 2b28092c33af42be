// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/amp/training/training_step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/amp/non_finite/find_non_finite.h"
#include "lockstep/amp/non_finite/first_non_finite.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/span_range.h"

namespace lockstep::amp {
namespace {

constexpr char kCall[] = "TrainingStep";

template <typename... Parts>
void Require(bool condition, const Parts&... parts) {
  if (!condition) throw InvalidArgumentError(absl::StrCat(kCall, ": ", parts...));
}

void CheckOptimizers(const std::vector<ScheduledOptimizer>& optimizers) {
  Require(!optimizers.empty(), "there is no optimizer");
  for (size_t i = 0; i < optimizers.size(); ++i) {
    Require(optimizers[i].optimizer != nullptr, "optimizer ", i, " is null");
    for (size_t j = 0; j < i; ++j) {
      Require(optimizers[i].optimizer != optimizers[j].optimizer, "optimizers ", j, " and ", i,
              " are the same");
    }
  }
}

void CheckCount(int64_t micro_batches) {
  Require(micro_batches >= 1, "micro_batches is ", micro_batches, "; it is at least 1");
}

// Whatever ends a step, the next one begins without gradients.
template <typename Function>
class AtExit {
 public:
  explicit AtExit(Function function) : function_(std::move(function)) {}
  ~AtExit() { function_(); }
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;

 private:
  Function function_;
};

}  // namespace

// The micro-batches of one step.
struct TrainingStep::Window {
  int64_t count = 0;
  absl::Span<const double> weights;  // empty: all alike
  double total_weight = 0;           // over all ranks
  int ranks = 1;

  std::vector<RandomStreams> generators;  // before each forward pass
  std::vector<Tensor> losses;             // without history
  // The micro-batch that counts nothing and yet made gradients that are not finite.
  std::optional<int64_t> spoilt_by;
  double waited_seconds = 0;  // in collectives

  double Weight(int64_t index) const {
    return weights.empty() ? 1 : weights[static_cast<size_t>(index)];
  }
  // What a loss is multiplied by, so that the gradients' sum over micro-batches and average over
  // ranks is the gradient of the mean of everything.
  double Share(int64_t index) const {
    if (weights.empty()) return 1 / static_cast<double>(count);
    return total_weight > 0 ? Weight(index) * ranks / total_weight : 0;
  }
  double LossOf(int64_t index) const { return losses[static_cast<size_t>(index)].Item<double>(); }
  // This rank's part of the mean loss. A loss that counts nothing is left out, because it may be
  // NaN, unless that reached the gradients.
  double LossShare(int64_t index) const {
    if (Weight(index) == 0 && spoilt_by != index) return 0;
    return LossOf(index) * (Weight(index) == 0 ? 1 : Share(index));
  }
};

// What is done for each micro-batch: one of the two.
struct TrainingStep::Work {
  const Forward* forward = nullptr;
  const Pass* pass = nullptr;
};

TrainingStep::TrainingStep(TrainingStepOptions options) : options_(std::move(options)) {
  CheckOptimizers(options_.optimizers);
  CheckCount(options_.micro_batches);
  if (options_.clip_norm.has_value()) {
    Require(*options_.clip_norm > 0, "clip_norm is ", *options_.clip_norm, "; it is positive");
  }
  Require(!options_.clip_grad_norm || options_.clip_norm.has_value(),
          "clip_grad_norm without clip_norm; give the norm too");
  Require(!options_.clip_grad_norm || options_.optimizers.size() == 1, "clip_grad_norm with ",
          options_.optimizers.size(), " optimizers; it clips all gradients: give one optimizer");
  const GradScaler* const scaler = options_.scaler;
  const int ranks = options_.group == nullptr ? 1 : options_.group->size();
  Require(
      scaler == nullptr || !scaler->enabled() || ranks == 1 || scaler->options().group != nullptr,
      "the step has a group of ", ranks,
      " ranks and its scaler has none, so that one rank may step where another skips; give "
      "GradScalerOptions::group as well");
}

StepReport TrainingStep::Run(Forward forward) { return Run(forward, options_.micro_batches); }

StepReport TrainingStep::Run(Forward forward, int64_t micro_batches) {
  CheckCount(micro_batches);
  Window window;
  window.count = micro_batches;
  return RunWindow({.forward = &forward}, window);
}

StepReport TrainingStep::RunPasses(Pass pass, int64_t passes) {
  Require(passes >= 1, "passes is ", passes, "; it is at least 1");
  Window window;
  window.count = passes;
  return RunWindow({.pass = &pass}, window);
}

StepReport TrainingStep::RunWeighted(Forward forward, absl::Span<const double> weights) {
  Require(!weights.empty(), "there are no weights; a rank without data gives one of 0");
  Window window;
  window.count = static_cast<int64_t>(weights.size());
  window.weights = weights;
  for (double weight : weights) {
    Require(weight >= 0 && std::isfinite(weight), "the weights are ", absl::StrJoin(weights, ", "),
            "; each is finite and not negative");
    window.total_weight += weight;
  }
  window.total_weight = SumOverRanks(window.total_weight, window.waited_seconds);
  Require(std::isfinite(window.total_weight), "the weights of all ranks add up to ",
          window.total_weight, "; give smaller ones, in the same proportions");
  return RunWindow({.forward = &forward}, window);
}

StepReport TrainingStep::RunWindow(const Work& work, Window& window) {
  DropGradients();
  const AtExit drop([this] { DropGradients(); });
  window.ranks = options_.group == nullptr ? 1 : options_.group->size();
  StepReport report;
  report.scale = options_.scaler == nullptr ? 1 : options_.scaler->scale();
  for (int64_t i = 0; i < window.count; ++i) RunMicroBatch(work, window);
  report.loss = AgreeOnLoss(work, window);
  report.communication_seconds = window.waited_seconds;
  {
    const SpanRange range("optimizer");
    StepOptimizers(report);
  }
  return report;
}

void TrainingStep::RunMicroBatch(const Work& work, Window& window) {
  const auto index = static_cast<int64_t>(window.losses.size());
  std::shared_ptr<void> no_sync;
  if (index + 1 < window.count && options_.no_sync != nullptr) no_sync = options_.no_sync();
  window.generators.push_back(ThreadGenerators());
  const ScaleLoss scale = [this, share = window.Share(index)](const Tensor& loss) {
    Tensor scaled = loss;
    if (share != 1) {
      scaled = Mul(IsReducedFloat(loss.dtype()) ? To(loss, DType::kFloat32) : loss, share);
    }
    return options_.scaler != nullptr ? options_.scaler->Scale(scaled) : scaled;
  };
  Tensor loss;
  {
    const SpanRange range(work.forward != nullptr ? "forward" : "pass");
    loss = RunForward(work, index, scale);
  }
  window.losses.push_back(Detach(loss));
  if (work.forward == nullptr) return;
  const SpanRange range("backward");
  loss = scale(loss);
  // 0 times the gradient of a mean over nothing may be NaN.
  const bool may_spoil =
      window.Weight(index) == 0 && !std::isfinite(window.LossOf(index)) && GradientsAreFinite();
  autograd::Backward(loss);
  if (may_spoil && !GradientsAreFinite()) window.spoilt_by = index;
}

bool TrainingStep::GradientsAreFinite() const {
  for (const ScheduledOptimizer& entry : options_.optimizers) {
    for (const auto& [name, parameter] : entry.optimizer->parameters()) {
      if (FinitenessOf(autograd::Grad(parameter)) != Finiteness::kFinite) return false;
    }
  }
  return true;
}

Tensor TrainingStep::RunForward(const Work& work, int64_t index, const ScaleLoss& scale) const {
  std::optional<Autocast> autocast;
  if (options_.autocast.has_value()) autocast.emplace(*options_.autocast);
  Tensor loss = work.forward != nullptr ? (*work.forward)(index) : (*work.pass)(index, scale);
  Require(loss.defined() && loss.numel() == 1 && IsFloatingPoint(loss.dtype()), "micro-batch ",
          index, " returned ", loss.DebugString(),
          "; a loss is one floating-point element, such as a mean");
  return loss;
}

double TrainingStep::AgreeOnLoss(const Work& work, Window& window) const {
  double loss = 0;
  for (int64_t i = 0; i < window.count; ++i) loss += window.LossShare(i);
  // A loss that is not finite makes the sum so on every rank.
  loss = SumOverRanks(loss, window.waited_seconds) / window.ranks;
  if (!std::isfinite(loss)) ThrowNonFiniteLoss(work, window, loss);
  return loss;
}

void TrainingStep::ThrowNonFiniteLoss(const Work& work, const Window& window, double loss) const {
  throw FailedPreconditionError(
      absl::StrCat(kCall, ": the loss is ", loss, DescribeNonFiniteLoss(work, window),
                   ". Nothing was changed. Look at what is named, or lower the learning rate"));
}

std::string TrainingStep::DescribeNonFiniteLoss(const Work& work, const Window& window) const {
  int64_t index = 0;
  while (index < window.count && std::isfinite(window.LossShare(index))) ++index;
  const bool here = index < window.count;
  if (!here) index = window.count - 1;
  std::string where =
      here ? absl::StrCat(" (micro-batch ", index, " of ", window.count, ")") : " on another rank";
  if (!options_.find_non_finite) return where;
  const RandomStreams now = ThreadGenerators();
  const AtExit restore([&now] { ThreadGenerators() = now; });
  ThreadGenerators() = window.generators[static_cast<size_t>(index)];
  try {
    const autograd::NoGradScope no_grad;
    const auto found = FindNonFinite(
        [&] { RunForward(work, index, [](const Tensor& loss) { return loss; }); }, options_.module);
    if (found.has_value()) return absl::StrCat(where, "; it begins with ", found->ToString());
    if (!here) return where;
    return absl::StrCat(where, "; the same forward pass once more was finite");
  } catch (const Error& error) {
    return absl::StrCat(where, "; looking for where it begins failed: ", error.message());
  } catch (const std::exception& error) {  // of `forward`
    return absl::StrCat(where, "; looking for where it begins failed: ", error.what());
  }
}

void TrainingStep::StepOptimizers(StepReport& report) const {
  bool complete = false;
  const AtExit end_iteration([&] {
    // After an error the scaler is to begin anew, with the scale that it has.
    GradScaler* const scaler = options_.scaler;
    if (!complete && scaler != nullptr) scaler->Update(scaler->scale());
  });
  const std::vector<bool> finite = UnscaleGradients(report);
  const bool any = std::count(finite.begin(), finite.end(), true) > 0;
  if (any && options_.clip_norm.has_value()) report.grad_norm = ClipGradients(finite);
  if (any && options_.before_optimizers != nullptr) options_.before_optimizers();
  for (size_t i = 0; i < options_.optimizers.size(); ++i) {
    const auto& [optimizer, schedule] = options_.optimizers[i];
    if (options_.scaler != nullptr) {
      report.optimizer_stepped.push_back(options_.scaler->Step(*optimizer));
    } else {
      optimizer->Step();
      report.optimizer_stepped.push_back(true);
    }
    if (report.optimizer_stepped.back() && schedule != nullptr) schedule->Step();
  }
  report.stepped = std::count(finite.begin(), finite.end(), false) == 0;
  complete = true;
  if (options_.scaler != nullptr) options_.scaler->Update();
}

std::vector<bool> TrainingStep::UnscaleGradients(StepReport& report) const {
  std::vector<bool> finite;
  for (const ScheduledOptimizer& entry : options_.optimizers) {
    bool found_inf = false;
    if (options_.scaler != nullptr) {
      options_.scaler->UnscaleGradients(*entry.optimizer);
      found_inf = options_.scaler->FoundInf(*entry.optimizer);
    }
    report.found_inf |= found_inf;
    finite.push_back(!found_inf);
  }
  return finite;
}

double TrainingStep::ClipGradients(const std::vector<bool>& finite) const {
  if (options_.clip_grad_norm) return options_.clip_grad_norm(*options_.clip_norm).Item<double>();
  std::vector<Tensor> parameters;
  for (size_t i = 0; i < finite.size(); ++i) {
    if (!finite[i]) continue;
    for (const auto& [name, parameter] : options_.optimizers[i].optimizer->parameters()) {
      parameters.push_back(parameter);
    }
  }
  return optim::ClipGradNorm(parameters, *options_.clip_norm, {.error_if_nonfinite = true})
      .Item<double>();
}

double TrainingStep::SumOverRanks(double value, double& waited_seconds) const {
  if (options_.group == nullptr) return value;
  const Tensor sum = FromVector<double>({value}, {1});
  const Stopwatch watch;
  options_.group->AllReduce(sum).Wait();
  waited_seconds += watch.ElapsedSeconds();
  return sum.Item<double>();
}

void TrainingStep::DropGradients() const {
  for (const ScheduledOptimizer& entry : options_.optimizers) entry.optimizer->ZeroGrad();
}

std::string StepReport::ToString() const {
  std::string text = absl::StrCat("loss ", loss);
  if (grad_norm.has_value()) absl::StrAppend(&text, ", gradient norm ", *grad_norm);
  if (scale != 1) absl::StrAppend(&text, ", scale ", scale);
  if (stepped) return text;
  const auto skipped = std::count(optimizer_stepped.begin(), optimizer_stepped.end(), false);
  absl::StrAppend(&text, "; scaled gradients were not finite: ", skipped, " of ",
                  optimizer_stepped.size(), " optimizers skipped this step");
  return text;
}

}  // namespace lockstep::amp
