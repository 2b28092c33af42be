// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/state_writer.h"

#include "absl/strings/str_cat.h"
#include "lockstep/state/file_io.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/state/state_values.h"
#include "nlohmann/json.hpp"

namespace lockstep::state {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kCall[] = "SaveTrainingState";

// Refuses what cannot be written before anything is.
std::string MakeFolder(const std::string& root, const TrainingState& state,
                       const SaveOptions& options) {
  CheckSave(kCall, state.step, options);
  ValuesToJson(kCall, state.values);
  return MakeUniqueFolder(kCall, root);
}

}  // namespace

StateWriter::StateWriter(const std::string& root, const TrainingState& state,
                         const SaveOptions& options)
    : root_(root),
      state_(state),
      options_(options),
      folder_(kCall, MakeFolder(root, state, options)) {}

std::string StateWriter::WriteRankFile(const std::string& folder, int64_t rank,
                                       const NamedTensors& own) {
  const std::string path = absl::StrCat(folder, "/", RankFileName(rank));
  WriteSafetensors(path, own);
  return FileChecksum(path);
}

std::string StateWriter::Publish(const std::vector<std::string>& rank_checksums) {
  WriteStateFile(rank_checksums);
  const std::string target = StepFolder(root_, state_.step);
  folder_.Publish(target);
  KeepNewest(root_, target, options_.keep);
  return target;
}

void StateWriter::WriteStateFile(const std::vector<std::string>& rank_checksums) {
  Json json;
  json["format"] = kStateFormat;
  json["step"] = state_.step;
  json["ranks"] = rank_checksums.size();
  json["values"] = ValuesToJson(kCall, state_.values);
  const auto write = [&](const char* name, const NamedTensors& tensors) {
    const std::string path = absl::StrCat(folder(), "/", name);
    if (!MayExist(path)) WriteSafetensors(path, tensors);
    json["files"][name] = FileChecksum(path);
  };
  write(kModelFile, state_.model);
  write(kOptimizerFile, state_.optimizer);
  if (!state_.strategy.empty()) write(kStrategyFile, state_.strategy);
  for (size_t rank = 0; rank < rank_checksums.size(); ++rank) {
    json["files"][RankFileName(static_cast<int64_t>(rank))] = rank_checksums[rank];
  }
  WriteFile(absl::StrCat(folder(), "/", kStateFile), json.dump(1) + "\n");
}

}  // namespace lockstep::state
