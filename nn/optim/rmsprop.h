// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// RMSprop (Tieleman and Hinton 2012), with its centered form (Graves 2013), in PyTorch's order of
// operations; the default options are PyTorch's.
//
//   optim::Rmsprop optimizer(model.NamedParameters(), {.lr = 1e-3, .momentum = 0.9});
//
//   g += weight_decay * p;  s = alpha * s + (1 - alpha) * g^2;
//   centered: a = alpha * a + (1 - alpha) * g, and s - a^2 stands for s below;
//   d = g / (sqrt(s) + epsilon);  with momentum d = b = momentum * b + d;  p -= lr * d
//
// One RmspropStep call updates a whole group. State by parameter: "square_avg", with momentum
// "momentum_buffer", with centered "grad_avg", and the number of steps.
#ifndef LOCKSTEP_NN_OPTIM_RMSPROP_H_
#define LOCKSTEP_NN_OPTIM_RMSPROP_H_

#include <cstddef>
#include <vector>

#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/nn/optim/optimizer_of.h"

namespace lockstep::optim {

struct RmspropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;
};

class Rmsprop : public OptimizerOf<RmspropOptions> {
 public:
  // Throw InvalidArgument for options out of range, no parameters, and parameters that repeat or
  // are not floating-point leaves.
  explicit Rmsprop(const NamedTensors& parameters, const RmspropOptions& options = {});
  explicit Rmsprop(const std::vector<ParameterGroup<RmspropOptions>>& groups);

  void Step() override;
  bool is_elementwise() const override { return true; }

 protected:
  bool NeedsState(size_t kind, size_t group) const override;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_RMSPROP_H_
