// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Adagrad (Duchi, Hazan and Singer 2011), in PyTorch's order of operations; the default options are
// PyTorch's.
//
//   optim::Adagrad optimizer(model.NamedParameters(), {.lr = 0.05});
//
//   g += weight_decay * p;  s += g^2;  p -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + epsilon)
//
// One AdagradStep call updates a whole group. State by parameter: "sum", which begins at
// initial_accumulator_value, and the number of steps. There is no momentum for a schedule to
// change.
#ifndef LOCKSTEP_NN_OPTIM_ADAGRAD_H_
#define LOCKSTEP_NN_OPTIM_ADAGRAD_H_

#include <vector>

#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/nn/optim/optimizer_of.h"

namespace lockstep::optim {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;  // of parameters that have not taken a step yet
  double epsilon = 1e-10;
  bool maximize = false;
};

class Adagrad : public OptimizerOf<AdagradOptions> {
 public:
  // Throw InvalidArgument for options out of range, no parameters, and parameters that repeat or
  // are not floating-point leaves.
  explicit Adagrad(const NamedTensors& parameters, const AdagradOptions& options = {});
  explicit Adagrad(const std::vector<ParameterGroup<AdagradOptions>>& groups);

  void Step() override;
  bool is_elementwise() const override { return true; }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_ADAGRAD_H_
