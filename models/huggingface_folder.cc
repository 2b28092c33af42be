// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/huggingface_folder.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/models/huggingface.h"
#include "lockstep/state/file_io.h"
#include "lockstep/state/safetensors_source.h"
#include "nlohmann/json.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kMaximumConfigBytes = 1 << 20;
constexpr char kWeights[] = "model.safetensors";

int64_t Size(const Json& json, const char* key) {
  if (json.contains(key) && json[key].is_number_integer()) return json[key].get<int64_t>();
  throw DataLossError(absl::StrCat("without a number \"", key, "\""));
}

// What changes the computation: a key that is absent, null, or of this value is as here.
void Demand(const Json& json, const char* key, const Json& value) {
  if (!json.contains(key) || json[key].is_null() || json[key] == value) return;
  throw UnimplementedError(absl::StrCat("\"", key, "\" is ", json[key].dump(),
                                        ", and models::Gpt2 has only ", value.dump()));
}

}  // namespace

Gpt2Config ParseHuggingFaceGpt2Config(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw DataLossError("not a JSON object");
  Demand(json, "model_type", "gpt2");
  Demand(json, "activation_function", "gelu_new");
  Demand(json, "scale_attn_weights", true);
  Demand(json, "scale_attn_by_inverse_layer_idx", false);
  Demand(json, "add_cross_attention", false);
  Gpt2Config config;
  config.layers = Size(json, "n_layer");
  config.heads = Size(json, "n_head");
  config.width = Size(json, "n_embd");
  config.block = Size(json, "n_positions");
  config.vocabulary = Size(json, "vocab_size");
  Demand(json, "n_inner", 4 * config.width);
  const auto number = [&](const char* key, double otherwise) {
    if (!json.contains(key)) return otherwise;
    if (!json[key].is_number()) throw DataLossError(absl::StrCat("\"", key, "\" is no number"));
    return json[key].get<double>();
  };
  config.layer_norm_epsilon = number("layer_norm_epsilon", config.layer_norm_epsilon);
  config.tie_head = !json.contains("tie_word_embeddings") || json["tie_word_embeddings"] != false;
  config.Validate();
  return config;
}

HuggingFaceGpt2 OpenHuggingFaceGpt2(const std::string& folder) {
  if (!fs::is_directory(folder)) {
    throw NotFoundError(absl::StrCat("'", folder, "': no such folder"));
  }
  HuggingFaceGpt2 theirs;
  const std::string config = folder + "/config.json";
  const std::string text = state::ReadFile(config, kMaximumConfigBytes);
  try {
    theirs.config = ParseHuggingFaceGpt2Config(text);
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat("'", config, "'"));
  }
  std::string weights = absl::StrCat(folder, "/", kWeights);
  if (!fs::exists(weights)) absl::StrAppend(&weights, state::kSafetensorsIndexSuffix);
  if (!fs::exists(weights)) {
    throw NotFoundError(absl::StrCat(
        "'", folder, "' has neither ", kWeights, " nor ", kWeights, state::kSafetensorsIndexSuffix,
        "; save the model with save_pretrained(folder, safe_serialization=True)"));
  }
  try {
    theirs.weights = std::make_shared<Gpt2HuggingFaceSource>(
        std::make_shared<state::SafetensorsSource>(weights));
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat("'", weights, "'"));
  }
  return theirs;
}

}  // namespace lockstep::models
