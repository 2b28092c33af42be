// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/models/huggingface.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::models {
namespace {

constexpr absl::string_view kPrefix = "transformer.";
constexpr absl::string_view kHead = "lm_head.weight";
constexpr absl::string_view kTokens = "transformer.wte.weight";

// The layers that are of type Conv1D there.
bool IsTransposed(absl::string_view name) {
  for (const absl::string_view layer :
       {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight", ".mlp.c_proj.weight"}) {
    if (absl::EndsWith(name, layer)) return true;
  }
  return false;
}

bool IsMask(absl::string_view name) {
  return absl::EndsWith(name, ".attn.bias") || absl::EndsWith(name, ".attn.masked_bias");
}

// The same values, row-major, transposed where the layer asks for it.
Tensor Convert(absl::string_view call, absl::string_view name, const Tensor& tensor) {
  if (!IsTransposed(name)) return Contiguous(Detach(tensor));
  if (tensor.rank() != 2) {
    throw InvalidArgumentError(absl::StrCat(call, ": ", name, " has shape ",
                                            ToString(tensor.shape()), " and should be a matrix"));
  }
  return Contiguous(Transpose(Detach(tensor), 0, 1));
}

}  // namespace

NamedTensors Gpt2FromHuggingFace(const NamedTensors& tensors) {
  autograd::NoGradScope no_grad;
  NamedTensors state;
  for (const auto& [name, tensor] : tensors) {
    if (IsMask(name)) continue;
    const bool complete = name == kHead || absl::StartsWith(name, kPrefix);
    const std::string full = complete ? name : absl::StrCat(kPrefix, name);
    state.Insert(full, Convert("Gpt2FromHuggingFace", full, tensor));
  }
  const Tensor* tokens = state.Find(kTokens);
  if (tokens != nullptr && !state.Contains(kHead)) {
    const Tensor head = *tokens;
    state.Insert(kHead, head);
  }
  return state;
}

NamedTensors Gpt2ToHuggingFace(const NamedTensors& state, const HuggingFaceOptions& options) {
  autograd::NoGradScope no_grad;
  NamedTensors tensors;
  const Tensor* tokens = state.Find(kTokens);
  for (const auto& [name, tensor] : state) {
    const bool tied = name == kHead && tokens != nullptr && tensor.storage() == tokens->storage() &&
                      tensor.offset() == tokens->offset();
    if (tied) continue;
    const absl::string_view short_name =
        options.prefix ? absl::string_view(name) : absl::StripPrefix(name, kPrefix);
    tensors.Insert(short_name, Convert("Gpt2ToHuggingFace", name, tensor));
  }
  return tensors;
}

}  // namespace lockstep::models
