// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Work that all ranks of a group do together: either all have done it, or all throw.
//
//   const std::vector<std::string> checksums =
//       comm::OnEveryRank(*world, "Save", [&] { return WriteMyFile(); });
//
// For work that touches what a rank alone can find wrong (files, settings), where the others must
// not go on without it.
#ifndef LOCKSTEP_COMM_ON_EVERY_RANK_H_
#define LOCKSTEP_COMM_ON_EVERY_RANK_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

// Every rank of `group` calls it. Runs `work` and returns what it returned on each rank, by rank.
// Where it throws on a rank, that rank throws the same (Internal for an exception that is no
// Error), and all others Aborted, which begins with `call` and has the first such rank and its
// message. `work` may hold collectives if all ranks come to the same ones whatever fails. Throws
// the group's error too.
std::vector<std::string> OnEveryRank(Communicator& group, absl::string_view call,
                                     absl::FunctionRef<std::string()> work);

// The same of work that has nothing to say.
void AllOrNone(Communicator& group, absl::string_view call, absl::FunctionRef<void()> work);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_ON_EVERY_RANK_H_
