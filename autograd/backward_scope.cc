// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/backward_scope.h"

#include <utility>

namespace lockstep::autograd::internal {
namespace {

constexpr uint32_t kRecordBit = LayerBit(DispatchLayer::kGradients);
constexpr uint32_t kTraceBit = LayerBit(DispatchLayer::kTrace);

}  // namespace

BackwardScope::BackwardScope(bool create_graph)
    : saved_(CurrentThreadState()),
      caller_(CapturedState::OfThread()),
      create_graph_(create_graph) {
  const GradState* current = CurrentGradState();
  if (current != nullptr && current->run) {
    std::lock_guard<std::mutex> lock(current->run->mutex);
    if (!current->run->finished) run_ = current->run;
  }
  if (!run_) {
    run_ = std::make_shared<BackwardRun>();
    outermost_ = true;
  }
  ReplaceGradState([&](GradState& state) {
    state.inference = false;
    state.run = run_;
  });
  MutableThreadState().category = MemoryCategory::kBackward;
  ApplyState(caller_, caller_.device, create_graph);
}

BackwardScope::~BackwardScope() {
  if (outermost_) {
    std::lock_guard<std::mutex> lock(run_->mutex);
    run_->finished = true;
    run_->callbacks.clear();
    run_->reaches = nullptr;
  }
  ThreadState& state = MutableThreadState();
  saved_.random = state.random;
  state = std::move(saved_);
}

void BackwardScope::RunCallbacks() {
  if (!outermost_) return;
  ApplyState(caller_, caller_.device, create_graph_);
  for (;;) {
    std::vector<std::function<void()>> callbacks;
    {
      std::lock_guard<std::mutex> lock(run_->mutex);
      callbacks.swap(run_->callbacks);
    }
    if (callbacks.empty()) return;
    for (const auto& callback : callbacks) callback();
  }
}

void ApplyState(const CapturedState& state, Device device, bool create_graph) {
  ThreadState& thread = MutableThreadState();
  thread.layer_mask = (state.layer_mask & ~(kRecordBit | kTraceBit)) |
                      (thread.layer_mask & kTraceBit) | (create_graph ? kRecordBit : 0);
  thread.device = device;
  thread.stream = device == state.device ? state.stream : 0;
  thread.intra_op_threads = state.intra_op_threads;
  for (size_t i = 0; i < std::tuple_size_v<CapturedState::LayerStates>; ++i) {
    auto& installed = thread.layer_state[i];
    if (!state.layer_states) {
      if (installed) installed.reset();
    } else if (installed != (*state.layer_states)[i]) {
      installed = (*state.layer_states)[i];
    }
  }
}

}  // namespace lockstep::autograd::internal
