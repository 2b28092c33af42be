// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The variables that a rank finds (docs/launch.md lists them).
#ifndef LOCKSTEP_TOOLS_LAUNCHER_RANK_ENVIRONMENT_H_
#define LOCKSTEP_TOOLS_LAUNCHER_RANK_ENVIRONMENT_H_

#include <map>
#include <string>
#include <vector>

#include "lockstep/tools/launcher/node_group.h"
#include "lockstep/tools/launcher/options.h"

namespace lockstep::launcher {

using Environment = std::map<std::string, std::string>;

// "NAME=value" for each: `inherited`, without what another launcher has set there, and this rank's.
// `token_path` is "" when ranks meet in a folder.
std::vector<std::string> RankEnvironment(const Environment& inherited, const LaunchOptions& options,
                                         const NodePlan& plan, int local_rank,
                                         const std::string& token_path);

// The folder in which the ranks of an attempt meet, in the launchers' folder.
std::string RankFolder(const LaunchOptions& options, const NodePlan& plan);

// Where an attempt leaves what its ranks print and, after an error, their flight records: a folder
// of its own, so that no attempt writes over another's.
std::string AttemptLogFolder(const LaunchOptions& options, const NodePlan& plan);

}  // namespace lockstep::launcher

#endif  // LOCKSTEP_TOOLS_LAUNCHER_RANK_ENVIRONMENT_H_
