// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What autocast keeps per thread, in ThreadState::layer_state, and its copies of weights. Internal.
#ifndef LOCKSTEP_AMP_AUTOCAST_STATE_H_
#define LOCKSTEP_AMP_AUTOCAST_STATE_H_

#include <array>
#include <cstdint>
#include <memory>

#include "lockstep/amp/cast_cache.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::amp::internal {

// Immutable once installed, as every LayerState; the cache it points to is not.
struct AutocastState : LayerState {
  struct Precision {
    bool enabled = false;
    DType dtype = DType::kBFloat16;
    bool pure = false;
  };

  Precision& at(DeviceType type) { return precisions[type == DeviceType::kCuda]; }
  // Every device that is not CUDA follows the CPU's lists.
  const Precision& at(DeviceType type) const { return precisions[type == DeviceType::kCuda]; }

  // A region that is run again, after its scope has ended, casts its weights anew.
  std::shared_ptr<const LayerState> ForReplay() const override {
    auto replay = std::make_shared<AutocastState>(*this);
    replay->cache = std::make_shared<CastCache>();
    return replay;
  }

  std::array<Precision, 2> precisions = {
      {{false, DType::kBFloat16, false}, {false, DType::kFloat16, false}}};
  bool cache_enabled = true;
  int depth = 0;  // scopes around
  std::shared_ptr<CastCache> cache;
};

inline constexpr int kAutocastSlot = static_cast<int>(DispatchLayer::kAutocast);

// Null outside of every scope.
inline const AutocastState* CurrentAutocastState() {
  return static_cast<const AutocastState*>(CurrentThreadState().layer_state[kAutocastSlot].get());
}

}  // namespace lockstep::amp::internal

#endif  // LOCKSTEP_AMP_AUTOCAST_STATE_H_
