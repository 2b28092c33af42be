// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/launcher/rank_environment.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lockstep::launcher {

std::string RankFolder(const LaunchOptions& options, const NodePlan& plan) {
  return absl::StrCat(options.rendezvous_folder, "/attempt-", plan.attempt);
}

std::string AttemptLogFolder(const LaunchOptions& options, const NodePlan& plan) {
  return absl::StrCat(options.log_dir, "/", plan.run_id, "/attempt-", plan.attempt);
}

std::vector<std::string> RankEnvironment(const Environment& inherited, const LaunchOptions& options,
                                         const NodePlan& plan, int local_rank,
                                         const std::string& token_path) {
  Environment variables = inherited;
  for (const char* name : {"LOCKSTEP_STORE", "LOCKSTEP_TOKEN_FILE", "LOCKSTEP_RENDEZVOUS",
                           "LOCKSTEP_FLIGHT_RECORDER", "TORCHELASTIC_USE_AGENT_STORE"}) {
    variables.erase(name);
  }
  const auto set = [&](const char* name, const auto& value) {
    variables[name] = absl::StrCat(value);
  };
  set("RANK", plan.first_rank(options.node_rank) + local_rank);
  set("WORLD_SIZE", plan.world_size());
  set("LOCAL_RANK", local_rank);
  set("LOCAL_WORLD_SIZE", options.nproc);
  set("GROUP_RANK", options.node_rank);
  set("GROUP_WORLD_SIZE", options.nnodes);
  set("MASTER_ADDR", plan.master_address);
  set("MASTER_PORT", plan.master_port);
  set("TORCHELASTIC_RUN_ID", plan.run_id);
  set("TORCHELASTIC_RESTART_COUNT", plan.attempt);
  set("TORCHELASTIC_MAX_RESTARTS", options.max_restarts);
  set("LOCKSTEP_RUN_ID", plan.run_id);
  set("LOCKSTEP_RESTART_COUNT", plan.attempt);
  if (options.rendezvous_folder.empty()) {
    set("LOCKSTEP_STORE", absl::StrCat(plan.master_address, ":", plan.store_port));
    set("LOCKSTEP_TOKEN_FILE", token_path);
  } else {
    set("LOCKSTEP_RENDEZVOUS", absl::StrCat("file://", RankFolder(options, plan)));
  }
  if (!options.log_dir.empty()) set("LOCKSTEP_FLIGHT_RECORDER", AttemptLogFolder(options, plan));
  std::vector<std::string> texts;
  for (const auto& [name, value] : variables) texts.push_back(absl::StrCat(name, "=", value));
  return texts;
}

}  // namespace lockstep::launcher
