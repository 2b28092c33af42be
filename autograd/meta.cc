// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/meta.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::autograd::internal {

void AutogradMeta::SetHistory(RefPtr<Node> made_by, uint32_t output_index) {
  node = std::move(made_by);
  output = output_index;
  requires_grad = true;
}

bool AutogradMeta::IsStaleView() const {
  if (!view) return false;
  const AutogradMeta* base = MetaOf(view->base);
  return base != nullptr && base->history_count != view->base_history;
}

AutogradMeta& EnsureMeta(const Tensor& tensor) {
  if (AutogradMeta* meta = MetaOf(tensor)) return *meta;
  TensorImpl& impl = tensor.impl();
  if (impl.extension != nullptr) {
    throw InternalError("autograd: another layer keeps its state with this tensor");
  }
  auto meta = std::make_unique<AutogradMeta>();
  AutogradMeta& result = *meta;
  impl.extension = std::move(meta);
  return result;
}

std::shared_ptr<GradSlot> EnsureSlot(const Tensor& tensor) {
  AutogradMeta& meta = EnsureMeta(tensor);
  if (!meta.slot) meta.slot = std::make_shared<GradSlot>();
  return meta.slot;
}

Edge EdgeOf(const Tensor& tensor) {
  const AutogradMeta* meta = MetaOf(tensor);
  if (meta == nullptr || !meta->requires_grad) return {};
  if (meta->node) return {meta->node, {}, meta->output};
  if (meta->stands_for.defined()) return {nullptr, meta->stands_for, 0};
  return {nullptr, tensor, 0};
}

Tensor Alias(const Tensor& tensor) {
  const TensorImpl& impl = tensor.impl();
  Tensor alias(MakeRef<TensorImpl>(impl.storage, impl.shape, impl.strides, impl.offset, impl.dtype,
                                   impl.device));
  if (impl.meta_origin) alias.impl().meta_origin = impl.meta_origin;
  return alias;
}

Tensor AliasWithHistory(const Tensor& tensor, const Edge& edge) {
  Tensor alias = Alias(tensor);
  AutogradMeta& meta = EnsureMeta(alias);
  if (edge.node) {
    meta.SetHistory(edge.node, edge.output);
  } else {
    meta.requires_grad = true;
    meta.stands_for = edge.leaf;
  }
  return alias;
}

void MakeLeaf(const Tensor& tensor) {
  EnsureMeta(tensor).requires_grad = true;
  EnsureSlot(tensor);
}

}  // namespace lockstep::autograd::internal
