// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The recorded graph: nodes (one for each recorded op call) and edges to where their inputs came
// from. Internal.
//
// Ownership: a result tensor owns the node that made it, a node owns (through its edges) the nodes
// that made its inputs, and the leaves among them. Nothing points the other way, so dropping the
// last tensor frees the graph.
#ifndef LOCKSTEP_AUTOGRAD_NODE_H_
#define LOCKSTEP_AUTOGRAD_NODE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "lockstep/autograd/hook_registry.h"
#include "lockstep/autograd/input_mask.h"
#include "lockstep/autograd/tensor_meta.h"
#include "lockstep/base/ref_counted.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::autograd::internal {

class Node;

// Where the gradient of an input goes: output `output` of `node`, or `leaf`, or nowhere.
struct Edge {
  RefPtr<Node> node;
  Tensor leaf;
  uint32_t output = 0;

  bool valid() const { return node.get() != nullptr || leaf.defined(); }
  // Identity of the target.
  const void* target() const {
    return node ? static_cast<const void*>(node.get()) : leaf.impl_ptr().get();
  }
};

// Grad() of one tensor.
struct GradSlot {
  std::mutex mutex;
  Tensor grad;
};

// The part of a thread's state that a backward op takes over from its forward op. Whether backward
// ops are recorded or traced is the backward's own affair and not part of it.
struct CapturedState {
  using LayerStates =
      std::array<std::shared_ptr<const LayerState>, 3>;  // the slots above gradients

  uint32_t layer_mask = 0;
  Device device;
  int stream = 0;
  int intra_op_threads = 0;
  // Null when all are, as they are without autocast and checkpointing: recording stays cheap.
  std::shared_ptr<const LayerStates> layer_states;

  static CapturedState OfThread();
};

class Node : public RefCounted<Node> {
 public:
  explicit Node(CapturedState state);
  // Frees the graph behind it without recursion, however long it is.
  virtual ~Node();

  virtual std::string Name() const = 0;
  // Whether it goes before every other node that is ready on its device.
  virtual bool RunsAtOnce() const { return false; }

  // Sets results[i] for each i in `wanted` from the gradients of the outputs (undefined where
  // nothing depends on one; at least one is defined).
  virtual void Apply(absl::Span<Tensor> gradients, const InputMask& wanted, bool create_graph,
                     absl::Span<Tensor> results) = 0;

  // Drops what the node saved. Idempotent, thread-safe.
  virtual void ReleaseSaved() = 0;

  // Later nodes have larger numbers, over all threads.
  uint64_t sequence() const { return sequence_; }
  const CapturedState& state() const { return state_; }

  // One an input; fixed once the node is attached to its outputs.
  const absl::InlinedVector<Edge, 2>& edges() const { return edges_; }
  void AddEdge(Edge edge) { edges_.push_back(std::move(edge)); }

  const absl::InlinedVector<TensorMeta, 1>& outputs() const { return outputs_; }
  void AddOutput(const Tensor& tensor) { outputs_.emplace_back(tensor); }
  // Where it runs: the device of its first output.
  Device device() const { return outputs_.empty() ? Device() : outputs_[0].device; }

  // Hooks and kept gradients of outputs. Thread-safe.
  struct OutputHooks {
    std::shared_ptr<HookRegistry> hooks;
    std::shared_ptr<GradSlot> retained;
  };
  std::shared_ptr<HookRegistry> HooksOf(uint32_t output);
  void Retain(uint32_t output, std::shared_ptr<GradSlot> slot);
  bool has_output_hooks() const { return has_output_hooks_.load(std::memory_order_acquire); }
  OutputHooks GetOutputHooks(uint32_t output) const;

 protected:
  std::mutex& mutex() const { return mutex_; }

 private:
  OutputHooks& Hooks(uint32_t output);

  const uint64_t sequence_;
  CapturedState state_;
  absl::InlinedVector<Edge, 2> edges_;
  absl::InlinedVector<TensorMeta, 1> outputs_;
  mutable std::mutex mutex_;
  std::atomic<bool> has_output_hooks_{false};
  std::vector<std::pair<uint32_t, OutputHooks>> output_hooks_;  // few outputs have any
};

}  // namespace lockstep::autograd::internal

#endif  // LOCKSTEP_AUTOGRAD_NODE_H_
