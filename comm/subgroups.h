// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Groups of some ranks of a group.
//
//   auto node = Split(*world, /*color=*/world->rank() / 4, /*key=*/world->rank());
//   auto even = Subgroup(*world, {0, 2, 4});   // nullptr on the other ranks
//
// Every rank of the parent calls them, in the same order as its collectives, one at a time; they
// block. Ranks that are not in the new group take part and get nullptr. The new group is
// independent of its parent, which may be destroyed first; it has the parent's backend, store and
// timeout, and a name that begins with the parent's. They throw as collectives on the parent do, as
// InitProcessGroup does, and InvalidArgument on all ranks, whichever gives what is not allowed; the
// parent stays usable.
#ifndef LOCKSTEP_COMM_SUBGROUPS_H_
#define LOCKSTEP_COMM_SUBGROUPS_H_

#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

// The colour of a rank that is to be in no group.
inline constexpr int kNoColor = -1;

// The ranks of one colour become a group, ordered by key and then by their rank in the parent.
// `color` is not below kNoColor.
std::shared_ptr<Communicator> Split(Communicator& parent, int color, int key = 0);

// A group in which ranks[i] of the parent is rank i. The list is the same on all ranks, is not
// empty, and names no rank twice.
std::shared_ptr<Communicator> Subgroup(Communicator& parent, const std::vector<int>& ranks);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_SUBGROUPS_H_
