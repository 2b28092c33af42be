// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GradScaler: keeps small gradients of 16-bit training from becoming zero, by multiplying the loss
// and dividing the gradients.
//
//   amp::GradScaler scaler;
//   for (...) {
//     Tensor loss;
//     {
//       amp::Autocast autocast({.dtype = DType::kFloat16});
//       loss = model.Loss(ids, targets);
//     }
//     autograd::Backward(scaler.Scale(loss));
//     scaler.UnscaleGradients(optimizer);                // only to clip or look at gradients
//     optim::ClipGradNorm(model.Parameters(), 1.0);
//     if (scaler.Step(optimizer)) schedule.Step();       // false: infinite gradients, no step
//     scaler.Update();                                   // once, after all optimizers
//     optimizer.ZeroGrad();
//   }
//
// amp/training does all of this in order. The rules are those of torch.amp.GradScaler: between two
// Update() calls each optimizer is unscaled once, then stepped once; an infinite or NaN gradient of
// one optimizer skips the step of that one alone, and Update() then shrinks the scale. Without one
// the scale grows every `growth_interval` updates. Beyond PyTorch: hysteresis (as DeepSpeed and
// Megatron have it), bounds, ranks that agree, and an error instead of shrinking for ever.
//
// Gradients must be float32, float64 or bfloat16. A float16 gradient divided by the scale would
// underflow to the very zeros that scaling avoids, and a float16 parameter loses small updates:
// keep parameters in float32 (master weights) and let Autocast cast them.
//
// Source: Micikevicius et al. 2018, "Mixed Precision Training". Not thread-safe.
#ifndef LOCKSTEP_AMP_SCALER_GRAD_SCALER_H_
#define LOCKSTEP_AMP_SCALER_GRAD_SCALER_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::amp {

struct GradScalerOptions {
  // False: Scale() returns its argument, Step() steps, and nothing else does anything.
  bool enabled = true;
  double init_scale = 65536;
  double growth_factor = 2;     // above 1
  double backoff_factor = 0.5;  // in (0, 1)
  // Updates in a row without an infinite gradient until the scale grows.
  int64_t growth_interval = 2000;
  // How many updates with an infinite gradient until the scale shrinks, for models whose overflows
  // are rare accidents. 1: at once, as PyTorch; DeepSpeed's and Megatron's default is 2. The count
  // is spent by each such update, stays spent (each further one shrinks the scale), and is full
  // again when the scale grows.
  int64_t hysteresis = 1;
  // The count is full again after any update without one: only overflows in a row shrink the scale
  // (DeepSpeed's consecutive_hysteresis).
  bool consecutive_hysteresis = false;
  // Bounds of the scale. A gradient that overflows float16 at 2^-24 is above 10^12, and no smaller
  // scale would make sense of it. The default ceiling is none: as in PyTorch, the scale grows while
  // it is a finite float32.
  double min_scale = 0x1p-24;
  double max_scale = std::numeric_limits<float>::max();
  // Update() throws when so many updates in a row had infinite gradients: then the loss or the
  // parameters are not finite, and no scale helps. From the default scale the floor is
  // reached after 40. 0: never.
  int64_t max_consecutive_skips = 50;
  // The ranks that must decide alike: found-inf is the maximum over them. One collective an
  // optimizer and step; a rank without gradients takes part. Null: one rank, or gradients that are
  // the same on all (DDP).
  std::shared_ptr<comm::Communicator> group = nullptr;
};

// What a scaler has learnt and is set to, ready to be written to a file: "scale", "growth_factor",
// "backoff_factor"; "growth_interval", "growth_tracker", "hysteresis", "hysteresis_tracker",
// "consecutive_skips". Both empty: of a disabled scaler.
struct GradScalerState {
  std::map<std::string, double> reals;
  std::map<std::string, int64_t> integers;
};

class GradScaler {
 public:
  // Throws InvalidArgument for options out of range (bounds that are no normal float32 numbers, or
  // do not hold the initial scale).
  explicit GradScaler(const GradScalerOptions& options = {});

  // `output` times the scale, recorded for backward. 16-bit outputs become float32, where the
  // product fits. Throws InvalidArgument unless it is floating-point.
  Tensor Scale(const Tensor& output) const;
  std::vector<Tensor> Scale(TensorSpan outputs) const;

  // Divides the gradients of the optimizer's parameters by the scale, and finds out whether one has
  // an element that is infinite or NaN. On several devices at once. Throws FailedPrecondition when
  // that was done since the last Update(), after Step(), and when there is no gradient (on no
  // rank); InvalidArgument for a float16 gradient, naming it; and what the group throws.
  void UnscaleGradients(optim::Optimizer& optimizer);
  // What UnscaleGradients found, on any rank. Throws FailedPrecondition before it; false when
  // disabled.
  bool FoundInf(const optim::Optimizer& optimizer) const;

  // Unscales, if that is still to do, and steps unless an element was infinite or NaN. Whether it
  // stepped. Throws as UnscaleGradients and the optimizer's Step().
  bool Step(optim::Optimizer& optimizer);

  // Ends the iteration and changes the scale, or sets it to `new_scale`. Throws FailedPrecondition
  // when no optimizer has been unscaled since the last one; also, after all is updated, for
  // max_consecutive_skips, naming the first gradient that was not finite. Throws InvalidArgument
  // for a scale out of bounds.
  void Update(std::optional<double> new_scale = std::nullopt);

  bool enabled() const { return options_.enabled; }
  const GradScalerOptions& options() const { return options_; }
  // What Scale() multiplies by: a float32 number; 1 when disabled.
  double scale() const { return options_.enabled ? scale_ : 1; }
  int64_t growth_tracker() const { return growth_tracker_; }
  int64_t hysteresis_tracker() const { return hysteresis_tracker_; }
  // Updates with an infinite gradient: in a row until now.
  int64_t consecutive_skips() const { return consecutive_skips_; }

  // Between iterations only: throw FailedPrecondition when an optimizer awaits Update(). A loaded
  // state replaces the factors, the interval and the hysteresis, as in PyTorch; the bounds are the
  // options'. LoadState throws InvalidArgument for names missing or unknown, and values out of
  // range or of the bounds; FailedPrecondition where one of the two scalers is disabled. Nothing
  // has changed then.
  GradScalerState SaveState() const;
  void LoadState(const GradScalerState& state);

 private:
  struct OptimizerProgress {
    bool stepped = false;
    bool found_inf = false;
  };

  // Adds what this call finds to `progress_`.
  OptimizerProgress& Unscale(absl::string_view call, optim::Optimizer& optimizer);
  void CheckBetweenIterations(absl::string_view call) const;
  void ShrinkOrWait();
  void GrowOrWait();
  [[noreturn]] void ThrowTooManySkips(const std::string& culprit) const;
  // Of the optimizers of this iteration, the first gradient that is not finite here, in words.
  std::string DescribeNonFiniteGradient() const;

  GradScalerOptions options_;
  double scale_ = 0;
  int64_t growth_tracker_ = 0;
  int64_t hysteresis_tracker_ = 0;
  int64_t consecutive_skips_ = 0;
  std::map<const optim::Optimizer*, OptimizerProgress> progress_;  // since the last Update()
};

}  // namespace lockstep::amp

#endif  // LOCKSTEP_AMP_SCALER_GRAD_SCALER_H_
