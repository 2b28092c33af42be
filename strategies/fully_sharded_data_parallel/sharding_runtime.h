// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What happens when a sharded module is called and differentiated. Behind
// FullyShardedDataParallel.
//
// A unit's parameters, in a training iteration:
//
//   its module is called      gather, show                      (forward pre-hook)
//   the call returns          hide, let go unless kept          (forward hook)
//   gradients reach its       gather, show, ask for the next    (hooks on the outputs)
//   outputs
//   its last parameter has    into the sum, which is reduced;   (post-accumulate hooks)
//   its gradient              hide, let go
//   backward is over          wait for what is reduced, exchange which parameters any rank used,
//                             give the pieces to Grad()
//
// Collectives are the same, in the same order, on all ranks that call the same units in the same
// order, whatever a rank's graph leaves out: in backward, units have their turns in the reverse
// order of the ends of their calls, and one that the graph does not lead to is gathered in its turn
// like the others; reductions come in the reverse order of the units' first calls. Each has the
// number of its flat parameter as a tag, so that ranks that differ get an error.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_SHARDING_RUNTIME_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_SHARDING_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/nn/hooks.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/fully_sharded_data_parallel/buffer_pool.h"
#include "lockstep/strategies/fully_sharded_data_parallel/execution_order.h"
#include "lockstep/strategies/fully_sharded_data_parallel/flat_parameter.h"
#include "lockstep/strategies/fully_sharded_data_parallel/options.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharding_statistics.h"
#include "lockstep/strategies/fully_sharded_data_parallel/unit_plan.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

class ShardingRuntime : public std::enable_shared_from_this<ShardingRuntime> {
 public:
  struct Unit {
    std::string name;
    nn::Module* module = nullptr;
    bool full_precision = false;
    bool reshard_after_forward = true;
    std::optional<DType> input_dtype;  // what floating-point inputs are cast to
    std::vector<std::unique_ptr<FlatParameter>> flats;

    int64_t calls = 0;     // forward calls under way
    int64_t finished = 0;  // of which the forward hook has run and the exit hook has not
    std::vector<DType> output_dtypes;  // of the calls under way; of full_precision units
    bool kept = false;                 // stays gathered until its backward
    bool used = false;         // called under recording since the last synchronised backward
    bool in_backward = false;  // backward has come to it
    bool passed = false;       // its turn in backward has come, or gone by
    bool live = false;         // and is not done with its parameters
    bool complete = false;     // all its gradients of this backward are in the sum
    int64_t pending = 0;       // gradients that are to come
    int64_t open_inputs = 0;   // inputs whose gradients say that frozen parameters are done with
  };

  // `value_of` as FlatParameter's.
  ShardingRuntime(std::vector<UnitPlan> plans, const FullyShardedDataParallelOptions& options,
                  const ShardingGroups& groups, Device device,
                  absl::FunctionRef<Tensor(const Tensor&)> value_of);
  ~ShardingRuntime();

  // Throws AlreadyExists when a parameter's gradient is averaged by something else.
  void InstallHooks();

  void ChangeNoSyncDepth(int change);
  void ChangeNoAllReduceDepth(int change);
  // Drops what unsynchronised backwards have added up.
  void DropAccumulated();

  // Whether all elements of the parameters are shown on this rank: forward passes leave them alone.
  enum class Summoned : uint8_t { kNo = 0, kShown, kElsewhere };
  void SetSummoned(Summoned summoned) { summoned_ = summoned; }

  // All ranks: for each parameter of each flat one, in order, whether Grad() is there on any rank.
  std::vector<std::vector<bool>> ExchangeHasGradient();
  // Puts whole parameters and gradients back, and leaves no units. All ranks call it; when it
  // throws, nothing has changed.
  void Unwrap();
  // Throws FailedPrecondition after Unwrap().
  void CheckWrapped(const char* call) const;

  // Outside of forward and backward: throw FailedPrecondition otherwise.
  void Unshard(size_t unit);
  void Reshard(size_t unit);
  void CheckIdle(const char* call);

  // Calls `method` as if it were the forward pass of the unit's module.
  TensorList Call(size_t unit, TensorList inputs, const nn::ForwardFunction& method);

  static bool HasFrozen(const Unit& unit);
  std::vector<Unit>& units() { return units_; }
  const ShardingGroups& groups() const { return groups_; }
  const std::shared_ptr<ShardingStatistics>& statistics() const { return statistics_; }
  const ExecutionOrder& order() const { return order_; }

 private:
  // Ends a backward that fails: it is destroyed without having been dismissed.
  class FailureGuard;
  struct LeafPlace {
    size_t unit;
    size_t flat;
    size_t index;
  };

  void AddUnit(UnitPlan plan, Device device, absl::FunctionRef<Tensor(const Tensor&)> value_of);
  void HookUnit(size_t unit);
  void HookLeaves(size_t unit);

  // sharding_runtime.cc: forward.
  void BeforeForward(size_t unit, TensorList& inputs);
  void AfterForward(size_t unit, TensorSpan inputs, TensorList& outputs);
  void LeaveForward(size_t unit);
  void EndUse(Unit& unit, bool recorded);
  void CheckSummonedForward() const;
  void CastInputs(Unit& unit, TensorList& inputs);
  void CastOutputs(size_t unit, TensorList& outputs);
  void WatchOutputs(size_t unit, TensorSpan outputs);
  void WatchInputs(size_t unit, TensorSpan inputs);
  void StartGather(size_t unit);
  void Gather(size_t unit);  // and wait
  // Throws FailedPrecondition when parameters have changed since forward.
  void CheckUnchanged(const Unit& unit) const;
  void Show(Unit& unit);
  void HideIfUnused(Unit& unit);
  void Free(Unit& unit, bool after_forward);
  void FreeStrays();
  // Whether units stay gathered after backwards without synchronisation.
  bool KeepsUnsynchronized() const;

  // sharding_backward.cc
  void BeginBackward();
  void BeforeBackward(size_t unit);
  void PassUntil(size_t unit);  // gives the units before this one their turns
  void PassBy(size_t unit);
  void CompletePassed();
  void OnInputGradient(size_t unit);
  void OnLeafGradient(const LeafPlace& place);
  void ExpectGradients(Unit& unit);
  void Prefetch(size_t unit);
  void Complete(size_t unit);
  void LaunchReductions(bool all);
  void Launch(Unit& unit);
  void FinishOldest();
  void FinishBackward();
  std::vector<std::vector<bool>> ExchangeUsed();
  // Each flag: whether it is set on any rank.
  std::vector<std::vector<bool>> AnyRank(std::vector<std::vector<bool>> flags);
  void StepInBackward(FlatParameter& flat);
  void OnBackwardFailed();
  void ResetBackward();

  const FullyShardedDataParallelOptions options_;
  const ShardingGroups groups_;
  const std::shared_ptr<ShardingStatistics> statistics_ = std::make_shared<ShardingStatistics>();
  std::vector<Unit> units_;
  int64_t flat_count_ = 0;
  std::map<std::string, std::shared_ptr<BufferPool>> pools_;  // by device
  std::vector<nn::HookHandle> module_hooks_;
  std::vector<autograd::HookHandle> leaf_hooks_;

  mutable std::mutex mutex_;
  ExecutionOrder order_;
  int no_sync_depth_ = 0;
  int no_all_reduce_depth_ = 0;
  bool unwrapped_ = false;
  std::deque<size_t> gathering_;  // units, the oldest first
  Summoned summoned_ = Summoned::kNo;
  bool fresh_ = true;           // no call that records since the last backward
  bool order_is_open_ = false;  // the first such call was not the root's
  bool backward_ = false;
  std::vector<size_t> route_;  // units in the order of their turns in this backward
  size_t next_turn_ = 0;
  std::vector<size_t> uses_;       // units in the order of their first call since the last
                                   // synchronised backward
  std::vector<size_t> last_uses_;  // those of that backward
  std::vector<size_t> launches_;   // units to reduce in this backward, in this order
  size_t next_launch_ = 0;
  std::deque<FlatParameter*> reducing_;
  FlatParameter* offloading_ = nullptr;  // whose gradients are on their way to the host
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_SHARDING_RUNTIME_H_
