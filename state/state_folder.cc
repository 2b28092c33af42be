// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/state_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/state/file_io.h"

namespace lockstep::state {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";

// The step of a state's folder name, or -1.
int64_t StepOf(const fs::path& path) {
  const std::string name = path.filename().string();
  int64_t step = -1;
  const absl::string_view digits =
      absl::string_view(name).substr(std::min(name.size(), sizeof(kPrefix) - 1));
  if (!absl::StartsWith(name, kPrefix) || digits.size() < 8 || !absl::SimpleAtoi(digits, &step)) {
    return -1;
  }
  return step;
}

// Removes a folder tree of ours; failures leave rubbish but no harm.
void RemoveQuietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

void MakeFolders(absl::string_view call, const std::string& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) {
    throw FailedPreconditionError(
        absl::StrCat(call, ": cannot make '", path, "': ", failure.message()));
  }
}

}  // namespace

std::string StepFolder(const std::string& root, int64_t step) {
  return absl::StrFormat("%s/%s%08d", root, kPrefix, step);
}

std::vector<std::string> ListStepFolders(const std::string& root) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code failure;
  for (fs::directory_iterator it(root, failure), end; !failure && it != end;
       it.increment(failure)) {
    const int64_t step = StepOf(it->path());
    if (step >= 0) found.emplace_back(step, it->path().string());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::string RankFileName(int64_t rank) { return absl::StrFormat("rank-%05d.safetensors", rank); }

void CheckSave(absl::string_view call, int64_t step, const SaveOptions& options) {
  if (options.keep < 0 || step < 0) {
    throw InvalidArgumentError(
        absl::StrCat(call, ": keep ", options.keep, ", step ", step, "; give both >= 0"));
  }
}

void KeepNewest(const std::string& root, const std::string& newest, int64_t keep) {
  if (keep == 0) return;
  std::vector<std::string> all = ListStepFolders(root);
  // The one just written stays even where newer steps of an earlier run lie beside it.
  all.erase(std::remove(all.begin(), all.end(), newest), all.end());
  while (static_cast<int64_t>(all.size()) > keep - 1) {
    RemoveQuietly(all.front());
    all.erase(all.begin());
  }
}

std::string MakeUniqueFolder(absl::string_view call, const std::string& root) {
  MakeFolders(call, root);
  std::string path = root + "/.saving-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    throw FailedPreconditionError(
        absl::StrCat(call, ": cannot make a folder in '", root, "': ", std::strerror(errno)));
  }
  // mkdtemp allows the owner only; a state is as readable as any other file of the run.
  fs::permissions(path,
                  fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read |
                      fs::perms::others_exec,
                  fs::perm_options::add);
  return path;
}

std::string MakeEmptyFolder(absl::string_view call, const std::string& path) {
  RemoveQuietly(path);
  MakeFolders(call, path);
  return path;
}

TemporaryFolder::TemporaryFolder(absl::string_view call, std::string path)
    : call_(call), path_(std::move(path)) {}

TemporaryFolder::~TemporaryFolder() { RemoveQuietly(path_); }

void TemporaryFolder::Publish(const std::string& target) {
  SyncFolder(path_);
  const unsigned flags = MayExist(target) ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), flags) != 0) {
    throw FailedPreconditionError(
        absl::StrCat(call_, ": cannot publish '", target, "': ", std::strerror(errno)));
  }
  SyncFolder(fs::path(target).parent_path().string());
}

std::string ReadIndexFile(const std::string& path, absl::string_view index, absl::string_view kind,
                          int64_t maximum_bytes) {
  if (!MayExist(path)) throw NotFoundError(absl::StrCat("'", path, "': no such folder"));
  try {
    return ReadFile(absl::StrCat(path, "/", index), maximum_bytes);
  } catch (const Error& error) {
    throw DataLossError(absl::StrCat("'", path, "' is no ", kind, ": ", error.message()));
  }
}

void VerifyFile(const std::string& file, absl::string_view checksum, absl::string_view index) {
  if (!MayExist(file)) throw DataLossError(absl::StrCat("'", file, "' is missing"));
  if (FileChecksum(file) != checksum) {
    throw DataLossError(absl::StrCat("'", file,
                                     "' is damaged, or belongs to another step: its checksum is "
                                     "not the one in ",
                                     index));
  }
}

std::string LoadNewest(const std::string& root, absl::string_view kind,
                       const std::function<void(const std::string& path)>& load,
                       std::vector<std::string>& skipped) {
  const std::vector<std::string> paths = ListStepFolders(root);
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    try {
      load(*path);
      return *path;
    } catch (const Error& error) {
      // What says that this state is not good; anything else (memory, a group that has failed) is
      // no reason to go back to an older one.
      const absl::StatusCode code = error.code();
      if (code != absl::StatusCode::kDataLoss && code != absl::StatusCode::kNotFound &&
          code != absl::StatusCode::kFailedPrecondition && code != absl::StatusCode::kAborted) {
        throw;
      }
      skipped.push_back(error.message());
    }
  }
  throw NotFoundError(absl::StrCat("no ", kind, " under '", root, "'", skipped.empty() ? "" : ": ",
                                   absl::StrJoin(skipped, "; ")));
}

}  // namespace lockstep::state
