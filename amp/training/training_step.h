// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// TrainingStep: everything between a batch and changed parameters, in the right order.
//
//   optim::AdamW optimizer(model.NamedParameters());
//   optim::Schedule schedule(&optimizer, ...);
//   amp::GradScaler scaler;
//   amp::TrainingStep step({.optimizers = {{&optimizer, &schedule}},
//                           .module = &model,
//                           .autocast = amp::AutocastOptions{.dtype = DType::kFloat16},
//                           .scaler = &scaler,
//                           .clip_norm = 1.0,
//                           .micro_batches = 4});
//   for (...) {
//     const amp::StepReport report = step.Run([&](int64_t i) {
//       return model.Loss(ids[i], targets[i]);          // micro-batch i
//     });
//     if (!report.stepped) LOG(INFO) << report.ToString();
//   }
//
// Autocast, scaler, clipping, accumulation, schedules and ranks are all optional. A step is:
//
//   1  for each micro-batch: forward under Autocast; the loss times its share of the whole and
//      times the scale; Backward. All but the last without synchronisation (`no_sync`)
//   2  the mean loss, over the ranks; an error if it is not finite, and the parameters stay
//   3  unscale; found-inf, over the ranks
//   4  clip the gradients by their norm
//   5  step each optimizer whose gradients are finite, and its schedule
//   6  update the scale; drop the gradients
//
// A step that is skipped leaves parameters, optimizer state, step counts and schedules as they
// were, and says so. Profilers see the ranges "forward", "backward" (of RunPasses: "pass") and
// "optimizer".
#ifndef LOCKSTEP_AMP_TRAINING_TRAINING_STEP_H_
#define LOCKSTEP_AMP_TRAINING_TRAINING_STEP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::amp {

struct ScheduledOptimizer {
  optim::Optimizer* optimizer = nullptr;
  optim::Schedule* schedule = nullptr;  // stepped when the optimizer is; may be null
};

// What is pointed to outlives the TrainingStep.
struct TrainingStepOptions {
  std::vector<ScheduledOptimizer> optimizers = {};
  // Names the parameter, op and module where a loss that is not finite comes from; may be null.
  nn::Module* module = nullptr;
  std::optional<AutocastOptions> autocast = std::nullopt;  // around the forward pass
  GradScaler* scaler = nullptr;
  // Largest 2-norm of the gradients of all optimizers together.
  std::optional<double> clip_norm = std::nullopt;
  // How it is done where a rank has only a part of the gradients (FullyShardedDataParallel's
  // ClipGradNorm); returns the norm, and throws when that is not finite. Null:
  // optim::ClipGradNorm. With one optimizer.
  std::function<Tensor(double max_norm)> clip_grad_norm = nullptr;
  int64_t micro_batches = 1;
  // The ranks over which gradients are averaged (DDP's group): the loss is then the mean over them,
  // and they agree on whether it is finite. One small collective a step; RunWeighted needs another.
  std::shared_ptr<comm::Communicator> group = nullptr;
  // Makes a scope in which backwards communicate nothing; it is destroyed after the micro-batch.
  //   [&] { return std::make_shared<DistributedDataParallel::NoSync>(ddp); }
  std::function<std::shared_ptr<void>()> no_sync = nullptr;
  // Runs when the gradients are final, before the optimizers step; not when no optimizer will.
  std::function<void()> before_optimizers = nullptr;
  // A loss that is not finite: the step runs that micro-batch's forward pass once more, with the
  // same random numbers, to name the first tensor that is not finite (find_non_finite.h), and
  // throws. With ranks, each runs one, so that collectives inside of it fit. Without: it only
  // throws.
  bool find_non_finite = true;
};

struct StepReport {
  // Mean over micro-batches (weighted: over what the weights count) and ranks.
  double loss = 0;
  // Of the gradients before clipping; absent without clip_norm, and when no optimizer has finite
  // gradients.
  std::optional<double> grad_norm;
  double scale = 1;                     // of this step's backwards
  bool stepped = false;                 // every optimizer has
  std::vector<bool> optimizer_stepped;  // each
  bool found_inf = false;               // a scaled gradient was not finite, on any rank
  // Time that this rank waited in the step's own collectives; the gradients' and the scaler's are
  // not among them.
  double communication_seconds = 0;

  // "loss 2.3025, gradient norm 1.7, scale 65536", or why the step was skipped.
  std::string ToString() const;
};

// Not thread-safe.
class TrainingStep {
 public:
  // The loss of micro-batch i: a mean, one floating-point element with a history.
  using Forward = absl::FunctionRef<Tensor(int64_t micro_batch)>;

  // Throws InvalidArgument: no optimizer or a null one, one given twice, clip_norm not positive,
  // micro_batches below 1, and an enabled scaler without a group where the step has one of several
  // ranks (they would not decide alike).
  explicit TrainingStep(TrainingStepOptions options);

  // One step over options.micro_batches, or over another number for once (the short window at the
  // end of the data). The gradient is that of the mean of their losses, whatever their number.
  //
  // Throws FailedPrecondition when the loss is not finite (on any rank), saying where that begins;
  // then, as when `forward` or Backward throws, nothing has changed and the gradients are dropped.
  // Also when gradients without a scaler are not finite, found by clipping; and what
  // GradScaler::Update() throws after too many skips.
  StepReport Run(Forward forward);
  StepReport Run(Forward forward, int64_t micro_batches);

  // The same for micro-batches that count differently: micro-batch i has the loss forward(i), a
  // mean over weights[i] things (tokens that are not padding). The gradient is that of the mean
  // over all of them, on all ranks, as if they had come in one batch. A weight of 0 gives a
  // gradient of 0, also where the loss is NaN (CrossEntropy over nothing), and so does a window of
  // nothing but such, whose loss is 0. Where the gradient of such a loss is not finite either, as
  // that of a sum divided by a count of 0, Run's error for losses is thrown: Clamp the count to 1.
  // Every rank calls it, with any number of micro-batches. Throws also InvalidArgument for weights
  // that are negative or not finite (nor is their sum), or none.
  StepReport RunWeighted(Forward forward, absl::Span<const double> weights);

  // What a Pass runs backward in place of a loss: its share of the step's mean, times the scale.
  using ScaleLoss = std::function<Tensor(const Tensor& loss)>;
  // Forward and backward of pass i in one call, as a pipeline does them. It runs backward, for each
  // of the losses whose sum is its mean loss, `scale(loss)`, and returns the mean without history.
  // `scale` may be called on several threads. Under NoGradScope a pass runs forward only.
  using Pass = absl::FunctionRef<Tensor(int64_t index, const ScaleLoss& scale)>;

  // Run for passes that run backward themselves: `passes` take the place of micro-batches.
  StepReport RunPasses(Pass pass, int64_t passes);

  const TrainingStepOptions& options() const { return options_; }

 private:
  struct Window;
  struct Work;

  StepReport RunWindow(const Work& work, Window& window);
  void RunMicroBatch(const Work& work, Window& window);
  Tensor RunForward(const Work& work, int64_t index, const ScaleLoss& scale) const;
  // As far as they have come.
  bool GradientsAreFinite() const;
  // Throws when it is not finite.
  double AgreeOnLoss(const Work& work, Window& window) const;
  [[noreturn]] void ThrowNonFiniteLoss(const Work& work, const Window& window, double loss) const;
  std::string DescribeNonFiniteLoss(const Work& work, const Window& window) const;
  void StepOptimizers(StepReport& report) const;
  // Whether each optimizer's gradients are finite, on all ranks.
  std::vector<bool> UnscaleGradients(StepReport& report) const;
  double ClipGradients(const std::vector<bool>& finite) const;
  double SumOverRanks(double value, double& waited_seconds) const;
  void DropGradients() const;

  TrainingStepOptions options_;
};

}  // namespace lockstep::amp

#endif  // LOCKSTEP_AMP_TRAINING_TRAINING_STEP_H_
