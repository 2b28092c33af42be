// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The main function of a tool that prints what it finds.
//
//   int main(int argc, char** argv) {
//     return lockstep::tools::RunTool("topology", argc, argv, lockstep::topology::Run);
//   }
#ifndef LOCKSTEP_TOOLS_RUN_TOOL_H_
#define LOCKSTEP_TOOLS_RUN_TOOL_H_

#include <string>
#include <vector>

namespace lockstep::tools {

// Calls `run` with the arguments and returns its status. An exception is told in a line on stderr
// that begins with `name`, with status 1; so is output that could not be written.
int RunTool(const char* name, int argc, char** argv, int (*run)(const std::vector<std::string>&));

// Writes what has been printed to stdout. Throws Unavailable when that, or an earlier write, fails:
// on a full disk, or where stdout is closed.
void FlushOutput();

}  // namespace lockstep::tools

#endif  // LOCKSTEP_TOOLS_RUN_TOOL_H_
