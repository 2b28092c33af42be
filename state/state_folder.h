// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Folders of states: their names, and how they appear whole and go again.
#ifndef LOCKSTEP_STATE_STATE_FOLDER_H_
#define LOCKSTEP_STATE_STATE_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::state {

// "<root>/step-00002200".
std::string StepFolder(const std::string& root, int64_t step);
// Those under `root`, oldest step first; empty when there is no such folder.
std::vector<std::string> ListStepFolders(const std::string& root);
// Removes the oldest step folders, but never `newest`, until `keep` are left (0: none is removed).
void KeepNewest(const std::string& root, const std::string& newest, int64_t keep);

// Make an empty folder and return its path: one of a new name in `root`, or `path` itself, where
// what was there is removed. The folders above it are made where there are none. Throw
// FailedPrecondition that begins with `call` and has the path and the system's reason.
std::string MakeUniqueFolder(absl::string_view call, const std::string& root);
std::string MakeEmptyFolder(absl::string_view call, const std::string& path);

// A folder that is removed at the end unless it has been published.
class TemporaryFolder {
 public:
  // `path` exists. `call` begins errors.
  TemporaryFolder(absl::string_view call, std::string path);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // Takes the place of `target` in one step, durably. What was there is removed at the end. Throws
  // FailedPrecondition.
  void Publish(const std::string& target);

 private:
  std::string call_;
  std::string path_;
};

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_STATE_FOLDER_H_
