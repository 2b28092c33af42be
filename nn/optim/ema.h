// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ema: an exponential moving average of a model's weights, to evaluate and keep instead of the last
// ones (Polyak and Juditsky 1992; PyTorch's AveragedModel with get_ema_multi_avg_fn).
//
//   optim::Ema ema(model, {.decay = 0.999});
//   for (...) {
//     ...
//     optimizer.Step();
//     ema.Update();
//   }
//   {
//     optim::Ema::Scope averages(ema);     // the model computes with the averages
//     Evaluate(model);
//   }                                      // and with its own weights again
//
//   average = weight in the first update, then average += (1 - decay) * (weight - average)
//
// Averages of 16-bit weights are float32: small steps vanish in 16 bits. One LerpInto call updates
// all weights of a device. Gradients are never recorded. Not thread-safe.
#ifndef LOCKSTEP_NN_OPTIM_EMA_H_
#define LOCKSTEP_NN_OPTIM_EMA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::optim {

struct EmaOptions {
  double decay = 0.999;
  // Average the buffers too. Integer and bool ones are copied at each update. Without it a Scope
  // leaves the buffers as they are.
  bool use_buffers = false;
  // The first so many updates only copy the weights; averaging begins after them.
  int64_t update_after = 0;
};

class Ema {
 public:
  // Averages start as copies of the weights. The module's tensors are shared, not copied: the
  // module may be dropped, but not given other parameters. Throws InvalidArgument for a decay
  // outside [0, 1], negative update_after, or a module without parameters.
  explicit Ema(const nn::Module& model, const EmaOptions& options = {});
  Ema(const Ema&) = delete;
  Ema& operator=(const Ema&) = delete;

  // Takes the present weights into the averages. Throws FailedPrecondition within a Scope.
  void Update();
  int64_t updates() const { return updates_; }

  // The averages by parameter (and buffer) name. They share storage with this.
  const NamedTensors& Averages() const { return averages_; }

  // Puts the averages into the model and, at its end, the model's weights back, bit for bit; what
  // was written to the weights meanwhile is lost. Holds one copy of the weights.
  class Scope {
   public:
    // `ema` must outlive the scope. Throws FailedPrecondition within another scope of it.
    explicit Scope(Ema& ema);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Ema& ema_;
    std::vector<Tensor> own_;
  };

  // "<name>.average" for every tensor, and {"updates": n}. The tensors share storage with this:
  // write or Clone() them before the next update.
  OptimizerState SaveState() const;
  // Copies `state`. Throws InvalidArgument that lists every name that is missing or unknown, and
  // every tensor of another shape or kind; nothing has changed then.
  void LoadState(const OptimizerState& state);

 private:
  void RequireNoScope(const char* call) const;

  EmaOptions options_;
  NamedTensors weights_;   // of the model
  NamedTensors averages_;  // in the same order
  int64_t updates_ = 0;
  bool in_scope_ = false;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_EMA_H_
