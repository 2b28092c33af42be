// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/adamw.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/update.h"

namespace lockstep::optim {
namespace {

enum StateKind : size_t { kExpAvg = 0, kExpAvgSq = 1 };

void Validate(const AdamWOptions& o) {
  const auto bad = [](double value) { return !(value >= 0) || std::isinf(value); };
  if (bad(o.lr) || bad(o.epsilon) || bad(o.weight_decay) || !(o.beta1 >= 0 && o.beta1 < 1) ||
      !(o.beta2 >= 0 && o.beta2 < 1)) {
    throw InvalidArgumentError(
        absl::StrCat("AdamW: lr ", o.lr, ", beta1 ", o.beta1, ", beta2 ", o.beta2, ", epsilon ",
                     o.epsilon, ", weight_decay ", o.weight_decay,
                     "; the betas are within [0, 1), the others are finite and not negative"));
  }
}

}  // namespace

AdamW::AdamW(const NamedTensors& parameters, const AdamWOptions& options)
    : AdamW(std::vector<ParameterGroup<AdamWOptions>>{{parameters, options}}) {}

AdamW::AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups)
    : Optimizer("AdamW", {"exp_avg", "exp_avg_sq"}) {
  for (const auto& group : groups) {
    Validate(group.options);
    AddParameters(group.parameters, options_.size());
    options_.push_back(group.options);
  }
  CheckNotEmpty();
}

AdamWOptions& AdamW::options(size_t group) {
  if (group >= options_.size()) {
    throw OutOfRangeError(absl::StrCat("AdamW: group ", group, " of ", options_.size()));
  }
  return options_[group];
}

double AdamW::LearningRate(size_t group) const {
  return const_cast<AdamW*>(this)->options(group).lr * learning_rate_factor();
}

void AdamW::Step() {
  autograd::NoGradScope no_grad;
  for (const AdamWOptions& options : options_) Validate(options);
  for (const Batch& batch : Batches(/*same_step=*/true)) {
    for (Slot* slot : batch.slots) EnsureState(*slot);
    const AdamWOptions& options = options_[batch.group];
    AdamWStep(batch.parameters, batch.gradients, batch.State(kExpAvg), batch.State(kExpAvgSq),
              {.lr = LearningRate(batch.group),
               .beta1 = options.beta1,
               .beta2 = options.beta2,
               .epsilon = options.epsilon,
               .weight_decay = options.weight_decay,
               .step = batch.step + 1,
               .maximize = options.maximize});
    for (Slot* slot : batch.slots) ++slot->step;
  }
}

}  // namespace lockstep::optim
