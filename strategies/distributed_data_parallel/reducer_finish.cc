// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of the reducer that runs at the end of a backward.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/distributed_data_parallel/reducer.h"
#include "lockstep/strategies/parameter_sync.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

void Reducer::FinishPass() {
  std::lock_guard<std::mutex> lock(mutex_);
  const autograd::NoGradScope no_grad;
  const LayerScope no_autocast(DispatchLayer::kAutocast, false);  // Backward() may be under one
  AddEarlierAndMissing();
  if (options_.staleness > 0) return FinishStale();
  const Stopwatch waiting;
  WaitForSet(set());
  in_pass_ = false;
  EndStatistics(waiting.ElapsedSeconds());
  const std::vector<bool> globally_missing = GloballyMissing(set());
  if (options_.optimizer_in_backward == nullptr) CopyBack(set(), globally_missing);
  if (options_.static_graph && !learned_) LearnGraph(globally_missing);
  if (may_rebuild_ && set().active == group_->size()) RebuildBuckets();
}

void Reducer::ShadowPass(int64_t active) {
  std::lock_guard<std::mutex> lock(mutex_);
  const autograd::NoGradScope no_grad;
  const LayerScope no_autocast(DispatchLayer::kAutocast, false);  // Backward() may be under one
  CheckUsable();
  ResetPass(active);
  in_pass_ = false;  // the next backward begins its own, also when this one fails
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (used_[i]) {
      PutIntoBucket(i, /*may_miss=*/true);
    } else {
      PutNothing(i);
    }
    set().bits[i] |= kRankHasJoined;
  }
  IssueFullBuckets();
  WaitForSet(set());
  EndStatistics(0);
  GloballyMissing(set());
}

void Reducer::PutNothing(size_t parameter) {
  ZeroInPlace(PlaceOf(set(), parameter));
  set().bits[parameter] |= kGradientMissing;
  ready_[parameter] = true;
  --BucketOf(parameter).pending;
}

void Reducer::AddEarlierAndMissing() {
  const bool learning = options_.static_graph && !learned_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    // Used in a backward under NoSync only: what it accumulated is reduced now.
    if (!ready_[i]) PutIntoBucket(i, /*may_miss=*/learning);
  }
  IssueFullBuckets();
}

// Ends with averages over all ranks, or over those that have inputs, in the buckets.
void Reducer::WaitForSet(BucketSet& set) {
  if (options_.optimizer_in_backward != nullptr) StepFullBuckets(/*wait=*/true);
  for (size_t i = 0; i < set.buckets.size(); ++i) {
    set.buckets[i].work.Wait();
    set.buckets[i].work = {};
    current_.events.push_back({ReducerEvent::Kind::kReduceWaited, static_cast<int64_t>(i)});
  }
  if (options_.hook) {
    options_.hook->Finish(BucketPointers(set), *group_);
    set.report_work.Wait();
    set.report_work = {};
  }
  if (!divide_by_active_ || set.active == group_->size()) return;
  if (options_.optimizer_in_backward != nullptr) return;  // done bucket by bucket
  for (Bucket& bucket : set.buckets) {
    MulInPlace(bucket.data.buffer(),
               static_cast<double>(group_->size()) / static_cast<double>(set.active));
  }
}

// Leaves the averages of `staleness` steps ago, or no gradients where there is no such step.
void Reducer::FinishStale() {
  set().in_flight = true;
  turn_ = (turn_ + 1) % sets_.size();
  BucketSet& oldest = set();
  const bool has_average = std::exchange(oldest.in_flight, false);
  const Stopwatch waiting;
  if (has_average) WaitForSet(oldest);
  in_pass_ = false;
  EndStatistics(waiting.ElapsedSeconds());
  if (!has_average) return DropGradients();
  const std::vector<bool> missing = GloballyMissing(oldest);
  CopyBack(oldest, missing);
  for (size_t i = 0; i < missing.size(); ++i) {
    // Nobody had one then, and what is there now is this step's, of this rank.
    if (missing[i]) autograd::SetGrad(parameters_[i].second, {});
  }
}

void Reducer::FinishPending() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (BucketSet& set : sets_) {
    if (!set.in_flight) continue;
    set.in_flight = false;
    for (Bucket& bucket : set.buckets) {
      bucket.work.Wait();
      bucket.work = {};
    }
  }
}

void Reducer::EndStatistics(double exposed_seconds) {
  used_.assign(parameters_.size(), false);
  current_.exposed_seconds = exposed_seconds;
  const comm::Traffic now = group_->traffic();
  current_.bytes_received = now.bytes_received - traffic_.bytes_received;
  current_.bytes_sent = now.bytes_sent - traffic_.bytes_sent;
  set().clock.Report(&current_);
  current_.staleness = options_.staleness;
  if (passes_ > 0) {
    current_.step_seconds = since_last_.ElapsedSeconds();
    current_.compute_seconds = std::max(0.0, current_.step_seconds - exposed_seconds);
  }
  ++passes_;
  since_last_.Restart();
  last_ = std::move(current_);
  current_ = {};
}

bool Reducer::SomeRankReports(const BucketSet& set) const {
  if (options_.hook) return set.report.Item<double>() != 0;
  return std::any_of(set.buckets.begin(), set.buckets.end(),
                     [](const Bucket& bucket) { return bucket.data.report().Item<double>() != 0; });
}

std::vector<bool> Reducer::GloballyMissing(BucketSet& set) {
  if (!SomeRankReports(set)) {
    return learned_ ? never_anywhere_ : std::vector<bool>(parameters_.size(), false);
  }
  const GradientReport report = GradientReport::Exchange(set.bits, *group_);
  ++last_.collectives;
  ThrowIfRefused(report);
  std::vector<bool> missing(parameters_.size());
  for (size_t i = 0; i < missing.size(); ++i) missing[i] = report.MissingEverywhere(i);
  if (learned_) never_anywhere_ = missing;
  return missing;
}

void Reducer::ThrowIfRefused(const GradientReport& report) {
  std::string wrong;
  if (report.Any(kGradientNotFinite)) {
    wrong = absl::StrCat("check_finite: gradients with infinities or NaN before averaging: ",
                         report.Names(kGradientNotFinite, parameters_),
                         "; amp::FindNonFinite names the op that made the first");
  } else if (report.Any(kGradientUnexpected)) {
    wrong = absl::StrCat(
        "static_graph: parameters without a gradient that had one after the first "
        "synchronised backward: ",
        report.Names(kGradientUnexpected, parameters_), "; drop static_graph");
  } else if (!options_.find_unused_parameters && !options_.static_graph &&
             report.Any(kGradientMissing)) {
    wrong = absl::StrCat("parameters without a gradient in this backward: ",
                         report.Names(kGradientMissing, parameters_),
                         "; use them in the loss, set requires_grad to false for them, or give "
                         "find_unused_parameters = true");
  }
  if (wrong.empty()) return;
  absl::string_view state = "No gradient was averaged";
  if (options_.gradient_as_bucket_view) {
    DropGradients();
    state = "The gradients are dropped";
  } else if (options_.optimizer_in_backward != nullptr) {
    state = "Parameters of other buckets may have been stepped: load the last saved state";
  }
  throw FailedPreconditionError(absl::StrCat("DistributedDataParallel: ", wrong, ". ", state));
}

void Reducer::CopyBack(BucketSet& set, const std::vector<bool>& globally_missing) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& average = PlaceOf(set, i);
    if (!globally_missing[i]) {
      GiveGradient(i, average);
    } else if (kept_[i].defined()) {
      CopyInto(average, kept_[i]);  // the gradient is this place
    }
    kept_[i] = Tensor();
  }
}

void Reducer::GiveGradient(size_t parameter, const Tensor& average) {
  const Tensor& tensor = parameters_[parameter].second;
  const Tensor gradient = autograd::Grad(tensor);
  if (options_.gradient_as_bucket_view) {
    if (!gradient.defined() || !IsSamePlace(gradient, average)) {
      autograd::SetGrad(tensor, AliasOf(average));
    }
  } else if (gradient.defined()) {
    CopyInto(gradient, average);
  } else {
    CategoryScope category(MemoryCategory::kGradient);
    autograd::SetGrad(tensor, Clone(average));
  }
}

void Reducer::DropGradients() {
  for (const auto& [name, parameter] : parameters_) autograd::SetGrad(parameter, {});
  kept_.assign(parameters_.size(), Tensor());
}

void Reducer::LearnGraph(const std::vector<bool>& globally_missing) {
  learned_ = true;
  expected_ = calls_;
  never_used_.resize(parameters_.size());
  for (size_t i = 0; i < never_used_.size(); ++i) {
    never_used_[i] = (set().bits[i] & kGradientMissing) != 0;
  }
  never_anywhere_ = globally_missing;
}

// The order in which gradients became ready on rank 0, then those that did not, last first.
void Reducer::RebuildBuckets() {
  may_rebuild_ = false;
  if (options_.find_unused_parameters || options_.staleness > 0 || plan_.size() == 1) return;
  std::vector<int64_t> order = seen_;
  for (size_t i = parameters_.size(); i-- > 0;) {
    if (calls_[i] == 0) order.push_back(static_cast<int64_t>(i));
  }
  order = BroadcastIndices(order, *group_);
  std::vector<GradientSpec> gradients;
  for (const auto& [name, parameter] : parameters_) {
    gradients.push_back({parameter.numel(), parameter.dtype(), parameter.device()});
  }
  LayOutAnew(PlanBuckets(gradients, order, options_.buckets));
}

// The old buckets go before the new ones come, so that gradients never need twice their memory.
// Those that are views of buckets wait outside, where each is alone: a bucket that has to wait for
// the last of its gradients to find its new place would be there for long.
void Reducer::LayOutAnew(std::vector<BucketSpec> plan) {
  const bool views = options_.gradient_as_bucket_view;
  try {
    std::vector<Bucket>& old = set().buckets;
    for (; !old.empty(); old.pop_back()) {
      if (!views) continue;
      for (const int64_t i : plan_[old.size() - 1].gradients) TakeOut(static_cast<size_t>(i));
    }
    LayOut(std::move(plan), /*with_gradients=*/views);
  } catch (const Error& error) {
    broken_ = error.message();
    group_->Abort(
        absl::StrCat("rank ", group_->rank(), " could not lay out its buckets: ", broken_));
    throw;
  }
}

void Reducer::TakeOut(size_t parameter) {
  const Tensor& tensor = parameters_[parameter].second;
  const Tensor gradient = autograd::Grad(tensor);
  if (!gradient.defined() || !IsSamePlace(gradient, PlaceOf(set(), parameter))) return;
  const CategoryScope category(MemoryCategory::kGradient);
  autograd::SetGrad(tensor, Clone(gradient));
}

}  // namespace lockstep::strategies
