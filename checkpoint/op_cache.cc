// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/op_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_state.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dispatch.h"

namespace lockstep::checkpoint::internal {
namespace {

bool Saves(OpDecision decision) {
  return decision == OpDecision::kMustSave || decision == OpDecision::kPreferSave;
}

// Puts the gradients slot's state back.
class GradStateScope {
 public:
  explicit GradStateScope(std::shared_ptr<const LayerState> saved) : saved_(std::move(saved)) {}
  ~GradStateScope() {
    MutableThreadState().layer_state[autograd::internal::kGradSlot] = std::move(saved_);
  }
  GradStateScope(const GradStateScope&) = delete;
  GradStateScope& operator=(const GradStateScope&) = delete;

 private:
  std::shared_ptr<const LayerState> saved_;
};

}  // namespace

void OpCache::Add(OpId op, int64_t ordinal, TensorSpan outputs) {
  Entry entry{{}, saved_tensors_.load(std::memory_order_relaxed), false};
  for (const Tensor& output : outputs) entry.outputs.emplace_back(output);
  std::lock_guard<std::mutex> lock(mutex_);
  entries_.insert_or_assign({op, ordinal}, std::move(entry));
}

OpCache::Lookup OpCache::Find(OpId op, int64_t ordinal, TensorList& outputs) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = entries_.find({op, ordinal});
  if (it == entries_.end()) {
    // A backward inside the region: the second pass may be ahead of the first.
    return complete_.load(std::memory_order_acquire) ? Lookup::kNeverAdded : Lookup::kDropped;
  }
  if (it->second.dropped) return Lookup::kDropped;
  for (const HeldTensor& held : it->second.outputs) {
    if (held.modified()) {
      throw FailedPreconditionError(absl::StrCat(
          "Checkpoint: a result of ", GetOpInfo(op).name, " (", held.Get().DebugString(),
          ") that the policy saves was modified in place afterwards; let the policy recompute it, "
          "or use the form of the modifying op that returns a new tensor"));
    }
    outputs.push_back(held.Get());
  }
  return Lookup::kFound;
}

void OpCache::DropTail() {
  const int64_t saved = saved_tensors_.load(std::memory_order_relaxed);
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [key, entry] : entries_) {
    if (entry.saved_tensors < saved) continue;
    entry.outputs.clear();
    entry.dropped = true;
  }
}

CachingPass::CachingPass(std::shared_ptr<const OpPolicy> policy, std::shared_ptr<OpCache> cache,
                         bool is_recompute)
    : is_recompute_(is_recompute), policy_(std::move(policy)), cache_(std::move(cache)) {}

TensorList CachingPass::Run(const OpCall& call) {
  const OpInfo& info = GetOpInfo(call.op);
  if (call.in_place || info.mutates != 0 || info.view_of >= 0) {
    return DispatchBelow(kCheckpointLayer, call);
  }
  std::shared_ptr<OpCache> cache;
  int64_t ordinal = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    cache = cache_;
    if (cache != nullptr) ordinal = counts_[call.op]++;
  }
  if (cache == nullptr) return DispatchBelow(kCheckpointLayer, call);
  OpDecision decision;
  {
    LayerScope off(kCheckpointLayer, false);  // ops that the policy calls are none of the region's
    decision = (*policy_)(OpContext(call, is_recompute_));
  }
  return is_recompute_ ? Replay(call, *cache, decision, ordinal)
                       : Record(call, *cache, decision, ordinal);
}

TensorList CachingPass::Record(const OpCall& call, OpCache& cache, OpDecision decision,
                               int64_t ordinal) {
  TensorList outputs = DispatchBelow(kCheckpointLayer, call);
  if (Saves(decision)) cache.Add(call.op, ordinal, outputs);
  return outputs;
}

TensorList CachingPass::Replay(const OpCall& call, const OpCache& cache, OpDecision decision,
                               int64_t ordinal) {
  if (decision == OpDecision::kMustRecompute) return DispatchBelow(kCheckpointLayer, call);
  TensorList outputs;
  const OpCache::Lookup found = cache.Find(call.op, ordinal, outputs);
  if (found == OpCache::Lookup::kNeverAdded && decision == OpDecision::kMustSave) {
    throw FailedPreconditionError(absl::StrCat(
        "Checkpoint: the policy says kMustSave for call ", ordinal, " of ", GetOpInfo(call.op).name,
        " in the recomputation, and said otherwise in the forward pass (or the region ran other "
        "ops); a policy has to give the same answer both times"));
  }
  if (found != OpCache::Lookup::kFound) return DispatchBelow(kCheckpointLayer, call);
  const uint32_t gradients = LayerBit(DispatchLayer::kGradients);
  if ((CurrentThreadState().layer_mask & gradients) == 0) return outputs;
  // Recorded as always, so that the op saves its inputs; only the kernel does not run.
  auto computed = std::make_shared<autograd::internal::ComputedOutputs>();
  computed->op = call.op;
  computed->outputs = std::move(outputs);
  GradStateScope scope(autograd::internal::ReplaceGradState(
      [&](autograd::internal::GradState& state) { state.computed = std::move(computed); }));
  return DispatchBelow(kCheckpointLayer, call);
}

void CachingPass::Finish() {
  std::shared_ptr<OpCache> dropped;  // destroyed after the lock
  std::lock_guard<std::mutex> lock(mutex_);
  dropped = std::exchange(cache_, nullptr);
}

}  // namespace lockstep::checkpoint::internal
