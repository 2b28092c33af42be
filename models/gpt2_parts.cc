// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/models/gpt2_parts.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/layer_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::models {
namespace {

// The first block of each part, and the number of all.
std::vector<int64_t> Bounds(int64_t layers, absl::Span<const int64_t> split_points) {
  std::vector<int64_t> bounds = {0};
  for (const int64_t point : split_points) {
    if (point <= bounds.back() || point >= layers) {
      throw InvalidArgumentError(absl::StrCat("SplitGpt2: split points ",
                                              absl::StrJoin(split_points, ", "), " of ", layers,
                                              " blocks; they rise within [1, ", layers - 1, "]"));
    }
    bounds.push_back(point);
  }
  bounds.push_back(layers);
  return bounds;
}

std::shared_ptr<nn::Linear> HeadOfItsOwn(const Gpt2& model) {
  const nn::Linear& tied = *model.lm_head();
  const CategoryScope category(MemoryCategory::kParameter);
  const Tensor weight = Clone(Detach(tied.weight));
  autograd::SetRequiresGrad(weight, autograd::RequiresGrad(tied.weight));
  return std::make_shared<nn::Linear>(model.config().width, model.config().vocabulary,
                                      nn::LinearOptions{.bias = false, .weight = weight});
}

std::function<Tensor(const Tensor&)> Forward(const Gpt2& model, bool first, bool last,
                                             const std::vector<std::shared_ptr<Gpt2Block>>& blocks,
                                             const std::shared_ptr<nn::Linear>& head) {
  const Gpt2Transformer& transformer = *model.transformer();
  std::function<Tensor(const Tensor&)> embed = [](const Tensor& x) { return x; };
  if (first) {
    embed = [wte = transformer.wte(), wpe = transformer.wpe(), drop = transformer.drop()](
                const Tensor& ids) { return EmbedTokens(*wte, *wpe, *drop, ids); };
  }
  const std::shared_ptr<nn::LayerNorm> norm = last ? transformer.ln_f() : nullptr;
  return [embed, blocks, norm, head](const Tensor& x) {
    Tensor y = embed(x);
    for (const std::shared_ptr<Gpt2Block>& block : blocks) y = (*block)(y);
    return norm != nullptr ? (*head)((*norm)(y)) : y;
  };
}

}  // namespace

std::vector<Gpt2Part> SplitGpt2(const Gpt2& model, absl::Span<const int64_t> split_points) {
  const std::vector<int64_t> bounds = Bounds(model.config().layers, split_points);
  const size_t count = bounds.size() - 1;
  const std::shared_ptr<Gpt2Transformer>& transformer = model.transformer();
  std::vector<Gpt2Part> parts(count);
  for (size_t k = 0; k < count; ++k) {
    Gpt2Part& part = parts[k];
    const bool first = k == 0, last = k + 1 == count;
    if (first) {
      part.modules = {{"transformer.wte", transformer->wte()},
                      {"transformer.wpe", transformer->wpe()},
                      {"transformer.drop", transformer->drop()}};
    }
    std::vector<std::shared_ptr<Gpt2Block>> blocks;
    for (int64_t i = bounds[k]; i < bounds[k + 1]; ++i) {
      blocks.push_back(transformer->h()[static_cast<size_t>(i)]);
      part.modules.emplace_back(absl::StrCat("transformer.h.", i), blocks.back());
    }
    std::shared_ptr<nn::Linear> head;
    if (last) {
      part.modules.emplace_back("transformer.ln_f", transformer->ln_f());
      head = count > 1 && model.config().tie_head ? HeadOfItsOwn(model) : model.lm_head();
      part.modules.emplace_back("lm_head", head);
    }
    part.forward = Forward(model, first, last, blocks, head);
  }
  return parts;
}

}  // namespace lockstep::models
