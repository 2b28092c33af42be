// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// AdamW: Adam (adam.h) with decoupled weight decay (Loshchilov and Hutter 2019), in PyTorch's order
// of operations; the default options are PyTorch's.
//
//   optim::AdamW optimizer(model.NamedParameters(), {.lr = 2e-3, .beta2 = 0.95});
//
// Groups with options of their own; here, no decay of vectors:
//
//   const NamedTensors all = model.NamedParameters();
//   auto is_matrix = [](const std::string&, const Tensor& t) { return t.rank() >= 2; };
//   auto is_vector = [](const std::string&, const Tensor& t) { return t.rank() < 2; };
//   optim::AdamW optimizer({{all.Filter(is_matrix), {.weight_decay = 0.1}},
//                           {all.Filter(is_vector), {.weight_decay = 0}}});
//   optimizer.options(1).lr = 1e-4;          // from the next step on
//
//   p *= 1 - lr * weight_decay; then as Adam without decay
//
// One AdamStep call updates a whole group. State by parameter: "exp_avg", "exp_avg_sq", with
// amsgrad "max_exp_avg_sq", and the number of steps, which begins when the parameter first has a
// gradient.
#ifndef LOCKSTEP_NN_OPTIM_ADAMW_H_
#define LOCKSTEP_NN_OPTIM_ADAMW_H_

#include <vector>

#include "lockstep/nn/optim/adam_family.h"
#include "lockstep/nn/optim/optimizer.h"

namespace lockstep::optim {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
};

class AdamW : public AdamFamily<AdamWOptions> {
 public:
  // Throw InvalidArgument for options out of range, no parameters, and parameters that repeat or
  // are not floating-point leaves.
  explicit AdamW(const NamedTensors& parameters, const AdamWOptions& options = {});
  explicit AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups);
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_NN_OPTIM_ADAMW_H_
