// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/find_state.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/state/sharded_manifest.h"
#include "lockstep/state/sharded_state.h"
#include "lockstep/state/state_folder.h"

namespace lockstep::examples {
namespace {

FoundState Verified(const std::string& path) {
  FoundState found;
  found.path = path;
  found.sharded = IsShardedState(path);
  if (found.sharded) {
    state::ShardedManifest manifest = state::VerifyShardedState(path);
    found.state.step = manifest.step;
    found.state.values = std::move(manifest.values);
  } else {
    found.state = state::LoadTrainingState(path, {}, {.tensors = false});
  }
  return found;
}

FoundState NewestOf(const std::string& root) {
  FoundState found;
  std::vector<std::string> skipped;
  const auto load = [&](const std::string& path) { found = Verified(path); };
  state::LoadNewest(root, "training state", load, skipped);
  found.skipped = std::move(skipped);
  return found;
}

// Of the newest run below `root` when it has several.
FoundState Latest(const std::string& root) {
  if (!state::ListStepFolders(root).empty()) return NewestOf(root);
  std::vector<std::pair<std::filesystem::file_time_type, std::string>> runs;
  std::error_code failure;
  for (std::filesystem::directory_iterator it(root, failure), end; !failure && it != end;
       it.increment(failure)) {
    const std::vector<std::string> states = state::ListStepFolders(it->path().string());
    if (!states.empty()) {
      runs.emplace_back(std::filesystem::last_write_time(states.back()), it->path().string());
    }
  }
  if (runs.empty()) return NewestOf(root);
  return NewestOf(std::max_element(runs.begin(), runs.end())->second);
}

}  // namespace

bool IsShardedState(const std::string& path) {
  // A folder that may not be looked into is none, until what reads it says why.
  std::error_code failure;
  return std::filesystem::exists(absl::StrCat(path, "/", state::kManifestFileName), failure);
}

FoundState FindState(const std::string& resume, const std::string& root) {
  if (resume == "latest") return Latest(root);
  std::error_code failure;
  if (!std::filesystem::exists(resume, failure)) {
    throw NotFoundError(
        absl::StrCat("--resume=", resume, ": ", failure ? failure.message() : "no such folder"));
  }
  return state::ListStepFolders(resume).empty() ? Verified(resume) : NewestOf(resume);
}

}  // namespace lockstep::examples
