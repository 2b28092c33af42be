// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of the reducer that runs while backward does; reducer_finish.cc has the rest.
#include "lockstep/strategies/distributed_data_parallel/reducer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/amp/non_finite/first_non_finite.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/claim_gradient.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

void Refuse(bool given, const char* first, const char* second, const char* remedy) {
  if (!given) return;
  throw UnimplementedError(
      absl::StrCat("DistributedDataParallel: ", first, " does not go with ", second, "; ", remedy));
}

void CheckOptions(const ReducerOptions& options) {
  Refuse(options.static_graph && options.find_unused_parameters, "static_graph",
         "find_unused_parameters",
         "static_graph alone learns the unused ones from the first backward");
  if (options.optimizer_in_backward != nullptr) {
    constexpr char kFused[] = "optimizer_in_backward";
    Refuse(options.find_unused_parameters, kFused, "find_unused_parameters",
           "what is unused is known when buckets have been stepped already; step after backward");
    Refuse(options.hook != nullptr, kFused, "communication_hook", "step after backward");
    Refuse(options.gradient_as_bucket_view, kFused, "gradient_as_bucket_view",
           "drop the latter: gradients are in the buckets only, and gone after the step");
    Refuse(options.check_finite, kFused, "check_finite", "step after backward");
    Refuse(options.static_graph, kFused, "static_graph",
           "drop the latter: its first backward does not say which gradients are complete");
    Refuse(options.staleness > 0, kFused, "staleness", "step after backward");
  }
  if (options.staleness > 0) {
    Refuse(options.static_graph, "staleness", "static_graph", "drop static_graph");
    Refuse(options.hook != nullptr && !options.hook->allows_passes_at_once(), "staleness",
           "this communication_hook", "it keeps buffers between calls; drop one of them");
    Refuse(options.gradient_as_bucket_view, "staleness", "gradient_as_bucket_view",
           "drop the latter: the buckets of a step are in flight when the next one needs some");
  }
  if (options.staleness < 0 || options.staleness > 16) {
    throw InvalidArgumentError(absl::StrCat("DistributedDataParallel: staleness ",
                                            options.staleness, "; give 0 (none) to 16 steps"));
  }
}

}  // namespace

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
      hook_taken_(options.hook ? options.hook->Take() : nullptr),
      place_(parameters_.size()),
      used_(parameters_.size(), false),
      kept_(parameters_.size()) {
  CheckOptions(options_);
  std::vector<GradientSpec> gradients;
  for (const auto& [name, parameter] : parameters_) {
    gradients.push_back({parameter.numel(), parameter.dtype(), parameter.device()});
    if (options_.optimizer_in_backward != nullptr && parameter.device() != gradients[0].device) {
      throw UnimplementedError(
          absl::StrCat("DistributedDataParallel: optimizer_in_backward wants all parameters on one "
                       "device, and ",
                       name, " is on ", ToString(parameter.device()), " and not on ",
                       ToString(gradients[0].device), "; step after backward"));
    }
  }
  sets_.resize(static_cast<size_t>(options_.staleness) + 1);
  LayOut(PlanBuckets(gradients, options_.buckets), /*with_gradients=*/false);
}

Reducer::~Reducer() {
  for (autograd::HookHandle& hook : hooks_) hook.Remove();
}

void Reducer::InstallHooks() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    // A weak pointer: parameters may outlive the strategy.
    hooks_.push_back(
        ClaimGradient("DistributedDataParallel", NameOf(i), parameters_[i].second,
                      [weak = weak_from_this(), index = static_cast<int64_t>(i)](const Tensor&) {
                        if (auto self = weak.lock()) self->OnGradient(index);
                      }));
  }
}

void Reducer::ChangeNoSyncDepth(int change) {
  std::lock_guard<std::mutex> lock(mutex_);
  no_sync_depth_ += change;
}

bool Reducer::synchronizes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return no_sync_depth_ == 0;
}

int64_t Reducer::passes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return passes_;
}

bool Reducer::has_announcement() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return announce_ != nullptr;
}

void Reducer::SetAnnouncement(std::function<int64_t()> announce, bool divide_by_active) {
  std::lock_guard<std::mutex> lock(mutex_);
  announce_ = std::move(announce);
  divide_by_active_ = divide_by_active;
}

int64_t Reducer::bucket_count() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(plan_.size());
}

std::vector<BucketSpec> Reducer::plan() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return plan_;
}

ReductionStatistics Reducer::statistics() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_;
}

const Tensor& Reducer::PlaceOf(BucketSet& set, size_t parameter) const {
  const auto [bucket, position] = place_[parameter];
  return set.buckets[static_cast<size_t>(bucket)].data.gradients()[static_cast<size_t>(position)];
}

Reducer::Bucket& Reducer::BucketOf(size_t parameter) {
  return set().buckets[static_cast<size_t>(place_[parameter].first)];
}

std::vector<GradientBucket*> Reducer::BucketPointers(BucketSet& set) const {
  std::vector<GradientBucket*> pointers;
  for (Bucket& bucket : set.buckets) pointers.push_back(&bucket.data);
  return pointers;
}

void Reducer::LayOut(std::vector<BucketSpec> plan, bool with_gradients) {
  plan_ = std::move(plan);
  for (size_t b = 0; b < plan_.size(); ++b) {
    for (size_t i = 0; i < plan_[b].gradients.size(); ++i) {
      place_[static_cast<size_t>(plan_[b].gradients[i])] = {static_cast<int64_t>(b),
                                                            static_cast<int64_t>(i)};
    }
  }
  const int64_t count = static_cast<int64_t>(plan_.size());
  for (BucketSet& set : sets_) {
    set.buckets.clear();
    for (int64_t b = 0; b < count; ++b) {
      const BucketSpec& spec = plan_[static_cast<size_t>(b)];
      set.buckets.emplace_back(GradientBucket(b, count, spec, parameters_, *group_));
      if (!with_gradients) continue;
      for (const int64_t i : spec.gradients) AdoptIfThere(static_cast<size_t>(i));
    }
    if (options_.hook) set.report = Zeros({1}, {.dtype = DType::kFloat32, .device = Cpu()});
  }
  if (options_.hook) options_.hook->OnNewBuckets(BucketPointers(sets_[0]));
}

void Reducer::OnGradient(int64_t parameter) {
  std::lock_guard<std::mutex> lock(mutex_);
  const autograd::NoGradScope no_grad;
  const LayerScope no_autocast(DispatchLayer::kAutocast, false);  // Backward() may be under one
  CheckUsable();
  const size_t index = static_cast<size_t>(parameter);
  const Tensor gradient = autograd::Grad(parameters_[index].second);
  if (!gradient.defined()) return;  // every contribution was undefined: as if unused
  if (no_sync_depth_ > 0) {
    used_[index] = true;
    if (options_.gradient_as_bucket_view) AdoptIntoBucket(index, gradient);
    return;
  }
  if (!in_pass_) BeginPass();
  if (!CountCall(index)) return;
  used_[index] = true;
  seen_.push_back(parameter);
  current_.events.push_back({ReducerEvent::Kind::kGradientReady, parameter});
  // The first pass of a static graph does not know yet which call of a hook is the last one.
  if (options_.static_graph && !learned_) return;
  PutIntoBucket(index, /*may_miss=*/false);
  IssueFullBuckets();
  if (options_.optimizer_in_backward != nullptr) StepFullBuckets(/*wait=*/false);
}

void Reducer::CheckUsable() const {
  if (broken_.empty()) return;
  throw FailedPreconditionError(absl::StrCat(
      "DistributedDataParallel: the buckets could not be laid out anew after the first "
      "backward (",
      broken_, "); destroy it and make a new one, in a new group"));
}

// Whether the gradient is complete with this call of its hook. Throws where there may be none.
bool Reducer::CountCall(size_t parameter) {
  const int64_t calls = ++calls_[parameter];
  if (options_.static_graph) {
    if (!learned_) return calls == 1;
    if (calls <= expected_[parameter]) return calls == expected_[parameter];
    throw FailedPreconditionError(
        absl::StrCat("DistributedDataParallel: static_graph: ", NameOf(parameter), " got ", calls,
                     " gradients in this backward and ", expected_[parameter],
                     " in the first one; drop static_graph for a graph that changes"));
  }
  if (calls == 1 && !ready_[parameter]) return true;
  throw FailedPreconditionError(
      absl::StrCat("DistributedDataParallel: ", NameOf(parameter), " got ",
                   calls == 1 ? "a gradient that the graph of this backward does not show"
                              : "a second gradient in one backward",
                   " (of a Backward() inside of it), when its bucket may have been sent; call "
                   "Backward() once, on "
                   "the sum of the losses, or give static_graph = true"));
}

void Reducer::BeginPass() {
  if (options_.check_before_pass) {
    try {
      options_.check_before_pass();
    } catch (const Error& error) {
      group_->Abort(error.message());  // peers without the fault must not wait
      throw;
    }
  }
  ResetPass(announce_ ? announce_() : group_->size());
  // A backward that fails drops its callbacks without calling them, and with them the guard.
  auto guard = std::make_shared<FailureGuard>(shared_from_this());
  autograd::QueueEndOfBackward([self = shared_from_this(), guard] {
    self->FinishPass();
    guard->Dismiss();
  });
  SkipUnreached();
}

void Reducer::ResetPass(int64_t active) {
  BucketSet& set = this->set();
  in_pass_ = true;
  ready_.assign(parameters_.size(), false);
  calls_.assign(parameters_.size(), 0);
  seen_.clear();
  next_bucket_ = next_step_ = 0;
  current_ = {};
  current_.events.reserve(parameters_.size() + 2 * set.buckets.size());
  traffic_ = group_->traffic();
  set.bits.assign(parameters_.size(), 0);
  set.active = active;
  set.clock.Start(set.buckets.size());
  for (size_t i = 0; i < set.buckets.size(); ++i) {
    set.buckets[i].pending = static_cast<int64_t>(plan_[i].gradients.size());
    set.buckets[i].reports = false;
  }
}

// Buckets do not wait for parameters that this backward will not come to.
void Reducer::SkipUnreached() {
  const bool known = options_.static_graph && learned_;
  if (!known && !options_.find_unused_parameters) return;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const bool reached =
        known ? expected_[i] > 0 : autograd::BackwardReaches(parameters_[i].second);
    if (!reached) PutIntoBucket(i, /*may_miss=*/!known || never_used_[i]);
  }
  IssueFullBuckets();
}

void Reducer::AdoptIntoBucket(size_t parameter, const Tensor& gradient) {
  const Tensor& place = PlaceOf(set(), parameter);
  if (IsSamePlace(gradient, place)) return;
  CopyInto(place, gradient);
  autograd::SetGrad(parameters_[parameter].second, AliasOf(place));
}

void Reducer::AdoptIfThere(size_t parameter) {
  const Tensor gradient = autograd::Grad(parameters_[parameter].second);
  if (gradient.defined()) AdoptIntoBucket(parameter, gradient);
}

// Puts what there is of a parameter's gradient into its bucket: nothing is zeros, and is reported
// unless it `may_miss` by the options. A gradient of before the accumulation counts in the sum, and
// is kept in case no rank has another.
void Reducer::PutIntoBucket(size_t parameter, bool may_miss) {
  Bucket& bucket = BucketOf(parameter);
  const Tensor& tensor = parameters_[parameter].second;
  const Tensor& place = PlaceOf(set(), parameter);
  const Tensor gradient = autograd::Grad(tensor);
  const bool missing = !used_[parameter];
  if (missing) {
    set().bits[parameter] |= kGradientMissing;
    const bool learned = options_.static_graph && learned_;
    if (learned && !may_miss) set().bits[parameter] |= kGradientUnexpected;
    if (!learned || !may_miss) bucket.reports = true;
  } else if (options_.static_graph && learned_ && never_used_[parameter]) {
    throw FailedPreconditionError(absl::StrCat(
        "DistributedDataParallel: static_graph: ", NameOf(parameter),
        " has a gradient and had none after the first synchronised backward; drop static_graph"));
  }
  if (!gradient.defined()) {
    ZeroInPlace(place);
  } else {
    if (missing && options_.gradient_as_bucket_view) kept_[parameter] = Clone(gradient);
    if (options_.gradient_as_bucket_view) {
      AdoptIntoBucket(parameter, gradient);
    } else {
      CopyInto(place, gradient);
    }
    if (options_.optimizer_in_backward != nullptr) autograd::SetGrad(tensor, {});
    if (options_.check_finite && amp::FinitenessOf(place) != amp::Finiteness::kFinite) {
      set().bits[parameter] |= kGradientNotFinite;
      bucket.reports = true;
    }
  }
  ready_[parameter] = true;
  --bucket.pending;
}

comm::Work Reducer::Issue(Bucket& bucket) {
  if (options_.hook) return options_.hook->Reduce(bucket.data, *group_);
  FillInPlace(bucket.data.report(), bucket.reports ? 1 : 0);
  return group_->AllReduce(bucket.data.buffer_with_report(), {.op = comm::ReduceOp::kAverage});
}

void Reducer::IssueFullBuckets() {
  BucketSet& set = this->set();
  const int64_t count = static_cast<int64_t>(set.buckets.size());
  for (; next_bucket_ < count; ++next_bucket_) {
    Bucket& bucket = set.buckets[static_cast<size_t>(next_bucket_)];
    if (bucket.pending > 0) return;
    bucket.work = Issue(bucket);
    set.clock.Issued(static_cast<size_t>(next_bucket_), bucket.data.buffer().bytes(), bucket.work);
    current_.events.push_back({ReducerEvent::Kind::kReduceIssued, next_bucket_});
    ++current_.collectives;
    current_.bytes +=
        (options_.hook ? bucket.data.buffer() : bucket.data.buffer_with_report()).bytes();
    if (!options_.hook || !bucket.data.is_last()) continue;
    bool reports = false;
    for (const Bucket& each : set.buckets) reports |= each.reports;
    FillInPlace(set.report, reports ? 1 : 0);
    set.report_work = group_->AllReduce(set.report);
    ++current_.collectives;
  }
}

// Optimizer in backward: steps the parameters of the buckets whose averages are there.
void Reducer::StepFullBuckets(bool wait) {
  BucketSet& set = this->set();
  for (; next_step_ < next_bucket_; ++next_step_) {
    Bucket& bucket = set.buckets[static_cast<size_t>(next_step_)];
    if (!wait && !bucket.work.IsCompleted()) return;
    bucket.work.Wait();
    if (bucket.data.report().Item<double>() != 0) return;  // an error at the end of the pass
    if (divide_by_active_ && set.active < group_->size()) {
      MulInPlace(bucket.data.buffer(),
                 static_cast<double>(group_->size()) / static_cast<double>(set.active));
    }
    std::vector<Tensor> stepped;
    const BucketSpec& spec = plan_[static_cast<size_t>(next_step_)];
    for (size_t i = 0; i < spec.gradients.size(); ++i) {
      const size_t parameter = static_cast<size_t>(spec.gradients[i]);
      stepped.push_back(parameters_[parameter].second);
      autograd::SetGrad(stepped.back(), bucket.data.gradients()[i]);
    }
    options_.optimizer_in_backward->StepOnly(stepped);
    for (const Tensor& parameter : stepped) autograd::SetGrad(parameter, {});
  }
}

void Reducer::OnBackwardFailed() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!in_pass_) return;  // it ended: what failed came after the reductions
  in_pass_ = false;
  used_.assign(parameters_.size(), false);
  for (Bucket& bucket : set().buckets) bucket.work = {};
  set().report_work = {};
  group_->Abort(absl::StrCat("backward failed on rank ", group_->rank(),
                             ", whose gradients cannot be averaged"));
}

}  // namespace lockstep::strategies
