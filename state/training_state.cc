// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/training_state.h"

#include <filesystem>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/state/file_io.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/state/state_folder.h"
#include "lockstep/state/state_values.h"
#include "nlohmann/json.hpp"

namespace lockstep::state {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "lockstep training state 1";
constexpr char kStateFile[] = "state.json";
constexpr const char* kTensorFiles[] = {"model.safetensors", "optimizer.safetensors"};
constexpr int64_t kMaximumJsonBytes = 16 << 20;

std::string Checksum(const std::string& path) { return absl::StrFormat("%016x", HashFile(path)); }

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
  if (!has("format", static_cast<Check>(&Json::is_string)) || json["format"] != kFormat) {
    throw DataLossError(absl::StrCat("not a '", kFormat, "'"));
  }
  if (!has("step", static_cast<Check>(&Json::is_number_integer)) ||
      !has("values", static_cast<Check>(&Json::is_object)) ||
      !has("files", static_cast<Check>(&Json::is_object))) {
    throw DataLossError("without step, values or files");
  }
  TrainingState state;
  state.step = json["step"].get<int64_t>();
  state.values = ValuesFromJson(json["values"]);
  for (const char* file : kTensorFiles) {
    const Json& files_json = json["files"];
    if (!files_json.contains(file) || !files_json[file].is_string()) {
      throw DataLossError(absl::StrCat("without a checksum of ", file));
    }
    files[file] = files_json[file].get<std::string>();
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
  if (options.keep < 0 || state.step < 0) {
    throw InvalidArgumentError(absl::StrCat("SaveTrainingState: keep ", options.keep, ", step ",
                                            state.step, "; give both >= 0"));
  }
  Json json;
  json["format"] = kFormat;
  json["step"] = state.step;
  json["values"] = ValuesToJson("SaveTrainingState", state.values);
  TemporaryFolder folder("SaveTrainingState", MakeUniqueFolder("SaveTrainingState", root));
  const NamedTensors* tensors[] = {&state.model, &state.optimizer};
  for (int i = 0; i < 2; ++i) {
    const std::string path = absl::StrCat(folder.path(), "/", kTensorFiles[i]);
    WriteSafetensors(path, *tensors[i]);
    json["files"][kTensorFiles[i]] = Checksum(path);
  }
  {
    AtomicFile file(absl::StrCat(folder.path(), "/", kStateFile));
    file.Append(json.dump(1) + "\n");
    file.Publish();
  }
  const std::string target = StepFolder(root, state.step);
  folder.Publish(target);
  KeepNewest(root, target, options.keep);
  return target;
}

TrainingState LoadTrainingState(const std::string& path) {
  std::map<std::string, std::string> files;
  const std::string state_file = absl::StrCat(path, "/", kStateFile);
  if (!fs::exists(path)) throw NotFoundError(absl::StrCat("'", path, "': no such folder"));
  std::string text;
  try {
    text = ReadFile(state_file, kMaximumJsonBytes);
  } catch (const Error& error) {
    throw DataLossError(absl::StrCat("'", path, "' is no training state: ", error.message()));
  }
  TrainingState state;
  try {
    state = ParseStateJson(text, files);
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat("'", state_file, "'"));
  }
  NamedTensors* tensors[] = {&state.model, &state.optimizer};
  for (int i = 0; i < 2; ++i) {
    const std::string file = absl::StrCat(path, "/", kTensorFiles[i]);
    if (!fs::exists(file)) throw DataLossError(absl::StrCat("'", file, "' is missing"));
    if (Checksum(file) != files[kTensorFiles[i]]) {
      throw DataLossError(absl::StrCat("'", file,
                                       "' is damaged, or belongs to another step: its "
                                       "checksum is not the one in ",
                                       kStateFile));
    }
    *tensors[i] = SafetensorsFile::Open(file).LoadAll();
  }
  return state;
}

std::vector<std::string> ListTrainingStates(const std::string& root) {
  return ListStepFolders(root);
}

LoadedState LoadLatestTrainingState(const std::string& root) {
  LoadedState loaded;
  std::vector<std::string> paths = ListTrainingStates(root);
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    try {
      loaded.state = LoadTrainingState(*path);
      loaded.path = *path;
      return loaded;
    } catch (const Error& error) {
      loaded.skipped.push_back(error.message());
    }
  }
  throw NotFoundError(absl::StrCat("no training state under '", root, "'",
                                   loaded.skipped.empty() ? "" : ": ",
                                   absl::StrJoin(loaded.skipped, "; ")));
}

}  // namespace lockstep::state
