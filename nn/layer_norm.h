// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// LayerNorm: normalises the last dimensions to mean 0 and variance 1, then scales and shifts.
//
//   nn::LayerNorm norm({8});                 // "weight" [8] of ones, "bias" [8] of zeros
//   Tensor y = norm(x);                      // [..., 8] -> [..., 8]
#ifndef LOCKSTEP_NN_LAYER_NORM_H_
#define LOCKSTEP_NN_LAYER_NORM_H_

#include <string>

#include "lockstep/nn/module.h"
#include "lockstep/tensor/ops/creation.h"

namespace lockstep::nn {

struct LayerNormOptions {
  double epsilon = 1e-5;
  bool affine = true;  // false: no parameters
  bool bias = true;
};

class LayerNorm : public UnaryModule {
 public:
  // Over the last dimensions, which are `shape`. Throws InvalidArgument for an empty shape,
  // negative sizes or a negative epsilon.
  explicit LayerNorm(const ShapeArg& shape, const LayerNormOptions& options = {});

  // Throws InvalidArgument unless x's last dimensions are `shape`.
  Tensor Forward(const Tensor& x) override;
  std::string Description() const override;
  // Ones and zeros again.
  void ResetParameters();

  Tensor weight;  // `shape`, or undefined
  Tensor bias;    // `shape`, or undefined

 private:
  Shape shape_;
  double epsilon_;
};

}  // namespace lockstep::nn

#endif  // LOCKSTEP_NN_LAYER_NORM_H_
