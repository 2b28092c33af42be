// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Making sure that all ranks hold the same model: functions over a communicator.
#ifndef LOCKSTEP_STRATEGIES_REPLICA_AGREEMENT_H_
#define LOCKSTEP_STRATEGIES_REPLICA_AGREEMENT_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// Collective: compares names, shapes, dtypes and whether a gradient is required, in order. One
// AllGather of a checksum when they agree. Throws InvalidArgument, prefixed by `call`, with the
// same message on every rank: the first difference, and the ranks on both sides of it.
void CheckReplicasAgree(absl::string_view call, comm::Communicator& group,
                        const NamedTensors& parameters, const NamedTensors& buffers);

// Collective: all tensors become those of `root`, by one Broadcast each, in order.
void BroadcastTensors(comm::Communicator& group, absl::Span<const Tensor> tensors, int root);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_REPLICA_AGREEMENT_H_
