// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/requires_grad.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/meta.h"
#include "lockstep/autograd/tensor_meta.h"
#include "lockstep/base/error.h"

namespace lockstep::autograd {

Tensor SetRequiresGrad(const Tensor& tensor, bool requires_grad) {
  internal::AutogradMeta* meta = internal::MetaOf(tensor);
  if (requires_grad && !IsFloatingPoint(tensor.dtype())) {
    throw InvalidArgumentError(absl::StrCat("SetRequiresGrad: ", tensor.DebugString(),
                                            " is not floating point; only such tensors have "
                                            "gradients"));
  }
  if (meta != nullptr && meta->node) {
    if (requires_grad) return tensor;
    throw FailedPreconditionError(
        absl::StrCat("SetRequiresGrad: ", tensor.DebugString(), " was made by ", meta->node->Name(),
                     " and is not a leaf; use Detach(tensor) for one without history"));
  }
  if (!requires_grad) {
    if (meta != nullptr) meta->requires_grad = false;
    return tensor;
  }
  if (meta != nullptr && meta->inference) {
    throw FailedPreconditionError(
        absl::StrCat("SetRequiresGrad: ", tensor.DebugString(),
                     " was made in an InferenceScope; Clone() it outside first"));
  }
  internal::MakeLeaf(tensor);
  return tensor;
}

bool RequiresGrad(const Tensor& tensor) { return internal::WantsGradient(tensor); }

bool IsLeaf(const Tensor& tensor) {
  const internal::AutogradMeta* meta = internal::MetaOf(tensor);
  return meta == nullptr || !meta->node;
}

Tensor Grad(const Tensor& tensor) {
  const internal::AutogradMeta* meta = internal::MetaOf(tensor);
  if (meta == nullptr || !meta->slot) return Tensor();
  std::lock_guard<std::mutex> lock(meta->slot->mutex);
  return meta->slot->grad;
}

void SetGrad(const Tensor& tensor, const Tensor& gradient) {
  if (gradient.defined()) {
    if (!TensorMeta(tensor).Matches(gradient)) {
      throw InvalidArgumentError(absl::StrCat("SetGrad: the gradient is ", gradient.DebugString(),
                                              " but the tensor is ", tensor.DebugString(),
                                              "; give the same kind"));
    }
    Storage* storage = gradient.impl().storage.get();
    if (storage != nullptr && storage->category() != MemoryCategory::kCommunication) {
      storage->SetCategory(MemoryCategory::kGradient);
    }
  } else {
    const internal::AutogradMeta* meta = internal::MetaOf(tensor);
    if (meta == nullptr || !meta->slot) return;
  }
  const auto slot = internal::EnsureSlot(tensor);
  Tensor old = gradient;  // the old one is destroyed after the lock
  std::lock_guard<std::mutex> lock(slot->mutex);
  std::swap(slot->grad, old);
}

void RetainGrad(const Tensor& tensor) {
  internal::AutogradMeta* meta = internal::MetaOf(tensor);
  if (meta == nullptr || !meta->requires_grad) {
    throw FailedPreconditionError(
        absl::StrCat("RetainGrad: ", tensor.DebugString(), " does not require a gradient"));
  }
  if (!meta->node || meta->retains_grad) return;
  meta->retains_grad = true;
  meta->node->Retain(meta->output, internal::EnsureSlot(tensor));
}

std::string GradNodeName(const Tensor& tensor) {
  const internal::AutogradMeta* meta = internal::MetaOf(tensor);
  return meta != nullptr && meta->node ? meta->node->Name() : std::string();
}

}  // namespace lockstep::autograd
