// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The command that goes on from a state.
#ifndef LOCKSTEP_EXAMPLES_RESUME_COMMAND_H_
#define LOCKSTEP_EXAMPLES_RESUME_COMMAND_H_

#include <cstdint>
#include <string>

namespace lockstep::examples {

// A shell command that works in the caller's folder. `steps` is given where it is not 0 (a finished
// run has none left).
std::string ResumeCommand(const std::string& state_path, int64_t steps);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_RESUME_COMMAND_H_
