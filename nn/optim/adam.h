// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Adam (Kingma and Ba 2015), with its AMSGrad form (Reddi, Kale and Kumar 2018), in PyTorch's order
// of operations; the default options are PyTorch's.
//
//   optim::Adam optimizer(model.NamedParameters(), {.lr = 2e-3, .beta2 = 0.95});
//
//   g += weight_decay * p;  m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2;
//   p -= lr * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
//
// The decay is an L2 penalty: it passes through the moments. AdamW (adamw.h) decays the parameter
// itself. With amsgrad the largest v so far divides.
//
// One AdamStep call updates a whole group. State by parameter: "exp_avg", "exp_avg_sq", with
// amsgrad "max_exp_avg_sq", and the number of steps, which begins when the parameter first has a
// gradient.
#ifndef LOCKSTEP_NN_OPTIM_ADAM_H_
#define LOCKSTEP_NN_OPTIM_ADAM_H_

#include <vector>

#include "lockstep/nn/optim/adam_family.h"
#include "lockstep/nn/optim/optimizer.h"

namespace lockstep::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
};

class Adam : public AdamFamily<AdamOptions> {
 public:
  // Throw InvalidArgument for options out of range, no parameters, and parameters that repeat or
  // are not floating-point leaves.
  explicit Adam(const NamedTensors& parameters, const AdamOptions& options = {});
  explicit Adam(const std::vector<ParameterGroup<AdamOptions>>& groups);
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_ADAM_H_
