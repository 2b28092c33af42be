// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of the runtime that runs in backward.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharding_runtime.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::strategies {

class ShardingRuntime::FailureGuard {
 public:
  explicit FailureGuard(std::shared_ptr<ShardingRuntime> runtime) : runtime_(std::move(runtime)) {}
  ~FailureGuard() {
    if (runtime_) runtime_->OnBackwardFailed();
  }
  FailureGuard(const FailureGuard&) = delete;
  FailureGuard& operator=(const FailureGuard&) = delete;
  void Dismiss() { runtime_ = nullptr; }

 private:
  std::shared_ptr<ShardingRuntime> runtime_;
};

void ShardingRuntime::BeginBackward() {
  if (summoned_ != Summoned::kNo) {
    throw FailedPreconditionError(
        "FullyShardedDataParallel: Backward() was called inside SummonFullParameters; leave that "
        "scope first");
  }
  backward_ = true;
  // A backward that fails drops its callbacks without calling them, and with them the guard.
  auto guard = std::make_shared<FailureGuard>(shared_from_this());
  autograd::QueueEndOfBackward([self = shared_from_this(), guard] {
    self->FinishBackward();
    guard->Dismiss();
  });
  for (Unit& unit : units_) {
    unit.in_backward = unit.passed = unit.live = unit.complete = false;
    unit.pending = 0;
    for (const auto& flat : unit.flats) flat->BeginBackward();
  }
  if (order_is_open_) order_.EndForward();  // nobody has called the root
  order_is_open_ = false;
  fresh_ = true;
  if (uses_.empty()) {
    // One more backward over what was called before the last one.
    uses_ = last_uses_;
    for (const size_t index : uses_) units_[index].used = true;
  }
  launches_.assign(uses_.rbegin(), uses_.rend());
  next_launch_ = 0;
  route_ = order_.Backward();
  next_turn_ = 0;
  for (const size_t index : launches_) ExpectGradients(units_[index]);
}

void ShardingRuntime::ExpectGradients(Unit& unit) {
  for (const auto& flat : unit.flats) {
    if (!flat->trainable()) continue;
    for (const auto& [name, parameter] : flat->parameters()) {
      unit.pending += autograd::BackwardReaches(parameter) ? 1 : 0;
    }
  }
  // One that this graph does not lead to is complete when its turn has come.
  const auto index = static_cast<size_t>(&unit - units_.data());
  unit.complete =
      unit.pending == 0 && std::find(route_.begin(), route_.end(), index) == route_.end();
}

// What this rank's graph leaves out, that of another rank may not: units before `index` are
// gathered, and those without gradients here reduced, as if backward came to them.
void ShardingRuntime::PassUntil(size_t index) {
  const auto place =
      std::find(route_.begin() + static_cast<ptrdiff_t>(next_turn_), route_.end(), index);
  if (place == route_.end() && index < units_.size()) return;
  while (next_turn_ < static_cast<size_t>(place - route_.begin())) PassBy(route_[next_turn_++]);
  CompletePassed();
  if (place != route_.end()) ++next_turn_;
}

void ShardingRuntime::PassBy(size_t index) {
  CompletePassed();
  Unit& unit = units_[index];
  if (unit.in_backward) return;
  unit.passed = true;
  CheckUnchanged(unit);
  StartGather(index);
  if (options_.backward_prefetch == BackwardPrefetch::kPre) Prefetch(index);
}

// Units whose turn has come and that get no gradient here are done with when the next one's comes.
void ShardingRuntime::CompletePassed() {
  for (size_t turn = 0; turn < next_turn_; ++turn) {
    Unit& unit = units_[route_[turn]];
    if (unit.passed && !unit.complete && unit.pending == 0) Complete(route_[turn]);
  }
}

void ShardingRuntime::BeforeBackward(size_t index) {
  if (!backward_) BeginBackward();
  Unit& unit = units_[index];
  if (unit.in_backward) return;
  PassUntil(index);
  unit.in_backward = unit.passed = unit.live = true;
  if (std::find(launches_.begin(), launches_.end(), index) == launches_.end()) {
    // A graph that is differentiated once more.
    launches_.push_back(index);
    ExpectGradients(unit);
  }
  CheckUnchanged(unit);
  Gather(index);
  Show(unit);
  if (options_.backward_prefetch == BackwardPrefetch::kPre) Prefetch(index);
}

// Asks for the unit that backward comes to after `index`.
void ShardingRuntime::Prefetch(size_t index) {
  const std::optional<size_t> next = order_.NextInBackward(index);
  if (!next.has_value() || units_[*next].passed) return;
  CheckUnchanged(units_[*next]);
  StartGather(*next);
}

void ShardingRuntime::OnInputGradient(size_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  Unit& unit = units_[index];
  if (!backward_ || unit.open_inputs == 0 || --unit.open_inputs > 0) return;
  if (!unit.in_backward) return;  // the inputs have other uses; this unit's turn is to come
  unit.live = unit.pending > 0;
  for (const auto& flat : unit.flats) {
    if (!flat->trainable()) flat->Free(/*after_forward=*/false);
  }
}

void ShardingRuntime::OnLeafGradient(const LeafPlace& place) {
  std::lock_guard<std::mutex> lock(mutex_);
  const autograd::NoGradScope no_grad;
  const LayerScope no_autocast(DispatchLayer::kAutocast, false);  // Backward() may be under one
  Unit& unit = units_[place.unit];
  FlatParameter& flat = *unit.flats[place.flat];
  const std::string& name = flat.parameters()[place.index].first;
  if (!backward_ || (unit.complete && !unit.in_backward)) {
    throw FailedPreconditionError(absl::StrCat(
        "FullyShardedDataParallel: ", name,
        " gets a gradient, and none reached an output of its unit \"", unit.name,
        "\" before; use what the unit's module returns, or call other functions of it through "
        "CallMethod()"));
  }
  if (unit.pending == 0) {
    throw FailedPreconditionError(absl::StrCat(
        "FullyShardedDataParallel: ", name,
        " gets a second gradient in one backward (of a Backward() inside of it), when those of its "
        "unit may have been sent; call Backward() once, on the sum of the losses"));
  }
  if (!flat.has_sum()) {
    // So much memory of gradients and no more: this unit's, and one that is being reduced.
    const size_t others = options_.cpu_offload ? 0 : 1;
    while (reducing_.size() > others) FinishOldest();
  }
  flat.TakeGradient(place.index);
  if (--unit.pending == 0) Complete(place.unit);
}

void ShardingRuntime::Complete(size_t index) {
  Unit& unit = units_[index];
  unit.complete = true;
  unit.live = HasFrozen(unit) && unit.open_inputs > 0;
  if (options_.backward_prefetch == BackwardPrefetch::kPost) Prefetch(index);
  LaunchReductions(/*all=*/false);
  HideIfUnused(unit);
  // Without synchronisation the next forward pass wants the same values.
  const bool keeps = KeepsUnsynchronized() && !unit.reshard_after_forward && no_sync_depth_ > 0;
  unit.kept = keeps;
  if (keeps || unit.calls > 0) return;
  for (const auto& flat : unit.flats) {
    // Frozen ones may be used once more between units inside of this one.
    if (flat->trainable() || !unit.in_backward) flat->Free(/*after_forward=*/false);
  }
}

void ShardingRuntime::LaunchReductions(bool all) {
  if (no_sync_depth_ > 0) return;
  for (; next_launch_ < launches_.size(); ++next_launch_) {
    Unit& unit = units_[launches_[next_launch_]];
    if (!unit.complete && !all) return;
    Launch(unit);
  }
}

void ShardingRuntime::Launch(Unit& unit) {
  for (const auto& flat : unit.flats) {
    if (!flat->trainable()) continue;
    flat->StartReduce(/*partial=*/no_all_reduce_depth_ > 0);
    reducing_.push_back(flat.get());
  }
}

void ShardingRuntime::FinishOldest() {
  FlatParameter& flat = *reducing_.front();
  reducing_.pop_front();
  flat.FinishReduce();
  if (options_.cpu_offload) {
    // One copy under way beside the next unit's gradients, however slow the way to the host is.
    if (offloading_ != nullptr) offloading_->FinishOffload();
    offloading_ = &flat;
  }
  if (options_.optimizer_in_backward != nullptr) StepInBackward(flat);
}

void ShardingRuntime::StepInBackward(FlatParameter& flat) {
  std::vector<bool> used = flat.in_sum();
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    throw FailedPreconditionError(absl::StrCat(
        "FullyShardedDataParallel: optimizer_in_backward: ", flat.parameters()[i].first,
        " has no gradient; step after backward where parameters may be unused"));
  }
  flat.EndBackward(used);
  options_.optimizer_in_backward->StepOnly(flat.parameters().Tensors());
  for (const auto& [name, parameter] : flat.parameters()) autograd::SetGrad(parameter, {});
}

// A byte for each parameter: whether any rank has a gradient for it.
std::vector<std::vector<bool>> ShardingRuntime::ExchangeUsed() {
  std::vector<std::vector<bool>> flags;
  for (const Unit& unit : units_) {
    for (const auto& flat : unit.flats) flags.push_back(flat->in_sum());
  }
  return AnyRank(std::move(flags));
}

void ShardingRuntime::FinishBackward() {
  std::lock_guard<std::mutex> lock(mutex_);
  const autograd::NoGradScope no_grad;
  const LayerScope no_autocast(DispatchLayer::kAutocast, false);
  const bool reduces = no_sync_depth_ == 0;
  const bool synchronizes = reduces && no_all_reduce_depth_ == 0;
  std::vector<std::vector<bool>> used;
  PassUntil(units_.size());
  if (reduces) {
    LaunchReductions(/*all=*/true);
    if (synchronizes && options_.optimizer_in_backward == nullptr) used = ExchangeUsed();
    while (!reducing_.empty()) FinishOldest();
  }
  size_t next = 0;
  for (Unit& unit : units_) {
    for (const auto& flat : unit.flats) {
      const size_t number = next++;
      flat->EndBackward(number < used.size() ? used[number] : flat->in_sum());
    }
    unit.complete = true;
    if (synchronizes) unit.used = false;
  }
  if (synchronizes) {
    last_uses_ = std::move(uses_);
    uses_.clear();
  }
  ResetBackward();
}

void ShardingRuntime::ResetBackward() {
  backward_ = false;
  offloading_ = nullptr;
  launches_.clear();
  next_launch_ = 0;
  route_.clear();
  next_turn_ = 0;
  const bool keeps = no_sync_depth_ > 0;
  for (Unit& unit : units_) {
    unit.in_backward = unit.passed = unit.live = unit.complete = false;
    unit.pending = unit.open_inputs = 0;
    if (unit.calls > 0 || (keeps && unit.kept)) continue;
    Free(unit, /*after_forward=*/false);
  }
}

void ShardingRuntime::OnBackwardFailed() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!backward_) return;
  // Peers must not wait for collectives that will never come.
  groups_.world->Abort(absl::StrCat("backward failed on rank ", groups_.world->rank(),
                                    ", whose gradients cannot be reduced"));
  for (const auto& group : {groups_.shard, groups_.replicate, groups_.reshard}) {
    if (group) group->Abort(absl::StrCat("backward failed on rank ", groups_.world->rank()));
  }
  reducing_.clear();
  offloading_ = nullptr;
  uses_.clear();
  last_uses_.clear();
  for (Unit& unit : units_) {
    unit.used = false;
    for (const auto& flat : unit.flats) flat->AbandonBackward();
  }
  try {
    ResetBackward();
  } catch (const Error&) {
    // Of gathers that were under way.
  }
}

}  // namespace lockstep::strategies
