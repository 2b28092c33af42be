// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives as calls of TcpCollectives, where every rank is a member: the group is flat.
#ifndef LOCKSTEP_COMM_GLOO_FLAT_H_
#define LOCKSTEP_COMM_GLOO_FLAT_H_

#include <cstdint>
#include <vector>

#include "lockstep/comm/collective.h"
#include "lockstep/comm/gloo/tcp_collectives.h"

namespace lockstep::comm::gloo {

// Offsets in elements of the W parts of the whole tensor, and its end. Of AllToAll: of what this
// rank sends, or receives.
std::vector<int64_t> PartEnds(const Collective& collective, int size, bool received = false);

Reduction ReductionOf(const Collective& collective);

// Runs a collective over row-major tensors, all ranks having agreed on it, in the round that
// `collectives` has begun. Not for transfers.
void RunFlat(TcpCollectives& collectives, const Collective& collective);

}  // namespace lockstep::comm::gloo

#endif  // LOCKSTEP_COMM_GLOO_FLAT_H_
