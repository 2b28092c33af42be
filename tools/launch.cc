// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Starts the ranks of a program on one node or several, and restarts them when one fails:
// docs/launch.md.
//
//   ./bazelw run //tools:launch -- --nproc=4 --max_restarts=3 train --out=run --resume=auto
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "lockstep/tools/launcher/keeper.h"
#include "lockstep/tools/launcher/launcher.h"
#include "lockstep/tools/launcher/options.h"
#include "lockstep/tools/run_tool.h"

namespace lockstep::launcher {
namespace {

Environment ReadEnvironment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    environment.insert(pair);
  }
  return environment;
}

int Run(const std::vector<std::string>& arguments) {
  const LaunchOptions options = ParseLaunchOptions(arguments);
  if (options.help) {
    std::fputs(LaunchHelp().c_str(), stdout);
    return 0;
  }
  return Launch(options, ReadEnvironment());
}

}  // namespace
}  // namespace lockstep::launcher

int main(int argc, char** argv) {
  lockstep::launcher::MaybeRunKeeper(argc, argv);
  return lockstep::tools::RunTool("launch", argc, argv, lockstep::launcher::Run);
}
