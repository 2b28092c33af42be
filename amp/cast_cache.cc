// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/amp/cast_cache.h"

#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::amp::internal {
namespace {

// The cast's node holds the state that it is made under, and the cache holds the cast: with the
// scope's state, which holds the cache, none of them would be freed where no scope ends and closes
// the cache (a region that runs again).
Tensor CastOutsideOfScope(const Tensor& parameter, DType dtype) {
  ThreadState state = CurrentThreadState();
  state.layer_mask &= ~LayerBit(DispatchLayer::kAutocast);
  state.layer_state[static_cast<int>(DispatchLayer::kAutocast)].reset();
  const ScopedThreadState scope(state);
  return To(parameter, dtype);
}

}  // namespace

Tensor CastCache::Cast(const Tensor& parameter, DType dtype) {
  const Key key(parameter.impl_ptr().get(), dtype);
  const int64_t version = parameter.version();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end() && found->second.version == version &&
        (found->second.recorded || !autograd::GradEnabled())) {
      return found->second.cast;
    }
  }
  Entry entry{parameter, CastOutsideOfScope(parameter, dtype), version};
  entry.recorded = autograd::RequiresGrad(entry.cast);
  Tensor cast = entry.cast;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) entries_.insert_or_assign(key, std::move(entry));
  return cast;
}

void CastCache::Clear() {
  absl::flat_hash_map<Key, Entry> dropped;  // destroyed after the lock
  std::lock_guard<std::mutex> lock(mutex_);
  dropped.swap(entries_);
}

void CastCache::Close() {
  Clear();
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
}

int64_t CastCache::bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [key, entry] : entries_) bytes += entry.cast.bytes();
  return bytes;
}

}  // namespace lockstep::amp::internal
