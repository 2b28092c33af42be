// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/accumulate.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/tensor_meta.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"

namespace lockstep::autograd::internal {
namespace {

// Whether writing to the tensor, or keeping it, is nobody else's business: this reference is the
// only one to it and it is the only tensor of its storage, which it fills in row-major order.
bool IsSoleOwner(const Tensor& tensor) {
  const TensorImpl& impl = tensor.impl();
  return impl.ref_count() == 1 && impl.contiguous && impl.storage &&
         impl.storage->ref_count() == 1 && tensor.bytes() == impl.storage->bytes();
}

bool OverlapsItself(const Tensor& tensor) {
  const TensorImpl& impl = tensor.impl();
  for (size_t i = 0; i < impl.shape.size(); ++i) {
    if (impl.shape[i] > 1 && impl.strides[i] == 0) return true;
  }
  return false;
}

void CountAsGradient(const Tensor& tensor) {
  if (!tensor.impl().storage) return;
  Storage& storage = *tensor.impl().storage;
  if (storage.category() != MemoryCategory::kCommunication) {
    storage.SetCategory(MemoryCategory::kGradient);
  }
}

// What to keep as the first gradient of a slot.
Tensor TakeOver(Tensor gradient) {
  if (IsSoleOwner(gradient)) {
    CountAsGradient(gradient);
    return gradient;
  }
  CategoryScope category(MemoryCategory::kGradient);
  return Clone(gradient);
}

// With a graph, sums are recorded ops, which may call user code (saved-tensor hooks): no lock is
// held across them, and the sum is made again if another thread was faster.
void AccumulateRecorded(GradSlot& slot, const Tensor& gradient) {
  CategoryScope category(MemoryCategory::kGradient);
  for (;;) {
    Tensor old;
    {
      std::lock_guard<std::mutex> lock(slot.mutex);
      old = slot.grad;
    }
    Tensor next = old.defined() ? Add(old, gradient) : Clone(gradient);
    std::lock_guard<std::mutex> lock(slot.mutex);
    if (!slot.grad.IsSame(old)) continue;
    slot.grad = std::move(next);
    return;
  }
}

}  // namespace

Tensor AddGradients(Tensor a, Tensor b, bool create_graph) {
  if (!a.defined()) return b;
  if (!b.defined()) return a;
  if (create_graph) return Add(a, b);
  if (IsSoleOwner(a)) return AddInPlace(a, b);
  if (IsSoleOwner(b)) return AddInPlace(b, a);
  return Add(a, b);
}

void AccumulateIntoSlot(GradSlot& slot, Tensor gradient, bool create_graph) {
  if (create_graph) return AccumulateRecorded(slot, gradient);
  std::lock_guard<std::mutex> lock(slot.mutex);
  if (!slot.grad.defined()) {
    slot.grad = TakeOver(std::move(gradient));
  } else if (WantsGradient(slot.grad) || OverlapsItself(slot.grad)) {
    CategoryScope category(MemoryCategory::kGradient);
    slot.grad = Add(slot.grad, gradient);
  } else {
    AddInPlace(slot.grad, gradient);
  }
}

Tensor RunGradHooks(const HookRegistry& hooks, Tensor gradient, const char* whose) {
  for (const auto& hook : hooks.Snapshot()) {
    Tensor replacement = (*hook)(gradient);
    if (!replacement.defined()) continue;
    const TensorMeta meta(gradient);
    if (!meta.Matches(replacement)) {
      throw InvalidArgumentError(absl::StrCat("RegisterHook: a hook of ", whose, " returned ",
                                              replacement.DebugString(), " for a gradient that is ",
                                              meta.DebugString(), "; return the same kind"));
    }
    gradient = std::move(replacement);
  }
  return gradient;
}

void AccumulateIntoLeaf(const Tensor& leaf, Tensor gradient, bool create_graph) {
  const std::shared_ptr<GradSlot> slot = EnsureSlot(leaf);
  std::shared_ptr<HookRegistry> hooks, leaf_hooks;
  {
    const AutogradMeta& meta = *MetaOf(leaf);
    std::lock_guard<std::mutex> lock(slot->mutex);
    hooks = meta.hooks;
    leaf_hooks = meta.leaf_hooks;
  }
  if (gradient.defined()) {
    if (hooks) gradient = RunGradHooks(*hooks, std::move(gradient), "a leaf");
    AccumulateIntoSlot(*slot, std::move(gradient), create_graph);
  }
  if (leaf_hooks) {
    for (const auto& hook : leaf_hooks->Snapshot()) (*hook)(leaf);
  }
}

}  // namespace lockstep::autograd::internal
