// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A GPT-2 as Hugging Face's transformers saves it (save_pretrained): a folder with
//
//   config.json
//   model.safetensors, or model.safetensors.index.json and the files that it names
//
//   const models::HuggingFaceGpt2 theirs = models::OpenHuggingFaceGpt2("gpt2");
//   auto model = std::make_shared<models::Gpt2>(theirs.config);
//   model->LoadStateDict(state::LoadAll(*theirs.weights));
#ifndef LOCKSTEP_MODELS_HUGGINGFACE_FOLDER_H_
#define LOCKSTEP_MODELS_HUGGINGFACE_FOLDER_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/state/tensor_source.h"

namespace lockstep::models {

struct HuggingFaceGpt2 {
  Gpt2Config config;
  std::shared_ptr<const state::TensorSource> weights;  // under Gpt2's names, in its layouts
};

// Reads the configuration and the headers of the weights, and no weights. Throws NotFound (no such
// folder, or no safetensors in it, with what there is to do), DataLoss (damaged) and what
// ParseHuggingFaceGpt2Config and Gpt2HuggingFaceSource throw, with the path.
HuggingFaceGpt2 OpenHuggingFaceGpt2(const std::string& folder);

// The text of a config.json. Dropout is left at 0: what a model was pre-trained with is a choice of
// the run. Throws DataLoss (no JSON object, a size that is no number), Unimplemented for another
// model_type, and for settings that change the computation and that Gpt2 does not have, naming key
// and value; and InvalidArgument for sizes that Gpt2Config::Validate refuses.
Gpt2Config ParseHuggingFaceGpt2Config(absl::string_view json);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_HUGGINGFACE_FOLDER_H_
