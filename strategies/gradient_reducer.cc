// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/gradient_reducer.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {

class GradientReducer::FailureGuard {
 public:
  explicit FailureGuard(std::shared_ptr<GradientReducer> reducer) : reducer_(std::move(reducer)) {}
  ~FailureGuard() {
    if (reducer_ != nullptr) reducer_->OnBackwardFailed();
  }
  FailureGuard(const FailureGuard&) = delete;
  FailureGuard& operator=(const FailureGuard&) = delete;

  void Dismiss() { reducer_ = nullptr; }

 private:
  std::shared_ptr<GradientReducer> reducer_;
};

std::shared_ptr<GradientReducer> GradientReducer::Create(std::shared_ptr<comm::Communicator> group,
                                                         const NamedTensors& parameters,
                                                         BucketPlan plan, bool record_events) {
  std::shared_ptr<GradientReducer> reducer(
      new GradientReducer(std::move(group), parameters, std::move(plan), record_events));
  reducer->AllocateBuckets();
  reducer->RegisterHooks();
  return reducer;
}

GradientReducer::GradientReducer(std::shared_ptr<comm::Communicator> group,
                                 const NamedTensors& parameters, BucketPlan plan,
                                 bool record_events)
    : group_(std::move(group)),
      names_(parameters.Names()),
      parameters_(parameters.Tensors()),
      plan_(std::move(plan)),
      record_events_(record_events),
      gradients_(parameters_.size(), GradientState::kMissing),
      step_start_ns_(MonotonicNanoseconds()) {}

void GradientReducer::AllocateBuckets() {
  for (const Bucket& bucket : plan_.buckets) {
    const DeviceScope device(bucket.device);
    BucketState state;
    RefPtr<Storage> storage = group_->Allocate(bucket.bytes(), MemoryCategory::kGradient);
    state.flat = FromStorage(storage, ShapeSpan({bucket.numel}), bucket.dtype);
    ZeroInPlace(state.flat);  // the gaps take part in reductions
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const Tensor& parameter = parameters_[static_cast<size_t>(bucket.parameters[i])];
      state.slices.push_back(
          FromStorage(storage, ShapeSpan(parameter.shape()), bucket.dtype, bucket.offsets[i]));
    }
    state.pending = static_cast<int>(bucket.parameters.size());
    buckets_.push_back(std::move(state));
  }
}

void GradientReducer::RegisterHooks() {
  for (size_t p = 0; p < parameters_.size(); ++p) {
    hooks_.push_back(autograd::RegisterPostAccumulateGradHook(
        parameters_[p], [weak = weak_from_this(), p](const Tensor& /*leaf*/) {
          if (const std::shared_ptr<GradientReducer> self = weak.lock()) self->OnGradient(p);
        }));
  }
}

void GradientReducer::RemoveHooks() {
  for (autograd::HookHandle& hook : hooks_) hook.Remove();
}

ReducerStatistics GradientReducer::statistics() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return statistics_;
}

void GradientReducer::ResetStatistics() {
  std::lock_guard<std::mutex> lock(mutex_);
  statistics_ = {};
  step_start_ns_ = MonotonicNanoseconds();
}

std::vector<ReducerEvent> GradientReducer::events() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return events_;
}

void GradientReducer::EnterNoSync() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++no_sync_count_;
}

void GradientReducer::LeaveNoSync() {
  std::lock_guard<std::mutex> lock(mutex_);
  --no_sync_count_;
}

void GradientReducer::OnGradient(size_t parameter) {
  // A leaf all of whose contributions were undefined has no gradient to reduce.
  if (!autograd::Grad(parameters_[parameter]).defined()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (no_sync_count_ > 0) {
    gradients_[parameter] = GradientState::kAccumulated;
    return;
  }
  if (!reducing_) {
    reducing_ = true;
    auto guard = std::make_shared<FailureGuard>(shared_from_this());
    autograd::QueueEndOfBackward([self = shared_from_this(), guard] {
      self->FinishBackward();
      guard->Dismiss();
    });
  }
  Record(ReducerEvent::Kind::kGradientReady, parameter);
  Pack(parameter);
  StartReadyBuckets();
}

void GradientReducer::Pack(size_t parameter) {
  const autograd::NoGradScope no_grad;
  BucketState& bucket = buckets_[static_cast<size_t>(plan_.bucket_of[parameter])];
  const auto position = static_cast<size_t>(plan_.position_in_bucket[parameter]);
  CopyInto(bucket.slices[position], autograd::Grad(parameters_[parameter]));
  if (gradients_[parameter] != GradientState::kPacked) --bucket.pending;
  gradients_[parameter] = GradientState::kPacked;
}

void GradientReducer::StartReadyBuckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0) {
    BucketState& bucket = buckets_[next_bucket_];
    Record(ReducerEvent::Kind::kReductionStarted, next_bucket_);
    bucket.work = group_->AllReduce(bucket.flat, {.op = comm::ReduceOp::kAverage});
    ++statistics_.collectives;
    statistics_.reduced_bytes += bucket.flat.bytes();
    ++next_bucket_;
  }
}

// Parameters that came only in backwards without reduction belong to this one as well.
void GradientReducer::PackAccumulated() {
  for (size_t p = 0; p < gradients_.size(); ++p) {
    if (gradients_[p] == GradientState::kAccumulated) Pack(p);
  }
}

std::vector<std::string> GradientReducer::MissingNames() const {
  std::vector<std::string> missing;
  for (size_t p = 0; p < gradients_.size(); ++p) {
    if (gradients_[p] == GradientState::kMissing) missing.push_back(names_[p]);
  }
  return missing;
}

void GradientReducer::FinishBackward() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    PackAccumulated();
    const std::vector<std::string> missing = MissingNames();
    if (!missing.empty()) {
      const std::string text = absl::StrCat(
          missing.size(), " of ", parameters_.size(),
          " parameters got no gradient in this backward (nor in those before it under NoSync): ",
          absl::StrJoin(missing, ", "));
      // Peers may have started buckets that this rank cannot.
      group_->Abort(text);
      throw FailedPreconditionError(absl::StrCat(
          "DistributedDataParallel: rank ", group_->rank(), ": ", text,
          ": use every parameter in the loss, or freeze it with SetRequiresGrad before wrapping"));
    }
    StartReadyBuckets();
  }
  WaitAndUnpack();
}

void GradientReducer::WaitAndUnpack() {
  const autograd::NoGradScope no_grad;
  int64_t waited_ns = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const int64_t start = MonotonicNanoseconds();
    buckets_[b].work.Wait();
    waited_ns += MonotonicNanoseconds() - start;
    const std::vector<int>& members = plan_.buckets[b].parameters;
    for (size_t i = 0; i < members.size(); ++i) {
      CopyInto(autograd::Grad(parameters_[static_cast<size_t>(members[i])]), buckets_[b].slices[i]);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    Record(ReducerEvent::Kind::kReductionDone, b);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t now = MonotonicNanoseconds();
  statistics_.wait_seconds += static_cast<double>(waited_ns) * 1e-9;
  statistics_.step_seconds += static_cast<double>(now - step_start_ns_) * 1e-9;
  step_start_ns_ = now;
  Record(ReducerEvent::Kind::kBackwardEnded, static_cast<size_t>(statistics_.reduced_backwards));
  ++statistics_.reduced_backwards;
  ResetWindow();
}

void GradientReducer::OnBackwardFailed() {
  group_->Abort("backward failed on this rank, so that its gradients cannot be reduced");
  std::lock_guard<std::mutex> lock(mutex_);
  ResetWindow();
}

void GradientReducer::ResetWindow() {
  reducing_ = false;
  next_bucket_ = 0;
  for (GradientState& state : gradients_) state = GradientState::kMissing;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].pending = static_cast<int>(plan_.buckets[b].parameters.size());
    buckets_[b].work = comm::Work();
  }
}

void GradientReducer::Record(ReducerEvent::Kind kind, size_t index) {
  if (record_events_) events_.push_back({next_event_++, kind, static_cast<int>(index)});
}

}  // namespace lockstep::strategies
