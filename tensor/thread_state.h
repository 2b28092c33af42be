// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// All per-thread state of Lockstep, in one struct. Whatever starts a thread or runs work later
// captures it and restores it with ScopedThreadState:
//
//   std::thread worker([state = CurrentThreadState()] {
//     ScopedThreadState scope(state);
//     ...
//   });
//
// Ranks can be threads, so there is no process-wide generator, device or gradient mode.
#ifndef LOCKSTEP_TENSOR_THREAD_STATE_H_
#define LOCKSTEP_TENSOR_THREAD_STATE_H_

#include <array>
#include <cstdint>
#include <memory>

#include "lockstep/tensor/device.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/meta_recorder.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/span_observer.h"
#include "lockstep/tensor/stream.h"

namespace lockstep {

// Slots an op passes through, in this order (tensor/dispatch.h).
enum class DispatchLayer : uint8_t { kUser = 0, kCheckpoint, kAutocast, kGradients, kTrace };
inline constexpr int kDispatchLayerCount = 5;
constexpr uint32_t LayerBit(DispatchLayer layer) { return 1u << static_cast<int>(layer); }

// State a layer keeps per thread; immutable once installed, so that captures may share it.
class LayerState {
 public:
  virtual ~LayerState() = default;
  // The state in which a region run under this one is run once more, later: the same but for what
  // belongs to the first run (caches). Null: this one.
  virtual std::shared_ptr<const LayerState> ForReplay() const { return nullptr; }
};

struct ThreadState {
  uint32_t layer_mask = 0;
  std::array<std::shared_ptr<const LayerState>, kDispatchLayerCount> layer_state;
  RandomStreams random;
  Device device = {DeviceType::kCpu, 0};
  int stream = 0;  // id of the current stream of `device`
  MemoryCategory category = MemoryCategory::kOther;
  int intra_op_threads = 0;                // 0: as many as the processors this process may use
  std::shared_ptr<SpanObserver> observer;  // null: nobody looks
  std::shared_ptr<MetaRecorder> meta_recorder;
};

namespace internal {
// Null until the thread asks for its state, and again when it ends. A plain pointer, because a
// thread-local object with a constructor costs a call and a test at each use.
extern constinit thread_local ThreadState* thread_state;
ThreadState& MakeThreadState();
}  // namespace internal

// This thread's state. A new thread starts with the layers that register themselves as on.
inline ThreadState& MutableThreadState() {
  ThreadState* const state = internal::thread_state;
  return state != nullptr ? *state : internal::MakeThreadState();
}
inline const ThreadState& CurrentThreadState() { return MutableThreadState(); }

// Installs a copy of `state` and puts the old one back. Generator positions advanced inside are
// lost with it, as a replayed region wants; copy them out where they must survive.
class ScopedThreadState {
 public:
  explicit ScopedThreadState(const ThreadState& state);
  ~ScopedThreadState();
  ScopedThreadState(const ScopedThreadState&) = delete;
  ScopedThreadState& operator=(const ScopedThreadState&) = delete;

 private:
  ThreadState saved_;
};

// Scope: new tensors go to `device`, on its compute stream. Throws nothing: a device that no linked
// backend serves is refused by the first op or allocation there.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device saved_device_;
  int saved_stream_;
};

Device CurrentDevice();

// Threads one op may use, resolved (at least 1).
int IntraOpThreads();
// Sets it for this thread; 0 restores the default. Throws InvalidArgument when negative.
void SetIntraOpThreads(int count);

namespace internal {
// Layers on in new threads (and in this one). Called by RegisterLayer.
void EnableLayerByDefault(DispatchLayer layer);
}  // namespace internal

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_THREAD_STATE_H_
