// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The processes below a process, as /proc shows them.
//
//   prctl(PR_SET_CHILD_SUBREAPER, 1);      // what is below us stays below us
//   for (pid_t pid : Descendants(getpid())) kill(pid, SIGKILL);
//
// A process may start another one while we look: who wants all gone looks until there are none.
#ifndef LOCKSTEP_TOOLS_LAUNCHER_PROCESS_TREE_H_
#define LOCKSTEP_TOOLS_LAUNCHER_PROCESS_TREE_H_

#include <sys/types.h>

#include <set>
#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep::launcher {

// Children of `root`, their children and so on, without zombies; parents come before their
// children. What is in `except` is left out with all that is below it.
std::vector<pid_t> Descendants(pid_t root, const std::set<pid_t>& except = {});

// The children alone, without zombies.
std::vector<pid_t> Children(pid_t parent);

// Kills all descendants of this process but those until there are none, and collects what thereby
// becomes this process's zombies. False when the deadline passed first.
bool KillDescendants(const std::set<pid_t>& except, Deadline deadline);

}  // namespace lockstep::launcher

#endif  // LOCKSTEP_TOOLS_LAUNCHER_PROCESS_TREE_H_
