// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the launcher is asked to do.
//
//   LaunchOptions options = ParseLaunchOptions({"--nproc=4", "train", "--steps=10"});
//   options.program == "train"; options.arguments == {"--steps=10"}
#ifndef LOCKSTEP_TOOLS_LAUNCHER_OPTIONS_H_
#define LOCKSTEP_TOOLS_LAUNCHER_OPTIONS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::launcher {

struct LaunchOptions {
  int nproc = 1;
  int nnodes = 1;
  int node_rank = 0;
  int max_restarts = 0;
  // Where nodes meet: a folder ("file:///..."), or host and port; at most one of the two.
  std::string rendezvous_folder = {};
  std::string rendezvous_host = {};
  int rendezvous_port = 0;
  std::string token_file = {};  // absolute
  std::string log_dir = {};     // absolute
  absl::Duration stop_grace = absl::Seconds(30);
  absl::Duration node_timeout = absl::Seconds(30);
  absl::Duration join_timeout = absl::Minutes(10);
  bool help = false;

  std::string program = {};  // as it was given
  std::vector<std::string> arguments = {};
};

// From the arguments after the launcher's name: flags, then the program and its arguments ("--"
// may stand between). Paths are taken from the caller's folder (base/caller_path.h). Throws
// InvalidArgument naming the flag, its value and what to give.
LaunchOptions ParseLaunchOptions(const std::vector<std::string>& arguments);

// Every flag, with its default.
std::string LaunchHelp();

// The path of an executable: of `program` itself when it has a slash (from `folder`), else of the
// first that `search_path` (as in PATH) has. Throws NotFound naming where it was looked for.
std::string FindProgram(const std::string& program, const std::string& folder,
                        const std::string& search_path);

}  // namespace lockstep::launcher

#endif  // LOCKSTEP_TOOLS_LAUNCHER_OPTIONS_H_
