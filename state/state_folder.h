// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Folders of states: their names, how they appear whole and go again, and what of them is verified
// when they are read. What all kinds of states have in common.
#ifndef LOCKSTEP_STATE_STATE_FOLDER_H_
#define LOCKSTEP_STATE_STATE_FOLDER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::state {

// "<root>/step-00002200".
std::string StepFolder(const std::string& root, int64_t step);
// Those under `root`, oldest step first; empty when there is no such folder.
std::vector<std::string> ListStepFolders(const std::string& root);
// "rank-00003.safetensors": the file, in a state's folder, of what one rank has.
std::string RankFileName(int64_t rank);

struct SaveOptions {
  int64_t keep = 3;  // newest states left in the root, this one included; 0: all
};
// Throws InvalidArgument, which begins with `call`, when one of them is negative.
void CheckSave(absl::string_view call, int64_t step, const SaveOptions& options);
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

// The text of the file `index` in the folder `path` of a `kind` ("training state"): the one that
// says what the others are. Throws NotFound without a folder, and DataLoss.
std::string ReadIndexFile(const std::string& path, absl::string_view index, absl::string_view kind,
                          int64_t maximum_bytes);
// Throws DataLoss naming `file` unless it is there and has the checksum that `index` says.
void VerifyFile(const std::string& file, absl::string_view checksum, absl::string_view index);

// Calls `load` with the step folders under `root`, newest first, until one is good, and returns
// that one. Each error of `load` that says it is not is put into `skipped`; InvalidArgument says
// that it is good but not for this run, where an older one would be a surprise, and is thrown on.
// Throws NotFound, with the reasons, when none is good.
std::string LoadNewest(const std::string& root, absl::string_view kind,
                       const std::function<void(const std::string& path)>& load,
                       std::vector<std::string>& skipped);

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_STATE_FOLDER_H_
