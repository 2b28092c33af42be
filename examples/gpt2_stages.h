// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GPT-2 over several devices: what goes where, and as stages of a pipeline.
#ifndef LOCKSTEP_EXAMPLES_GPT2_STAGES_H_
#define LOCKSTEP_EXAMPLES_GPT2_STAGES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/gpt2_parts.h"
#include "lockstep/strategies/model_parallel/model_parallel.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/tensor/device.h"

namespace lockstep::examples {

// The target of a token that counts nothing: what CrossEntropy leaves out.
constexpr int64_t kNoTarget = -100;

// As many blocks on each device as on the others, or one more on the first ones; the embeddings
// with the first block, the last norm and the head with the last. A head that is the token
// embedding takes a copy of it in each step: the weight and its gradient live with the embeddings.
// Throws InvalidArgument as PlaceBlocks does (more devices than blocks).
std::vector<strategies::PlacedModule> PlaceGpt2(const models::Gpt2& model,
                                                absl::Span<const Device> devices);

// Multiplications a token of each block's forward pass, the head's with the last block's: what a
// pipeline balances its stages by.
std::vector<double> Gpt2BlockCosts(const models::Gpt2Config& config);

// The model cut into `stages` parts of about the same cost. Throws InvalidArgument for more stages
// than blocks.
std::vector<models::Gpt2Part> BalancedGpt2Parts(const models::Gpt2& model, int stages);

// A part as a stage of a pipeline.
pipeline::Stage StageOf(const models::Gpt2Part& part);

// What a pipeline of `stages` of these has: the mean cross entropy of the rows that have a target
// (kNoTarget: none), the head tied to the embedding where the model ties them.
pipeline::PipelineOptions Gpt2PipelineOptions(const models::Gpt2Config& config, int stages);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_GPT2_STAGES_H_
