// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Initialisers: they write values into a tensor in place, outside the graph of gradients, and
// return it.
//
//   init::KaimingUniform(linear.weight, {.a = std::sqrt(5.0)});
//   init::Zeros(linear.bias);
//
// Random ones draw from `generator`, by default ThreadGenerators().parameters, which is the same on
// all ranks. Element i depends on the generator's position and i only, so that a tensor on the meta
// device advances the generator as any other does.
#ifndef LOCKSTEP_NN_INIT_H_
#define LOCKSTEP_NN_INIT_H_

#include <cstdint>

#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn::init {

Tensor Zeros(const Tensor& tensor);
Tensor Ones(const Tensor& tensor);
Tensor Constant(const Tensor& tensor, double value);

// Throws InvalidArgument for std < 0, or a tensor that is not floating point.
Tensor Normal(const Tensor& tensor, double mean = 0, double std = 1,
              Generator* generator = nullptr);
// Uniform in [low, high). Throws InvalidArgument for low > high.
Tensor Uniform(const Tensor& tensor, double low = 0, double high = 1,
               Generator* generator = nullptr);

// Number of inputs and outputs of one unit of a weight [outputs, inputs, receptive field...].
// Throws InvalidArgument below two dimensions.
struct Fans {
  int64_t in = 0;
  int64_t out = 0;
};
Fans FansOf(const Tensor& weight);

struct KaimingOptions {
  double a = 0;          // negative slope of the leaky ReLU that follows; 0: ReLU
  bool fan_out = false;  // keep the variance of the backward pass instead of the forward pass
  Generator* generator = nullptr;
};
// Uniform within +-sqrt(6 / ((1 + a^2) * fan)). Source: He et al. 2015.
Tensor KaimingUniform(const Tensor& weight, const KaimingOptions& options = {});

// Uniform within +-gain * sqrt(6 / (in + out)). Source: Glorot and Bengio 2010.
Tensor XavierUniform(const Tensor& weight, double gain = 1, Generator* generator = nullptr);

}  // namespace lockstep::nn::init

#endif  // LOCKSTEP_NN_INIT_H_
