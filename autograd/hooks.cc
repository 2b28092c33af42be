// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/hooks.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/hook_registry.h"
#include "lockstep/autograd/meta.h"
#include "lockstep/base/error.h"

namespace lockstep::autograd {

void HookHandle::Remove() {
  if (const auto registry = registry_.lock()) registry->Remove(id_);
}

HookHandle RegisterHook(const Tensor& tensor, GradHook hook) {
  if (!hook) throw InvalidArgumentError("RegisterHook: an empty hook");
  internal::AutogradMeta* meta = internal::MetaOf(tensor);
  if (meta == nullptr || !meta->requires_grad) {
    throw FailedPreconditionError(absl::StrCat("RegisterHook: ", tensor.DebugString(),
                                               " does not require a gradient; call "
                                               "SetRequiresGrad first"));
  }
  std::shared_ptr<internal::HookRegistry> registry;
  if (meta->node) {
    registry = meta->node->HooksOf(meta->output);
  } else {
    const auto slot = internal::EnsureSlot(tensor);
    std::lock_guard<std::mutex> lock(slot->mutex);
    if (!meta->hooks) meta->hooks = std::make_shared<internal::HookRegistry>();
    registry = meta->hooks;
  }
  return HookHandle(registry, *registry->Add(std::move(hook)));
}

HookHandle RegisterPostAccumulateGradHook(const Tensor& leaf, LeafHook hook) {
  return RegisterPostAccumulateGradHook(leaf, std::move(hook), "");
}

HookHandle RegisterPostAccumulateGradHook(const Tensor& leaf, LeafHook hook,
                                          absl::string_view role) {
  if (!hook) throw InvalidArgumentError("RegisterPostAccumulateGradHook: an empty hook");
  internal::AutogradMeta* meta = internal::MetaOf(leaf);
  if (meta == nullptr || !meta->requires_grad || meta->node) {
    throw FailedPreconditionError(absl::StrCat(
        "RegisterPostAccumulateGradHook: ", leaf.DebugString(),
        " is not a leaf that requires a gradient; RegisterHook works for other tensors"));
  }
  const auto slot = internal::EnsureSlot(leaf);
  std::lock_guard<std::mutex> lock(slot->mutex);
  if (!meta->leaf_hooks) meta->leaf_hooks = std::make_shared<internal::HookRegistry>();
  const std::optional<uint64_t> id = meta->leaf_hooks->Add(
      [hook = std::move(hook)](const Tensor& tensor) {
        hook(tensor);
        return Tensor();
      },
      role);
  if (!id) {
    throw AlreadyExistsError(absl::StrCat("RegisterPostAccumulateGradHook: ", leaf.DebugString(),
                                          " has a hook for ", role, " already; remove it first"));
  }
  return HookHandle(meta->leaf_hooks, *id);
}

}  // namespace lockstep::autograd
