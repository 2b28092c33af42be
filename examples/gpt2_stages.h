// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GPT-2 over several devices: what goes where.
#ifndef LOCKSTEP_EXAMPLES_GPT2_STAGES_H_
#define LOCKSTEP_EXAMPLES_GPT2_STAGES_H_

#include <vector>

#include "absl/types/span.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/strategies/model_parallel/model_parallel.h"
#include "lockstep/tensor/device.h"

namespace lockstep::examples {

// As many blocks on each device as on the others, or one more on the first ones; the embeddings
// with the first block, the last norm and the head with the last. A head that is the token
// embedding takes a copy of it in each step: the weight and its gradient live with the embeddings.
// Throws InvalidArgument as PlaceBlocks does (more devices than blocks).
std::vector<strategies::PlacedModule> PlaceGpt2(const models::Gpt2& model,
                                                absl::Span<const Device> devices);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_GPT2_STAGES_H_
