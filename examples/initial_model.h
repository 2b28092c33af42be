// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The model that --init_from names: a folder of Hugging Face's GPT-2, or a safetensors file of
// ours.
#ifndef LOCKSTEP_EXAMPLES_INITIAL_MODEL_H_
#define LOCKSTEP_EXAMPLES_INITIAL_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "lockstep/examples/train_config.h"
#include "lockstep/state/tensor_source.h"

namespace lockstep::examples {

// Its weights under the model's names. Opens files and reads no weights.
std::shared_ptr<const state::TensorSource> OpenInitialModel(const std::string& path);

// Takes the sizes of the model from the folder's config.json; those of a file are the flags'. Reads
// a file of ours once, to see whether it is whole. `given` names the flags that the user set.
// Throws InvalidArgument for sizes given otherwise and for models that train_gpt does not train (a
// vocabulary other than the 256 bytes), DataLoss, and what OpenInitialModel throws; each with the
// flag.
void ResolveInitialModel(TrainConfig& config, const std::vector<std::string>& given);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_INITIAL_MODEL_H_
