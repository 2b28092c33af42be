// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A GPT-2 as consecutive parts, for a pipeline's stages or for machines that hold one part each.
//
//   // Embeddings and blocks 0-2; blocks 3-5; blocks 6-11, the last norm and the head.
//   std::vector<Gpt2Part> parts = SplitGpt2(*model, {3, 6});
//   Tensor logits = parts[2].forward(parts[1].forward(parts[0].forward(ids)));
#ifndef LOCKSTEP_MODELS_GPT2_PARTS_H_
#define LOCKSTEP_MODELS_GPT2_PARTS_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::models {

struct Gpt2Part {
  // The model's own, each under its path there ("transformer.h.3").
  std::vector<std::pair<std::string, std::shared_ptr<nn::Module>>> modules;
  // int64 ids [B, T] for the first part, the part before's result [B, T, width] for the others;
  // logits [B, T, vocabulary] from the last. Holds the modules, not the model.
  std::function<Tensor(const Tensor& x)> forward;
};

// One part more than there are split points: part k has the blocks from split point k - 1 up to,
// not including, split point k. Several parts share no parameters: a head that is tied to the token
// embedding is replaced, in the last part, by a "lm_head" with a copy of its weight (left on meta
// where the model is there, for who keeps the two alike to fill). Throws InvalidArgument unless the
// split points rise within [1, layers - 1].
std::vector<Gpt2Part> SplitGpt2(const Gpt2& model, absl::Span<const int64_t> split_points);
inline std::vector<Gpt2Part> SplitGpt2(const Gpt2& model,
                                       std::initializer_list<int64_t> split_points) {
  return SplitGpt2(model, absl::MakeConstSpan(split_points.begin(), split_points.size()));
}

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_GPT2_PARTS_H_
