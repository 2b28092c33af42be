// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/models/huggingface.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/creation.h"
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

// The name here of what is called `name` there.
std::string FullName(const std::string& name) {
  const bool complete = name == kHead || absl::StartsWith(name, kPrefix);
  return complete ? name : absl::StrCat(kPrefix, name);
}

// Whether the tensor called `name` here is to be transposed.
bool Transposes(absl::string_view call, absl::string_view name, const Shape& shape) {
  if (!IsTransposed(name)) return false;
  if (shape.size() == 2) return true;
  throw InvalidArgumentError(
      absl::StrCat(call, ": ", name, " has shape ", ToString(shape), " and should be a matrix"));
}

// The same values, row-major, transposed where the layer asks for it.
Tensor Convert(absl::string_view call, absl::string_view name, const Tensor& tensor) {
  if (!Transposes(call, name, tensor.shape())) return Contiguous(Detach(tensor));
  return Contiguous(Transpose(Detach(tensor), 0, 1));
}

}  // namespace

NamedTensors Gpt2FromHuggingFace(const NamedTensors& tensors) {
  autograd::NoGradScope no_grad;
  NamedTensors state;
  for (const auto& [name, tensor] : tensors) {
    if (IsMask(name)) continue;
    const std::string full = FullName(name);
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

// ---- By ranges ----

Gpt2HuggingFaceSource::Gpt2HuggingFaceSource(std::shared_ptr<const state::TensorSource> theirs)
    : theirs_(std::move(theirs)) {
  constexpr char kCall[] = "Gpt2HuggingFaceSource";
  for (const state::TensorDescription& tensor : theirs_->tensors()) {
    if (IsMask(tensor.name)) continue;
    const std::string full = FullName(tensor.name);
    const bool transposed = Transposes(kCall, full, tensor.shape);
    if (!origins_.emplace(full, Origin{tensor.name, tensor.shape, transposed}).second) {
      throw AlreadyExistsError(
          absl::StrCat(kCall, ": ", full, " is given with and without its prefix"));
    }
    Shape shape = tensor.shape;
    if (transposed) std::swap(shape[0], shape[1]);
    descriptions_.push_back({full, tensor.dtype, shape});
  }
  const auto tokens = origins_.find(std::string(kTokens));
  if (tokens == origins_.end() || origins_.contains(std::string(kHead))) return;
  origins_.emplace(std::string(kHead), tokens->second);
  const state::TensorDescription embedding = *state::FindTensor(*this, kTokens);
  descriptions_.push_back({std::string(kHead), embedding.dtype, embedding.shape});
}

Tensor Gpt2HuggingFaceSource::LoadRange(absl::string_view name, int64_t begin, int64_t end) const {
  const auto found = origins_.find(std::string(name));
  if (found == origins_.end()) {
    throw NotFoundError(absl::StrCat("Gpt2HuggingFaceSource: there is no '", name, "'; there are ",
                                     descriptions_.size(), " others"));
  }
  const Origin& origin = found->second;
  const int64_t numel = NumElements(origin.shape, "Gpt2HuggingFaceSource");
  if (begin < 0 || begin > end || end > numel) {
    throw OutOfRangeError(absl::StrCat("Gpt2HuggingFaceSource::LoadRange: elements [", begin, ", ",
                                       end, ") of '", name, "', which has ", numel));
  }
  if (!origin.transposed) return theirs_->LoadRange(origin.name, begin, end);
  return LoadTransposed(origin, begin, end);
}

// There [in, out], here [out, in]: rows here are columns there, which lie apart. Whole rows there
// are read, some at a time, and of each the columns that are wanted are kept.
Tensor Gpt2HuggingFaceSource::LoadTransposed(const Origin& origin, int64_t begin,
                                             int64_t end) const {
  constexpr int64_t kElementsAtATime = 1 << 14;
  const autograd::NoGradScope no_grad;
  const int64_t in = origin.shape[0], out = origin.shape[1];
  if (begin == end) return theirs_->LoadRange(origin.name, 0, 0);
  const int64_t first = begin / in, last = (end + in - 1) / in;
  const int64_t rows_at_a_time = std::max<int64_t>(1, kElementsAtATime / out);
  Tensor wanted;
  for (int64_t row = 0; row < in; row += rows_at_a_time) {
    const int64_t rows = std::min(rows_at_a_time, in - row);
    const Tensor read =
        Reshape(theirs_->LoadRange(origin.name, row * out, (row + rows) * out), {rows, out});
    if (!wanted.defined()) wanted = Empty({last - first, in}, {.dtype = read.dtype()});
    CopyInto(Slice(wanted, 1, row, row + rows), Transpose(Slice(read, 1, first, last), 0, 1));
  }
  return Slice(Reshape(wanted, {wanted.numel()}), 0, begin - first * in, end - first * in);
}

}  // namespace lockstep::models
