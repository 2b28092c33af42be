// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The state of gradient reduction in one process group: buckets, what is ready, what is in flight.
//
// Life of a synchronised backward:
//   1. The first gradient of a backward begins a pass.
//   2. A gradient that becomes ready is put into its place in its bucket. When a bucket is full and
//      all before it are in flight, its reduction is issued: in index order, the same on all ranks.
//   3. At the end of backward, gradients that were made in earlier, unsynchronised backwards only
//      are added; remaining buckets are issued; all are waited for; averages go to Grad().
//   4. After the first pass, buckets are laid out anew in the order in which rank 0's gradients
//      became ready. A plan of one bucket, and find_unused_parameters (where the order may change
//      from step to step), keep the first layout.
//
// When backward fails, on this rank, with gradients in flight, the group is aborted: the peers are
// not left waiting for reductions that will never come.
//
// Each bucket carries one element more than its gradients: how many ranks have something to tell
// about one of them. Only when that is not zero do the ranks exchange what (gradient_report.h), so
// the usual step has no collective but its buckets. With a communication hook, which sees gradients
// only, that number is a small AllReduce of its own.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_REDUCER_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_REDUCER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/autograd/hooks.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/strategies/distributed_data_parallel/bucket_plan.h"
#include "lockstep/strategies/distributed_data_parallel/communication_hook.h"
#include "lockstep/strategies/distributed_data_parallel/gradient_bucket.h"
#include "lockstep/strategies/distributed_data_parallel/gradient_report.h"
#include "lockstep/strategies/distributed_data_parallel/reduction_statistics.h"
#include "lockstep/strategies/strategy_state.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::strategies {

// distributed_data_parallel.h says what each does.
struct ReducerOptions {
  BucketPlanOptions buckets = {};
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = false;
  bool check_finite = false;
  int64_t staleness = 0;
  std::shared_ptr<CommunicationHook> hook = nullptr;
  optim::Optimizer* optimizer_in_backward = nullptr;
  // Called before each pass; throws what makes the pass impossible.
  std::function<void()> check_before_pass = nullptr;
};

// Hooks run on the threads that run backward; one backward at a time.
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  // `parameters` require gradients. Call InstallHooks() on the shared object next. Throws
  // Unimplemented for options that exclude each other, naming both, and AlreadyExists for a hook
  // that another one has.
  Reducer(NamedTensors parameters, std::shared_ptr<comm::Communicator> group,
          const ReducerOptions& options);
  ~Reducer();

  // Throws AlreadyExists when a parameter's gradient is reduced by something else.
  void InstallHooks();
  // While the depth is above 0, backwards accumulate on this rank only.
  void ChangeNoSyncDepth(int change);
  bool synchronizes() const;
  // Synchronised backwards so far.
  int64_t passes() const;

  // For uneven inputs (join.h). `announce` is called before each pass and returns the number of
  // ranks that have inputs; averages are over those with `divide_by_active`. Null: none.
  bool has_announcement() const;
  void SetAnnouncement(std::function<int64_t()> announce, bool divide_by_active);
  // The pass of a rank without inputs, after an announcement that `active` ranks have some: adds
  // nothing but what earlier, unsynchronised backwards left.
  void ShadowPass(int64_t active);

  // Ends what is in flight with staleness; the averages that come are dropped.
  void FinishPending();
  // What is in flight with staleness, once it has arrived, for training states: "N.gradient.NAME",
  // "N.report" and, where that is not 0, "N.bits", with N the turns until it is left (0 is next).
  // `own` where a hook may leave each rank something else. LoadState() copies;
  // it waits for what is in flight and drops it.
  StrategyState SaveState();
  void LoadState(const StrategyState& state);

  int64_t bucket_count() const;
  std::vector<BucketSpec> plan() const;
  const ReducerOptions& options() const { return options_; }
  ReductionStatistics statistics() const;

 private:
  struct Bucket {
    explicit Bucket(GradientBucket bucket) : data(std::move(bucket)) {}

    GradientBucket data;
    int64_t pending = 0;   // gradients not yet in it
    bool reports = false;  // this rank has something to tell about one
    comm::Work work;
  };
  // All buckets of a pass. With staleness several passes are under way, each with its own.
  struct BucketSet {
    std::vector<Bucket> buckets;
    std::vector<uint8_t> bits;  // of each parameter, for the report
    Tensor report;              // with a hook: how many ranks have something to tell
    comm::Work report_work;
    BucketClock clock;
    int64_t active = 0;
    bool in_flight = false;
  };

  // Ends a pass whose backward fails: it is destroyed without having been dismissed.
  class FailureGuard;

  // reducer.cc: while backward runs.
  void OnGradient(int64_t parameter);
  void CheckUsable() const;
  bool CountCall(size_t parameter);
  void BeginPass();
  void ResetPass(int64_t active);
  void SkipUnreached();
  void OnBackwardFailed();
  void PutIntoBucket(size_t parameter, bool may_miss);
  void AdoptIntoBucket(size_t parameter, const Tensor& gradient);
  void AdoptIfThere(size_t parameter);
  void IssueFullBuckets();
  comm::Work Issue(Bucket& bucket);
  void StepFullBuckets(bool wait);

  // reducer_finish.cc: when it is over.
  void FinishPass();
  void AddEarlierAndMissing();
  void PutNothing(size_t parameter);
  void WaitForSet(BucketSet& set);
  void FinishStale();
  void EndStatistics(double exposed_seconds);
  // Which parameters no rank has a gradient for. Throws where a rank reports what is an error.
  std::vector<bool> GloballyMissing(BucketSet& set);
  bool SomeRankReports(const BucketSet& set) const;
  void ThrowIfRefused(const GradientReport& report);
  void CopyBack(BucketSet& set, const std::vector<bool>& globally_missing);
  void GiveGradient(size_t parameter, const Tensor& average);
  void DropGradients();
  void LearnGraph(const std::vector<bool>& globally_missing);
  void RebuildBuckets();
  void LayOutAnew(std::vector<BucketSpec> plan);
  void TakeOut(size_t parameter);
  // `with_gradients`: each bucket takes its gradients in as soon as it is there.
  void LayOut(std::vector<BucketSpec> plan, bool with_gradients);

  // reducer_state.cc
  void LoadSet(BucketSet& set, const StrategyState& state, int64_t wait);
  // The set whose averages are left `wait` turns after the next ones.
  BucketSet& SetAfter(int64_t wait);

  BucketSet& set() { return sets_[turn_]; }
  const Tensor& PlaceOf(BucketSet& set, size_t parameter) const;
  Bucket& BucketOf(size_t parameter);
  const std::string& NameOf(size_t parameter) const { return parameters_[parameter].first; }
  std::vector<GradientBucket*> BucketPointers(BucketSet& set) const;

  const NamedTensors parameters_;
  const std::shared_ptr<comm::Communicator> group_;
  const ReducerOptions options_;
  const std::shared_ptr<void> hook_taken_;
  std::vector<BucketSpec> plan_;
  std::vector<BucketSet> sets_;
  size_t turn_ = 0;                                 // the set of this pass
  std::vector<std::pair<int64_t, int64_t>> place_;  // of each parameter: bucket, position in it
  std::vector<autograd::HookHandle> hooks_;
  std::function<int64_t()> announce_;
  bool divide_by_active_ = false;

  mutable std::mutex mutex_;
  int no_sync_depth_ = 0;
  bool in_pass_ = false;
  std::vector<bool> used_;            // has had a gradient since the last synchronised backward
  std::vector<bool> ready_;           // is in its bucket in this pass
  std::vector<int64_t> calls_;        // of the hook, in this pass
  std::vector<Tensor> kept_;          // gradients to give back if no rank made another
  std::vector<int64_t> seen_;         // order in which gradients became ready, this pass
  int64_t next_bucket_ = 0;           // first one not issued
  int64_t next_step_ = 0;             // first one whose parameters were not stepped
  bool may_rebuild_ = true;           // the buckets have their first layout
  std::string broken_;                // why there are no buckets any more
  bool learned_ = false;              // static graph: the first pass is over
  std::vector<int64_t> expected_;     // static graph: calls of the hook in a pass
  std::vector<bool> never_used_;      // static graph: on this rank
  std::vector<bool> never_anywhere_;  // static graph: on no rank
  Stopwatch since_last_;
  int64_t passes_ = 0;
  comm::Traffic traffic_;  // at the beginning of the pass
  ReductionStatistics current_;
  ReductionStatistics last_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_REDUCER_H_
