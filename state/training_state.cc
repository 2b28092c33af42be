// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/training_state.h"

#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/state/state_folder.h"
#include "lockstep/state/state_format.h"
#include "lockstep/state/state_values.h"
#include "lockstep/state/state_writer.h"
#include "nlohmann/json.hpp"

namespace lockstep::state {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaximumJsonBytes = 16 << 20;
constexpr int64_t kMaximumRanks = 1 << 16;

template <typename T>
const T& Get(const TrainingState& state, absl::string_view name, const char* type) {
  const auto found = state.values.find(std::string(name));
  if (found == state.values.end()) {
    throw DataLossError(
        absl::StrCat("training state of step ", state.step, " has no value '", name, "'"));
  }
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  throw DataLossError(
      absl::StrCat("training state of step ", state.step, ": value '", name, "' is not ", type));
}

// REQUIRES: `text` is what state.json holds. Throws DataLoss.
TrainingState ParseStateJson(const std::string& text, std::map<std::string, std::string>& files) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto has = [&](const char* key, auto predicate) {
    return json.is_object() && json.contains(key) && (json[key].*predicate)();
  };
  using Check = bool (Json::*)() const noexcept;
  CheckFormat(json, kStateFormat);
  if (!has("step", static_cast<Check>(&Json::is_number_integer)) ||
      !has("values", static_cast<Check>(&Json::is_object)) ||
      !has("files", static_cast<Check>(&Json::is_object))) {
    throw DataLossError("without step, values or files");
  }
  TrainingState state;
  state.step = json["step"].get<int64_t>();
  state.values = ValuesFromJson(json["values"]);
  if (json.contains("ranks")) {  // states of before there were any have none
    const Json& ranks = json["ranks"];
    if (!ranks.is_number_unsigned() || ranks.get<uint64_t>() > uint64_t{kMaximumRanks}) {
      throw DataLossError("with a number of ranks that cannot be");
    }
    state.ranks = ranks.get<int64_t>();
  }
  for (const auto& [name, checksum] : json["files"].items()) {
    if (checksum.is_string()) files[name] = checksum.get<std::string>();
  }
  return state;
}

}  // namespace

int64_t TrainingState::Integer(absl::string_view name) const {
  return Get<int64_t>(*this, name, "an integer");
}
double TrainingState::Real(absl::string_view name) const {
  // A double without a fraction reads back as an integer in some writers; ours keeps ".0".
  return Get<double>(*this, name, "a real number");
}
const std::string& TrainingState::Text(absl::string_view name) const {
  return Get<std::string>(*this, name, "a text");
}

void SaveRandomState(const RandomStreams& random, TrainingState& state) {
  state.Set("random.seed", static_cast<int64_t>(random.parameters.key.seed));
  state.Set("random.parameters_offset", static_cast<int64_t>(random.parameters.key.offset));
  state.Set("random.data_offset", static_cast<int64_t>(random.data.key.offset));
  state.Set("random.dropout_offset", static_cast<int64_t>(random.dropout.key.offset));
}

RandomStreams LoadRandomState(const TrainingState& state, int64_t data_parallel_rank) {
  const uint64_t seed = static_cast<uint64_t>(state.Integer("random.seed"));
  const auto offset = [&](absl::string_view name) {
    return static_cast<uint64_t>(state.Integer(name));
  };
  RandomStreams random;
  random.parameters.key = {seed, kParameterStream, offset("random.parameters_offset")};
  random.data.key = {seed, kDataStream, offset("random.data_offset")};
  random.dropout.key = {seed, kDropoutStreamBase + static_cast<uint64_t>(data_parallel_rank),
                        offset("random.dropout_offset")};
  return random;
}

std::string SaveTrainingState(const std::string& root, const TrainingState& state,
                              const SaveOptions& options) {
  StateWriter writer(root, state, options);
  std::vector<std::string> checksums;
  if (!state.own.empty()) {
    checksums.push_back(StateWriter::WriteRankFile(writer.folder(), 0, state.own));
  }
  return writer.Publish(checksums);
}

TrainingState LoadTrainingState(const std::string& path, std::optional<int64_t> rank,
                                const LoadStateOptions& options) {
  std::map<std::string, std::string> files;
  const std::string state_file = absl::StrCat(path, "/", kStateFile);
  const std::string text = ReadIndexFile(path, kStateFile, "training state", kMaximumJsonBytes);
  TrainingState state;
  try {
    state = ParseStateJson(text, files);
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat("'", state_file, "'"));
  }
  const auto verified = [&](const std::string& name) {
    const std::string file = absl::StrCat(path, "/", name);
    if (!files.contains(name)) {
      throw DataLossError(absl::StrCat("'", state_file, "': without a checksum of ", name));
    }
    VerifyFile(file, files[name], kStateFile);
    return file;
  };
  const std::string model = verified(kModelFile), optimizer = verified(kOptimizerFile);
  if (options.tensors) {
    state.model = SafetensorsFile::Open(model).LoadAll();
    state.optimizer = SafetensorsFile::Open(optimizer).LoadAll();
  }
  if (files.contains(kStrategyFile)) {
    state.strategy = SafetensorsFile::Open(verified(kStrategyFile)).LoadAll();
  }
  for (int64_t each = 0; each < state.ranks; ++each) {
    if (!rank) {
      verified(RankFileName(each));
    } else if (*rank == each) {
      state.own = SafetensorsFile::Open(verified(RankFileName(each))).LoadAll();
    }
  }
  return state;
}

std::vector<std::string> ListTrainingStates(const std::string& root) {
  return ListStepFolders(root);
}

LoadedState LoadLatestTrainingState(const std::string& root, const LoadStateOptions& options) {
  LoadedState loaded;
  const auto load = [&](const std::string& path) {
    loaded.state = LoadTrainingState(path, {}, options);
  };
  loaded.path = LoadNewest(root, "training state", load, loaded.skipped);
  return loaded;
}

}  // namespace lockstep::state
