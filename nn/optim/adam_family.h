// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// AdamFamily<Options>: Adam and AdamW, which differ in where the weight decay goes. See adam.h and
// adamw.h.
#ifndef LOCKSTEP_NN_OPTIM_ADAM_FAMILY_H_
#define LOCKSTEP_NN_OPTIM_ADAM_FAMILY_H_

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/nn/optim/optimizer_of.h"
#include "lockstep/nn/optim/option_checks.h"
#include "lockstep/tensor/ops/update.h"

namespace lockstep::optim {

template <typename Options>
void ValidateAdamOptions(absl::string_view call, const Options& options) {
  RequireNotNegative(call, "lr", options.lr);
  RequireBeta(call, "beta1", options.beta1);
  RequireBeta(call, "beta2", options.beta2);
  RequireNotNegative(call, "epsilon", options.epsilon);
  RequireNotNegative(call, "weight_decay", options.weight_decay);
}

template <typename Options>
class AdamFamily : public OptimizerOf<Options> {
 public:
  bool is_elementwise() const override { return true; }

  void Step() override {
    autograd::NoGradScope no_grad;
    const std::vector<Options> current = this->CurrentOptions();
    for (const auto& batch : this->Batches(/*same_step=*/true)) {
      const Options& options = current[batch.group];
      AdamStep(batch.parameters, batch.gradients, batch.State(kExpAvg), batch.State(kExpAvgSq),
               options.amsgrad ? batch.State(kMaxExpAvgSq) : std::vector<Tensor>(),
               {.lr = options.lr,
                .beta1 = options.beta1,
                .beta2 = options.beta2,
                .epsilon = options.epsilon,
                .weight_decay = options.weight_decay,
                .step = batch.step + 1,
                .decoupled_decay = decoupled_decay_,
                .amsgrad = options.amsgrad,
                .maximize = options.maximize});
      for (auto* slot : batch.slots) ++slot->step;
    }
  }

 protected:
  AdamFamily(absl::string_view call, const typename OptimizerOf<Options>::Groups& groups,
             void (*validate)(const Options&), bool decoupled_decay)
      : OptimizerOf<Options>(call, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, groups, validate),
        decoupled_decay_(decoupled_decay) {}

  bool NeedsState(size_t kind, size_t group) const override {
    return kind != kMaxExpAvgSq || this->options(group).amsgrad;
  }

 private:
  enum StateKind : size_t { kExpAvg = 0, kExpAvgSq = 1, kMaxExpAvgSq = 2 };

  bool decoupled_decay_;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_ADAM_FAMILY_H_
