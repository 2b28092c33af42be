// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Linear: y = x W^T + b.
//
//   nn::Linear layer(3, 5);                  // "weight" [5, 3], "bias" [5]
//   Tensor y = layer(x);                     // [..., 3] -> [..., 5]
//
// Initial values as PyTorch's: weight and bias uniform within +-1 / sqrt(inputs).
#ifndef LOCKSTEP_NN_LINEAR_H_
#define LOCKSTEP_NN_LINEAR_H_

#include <cstdint>
#include <string>

#include "lockstep/nn/module.h"

namespace lockstep::nn {

struct LinearOptions {
  bool bias = true;
  // A weight [outputs, inputs] to share with another module, which keeps its values; undefined: a
  // weight of its own.
  Tensor weight = {};
};

class Linear : public UnaryModule {
 public:
  // Throws InvalidArgument for negative sizes or a shared weight of another shape.
  Linear(int64_t inputs, int64_t outputs, const LinearOptions& options = {});

  Tensor Forward(const Tensor& x) override;
  std::string Description() const override;
  // Draws the initial values anew, those of a shared weight too.
  void ResetParameters();

  Tensor weight;  // [outputs, inputs]
  Tensor bias;    // [outputs], or undefined

 private:
  void ResetWeight();
  void ResetBias();
};

}  // namespace lockstep::nn

#endif  // LOCKSTEP_NN_LINEAR_H_
