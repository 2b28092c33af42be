// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Losses as modules: they keep their options and run hooks. Elsewhere call lockstep::CrossEntropy
// and lockstep::MseLoss.
//
//   nn::CrossEntropyLoss loss({.label_smoothing = 0.1});
//   Tensor value = loss(logits, target);
#ifndef LOCKSTEP_NN_LOSSES_H_
#define LOCKSTEP_NN_LOSSES_H_

#include <string>

#include "lockstep/nn/module.h"
#include "lockstep/tensor/ops/neural.h"

namespace lockstep::nn {

class CrossEntropyLoss : public Module {
 public:
  // Throws InvalidArgument for label smoothing outside [0, 1].
  explicit CrossEntropyLoss(const CrossEntropyOptions& options = {});

  // logits [N, C] or [C], target int64 [N] or [].
  Tensor Forward(const Tensor& logits, const Tensor& target);
  Tensor operator()(const Tensor& logits, const Tensor& target);
  std::string Description() const override { return "CrossEntropyLoss"; }

 private:
  CrossEntropyOptions options_;
};

class MseLoss : public Module {
 public:
  explicit MseLoss(Reduction reduction = Reduction::kMean) : reduction_(reduction) {}

  // x and target of one shape.
  Tensor Forward(const Tensor& x, const Tensor& target);
  Tensor operator()(const Tensor& x, const Tensor& target);
  std::string Description() const override { return "MseLoss"; }

 private:
  Reduction reduction_;
};

}  // namespace lockstep::nn

#endif  // LOCKSTEP_NN_LOSSES_H_
