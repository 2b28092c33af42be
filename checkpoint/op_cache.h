// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Results that selective checkpointing keeps from a region's first pass for its second. Internal.
#ifndef LOCKSTEP_CHECKPOINT_OP_CACHE_H_
#define LOCKSTEP_CHECKPOINT_OP_CACHE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lockstep/checkpoint/held_tensor.h"
#include "lockstep/checkpoint/op_policy.h"
#include "lockstep/checkpoint/state.h"
#include "lockstep/tensor/op.h"

namespace lockstep::checkpoint::internal {

// Results by op and by how many calls of the op the pass had seen before: a pass may have more or
// fewer calls of other ops. Thread-safe.
class OpCache {
 public:
  void Add(OpId op, int64_t ordinal, TensorSpan outputs);
  // kNeverAdded: the whole first pass has not; before its end, what is missing counts as dropped.
  enum class Lookup : uint8_t { kFound, kNeverAdded, kDropped };
  // Sets `outputs` when they are there. Throws FailedPrecondition when one was modified in place
  // since.
  Lookup Find(OpId op, int64_t ordinal, TensorList& outputs) const;
  // The first pass is over.
  void Complete() { complete_.store(true, std::memory_order_release); }
  // The region's ops have saved one more tensor for their gradients.
  void CountSavedTensor() { saved_tensors_.fetch_add(1, std::memory_order_relaxed); }
  // Drops the results that came after the last of those: a second run that ends there has no use
  // for them, although it may still call their ops, which save their inputs.
  void DropTail();

 private:
  struct Entry {
    std::vector<HeldTensor> outputs;
    int64_t saved_tensors;  // counted when the results came
    bool dropped = false;
  };
  std::atomic<bool> complete_{false};
  std::atomic<int64_t> saved_tensors_{0};
  mutable std::mutex mutex_;
  absl::flat_hash_map<std::pair<OpId, int64_t>, Entry> entries_;
};

// Installed while a region runs; see OpPass.
class CachingPass final : public OpPass {
 public:
  CachingPass(std::shared_ptr<const OpPolicy> policy, std::shared_ptr<OpCache> cache,
              bool is_recompute);

  TensorList Run(const OpCall& call) override;
  // Lets every further call through and drops the cache.
  void Finish();

 private:
  TensorList Record(const OpCall& call, OpCache& cache, OpDecision decision, int64_t ordinal);
  TensorList Replay(const OpCall& call, const OpCache& cache, OpDecision decision, int64_t ordinal);

  const bool is_recompute_;
  const std::shared_ptr<const OpPolicy> policy_;
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<OpCache> cache_;
  absl::flat_hash_map<OpId, int64_t> counts_;
};

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_OP_CACHE_H_
