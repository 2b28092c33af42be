// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// FlatParameter: the parameters of a unit as one, of which this rank keeps a part.
//
// The module's own tensors stay the same objects and show one of two things:
//
//   hidden (outside of forward and backward)   shown (inside)
//   weight: [pieces of this rank] of the shard  weight: [out, in] in the gathered memory
//
// so that optimizers built on them update this rank's part, and modules and saved tensors use the
// whole. A rank that has nothing of a parameter sees a tensor of no elements.
//
// The gathered memory comes and goes behind one lent Storage (tensor/storage.h) that graphs may
// keep: contents and version are the same each time, until this rank's part has been written.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_FLAT_PARAMETER_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_FLAT_PARAMETER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/strategies/fully_sharded_data_parallel/buffer_pool.h"
#include "lockstep/strategies/fully_sharded_data_parallel/flat_layout.h"
#include "lockstep/strategies/fully_sharded_data_parallel/gradient_division.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharded_communication_hook.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharding_statistics.h"
#include "lockstep/strategies/fully_sharded_data_parallel/unit_plan.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// The ranks that share parameters, and those that have the same part.
struct ShardingGroups {
  std::shared_ptr<comm::Communicator> world;
  std::shared_ptr<comm::Communicator> shard;      // null: this rank alone
  std::shared_ptr<comm::Communicator> replicate;  // null: this rank alone
  std::shared_ptr<comm::Communicator> reshard;    // null: no secondary partition
};

struct FlatParameterOptions {
  std::string unit;  // for errors
  Device compute_device;
  bool offload = false;  // the shard lives on the host device
  DType param_dtype = DType::kFloat32;
  DType reduce_dtype = DType::kFloat32;
  // The shard is a part of the gathered memory, which stays.
  bool keeps_full = false;
  int64_t tag = 0;  // tells this one's collectives from the others'
  GradientDivision division = {};
  std::shared_ptr<ShardedCommunicationHook> hook = nullptr;  // instead of `division`
};

// One thread at a time.
class FlatParameter {
 public:
  // Takes the parameters' values over, one parameter at a time: `value_of` gives a parameter's
  // elements, the same on all ranks. They are hidden then, with their pieces of what Grad() has;
  // when it throws, those taken are lost.
  FlatParameter(FlatPlan plan, const FlatParameterOptions& options, const ShardingGroups& groups,
                std::shared_ptr<BufferPool> pool, std::shared_ptr<ShardingStatistics> statistics,
                absl::FunctionRef<Tensor(const Tensor& parameter)> value_of);
  // The parameters are lost (lost_parameter.h), unless Release() was called.
  ~FlatParameter();
  FlatParameter(const FlatParameter&) = delete;
  FlatParameter& operator=(const FlatParameter&) = delete;

  // ---- The whole ----
  // Begins to gather, unless that is under way or done.
  void StartGather();
  // Completes it. Throws the group's error, naming the unit.
  void FinishGather();
  bool gathering() const { return gathering_; }
  bool resident() const { return resident_; }
  // Lets the gathered memory go. `after_forward`: a secondary partition keeps its part until the
  // next gather.
  void Free(bool after_forward);
  // The same, if this rank's part has been written since it was gathered.
  void FreeIfChanged();
  // REQUIRES resident().
  void Show();
  void Hide();
  bool shown() const { return shown_; }
  // Throws FailedPrecondition when this rank's part has been written since it was gathered.
  void CheckUnchanged() const;
  // All ranks: gathers the parameters in the dtype that they are stored in, on the first only with
  // `first_only`, and shows them until Hide(), on the host device with `on_host`.
  void Summon(bool first_only, bool on_host);
  // The same for Grad() of those that `has` names, the same on all ranks, after Summon().
  void SummonGradients(const std::vector<bool>& has, bool first_only, bool on_host);
  // Copies this rank's part of what Summon() and SummonGradients() show into the shard and its
  // gradients. A gradient that is gone meanwhile is dropped.
  void WriteBack();
  // Ends what SummonGradients() shows. REQUIRES hidden parameters.
  void HideGradients();

  // Throws FailedPrecondition for a parameter that was moved, converted or replaced.
  void CheckStored() const;
  // All ranks: each parameter whole, in the dtype it is stored in, with memory of its own on the
  // compute device.
  TensorList Whole() const;
  // The same of Grad(); undefined for those that `has` does not name.
  TensorList WholeGradients(const std::vector<bool>& has) const;
  // Gives the parameters these values and gradients for good. Of no use then.
  void Release(const TensorList& whole, const TensorList& gradients);

  // ---- Gradients (trainable ones) ----
  // Between BeginBackward and EndBackward the parameters' Grad() is what this backward adds; what
  // was there before is kept aside.
  void BeginBackward();
  // Puts Grad() of parameter `i` into the unsharded sum.
  void TakeGradient(size_t i);
  // Whether there is anything in the sum, or in that of NoAllReduce.
  bool has_sum() const { return sum_.defined(); }
  bool has_partial() const { return partial_.defined(); }
  // Which parameters are in either.
  std::vector<bool> in_sum() const;
  void DropSum();
  // Reduces the sum; what is missing, or all of it, counts as zeros. With `partial`, among the
  // ranks that share only, and keeps the result for the next reduction without.
  void StartReduce(bool partial);
  void FinishReduce();
  // With offload, FinishReduce() leaves the copy to the host under way: waits for it.
  void FinishOffload();
  bool reducing() const { return reducing_; }
  // Restores Grad(), and adds the reduced pieces of those that any rank `used`.
  void EndBackward(const std::vector<bool>& used);
  // Restores Grad() as it was before the backward.
  void AbandonBackward();

  // ---- Pieces ----
  // A tensor over this rank's shard with `piece_of(i)` (undefined: zeros) in the places of the
  // parameters' pieces; row-major, in `dtype`, on the compute device.
  Tensor AssemblePieces(DType dtype, absl::FunctionRef<Tensor(size_t i)> piece_of) const;

  // The parts of all ranks that share, which each give theirs (as AssemblePieces() makes it), on
  // every one of them or on the first only (undefined elsewhere).
  Tensor GatherShards(const Tensor& shard, bool first_only) const;
  // Of parameter `i` alone: what the ranks that share have for it, each its piece, in the
  // parameter's shape on rank 0 of all; undefined elsewhere. On the compute device.
  Tensor GatherPiece(size_t i, const Tensor& piece) const;

  const NamedTensors& parameters() const { return plan_.parameters; }
  const Shape& full_shape(size_t i) const { return shapes_[i]; }
  bool trainable() const { return plan_.trainable; }
  const FlatLayout& layout() const { return layout_; }
  FlatLayout::Piece piece(size_t i) const { return layout_.PieceOf(i, shard_rank_); }
  DType dtype() const { return plan_.dtype; }
  const FlatParameterOptions& options() const { return options_; }
  const ShardingGroups& groups() const { return groups_; }
  int64_t gathered_bytes() const { return layout_.numel() * ItemSize(options_.param_dtype); }

 private:
  static constexpr char kName[] = "FullyShardedDataParallel";

  void MakeMemory();
  void Lose();
  void KeepPartial();
  std::vector<Tensor> SplitWhole(const Tensor& whole) const;
  Tensor GatherGradients(const std::vector<bool>& has, bool first_only) const;
  comm::Work ReduceAmongSharers();
  void MakeSum();
  void TakeValue(size_t i, absl::FunctionRef<Tensor(const Tensor&)> value_of);
  Tensor PieceView(const Tensor& flat, size_t i) const;
  Tensor SumView(size_t i) const;
  // This rank's part in param_dtype on the compute device.
  Tensor ShardToGather() const;
  RefPtr<Storage> CopyOfShard() const;
  void CheckShowsPieces() const;
  void ShowThese(const std::vector<Tensor>& tensors);
  [[noreturn]] void Rethrow(const Error& error, const char* doing) const;

  const FlatPlan plan_;
  const FlatParameterOptions options_;
  const ShardingGroups groups_;
  const std::shared_ptr<BufferPool> pool_;
  const std::shared_ptr<ShardingStatistics> statistics_;
  const int shard_ranks_;
  const int shard_rank_;
  std::vector<Shape> shapes_;
  const FlatLayout layout_;

  Tensor shard_;                              // [shard_numel], dtype
  RefPtr<Storage> full_;                      // keeps_full: the gathered memory, which holds shard_
  RefPtr<Storage> lent_;                      // what the shown parameters are views of
  std::vector<Tensor> whole_;                 // the shown views
  std::vector<Tensor> pieces_;                // the hidden ones
  std::vector<Tensor> summoned_;              // shown instead of whole_
  std::vector<Tensor> unsummoned_gradients_;  // Grad() of before SummonGradients()

  bool gathering_ = false;
  bool resident_ = false;
  bool shown_ = false;
  comm::Work gather_;
  Tensor source_;           // of the gather under way
  RefPtr<Storage> memory_;  // gathered into; null with keeps_full
  Tensor secondary_;        // [numel / reshard ranks]: this rank's part after forward
  int64_t gathered_version_ = 0;

  std::vector<Tensor> before_;  // Grad() of before the backward
  bool in_backward_ = false;
  Tensor sum_;  // [numel], reduce_dtype
  std::vector<bool> in_sum_;
  comm::Work reduce_;
  bool reducing_ = false;
  // The second half of a hybrid's reduction, issued when the first is complete.
  std::shared_ptr<comm::Work> replicate_;
  Tensor reduced_;             // [shard_numel]
  bool partial_only_ = false;  // the reduction under way
  Tensor partial_;  // [shard_numel], reduce_dtype, where the shard is: sums of NoAllReduce
  std::vector<bool> in_partial_;
  bool released_ = false;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_FLAT_PARAMETER_H_
