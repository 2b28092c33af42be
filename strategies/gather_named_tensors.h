// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tensors that each rank has for itself, under names, on one rank: for saving a model of which
// every rank has a part.
//
//   const NamedTensors whole = GatherNamedTensors(pipeline.module().StateDict(), *group);
#ifndef LOCKSTEP_STRATEGIES_GATHER_NAMED_TENSORS_H_
#define LOCKSTEP_STRATEGIES_GATHER_NAMED_TENSORS_H_

#include "lockstep/comm/communicator.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::strategies {

// On `root`: its own tensors as they are, and copies of the other ranks' on the current device,
// rank after rank, each in its order. Empty on the other ranks. The tensors may differ in number,
// shape and dtype from rank to rank; their names do not repeat.
//
// Collective: the names in two collectives, then one transfer a tensor, one tensor at a time.
// Throws AlreadyExists on every rank, naming the tensor and both ranks, for a name that two ranks
// have, and what `group` throws.
NamedTensors GatherNamedTensors(const NamedTensors& own, comm::Communicator& group, int root = 0);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_GATHER_NAMED_TENSORS_H_
