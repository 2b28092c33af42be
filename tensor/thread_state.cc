// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/thread_state.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/parallel.h"

namespace lockstep {
namespace {

std::atomic<uint32_t>& DefaultLayerMask() {
  static std::atomic<uint32_t> mask{0};
  return mask;
}

// Owns the state of its thread.
struct ThreadStateHolder {
  ThreadState state;

  ThreadStateHolder() {
    state.layer_mask = DefaultLayerMask().load(std::memory_order_acquire);
    internal::thread_state = &state;
  }
  ~ThreadStateHolder() { internal::thread_state = nullptr; }
};

}  // namespace

namespace internal {

constinit thread_local ThreadState* thread_state = nullptr;

ThreadState& MakeThreadState() {
  thread_local ThreadStateHolder holder;
  return holder.state;
}

}  // namespace internal

ScopedThreadState::ScopedThreadState(const ThreadState& state) : saved_(MutableThreadState()) {
  MutableThreadState() = state;
}
ScopedThreadState::~ScopedThreadState() { MutableThreadState() = saved_; }

DeviceScope::DeviceScope(Device device)
    : saved_device_(CurrentThreadState().device), saved_stream_(CurrentThreadState().stream) {
  MutableThreadState().device = device;
  MutableThreadState().stream = 0;
}
DeviceScope::~DeviceScope() {
  MutableThreadState().device = saved_device_;
  MutableThreadState().stream = saved_stream_;
}

Device CurrentDevice() { return CurrentThreadState().device; }

int IntraOpThreads() {
  const int count = CurrentThreadState().intra_op_threads;
  // Asked once: a system call for each op would cost more than small ops do.
  static const int kHardwareThreads = HardwareThreads();
  return count > 0 ? count : kHardwareThreads;
}

void SetIntraOpThreads(int count) {
  if (count < 0) {
    throw InvalidArgumentError(
        absl::StrCat("SetIntraOpThreads: ", count, " threads; give >= 1, or 0 for all processors"));
  }
  MutableThreadState().intra_op_threads = count;
}

namespace internal {
void EnableLayerByDefault(DispatchLayer layer) {
  DefaultLayerMask().fetch_or(LayerBit(layer), std::memory_order_acq_rel);
  MutableThreadState().layer_mask |= LayerBit(layer);
}
}  // namespace internal

RandomStreams& ThreadGenerators() { return MutableThreadState().random; }

RandomKey Generator::Draw(int64_t count) {
  const RandomKey drawn = key;
  key.offset += (static_cast<uint64_t>(count) + 3) / 4 * 4;
  return drawn;
}

void ManualSeed(uint64_t seed, int64_t data_parallel_rank) {
  if (data_parallel_rank < 0) {
    throw InvalidArgumentError(
        absl::StrCat("ManualSeed: data-parallel rank ", data_parallel_rank, "; give a rank >= 0"));
  }
  RandomStreams& random = ThreadGenerators();
  random.parameters.key = {seed, kParameterStream, 0};
  random.data.key = {seed, kDataStream, 0};
  random.dropout.key = {seed, kDropoutStreamBase + static_cast<uint64_t>(data_parallel_rank), 0};
}

}  // namespace lockstep
