// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of the reducer that goes into training states: averages that are under way.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/distributed_data_parallel/reducer.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

std::string NameIn(int64_t wait, absl::string_view what) { return absl::StrCat(wait, ".", what); }

}  // namespace

Reducer::BucketSet& Reducer::SetAfter(int64_t wait) {
  return sets_[(turn_ + 1 + static_cast<size_t>(wait)) % sets_.size()];
}

StrategyState Reducer::SaveState() {
  std::lock_guard<std::mutex> lock(mutex_);
  StrategyState state;
  NamedTensors& averages = options_.hook ? state.own : state.shared;
  for (int64_t wait = 0; wait < options_.staleness; ++wait) {
    BucketSet& set = SetAfter(wait);
    if (!set.in_flight) continue;
    for (Bucket& bucket : set.buckets) bucket.work.Wait();
    set.report_work.Wait();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      averages.Insert(NameIn(wait, absl::StrCat("gradient.", NameOf(i))), PlaceOf(set, i));
    }
    const bool reports = SomeRankReports(set);
    averages.Insert(NameIn(wait, "report"),
                    FromVector<int64_t>({reports ? 1 : 0}, {1}, {.device = Cpu()}));
    if (!reports) continue;
    state.own.Insert(
        NameIn(wait, "bits"),
        FromVector<uint8_t>(set.bits, {static_cast<int64_t>(set.bits.size())}, {.device = Cpu()}));
  }
  return state;
}

void Reducer::LoadState(const StrategyState& state) {
  std::lock_guard<std::mutex> lock(mutex_);
  const autograd::NoGradScope no_grad;
  // The communication thread may be writing to the buckets.
  for (BucketSet& set : sets_) {
    if (!set.in_flight) continue;
    for (Bucket& bucket : set.buckets) bucket.work.Wait();
    set.report_work.Wait();
    set.in_flight = false;
  }
  const NamedTensors& averages = options_.hook ? state.own : state.shared;
  size_t known = 0;
  try {
    for (int64_t wait = 0; wait < options_.staleness; ++wait) {
      if (!averages.Contains(NameIn(wait, "report"))) continue;
      LoadSet(SetAfter(wait), state, wait);
      known += parameters_.size() + 1 + state.own.Contains(NameIn(wait, "bits"));
    }
  } catch (const Error&) {
    // No step is to use a part of a state.
    for (BucketSet& set : sets_) set.in_flight = false;
    throw;
  }
  const size_t given = state.shared.size() + state.own.size();
  if (known == given) return;
  for (BucketSet& set : sets_) set.in_flight = false;
  throw InvalidArgumentError(absl::StrCat(
      "DistributedDataParallel: the state has ", given, " tensors of averages under way, and ",
      known, " of them are for staleness ", options_.staleness,
      " and this communication_hook; give those that it was saved with"));
}

void Reducer::LoadSet(BucketSet& set, const StrategyState& state, int64_t wait) {
  const NamedTensors& averages = options_.hook ? state.own : state.shared;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string name = NameIn(wait, absl::StrCat("gradient.", NameOf(i)));
    const Tensor* average = averages.Find(name);
    const Tensor& place = PlaceOf(set, i);
    if (average == nullptr || average->shape() != place.shape() ||
        average->dtype() != place.dtype()) {
      throw InvalidArgumentError(absl::StrCat(
          "DistributedDataParallel: the state has ",
          average == nullptr ? "no" : ToString(average->shape()), " ", name,
          ", and the parameter is ", ToString(place.shape()), " of ", DTypeName(place.dtype())));
    }
    CopyInto(place, *average);
  }
  const bool reports = averages.At(NameIn(wait, "report")).Item<int64_t>() != 0;
  set.bits.assign(parameters_.size(), 0);
  if (reports) {
    const Tensor* bits = state.own.Find(NameIn(wait, "bits"));
    if (bits == nullptr || bits->numel() != static_cast<int64_t>(parameters_.size())) {
      throw InvalidArgumentError(absl::StrCat(
          "DistributedDataParallel: the state's averages under way miss gradients of some rank, "
          "and it does not say which; load it on as many ranks as it was saved on"));
    }
    set.bits = bits->ToVector<uint8_t>();
  }
  // Which bucket says so does not matter.
  if (options_.hook) FillInPlace(set.report, reports ? 1 : 0);
  for (Bucket& bucket : set.buckets) {
    FillInPlace(bucket.data.report(), reports ? 1 : 0);
    bucket.work = {};
  }
  set.report_work = {};
  set.active = group_->size();
  set.in_flight = true;
}

}  // namespace lockstep::strategies
