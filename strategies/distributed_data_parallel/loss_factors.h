// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// LossFactors: the gradient of the mean over all tokens when ranks and micro-batches have different
// numbers of them.
//
//   // counts[i]: tokens of this rank's micro-batch i that are not padding
//   const std::vector<double> factors = strategies::LossFactors(counts, *world);
//   for (size_t i = 0; i < batches.size(); ++i) {
//     // all but the last under NoSync
//     Tensor loss = model->Loss(batches[i].ids, batches[i].targets);   // a mean over counts[i]
//     autograd::Backward(loss * factors[i]);
//   }
//   optimizer.Step();
//
// DistributedDataParallel averages over ranks, and micro-batches add up. So a mean over counts[i]
// tokens has to be multiplied by counts[i] (it becomes a sum) and the number of ranks (which the
// average divides by), and divided by the tokens of all micro-batches of all ranks.
// amp::TrainingStep::RunWeighted does the same as part of its step.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_LOSS_FACTORS_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_LOSS_FACTORS_H_

#include <vector>

#include "absl/types/span.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::strategies {

// One factor for each of this rank's micro-batches, of which there may be any number. All 0 when
// no rank has a token. One AllReduce of a number; every rank calls it. Throws InvalidArgument, on
// every rank, when a rank gives a count that is negative or not finite.
std::vector<double> LossFactors(absl::Span<const double> counts, comm::Communicator& group);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_LOSS_FACTORS_H_
