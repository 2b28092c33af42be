// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The compressed forms in which Slurm's variables name hosts and count tasks.
#ifndef LOCKSTEP_COMM_SLURM_H_
#define LOCKSTEP_COMM_SLURM_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace lockstep::comm {

// "node003" of "node[003-005,9],login1"; "rack1node4" of "rack[1-2]node[4,6]". Nothing for a text
// that is no host list.
std::optional<std::string> FirstSlurmHost(absl::string_view hosts);

// Tasks on the node of that index (0 is the first) of "2(x3),1": 2, 2, 2, 1. Nothing for a text of
// another form or an index beyond it. A single number is that of every node.
std::optional<int> SlurmTasksOnNode(absl::string_view counts, int node);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_SLURM_H_
