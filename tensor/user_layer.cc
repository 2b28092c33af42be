// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/user_layer.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/tensor/dispatch.h"

namespace lockstep {
namespace {

constexpr DispatchLayer kSlot = DispatchLayer::kUser;
constexpr int kSlotIndex = static_cast<int>(kSlot);

// Immutable once installed, as every LayerState.
struct Chain : LayerState {
  std::shared_ptr<const UserLayer> layer;
  std::shared_ptr<const Chain> outer;
};

// Null when no scope is open. The slot is this file's (TakeSlot), and so is its state.
std::shared_ptr<const Chain> CurrentChain() {
  return std::static_pointer_cast<const Chain>(CurrentThreadState().layer_state[kSlotIndex]);
}

TensorList RunChain(const Chain* chain, const OpCall& call) {
  if (chain == nullptr) return DispatchBelow(kSlot, call);
  return chain->layer->Run(
      call, [chain](const OpCall& inner) { return RunChain(chain->outer.get(), inner); });
}

TensorList UserSlot(const OpCall& call) {
  // Held: a layer may end scopes.
  const std::shared_ptr<const Chain> chain = CurrentChain();
  return RunChain(chain.get(), call);
}

void TakeSlot() {
  static const bool taken = [] {
    try {
      RegisterLayer(kSlot, &UserSlot, /*on_by_default=*/false);
    } catch (const Error&) {
      throw AlreadyExistsError(
          "UserLayerScope: the user slot of dispatch has a function of this program "
          "(RegisterLayer); make it a UserLayer, and the slot can be shared");
    }
    return true;
  }();
  static_cast<void>(taken);
}

}  // namespace

UserLayerScope::UserLayerScope(std::shared_ptr<const UserLayer> layer) {
  if (layer == nullptr) throw InvalidArgumentError("UserLayerScope: no layer given");
  TakeSlot();
  auto chain = std::make_shared<Chain>();
  chain->layer = std::move(layer);
  chain->outer = CurrentChain();
  ThreadState& state = MutableThreadState();
  saved_mask_ = state.layer_mask & LayerBit(kSlot);
  saved_ = std::exchange(state.layer_state[kSlotIndex], std::move(chain));
  state.layer_mask |= LayerBit(kSlot);
}

UserLayerScope::~UserLayerScope() {
  ThreadState& state = MutableThreadState();
  state.layer_state[kSlotIndex] = std::move(saved_);
  state.layer_mask = (state.layer_mask & ~LayerBit(kSlot)) | saved_mask_;
}

const UserLayer* FindUserLayer(absl::FunctionRef<bool(const UserLayer&)> matches) {
  const ThreadState& state = CurrentThreadState();
  if ((state.layer_mask & LayerBit(kSlot)) == 0) return nullptr;
  // Where the slot has another function, its state may be of any kind.
  const auto* chain = dynamic_cast<const Chain*>(state.layer_state[kSlotIndex].get());
  for (; chain != nullptr; chain = chain->outer.get()) {
    if (matches(*chain->layer)) return chain->layer.get();
  }
  return nullptr;
}

}  // namespace lockstep
