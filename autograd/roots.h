// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Checks of what users give a backward: outputs, gradients, inputs. Internal.
#ifndef LOCKSTEP_AUTOGRAD_ROOTS_H_
#define LOCKSTEP_AUTOGRAD_ROOTS_H_

#include <vector>

#include "lockstep/autograd/engine.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd::internal {

// One seed an output. Throws as Backward() does, messages starting with `call`.
std::vector<Seed> MakeSeeds(TensorSpan outputs, const std::vector<Tensor>& gradients,
                            const char* call);

// One edge an input, each of which requires a gradient.
std::vector<Edge> MakeTargets(TensorSpan inputs, const char* call);

}  // namespace lockstep::autograd::internal

#endif  // LOCKSTEP_AUTOGRAD_ROOTS_H_
