// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The state of gradient reduction in one process group: buckets, what is ready, what is in flight.
//
// Life of a synchronised backward:
//   1. The first gradient of a backward begins a pass.
//   2. A gradient that becomes ready is copied into its place in its bucket. When a bucket is full
//   and
//      all before it are in flight, its AllReduce is issued: in index order, the same on all ranks.
//   3. At the end of backward, gradients that were made in earlier, unsynchronised backwards only
//   are
//      added; remaining buckets are issued; all are waited for; averages are copied to Grad().
//
// When backward fails, on this rank, with gradients in flight, the group is aborted: the peers are
// not left waiting for reductions that will never come.
//
// Each bucket carries one element more than its gradients: how many ranks have none for one of its
// parameters. Only when that is not zero do the ranks exchange a map of what is missing where, so
// the usual step has no collective but its buckets.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_REDUCER_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_REDUCER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/autograd/hooks.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/strategies/distributed_data_parallel/bucket_plan.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::strategies {

// What happened in a backward, in order. `index` is a parameter's (of those that require gradients)
// or a bucket's.
struct ReducerEvent {
  enum class Kind { kGradientReady, kReduceIssued, kReduceWaited };
  Kind kind;
  int64_t index;
  friend bool operator==(const ReducerEvent&, const ReducerEvent&) = default;
};

// Of the last synchronised backward on this rank.
struct ReductionStatistics {
  int64_t collectives = 0;
  int64_t bytes = 0;           // handed to AllReduce
  double exposed_seconds = 0;  // that backward waited for communication at its end
  std::vector<ReducerEvent> events;
};

struct ReducerOptions {
  BucketPlanOptions buckets;
  bool find_unused_parameters = false;
};

// Hooks run on the thread that runs backward; one backward at a time.
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  // `parameters` require gradients, on one device. Call InstallHooks() on the shared object next.
  Reducer(NamedTensors parameters, std::shared_ptr<comm::Communicator> group,
          const ReducerOptions& options);
  ~Reducer();

  void InstallHooks();
  // While the depth is above 0, backwards accumulate on this rank only.
  void ChangeNoSyncDepth(int change);

  int64_t bucket_count() const { return static_cast<int64_t>(buckets_.size()); }
  const std::vector<BucketSpec>& plan() const { return plan_; }
  ReductionStatistics statistics() const;

 private:
  struct Bucket {
    Tensor buffer;                  // the gradients, then the count of ranks that miss one
    std::vector<Tensor> gradients;  // views into it, shaped as the parameters
    Tensor missing;                 // view of the last element
    int64_t pending = 0;            // gradients not yet in the buffer
    bool lacks_gradient = false;    // on this rank
    comm::Work work;
  };

  // Ends a pass whose backward fails: it is destroyed without having been dismissed.
  class FailureGuard;

  void OnGradient(int64_t parameter);
  void BeginPass();
  void OnBackwardFailed();
  void PutIntoBucket(int64_t parameter, const Tensor& gradient);
  void IssueFullBuckets();
  void FinishPass();
  void AddEarlierAndMissing();
  // Which parameters no rank has a gradient for; exchanges a map when a bucket says that one is
  // missing. Throws unless find_unused_parameters allows it.
  std::vector<bool> GloballyMissing();
  void CopyBack(const std::vector<bool>& globally_missing);
  std::string Names(const std::vector<int64_t>& missing_ranks) const;

  const NamedTensors parameters_;
  const std::shared_ptr<comm::Communicator> group_;
  const ReducerOptions options_;
  std::vector<BucketSpec> plan_;
  std::vector<Bucket> buckets_;
  std::vector<std::pair<int64_t, int64_t>> place_;  // of each parameter: bucket, position in it
  std::vector<autograd::HookHandle> hooks_;

  mutable std::mutex mutex_;
  int no_sync_depth_ = 0;
  bool in_pass_ = false;
  std::vector<bool> used_;     // has had a gradient since the last synchronised backward
  std::vector<bool> ready_;    // is in its bucket in this pass
  std::vector<bool> missing_;  // went in as zeros: this rank has no gradient for it
  int64_t next_bucket_ = 0;    // first one not issued
  ReductionStatistics current_;
  ReductionStatistics last_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_REDUCER_H_
