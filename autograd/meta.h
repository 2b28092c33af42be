// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What autograd keeps with a tensor, in TensorImpl::extension. Internal.
#ifndef LOCKSTEP_AUTOGRAD_META_H_
#define LOCKSTEP_AUTOGRAD_META_H_

#include <cstdint>
#include <memory>
#include <typeinfo>

#include "lockstep/autograd/hook_registry.h"
#include "lockstep/autograd/node.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd::internal {

// A view remembers the tensor it shows, and how often that one's history had been replaced by
// in-place ops when the view was made. When the numbers differ the view is stale: its own history
// leads past those ops, and a gradient through it would be wrong.
struct ViewInfo {
  Tensor base;  // never a view itself
  uint64_t base_history = 0;
};

struct AutogradMeta final : TensorExtension {
  RefPtr<Node> node;    // what made the tensor; null for a leaf
  uint32_t output = 0;  // which of the node's outputs it is
  bool requires_grad = false;
  bool inference = false;
  bool retains_grad = false;
  uint64_t history_count = 0;  // recorded in-place ops on this tensor
  std::unique_ptr<ViewInfo> view;
  Tensor stands_for;  // a leaf that this tensor is an unpacked copy of: takes its gradient
  std::shared_ptr<GradSlot> slot;            // once there is or can be a gradient; guards below
  std::shared_ptr<HookRegistry> hooks;       // of a leaf; those of results are with the node
  std::shared_ptr<HookRegistry> leaf_hooks;  // after accumulation

  // Makes the tensor's history output `output` of `node`.
  void SetHistory(RefPtr<Node> made_by, uint32_t output_index);
  bool IsStaleView() const;
};

// Null when there is none. The slot may hold another layer's extension.
inline AutogradMeta* MetaOf(const Tensor& tensor) {
  TensorExtension* extension = tensor.impl().extension.get();
  if (extension == nullptr || typeid(*extension) != typeid(AutogradMeta)) return nullptr;
  return static_cast<AutogradMeta*>(extension);
}
// Makes one if there is none.
AutogradMeta& EnsureMeta(const Tensor& tensor);

// The slot of `tensor`'s gradient, made when missing.
std::shared_ptr<GradSlot> EnsureSlot(const Tensor& tensor);

inline bool WantsGradient(const Tensor& tensor) {
  const AutogradMeta* meta = MetaOf(tensor);
  return meta != nullptr && meta->requires_grad;
}

// Where the gradient of `tensor` goes; invalid when it requires none.
Edge EdgeOf(const Tensor& tensor);

// Another tensor over the same elements, without history.
Tensor Alias(const Tensor& tensor);
// The same with history `edge`, which is valid: a result of its node, or a copy of its leaf.
Tensor AliasWithHistory(const Tensor& tensor, const Edge& edge);
// Marks `tensor`, which has no history, as a leaf that requires a gradient.
void MakeLeaf(const Tensor& tensor);

}  // namespace lockstep::autograd::internal

#endif  // LOCKSTEP_AUTOGRAD_META_H_
