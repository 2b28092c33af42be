// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// One call of Checkpoint(): what it keeps, and its second run. Internal.
//
// While the region runs, saved-tensor hooks replace each tensor that an op saves by a placeholder.
// The first placeholder that a backward unpacks runs the region again under hooks that keep the
// tensors instead; the graph that records meanwhile is dropped, because the first one has the
// histories. Placeholders own the region, and the region owns what the second run needs.
//
// Leaves that require gradients (parameters) live anyway: they are kept as themselves, and their
// version is checked.
#ifndef LOCKSTEP_CHECKPOINT_REGION_H_
#define LOCKSTEP_CHECKPOINT_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/autograd/grad_state.h"
#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/autograd/tensor_meta.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/held_tensor.h"
#include "lockstep/checkpoint/op_cache.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::checkpoint::internal {

// A tensor that an op of the region saved.
struct SavedRecord {
  std::string op;
  autograd::internal::SavedBy::Role role = autograd::internal::SavedBy::Role::kOther;
  int index = 0;
  autograd::TensorMeta meta;
  uint64_t hash = 0;   // verify_values only
  bool needed = true;  // the placeholder exists
  HeldTensor value;    // once recomputed

  // "input 0 of Gelu (float32[2, 3] on cpu:0)".
  std::string DebugString() const;
};

class Region : public std::enable_shared_from_this<Region> {
 public:
  Region(CheckpointFunction fn, TensorSpan inputs, const CheckpointOptions& options);

  // The first run.
  TensorList Run(TensorSpan inputs);

  // The saved tensor `index`, after the second run if it is not there. Thread-safe.
  Tensor Unpack(size_t index);
  // The graph has no more use for it.
  void Drop(size_t index);

 private:
  struct Input {
    autograd::internal::SavedTensor saved;
    bool requires_grad = false;
    bool is_leaf = false;
  };
  class Replay;

  autograd::PackedTensor Pack(const Tensor& tensor, const autograd::internal::SavedBy& by);
  void CheckInputsUnchanged(TensorSpan inputs, const std::vector<int64_t>& versions) const;
  void Recompute();
  TensorList ReplayInputs(Replay& replay) const;
  ThreadState ReplayState(const std::shared_ptr<Replay>& replay,
                          std::shared_ptr<OpPass> pass) const;
  // True when `index` has its value. Throws when that was modified in place.
  bool TryGet(size_t index, Tensor& value);
  void ReleaseInputs();

  const CheckpointOptions options_;
  const std::shared_ptr<const OpPolicy> policy_;  // null: recompute everything

  std::mutex replay_mutex_;  // one second run at a time; guards what it needs
  CheckpointFunction fn_;
  std::vector<Input> inputs_;
  ThreadState state_;
  std::vector<Generator> generator_positions_;
  std::shared_ptr<OpCache> cache_;

  std::mutex mutex_;  // guards what follows
  std::vector<SavedRecord> records_;
  bool complete_ = false;  // the first run is over
};

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_REGION_H_
