// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/node.h"

namespace lockstep::autograd::internal {
namespace {

uint64_t NextSequence() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

CapturedState CapturedState::OfThread() {
  const ThreadState& thread = CurrentThreadState();
  CapturedState state;
  state.layer_mask = thread.layer_mask;
  state.device = thread.device;
  state.stream = thread.stream;
  state.intra_op_threads = thread.intra_op_threads;
  if (thread.layer_state[0] || thread.layer_state[1] || thread.layer_state[2]) {
    state.layer_states = std::make_shared<const LayerStates>(
        LayerStates{thread.layer_state[0], thread.layer_state[1], thread.layer_state[2]});
  }
  return state;
}

Node::Node(CapturedState state) : sequence_(NextSequence()), state_(std::move(state)) {}

Node::~Node() {
  std::vector<RefPtr<Node>> pending;
  const auto take_edges = [&pending](absl::InlinedVector<Edge, 2>& edges) {
    for (Edge& edge : edges) {
      if (edge.node) pending.push_back(std::move(edge.node));
    }
    edges.clear();
  };
  take_edges(edges_);
  while (!pending.empty()) {
    RefPtr<Node> node = std::move(pending.back());
    pending.pop_back();
    // The last reference is ours, so nobody can look at its edges any more.
    if (node->ref_count() == 1) take_edges(node->edges_);
  }
}

Node::OutputHooks& Node::Hooks(uint32_t output) {
  for (auto& [index, hooks] : output_hooks_) {
    if (index == output) return hooks;
  }
  has_output_hooks_.store(true, std::memory_order_release);
  return output_hooks_.emplace_back(output, OutputHooks()).second;
}

std::shared_ptr<HookRegistry> Node::HooksOf(uint32_t output) {
  std::lock_guard<std::mutex> lock(mutex_);
  OutputHooks& hooks = Hooks(output);
  if (!hooks.hooks) hooks.hooks = std::make_shared<HookRegistry>();
  return hooks.hooks;
}

void Node::Retain(uint32_t output, std::shared_ptr<GradSlot> slot) {
  std::lock_guard<std::mutex> lock(mutex_);
  Hooks(output).retained = std::move(slot);
}

Node::OutputHooks Node::GetOutputHooks(uint32_t output) const {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [index, hooks] : output_hooks_) {
    if (index == output) return hooks;
  }
  return {};
}

}  // namespace lockstep::autograd::internal
