// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GPT-2's weights as Hugging Face's transformers stores them, as maps of named tensors: what a
// safetensors file holds.
//
//   model.LoadStateDict(models::Gpt2FromHuggingFace(tensors));
//   NamedTensors tensors = models::Gpt2ToHuggingFace(model.StateDict());
//
// or, where there is no room for all of them, as a source of ranges of elements:
//
//   models::Gpt2HuggingFaceSource weights(std::make_shared<state::SafetensorsSource>(path));
//   strategies::LoadFullState(fsdp, weights);
//
// What differs: their linear layers inside the blocks are stored [in, out] and are transposed on
// the way (square ones too), a tied head is absent, and older files hold the masks of the attention
// ("attn.bias", "attn.masked_bias"), which are left out. The prefix "transformer." is optional.
#ifndef LOCKSTEP_MODELS_HUGGINGFACE_H_
#define LOCKSTEP_MODELS_HUGGINGFACE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/state/tensor_description.h"
#include "lockstep/state/tensor_source.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::models {

// The state dictionary of a Gpt2. A missing head becomes the token embedding. Names that GPT-2 does
// not have are kept, so that LoadStateDict reports them. Throws InvalidArgument for a linear weight
// that is not a matrix, and AlreadyExists for a name given with and without the prefix.
NamedTensors Gpt2FromHuggingFace(const NamedTensors& tensors);

// The same of a source, read when it is asked for: a range of a transposed tensor takes the memory
// of the rows that it touches and of some 64 KiB more. Thread-safe where `theirs` is. Throws as
// Gpt2FromHuggingFace, when it is made.
class Gpt2HuggingFaceSource final : public state::TensorSource {
 public:
  explicit Gpt2HuggingFaceSource(std::shared_ptr<const state::TensorSource> theirs);

  const std::vector<state::TensorDescription>& tensors() const override { return descriptions_; }
  Tensor LoadRange(absl::string_view name, int64_t begin, int64_t end) const override;

 private:
  struct Origin {
    std::string name;  // there
    Shape shape;       // there
    bool transposed = false;
  };
  Tensor LoadTransposed(const Origin& origin, int64_t begin, int64_t end) const;

  const std::shared_ptr<const state::TensorSource> theirs_;
  std::vector<state::TensorDescription> descriptions_;
  std::map<std::string, Origin> origins_;
};

struct HuggingFaceOptions {
  bool prefix = true;  // "transformer.wte.weight"; false: "wte.weight", as in the published files
};
// The reverse; every tensor is row-major. A head that shares the token embedding's storage is left
// out. Throws InvalidArgument for a linear weight that is not a matrix.
NamedTensors Gpt2ToHuggingFace(const NamedTensors& state, const HuggingFaceOptions& options = {});

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_HUGGINGFACE_H_
