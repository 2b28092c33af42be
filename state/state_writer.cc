// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/state_writer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/error.h"
#include "lockstep/state/file_io.h"
#include "lockstep/state/safetensors.h"
#include "nlohmann/json.hpp"

namespace lockstep::state {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Removes a folder tree of ours; failures leave rubbish but no harm.
void RemoveQuietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

void CheckValues(const TrainingState& state) {
  for (const auto& [name, value] : state.values) {
    if (const auto* real = std::get_if<double>(&value); real != nullptr && !std::isfinite(*real)) {
      throw InvalidArgumentError(absl::StrCat("SaveTrainingState: value '", name, "' is ", *real,
                                              "; only finite numbers can be saved"));
    }
  }
}

std::string MakeFolder(const std::string& root) {
  std::error_code failure;
  fs::create_directories(root, failure);
  if (failure) {
    throw FailedPreconditionError(
        absl::StrCat("SaveTrainingState: cannot make '", root, "': ", failure.message()));
  }
  std::string path = root + "/.saving-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    throw FailedPreconditionError(absl::StrCat("SaveTrainingState: cannot make a folder in '", root,
                                               "': ", std::strerror(errno)));
  }
  // mkdtemp allows the owner only; a state is as readable as any other file of the run.
  fs::permissions(path,
                  fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read |
                      fs::perms::others_exec,
                  fs::perm_options::add);
  return path;
}

// Removes all but `keep` of the states in `root`. `newest` stays even where newer steps of an
// earlier run lie beside it.
void RemoveOldest(const std::string& root, const std::string& newest, int64_t keep) {
  if (keep == 0) return;
  std::vector<std::string> all = ListTrainingStates(root);
  all.erase(std::remove(all.begin(), all.end(), newest), all.end());
  while (static_cast<int64_t>(all.size()) > keep - 1) {
    RemoveQuietly(all.front());
    all.erase(all.begin());
  }
}

}  // namespace

std::string RankFile(int64_t rank) { return absl::StrFormat("rank-%05d.safetensors", rank); }

std::string FileChecksum(const std::string& path) {
  return absl::StrFormat("%016x", HashFile(path));
}

StateWriter::StateWriter(const std::string& root, const TrainingState& state,
                         const SaveOptions& options)
    : root_(root), state_(state), options_(options) {
  if (options.keep < 0 || state.step < 0) {
    throw InvalidArgumentError(absl::StrCat("SaveTrainingState: keep ", options.keep, ", step ",
                                            state.step, "; give both >= 0"));
  }
  CheckValues(state);
  folder_ = MakeFolder(root);
}

StateWriter::~StateWriter() { RemoveQuietly(folder_); }

std::string StateWriter::WriteRankFile(const std::string& folder, int64_t rank,
                                       const NamedTensors& own) {
  const std::string path = absl::StrCat(folder, "/", RankFile(rank));
  WriteSafetensors(path, own);
  return FileChecksum(path);
}

std::string StateWriter::Publish(const std::vector<std::string>& rank_checksums) {
  WriteStateFile(rank_checksums);
  const std::string target = absl::StrFormat("%s/step-%08d", root_, state_.step);
  GiveName(target);
  RemoveOldest(root_, target, options_.keep);
  return target;
}

void StateWriter::WriteStateFile(const std::vector<std::string>& rank_checksums) {
  Json json;
  json["format"] = kStateFormat;
  json["step"] = state_.step;
  json["ranks"] = rank_checksums.size();
  json["values"] = Json::object();
  for (const auto& [name, value] : state_.values) {
    std::visit([&, &key = name](const auto& v) { json["values"][key] = v; }, value);
  }
  const auto write = [&](const char* name, const NamedTensors& tensors) {
    const std::string path = absl::StrCat(folder_, "/", name);
    WriteSafetensors(path, tensors);
    json["files"][name] = FileChecksum(path);
  };
  write(kModelFile, state_.model);
  write(kOptimizerFile, state_.optimizer);
  if (!state_.strategy.empty()) write(kStrategyFile, state_.strategy);
  for (size_t rank = 0; rank < rank_checksums.size(); ++rank) {
    json["files"][RankFile(static_cast<int64_t>(rank))] = rank_checksums[rank];
  }
  AtomicFile file(absl::StrCat(folder_, "/", kStateFile));
  file.Append(json.dump(1) + "\n");
  file.Publish();
}

// Takes the place of `target` in one step. What was there is left under our name, to be removed.
void StateWriter::GiveName(const std::string& target) {
  SyncFolder(folder_);
  const unsigned flags = fs::exists(target) ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  if (renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, target.c_str(), flags) != 0) {
    throw FailedPreconditionError(
        absl::StrCat("SaveTrainingState: cannot publish '", target, "': ", std::strerror(errno)));
  }
  SyncFolder(fs::path(target).parent_path().string());
}

}  // namespace lockstep::state
