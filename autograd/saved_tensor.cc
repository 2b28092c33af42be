// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/saved_tensor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/meta.h"
#include "lockstep/autograd/saved_bytes.h"
#include "lockstep/base/error.h"

namespace lockstep::autograd::internal {

SavedTensor::SavedTensor(const Tensor& tensor, const SavedBy& by) {
  if (!tensor.defined()) return;
  const AutogradMeta* meta = MetaOf(tensor);
  is_leaf_ = meta != nullptr && meta->requires_grad && !meta->node;
  Tensor held = is_leaf_ ? tensor : Alias(tensor);
  const GradState* state = CurrentGradState();
  if (state != nullptr && state->hooks) {
    NoGradScope no_grad;
    auto packed = std::make_shared<Packed>();
    packed->meta = TensorMeta(tensor);
    packed->hooks = state->hooks;
    packed->value = packed->hooks->pack(held, by);
    packed_ = std::move(packed);
    return;
  }
  tensor_ = std::move(held);
  version_ = tensor_.version();
  if (!is_leaf_ && tensor_.impl().storage) {
    AddSavedStorage(*tensor_.impl().storage);
    counted_ = true;
  }
}

SavedTensor::SavedTensor(SavedTensor&& other) noexcept
    : tensor_(std::move(other.tensor_)),
      version_(other.version_),
      is_leaf_(other.is_leaf_),
      counted_(std::exchange(other.counted_, false)),
      packed_(std::move(other.packed_)) {}

SavedTensor& SavedTensor::operator=(SavedTensor&& other) noexcept {
  if (this == &other) return *this;
  Release();
  tensor_ = std::move(other.tensor_);
  version_ = other.version_;
  is_leaf_ = other.is_leaf_;
  counted_ = std::exchange(other.counted_, false);
  packed_ = std::move(other.packed_);
  return *this;
}

void SavedTensor::Release() {
  if (counted_) RemoveSavedStorage(*tensor_.impl().storage);
  counted_ = false;
  tensor_ = Tensor();
  packed_.reset();
}

SavedTensor SavedTensor::Peek() const {
  SavedTensor copy;
  copy.tensor_ = tensor_;
  copy.version_ = version_;
  copy.is_leaf_ = is_leaf_;
  copy.packed_ = packed_;
  return copy;
}

Tensor SavedTensor::Unpack(const Edge& history, absl::string_view owner,
                           absl::string_view role) const {
  Tensor tensor = tensor_;
  if (packed_ != nullptr) {
    NoGradScope no_grad;
    tensor = packed_->hooks->unpack(packed_->value);
    if (!tensor.defined() || !packed_->meta.Matches(tensor)) {
      throw InvalidArgumentError(absl::StrCat(
          "SavedTensorHooksScope: the unpack hook returned ", tensor.DebugString(), " for ", role,
          " of ", owner, ", which is ", packed_->meta.DebugString(), "; return the same"));
    }
  } else if (tensor.defined() && tensor.version() != version_) {
    throw FailedPreconditionError(absl::StrCat(
        owner, ": ", role, " (", tensor.DebugString(),
        ") was modified in place after it was saved for the gradient of ", owner, ": version ",
        version_, " then, ", tensor.version(),
        " now; use the op's form that returns a new tensor, or Clone() before modifying"));
  }
  if (!tensor.defined() || !history.valid()) return tensor;
  if (is_leaf_ && packed_ == nullptr) return tensor;
  return AliasWithHistory(tensor, history);
}

}  // namespace lockstep::autograd::internal
