// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GPT-2's weights as Hugging Face's transformers stores them, as maps of named tensors: what a
// safetensors file holds.
//
//   model.LoadStateDict(models::Gpt2FromHuggingFace(tensors));
//   NamedTensors tensors = models::Gpt2ToHuggingFace(model.StateDict());
//
// What differs: their linear layers inside the blocks are stored [in, out] and are transposed on
// the way (square ones too), a tied head is absent, and older files hold the masks of the attention
// ("attn.bias", "attn.masked_bias"), which are left out. The prefix "transformer." is optional.
#ifndef LOCKSTEP_MODELS_HUGGINGFACE_H_
#define LOCKSTEP_MODELS_HUGGINGFACE_H_

#include "lockstep/tensor/named_tensors.h"

namespace lockstep::models {

// The state dictionary of a Gpt2. A missing head becomes the token embedding. Names that GPT-2 does
// not have are kept, so that LoadStateDict reports them. Throws InvalidArgument for a linear weight
// that is not a matrix, and AlreadyExists for a name given with and without the prefix.
NamedTensors Gpt2FromHuggingFace(const NamedTensors& tensors);

struct HuggingFaceOptions {
  bool prefix = true;  // "transformer.wte.weight"; false: "wte.weight", as in the published files
};
// The reverse; every tensor is row-major. A head that shares the token embedding's storage is left
// out. Throws InvalidArgument for a linear weight that is not a matrix.
NamedTensors Gpt2ToHuggingFace(const NamedTensors& state, const HuggingFaceOptions& options = {});

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_HUGGINGFACE_H_
