// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C and SIGTERM in a training process: the first sets a flag, the second ends the process.
#ifndef LOCKSTEP_EXAMPLES_STOP_SIGNAL_H_
#define LOCKSTEP_EXAMPLES_STOP_SIGNAL_H_

namespace lockstep::examples {

// Handles SIGINT and SIGTERM from now on. The second one exits at once, with 128 + its number.
void InstallStopSignal();

// Whether one has come.
bool StopRequested();

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_STOP_SIGNAL_H_
