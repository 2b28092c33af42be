// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/activations.h"

#include "lockstep/tensor/ops/elementwise.h"

namespace lockstep::nn {

Tensor Relu::Forward(const Tensor& x) { return lockstep::Relu(x); }
Tensor Gelu::Forward(const Tensor& x) { return lockstep::Gelu(x, kind_); }
Tensor Tanh::Forward(const Tensor& x) { return lockstep::Tanh(x); }
Tensor Sigmoid::Forward(const Tensor& x) { return lockstep::Sigmoid(x); }

}  // namespace lockstep::nn
