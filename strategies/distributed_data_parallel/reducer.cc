// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/reducer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

class Reducer::FailureGuard {
 public:
  explicit FailureGuard(std::shared_ptr<Reducer> reducer) : reducer_(std::move(reducer)) {}
  ~FailureGuard() {
    if (reducer_) reducer_->OnBackwardFailed();
  }
  FailureGuard(const FailureGuard&) = delete;
  FailureGuard& operator=(const FailureGuard&) = delete;
  void Dismiss() { reducer_ = nullptr; }

 private:
  std::shared_ptr<Reducer> reducer_;
};

Reducer::Reducer(NamedTensors parameters, std::shared_ptr<comm::Communicator> group,
                 const ReducerOptions& options)
    : parameters_(std::move(parameters)),
      group_(std::move(group)),
      options_(options),
      place_(parameters_.size()),
      used_(parameters_.size(), false) {
  std::vector<GradientSpec> gradients;
  for (const auto& [name, parameter] : parameters_) {
    gradients.push_back({parameter.numel(), parameter.dtype(), parameter.device()});
  }
  plan_ = PlanBuckets(gradients, options_.buckets);
  for (const BucketSpec& spec : plan_) {
    Bucket bucket;
    const int64_t count = spec.numel + 1;
    RefPtr<Storage> storage =
        group_->Allocate(count * ItemSize(spec.dtype), MemoryCategory::kGradient);
    bucket.buffer = FromStorage(storage, {count}, spec.dtype);
    bucket.missing = FromStorage(storage, {1}, spec.dtype, spec.numel);
    for (size_t i = 0; i < spec.gradients.size(); ++i) {
      const size_t index = static_cast<size_t>(spec.gradients[i]);
      place_[index] = {static_cast<int64_t>(buckets_.size()), static_cast<int64_t>(i)};
      bucket.gradients.push_back(
          FromStorage(storage, parameters_[index].second.shape(), spec.dtype, spec.offsets[i]));
    }
    buckets_.push_back(std::move(bucket));
  }
}

Reducer::~Reducer() {
  for (autograd::HookHandle& hook : hooks_) hook.Remove();
}

void Reducer::InstallHooks() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    // A weak pointer: parameters may outlive the strategy.
    hooks_.push_back(autograd::RegisterPostAccumulateGradHook(
        parameters_[i].second,
        [weak = weak_from_this(), index = static_cast<int64_t>(i)](const Tensor&) {
          if (auto self = weak.lock()) self->OnGradient(index);
        }));
  }
}

void Reducer::ChangeNoSyncDepth(int change) {
  std::lock_guard<std::mutex> lock(mutex_);
  no_sync_depth_ += change;
}

ReductionStatistics Reducer::statistics() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_;
}

void Reducer::OnGradient(int64_t parameter) {
  std::lock_guard<std::mutex> lock(mutex_);
  const autograd::NoGradScope no_grad;
  const size_t index = static_cast<size_t>(parameter);
  const Tensor gradient = autograd::Grad(parameters_[index].second);
  if (!gradient.defined()) return;  // every contribution was undefined: as if unused
  if (no_sync_depth_ > 0) {
    used_[index] = true;
    return;
  }
  if (!in_pass_) BeginPass();
  used_[index] = true;
  current_.events.push_back({ReducerEvent::Kind::kGradientReady, parameter});
  PutIntoBucket(parameter, gradient);
  IssueFullBuckets();
}

void Reducer::BeginPass() {
  in_pass_ = true;
  ready_.assign(parameters_.size(), false);
  missing_.assign(parameters_.size(), false);
  next_bucket_ = 0;
  current_ = {};
  for (size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].pending = static_cast<int64_t>(plan_[i].gradients.size());
    buckets_[i].lacks_gradient = false;
  }
  // A backward that fails drops its callbacks without calling them, and with them the guard.
  auto guard = std::make_shared<FailureGuard>(shared_from_this());
  autograd::QueueEndOfBackward([self = shared_from_this(), guard] {
    self->FinishPass();
    guard->Dismiss();
  });
}

void Reducer::PutIntoBucket(int64_t parameter, const Tensor& gradient) {
  const auto [bucket_index, position] = place_[static_cast<size_t>(parameter)];
  Bucket& bucket = buckets_[static_cast<size_t>(bucket_index)];
  const Tensor& place = bucket.gradients[static_cast<size_t>(position)];
  if (gradient.defined()) {
    CopyInto(place, gradient);
  } else {
    ZeroInPlace(place);
    bucket.lacks_gradient = true;
    missing_[static_cast<size_t>(parameter)] = true;
  }
  ready_[static_cast<size_t>(parameter)] = true;
  --bucket.pending;
}

void Reducer::IssueFullBuckets() {
  while (next_bucket_ < bucket_count() &&
         buckets_[static_cast<size_t>(next_bucket_)].pending == 0) {
    Bucket& bucket = buckets_[static_cast<size_t>(next_bucket_)];
    FillInPlace(bucket.missing, bucket.lacks_gradient ? 1 : 0);
    bucket.work = group_->AllReduce(bucket.buffer, {.op = comm::ReduceOp::kAverage});
    current_.events.push_back({ReducerEvent::Kind::kReduceIssued, next_bucket_});
    ++current_.collectives;
    current_.bytes += bucket.buffer.bytes();
    ++next_bucket_;
  }
}

void Reducer::AddEarlierAndMissing() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (ready_[i]) continue;
    // Used in a backward under NoSync: what it accumulated is reduced now.
    const Tensor gradient = used_[i] ? autograd::Grad(parameters_[i].second) : Tensor();
    PutIntoBucket(static_cast<int64_t>(i), gradient);
  }
  IssueFullBuckets();
}

void Reducer::OnBackwardFailed() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!in_pass_) return;  // it ended: what failed came after the reductions
  in_pass_ = false;
  used_.assign(parameters_.size(), false);
  for (Bucket& bucket : buckets_) bucket.work = {};
  group_->Abort(absl::StrCat("backward failed on rank ", group_->rank(),
                             ", whose gradients cannot be averaged"));
}

void Reducer::FinishPass() {
  std::lock_guard<std::mutex> lock(mutex_);
  const autograd::NoGradScope no_grad;
  AddEarlierAndMissing();
  const Stopwatch waiting;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].work.Wait();
    current_.events.push_back({ReducerEvent::Kind::kReduceWaited, static_cast<int64_t>(i)});
  }
  current_.exposed_seconds = waiting.ElapsedSeconds();
  in_pass_ = false;
  for (Bucket& bucket : buckets_) bucket.work = {};
  used_.assign(parameters_.size(), false);
  last_ = current_;
  CopyBack(GloballyMissing());
}

std::vector<bool> Reducer::GloballyMissing() {
  std::vector<bool> globally(parameters_.size(), false);
  bool any = false;
  for (const Bucket& bucket : buckets_) any |= bucket.missing.Item<double>() != 0;
  if (!any) return globally;

  std::vector<int64_t> counts(parameters_.size(), 0);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    counts[i] = missing_[i] ? 1 : 0;
  }
  Tensor map = FromVector<int64_t>(counts, {static_cast<int64_t>(counts.size())},
                                   {.device = parameters_[0].second.device()});
  group_->AllReduce(map).Wait();
  ++last_.collectives;
  last_.bytes += map.bytes();
  counts = map.ToVector<int64_t>();
  if (!options_.find_unused_parameters) {
    throw FailedPreconditionError(absl::StrCat(
        "DistributedDataParallel: parameters without a gradient in this backward: ", Names(counts),
        "; use them in the loss, set requires_grad to false for them, or give "
        "find_unused_parameters = true. No gradient was averaged"));
  }
  for (size_t i = 0; i < counts.size(); ++i) globally[i] = counts[i] == group_->size();
  return globally;
}

std::string Reducer::Names(const std::vector<int64_t>& missing_ranks) const {
  constexpr size_t kMost = 10;
  std::string names;
  size_t listed = 0, all = 0;
  for (size_t i = 0; i < missing_ranks.size(); ++i) {
    if (missing_ranks[i] == 0) continue;
    if (++all > kMost) continue;
    absl::StrAppend(&names, listed++ == 0 ? "" : ", ", parameters_[i].first, " (on ",
                    missing_ranks[i], " of ", group_->size(), " ranks)");
  }
  if (all > kMost) absl::StrAppend(&names, " and ", all - kMost, " more");
  return names;
}

void Reducer::CopyBack(const std::vector<bool>& globally_missing) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (globally_missing[i]) continue;
    const Tensor& parameter = parameters_[i].second;
    const auto [bucket, position] = place_[i];
    const Tensor& average =
        buckets_[static_cast<size_t>(bucket)].gradients[static_cast<size_t>(position)];
    Tensor gradient = autograd::Grad(parameter);
    if (gradient.defined()) {
      CopyInto(gradient, average);
    } else {
      CategoryScope category(MemoryCategory::kGradient);
      autograd::SetGrad(parameter, Clone(average));
    }
  }
}

}  // namespace lockstep::strategies
