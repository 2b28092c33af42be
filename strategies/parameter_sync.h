// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Making the ranks' parameters the same: pure functions over a communicator.
#ifndef LOCKSTEP_STRATEGIES_PARAMETER_SYNC_H_
#define LOCKSTEP_STRATEGIES_PARAMETER_SYNC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::strategies {

// Throws InvalidArgument, on every rank, unless all ranks have the same tensors: names, order,
// shapes, dtypes and whether they require gradients; and the same `settings`, "<option>=<value>"
// each: ranks that differ in one would do different things and not notice. The error names
// `strategy`, the first tensor or setting that differs and both ranks. Throws FailedPrecondition
// for a tensor whose elements are lost (lost_parameter.h). Two AllGathers.
void VerifySameTensors(absl::string_view strategy, const NamedTensors& tensors,
                       comm::Communicator& group, const std::vector<std::string>& settings = {});

// Gives every rank the values of rank `root`, in order; one Broadcast a tensor.
void BroadcastTensors(const NamedTensors& tensors, comm::Communicator& group, int root = 0);

// Rank 0's numbers, on every rank: as many everywhere.
std::vector<int64_t> BroadcastIndices(const std::vector<int64_t>& indices,
                                      comm::Communicator& group);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_PARAMETER_SYNC_H_
