// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The launcher: attempts at a job until one ends well or none is left, with a report on each
// failure.
//
//   int main(int argc, char** argv) {
//     launcher::MaybeRunKeeper(argc, argv);                          // keeper.h
//     const launcher::LaunchOptions options = launcher::ParseLaunchOptions({argv + 1, argv +
//     argc}); return launcher::Launch(options, environment);
//   }
#ifndef LOCKSTEP_TOOLS_LAUNCHER_LAUNCHER_H_
#define LOCKSTEP_TOOLS_LAUNCHER_LAUNCHER_H_

#include "lockstep/tools/launcher/options.h"
#include "lockstep/tools/launcher/rank_environment.h"

namespace lockstep::launcher {

// Runs the job and returns the exit status: 0, or the first failing rank's (128 + the signal that
// killed it). What the ranks print goes to this process's output, the launcher's own words to its
// standard error ("launch: ..."). Ranks run in the caller's folder with `environment` and their own
// variables. Changes the process: SIGPIPE is ignored from now on, and it adopts orphans. Call it
// before other threads are started, in a program whose main begins with MaybeRunKeeper. Throws
// NotFound (program, token file), InvalidArgument, and what NodeGroup and Attempt throw.
int Launch(const LaunchOptions& options, const Environment& environment);

}  // namespace lockstep::launcher

#endif  // LOCKSTEP_TOOLS_LAUNCHER_LAUNCHER_H_
