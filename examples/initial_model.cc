// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/initial_model.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/huggingface_folder.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/state/safetensors_source.h"

namespace lockstep::examples {
namespace {

namespace fs = std::filesystem;

void CheckTrains(const models::Gpt2Config& theirs, const models::Gpt2Config& ours) {
  if (theirs.vocabulary != ours.vocabulary) {
    throw InvalidArgumentError(absl::StrCat("its vocabulary has ", theirs.vocabulary,
                                            " tokens, and train_gpt's are the ", ours.vocabulary,
                                            " bytes; give a model of bytes"));
  }
  if (theirs.layer_norm_epsilon != ours.layer_norm_epsilon) {
    throw InvalidArgumentError(absl::StrCat("its layer_norm_epsilon is ", theirs.layer_norm_epsilon,
                                            ", and train_gpt's is ", ours.layer_norm_epsilon));
  }
  if (!theirs.tie_head) {
    throw InvalidArgumentError("its head is not its token embedding, and train_gpt's is");
  }
}

void TakeSizes(const models::Gpt2Config& theirs, const std::vector<std::string>& given,
               TrainConfig& config) {
  const auto is_given = [&](const char* flag) {
    return std::find(given.begin(), given.end(), flag) != given.end();
  };
  if (is_given("model")) {
    throw InvalidArgumentError(
        absl::StrCat("--model=", config.model, ": it has sizes of its own; leave the flag out"));
  }
  const auto take = [&](const char* flag, int64_t size, int64_t& into) {
    if (is_given(flag) && into != size) {
      throw InvalidArgumentError(
          absl::StrCat("--", flag, "=", into, ": its own is ", size, "; leave the flag out"));
    }
    into = size;
  };
  take("layers", theirs.layers, config.layers);
  take("heads", theirs.heads, config.heads);
  take("width", theirs.width, config.width);
  take("block", theirs.block, config.block);
}

}  // namespace

std::shared_ptr<const state::TensorSource> OpenInitialModel(const std::string& path) {
  if (fs::is_directory(path)) return models::OpenHuggingFaceGpt2(path).weights;
  return std::make_shared<state::SafetensorsSource>(path);
}

void ResolveInitialModel(TrainConfig& config, const std::vector<std::string>& given) {
  const std::string& path = config.init_from;
  try {
    if (fs::exists(path + "/state.json") || fs::exists(path + "/manifest.json")) {
      throw InvalidArgumentError(
          "is a training state; go on with it by --resume, or give its model.safetensors to begin "
          "anew from its weights");
    }
    if (fs::is_directory(path)) {
      const models::Gpt2Config theirs = models::OpenHuggingFaceGpt2(path).config;
      CheckTrains(theirs, config.ModelConfig());
      TakeSizes(theirs, given, config);
    } else if (!state::SafetensorsFile::Open(path).ChecksumIsRight()) {
      throw DataLossError("is damaged: its data does not have the checksum in its header");
    }
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat("--init_from=", path));
  }
}

}  // namespace lockstep::examples
