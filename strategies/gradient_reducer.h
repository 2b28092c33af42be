// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GradientReducer: the state behind DistributedDataParallel. Hooks tell it which gradients are
// ready; it packs them into buckets, starts reductions in index order, and at the end of backward
// waits and unpacks.
#ifndef LOCKSTEP_STRATEGIES_GRADIENT_REDUCER_H_
#define LOCKSTEP_STRATEGIES_GRADIENT_REDUCER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/autograd/hooks.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/strategies/bucket_plan.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// Sums since construction or the last reset.
struct ReducerStatistics {
  int64_t reduced_backwards = 0;
  int64_t collectives = 0;
  int64_t reduced_bytes = 0;  // of buckets, on this rank
  double wait_seconds = 0;    // backward stood still because reductions were not done
  double step_seconds = 0;    // from the end of one reducing backward to the end of the next

  // Part of the time of steps in which this rank only waited for communication.
  double communication_share() const { return step_seconds > 0 ? wait_seconds / step_seconds : 0; }
};

struct ReducerEvent {
  enum class Kind {
    kGradientReady,     // index: the parameter
    kReductionStarted,  // index: the bucket
    kReductionDone,     // index: the bucket; the average is in Grad()
    kBackwardEnded,     // index: the number of the reducing backward
  };
  int64_t sequence = 0;  // position in the order of all events of this reducer
  Kind kind = Kind::kGradientReady;
  int index = 0;
};

// Thread-safe. Hooks refer to it weakly.
class GradientReducer : public std::enable_shared_from_this<GradientReducer> {
 public:
  // Allocates the buckets and registers a hook on each of `parameters`, which require gradients.
  static std::shared_ptr<GradientReducer> Create(std::shared_ptr<comm::Communicator> group,
                                                 const NamedTensors& parameters, BucketPlan plan,
                                                 bool record_events);
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  void RemoveHooks();

  const BucketPlan& plan() const { return plan_; }
  ReducerStatistics statistics() const;
  void ResetStatistics();
  std::vector<ReducerEvent> events() const;

  // Reductions are off while the count of these is positive.
  void EnterNoSync();
  void LeaveNoSync();

 private:
  struct BucketState {
    Tensor flat;                 // [numel], in memory that peers reach
    std::vector<Tensor> slices;  // of `flat`, one a parameter, in its shape
    int pending = 0;             // gradients that are not in it yet
    comm::Work work;
  };
  enum class GradientState : uint8_t {
    kMissing,      // nothing in this accumulation window
    kAccumulated,  // came in a backward under NoSync
    kPacked        // in its bucket
  };
  // Ends a backward that fails: destroyed without having been dismissed.
  class FailureGuard;

  GradientReducer(std::shared_ptr<comm::Communicator> group, const NamedTensors& parameters,
                  BucketPlan plan, bool record_events);
  void AllocateBuckets();
  void RegisterHooks();

  // The hook. Runs on the thread of the parameter's device.
  void OnGradient(size_t parameter);
  // The end-of-backward callback.
  void FinishBackward();
  void OnBackwardFailed();

  // The following expect mutex_ to be held.
  void Pack(size_t parameter);
  void StartReadyBuckets();
  void PackAccumulated();
  std::vector<std::string> MissingNames() const;
  void ResetWindow();
  void Record(ReducerEvent::Kind kind, size_t index);

  void WaitAndUnpack();

  std::shared_ptr<comm::Communicator> group_;
  std::vector<std::string> names_;
  std::vector<Tensor> parameters_;
  const BucketPlan plan_;
  const bool record_events_;
  std::vector<autograd::HookHandle> hooks_;

  mutable std::mutex mutex_;
  int no_sync_count_ = 0;
  bool reducing_ = false;  // between the first hook of a reducing backward and its end
  std::vector<GradientState> gradients_;
  std::vector<BucketState> buckets_;
  size_t next_bucket_ = 0;  // the first that has not been started
  ReducerStatistics statistics_;
  int64_t step_start_ns_ = 0;
  std::vector<ReducerEvent> events_;
  int64_t next_event_ = 0;
};

// See DistributedDataParallel::NoSync. Move-only.
class NoSyncScope {
 public:
  explicit NoSyncScope(std::shared_ptr<GradientReducer> reducer) : reducer_(std::move(reducer)) {
    reducer_->EnterNoSync();
  }
  NoSyncScope(NoSyncScope&&) = default;
  NoSyncScope& operator=(NoSyncScope&&) = delete;
  ~NoSyncScope() {
    if (reducer_ != nullptr) reducer_->LeaveNoSync();
  }

 private:
  std::shared_ptr<GradientReducer> reducer_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_GRADIENT_REDUCER_H_
