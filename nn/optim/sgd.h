// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// SGD: stochastic gradient descent with momentum, Nesterov's variant of it, and weight decay added
// to the gradient; as PyTorch's.
//
//   optim::Sgd optimizer(model.NamedParameters(), {.lr = 0.1, .momentum = 0.9});
//
//   g += weight_decay * p;  b = momentum * b + (1 - dampening) * g  (b = g in the first step);
//   p -= lr * (nesterov ? g + momentum * b : b)
//
// One SgdStep call updates a whole group. State by parameter, with momentum only: "momentum_buffer"
// and the number of steps that went into it.
#ifndef LOCKSTEP_NN_OPTIM_SGD_H_
#define LOCKSTEP_NN_OPTIM_SGD_H_

#include <vector>

#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/nn/optim/optimizer_of.h"

namespace lockstep::optim {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  // needs momentum, and no dampening
  bool maximize = false;
};

class Sgd : public OptimizerOf<SgdOptions> {
 public:
  // Throw InvalidArgument for options out of range, no parameters, and parameters that repeat or
  // are not floating-point leaves.
  explicit Sgd(const NamedTensors& parameters, const SgdOptions& options = {});
  explicit Sgd(const std::vector<ParameterGroup<SgdOptions>>& groups);

  void Step() override;
  bool is_elementwise() const override { return true; }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_SGD_H_
