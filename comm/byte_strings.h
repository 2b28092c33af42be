// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives of byte strings of any length, 0 too, which need not be known to the other ranks: for
// configurations, names, serialised messages.
//
//   const std::string config = BroadcastBytes(*world, rank == 0 ? Read(path) : "", 0);
//   for (const std::string& host : AllGatherBytes(*world, HostName())) ...
//
// Each call blocks until this rank has what it is to have. It is made of two collectives, one of
// the lengths (none needs the second if all are 0), and throws as those and their Work::Wait() do.
// Many small calls cost more than a tensor.
#ifndef LOCKSTEP_COMM_BYTE_STRINGS_H_
#define LOCKSTEP_COMM_BYTE_STRINGS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

// The root's `bytes`; the other ranks' are not looked at.
std::string BroadcastBytes(Communicator& communicator, absl::string_view bytes, int root = 0);

// All ranks' `bytes`, by rank.
std::vector<std::string> AllGatherBytes(Communicator& communicator, absl::string_view bytes);

// The same on the root; empty elsewhere.
std::vector<std::string> GatherBytes(Communicator& communicator, absl::string_view bytes,
                                     int root = 0);

// Element rank() of the root's `parts`, which has one for each rank; the other ranks' are not
// looked at. Throws InvalidArgument on all ranks when the root's `parts` has another size; the
// group stays usable.
std::string ScatterBytes(Communicator& communicator, absl::Span<const std::string> parts,
                         int root = 0);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_BYTE_STRINGS_H_
