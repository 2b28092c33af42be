// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Averages gradients over ranks in one call, after the backward pass: for training loops whose
// backward is not one pass over one graph, such as a pipeline's. Where it is,
// DistributedDataParallel overlaps the averages with it.
//
//   autograd::Backward(loss);
//   AverageGradients(model.Parameters(), *group);
//   optimizer.Step();
#ifndef LOCKSTEP_STRATEGIES_AVERAGE_GRADIENTS_H_
#define LOCKSTEP_STRATEGIES_AVERAGE_GRADIENTS_H_

#include <cstdint>

#include "lockstep/comm/communicator.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

struct AverageGradientsOptions {
  int64_t bucket_bytes = int64_t{25} << 20;  // of gradients that are reduced together
};

// The gradient of each parameter that requires one becomes the average over the ranks of `group`,
// bit for bit DistributedDataParallel's. One that this rank has not, counts as zeros, and one that
// no rank has stays undefined. Blocks until all are done.
//
// A parameter that is listed twice (a tied one) counts once.
//
// Collective: every rank calls it with parameters of the same shapes, dtypes and order. One
// collective that says which gradients there are, and one a bucket; buckets are of one dtype and
// device. Nothing happens in a group of one rank. Throws InvalidArgument (bucket_bytes below 1) and
// what Communicator::AllReduceCoalesced throws; gradients may be averaged in part then.
void AverageGradients(TensorSpan parameters, comm::Communicator& group,
                      const AverageGradientsOptions& options = {});

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_AVERAGE_GRADIENTS_H_
