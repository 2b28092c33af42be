// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/zero_optimizer/zero_optimizer.h"

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/work.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/parameter_sync.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::strategies {
namespace {

template <typename... Parts>
void Require(bool condition, const Parts&... parts) {
  if (!condition) throw InvalidArgumentError(absl::StrCat("ZeroOptimizer: ", parts...));
}

Error InContext(const Error& error, const std::string& parameters) {
  return error.WithContext(
      absl::StrCat("ZeroOptimizer: the parameters ", parameters, " could not be gathered"));
}

bool HasGradient(const Tensor& parameter) { return autograd::Grad(parameter).defined(); }

}  // namespace

ZeroOptimizer::ZeroOptimizer(const DistributedDataParallel& ddp,
                             const std::vector<NamedTensors>& groups, const Factory& make_optimizer,
                             const ZeroOptimizerOptions& options)
    : Optimizer("ZeroOptimizer", {}), group_(ddp.group()) {
  // Before checks of this rank alone, which must not leave the others waiting.
  VerifySameOnAllRanks(groups, options.bucket_bytes);
  for (size_t g = 0; g < groups.size(); ++g) AddParameters(groups[g], g);
  CheckNotEmpty();
  Require(!ddp.steps_in_backward(),
          "the DistributedDataParallel has optimizer_in_backward, which drops gradients before "
          "Step(); leave it out");
  CheckParameters(ddp);
  LayOut(ForwardOrder(ddp), options.bucket_bytes);
  MakeInner(groups, make_optimizer);
}

void ZeroOptimizer::VerifySameOnAllRanks(const std::vector<NamedTensors>& groups,
                                         int64_t bucket_bytes) const {
  NamedTensors all;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const auto& [name, parameter] : groups[g]) {
      // Numbered, so that a name given twice reaches the check for that.
      all.Insert(absl::StrCat("(group ", g, ", number ", all.size(), ", bucket_bytes ",
                              bucket_bytes, ") ", name),
                 parameter);
    }
  }
  VerifySameTensors("ZeroOptimizer", all, *group_);
}

void ZeroOptimizer::CheckParameters(const DistributedDataParallel& ddp) const {
  std::vector<std::tuple<const Storage*, int64_t, int64_t, std::string>> ranges;
  for (const auto& [name, parameter] : parameters()) {
    const auto same = [p = &parameter](const auto& entry) { return entry.second.IsSame(*p); };
    const NamedTensors& reduced = ddp.reduced_parameters();
    Require(!autograd::RequiresGrad(parameter) || std::any_of(reduced.begin(), reduced.end(), same),
            "the gradient of \"", name,
            "\" is not averaged by the DistributedDataParallel: it ignores this parameter, or its "
            "module does not have it. Give it to an optimizer of its own");
    if (parameter.numel() == 0) continue;
    Require(parameter.is_contiguous(), "\"", name, "\" has strides ", ToString(parameter.strides()),
            "; give parameters in row-major order");
    const int64_t begin = parameter.offset() * ItemSize(parameter.dtype());
    ranges.emplace_back(parameter.storage().get(), begin, begin + parameter.bytes(), name);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    const auto& [storage, begin, end, name] = ranges[i];
    Require(storage != std::get<0>(ranges[i - 1]) || begin >= std::get<2>(ranges[i - 1]), "\"",
            std::get<3>(ranges[i - 1]), "\" and \"", name,
            "\" share elements; tie parameters by using one tensor");
  }
}

// Positions in parameters() in the order in which the module registers them.
std::vector<size_t> ZeroOptimizer::ForwardOrder(const DistributedDataParallel& ddp) const {
  absl::flat_hash_map<const TensorImpl*, size_t> positions;
  for (size_t i = 0; i < parameters().size(); ++i) positions[&ParameterAt(i).impl()] = i;
  std::vector<size_t> order;
  for (const Tensor& parameter : ddp.module()->Parameters()) {
    const auto found = positions.find(&parameter.impl());
    if (found == positions.end()) continue;
    order.push_back(found->second);
    positions.erase(found);
  }
  for (size_t i = 0; i < parameters().size(); ++i) {
    Require(!positions.contains(&ParameterAt(i).impl()), "\"", NameOf(i),
            "\" is not a parameter of the DistributedDataParallel's module; give it to an "
            "optimizer of its own");
  }
  return order;
}

void ZeroOptimizer::LayOut(const std::vector<size_t>& order, int64_t bucket_bytes) {
  std::vector<PartitionedParameter> ordered;
  for (const size_t i : order) {
    const Tensor& parameter = ParameterAt(i);
    ordered.push_back({parameter.numel(), parameter.dtype(), parameter.device(),
                       autograd::RequiresGrad(parameter)});
    index_[NameOf(i)] = i;
  }
  plan_ = PlanPartition(ordered, group_->size(), bucket_bytes);
  places_.resize(order.size());
  buckets_.resize(plan_.size());
  const autograd::NoGradScope no_grad;
  for (size_t b = 0; b < plan_.size(); ++b) {
    for (size_t& parameter : plan_[b].parameters) parameter = order[parameter];
    MoveIntoBucket(b);
  }
}

void ZeroOptimizer::MoveIntoBucket(size_t b) {
  const PartitionBucket& plan = plan_[b];
  const DeviceScope device(plan.device);
  const int64_t numel = plan.part * group_->size();
  const RefPtr<Storage> storage =
      group_->Allocate(numel * ItemSize(plan.dtype), MemoryCategory::kParameter);
  Bucket& bucket = buckets_[b];
  bucket.storage = storage;
  const RefPtr<Storage> alias = Storage::Lent(plan.device, storage->bytes());
  alias->Attach(storage);
  bucket.whole = FromStorage(alias, {numel}, plan.dtype);
  bucket.mine = FromStorage(alias, {plan.part}, plan.dtype, plan.part * group_->rank());
  bucket.text = absl::StrCat("\"", NameOf(plan.parameters.front()), "\" to \"",
                             NameOf(plan.parameters.back()), "\"");
  ZeroInPlace(bucket.whole);  // padding travels too
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    const Tensor& parameter = ParameterAt(plan.parameters[i]);
    const int64_t offset = plan.offsets[i];
    const Tensor place = FromStorage(storage, parameter.shape(), plan.dtype, offset);
    CopyInto(place, parameter);
    parameter.SetData(place);
    const ElementRange range = PieceOf(plan, offset, parameter.numel(), group_->rank());
    places_[plan.parameters[i]] = {
        b, offset, FromStorage(storage, {range.size()}, plan.dtype, offset + range.begin)};
  }
}

void ZeroOptimizer::MakeInner(const std::vector<NamedTensors>& groups,
                              const Factory& make_optimizer) {
  std::vector<NamedTensors> pieces(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const auto& [name, parameter] : groups[g]) {
      pieces[g].Insert(name, places_[index_.at(name)].piece);
    }
  }
  inner_ = make_optimizer(pieces);
  Require(inner_ != nullptr, "the factory returned no optimizer");
  Require(inner_->is_elementwise(),
          "the inner optimizer is not elementwise (is_elementwise() is false), so it cannot update "
          "pieces of parameters; use Sgd, Adam, AdamW, Rmsprop or Adagrad, or the optimizer itself "
          "on every rank");
  bool complete =
      inner_->parameters().size() == parameters().size() && inner_->GroupCount() == groups.size();
  for (size_t i = 0; complete && i < parameters().size(); ++i) {
    const Tensor* const piece = inner_->parameters().Find(NameOf(i));
    complete = piece != nullptr && piece->IsSame(places_[i].piece);
  }
  Require(complete, "the inner optimizer has ", inner_->parameters().size(), " parameters in ",
          inner_->GroupCount(), " groups, and not the ", parameters().size(), " pieces in ",
          groups.size(), " groups that the factory was given");
  // What schedules set here holds for the pieces.
  inner_->SetLearningRateRule([this](size_t group, double) { return LearningRate(group); });
  if (inner_->BaseMomentum().has_value()) {
    inner_->SetMomentumRule([this](size_t group, double) { return *Momentum(group); });
  }
}

double ZeroOptimizer::BaseLearningRate(size_t group) const {
  return inner_->BaseLearningRate(group);
}
std::optional<double> ZeroOptimizer::BaseMomentum(size_t group) const {
  return inner_->BaseMomentum(group);
}

void ZeroOptimizer::StepOnly(TensorSpan) {
  throw UnimplementedError(
      "ZeroOptimizer::StepOnly: parameters are updated together, because they are gathered by "
      "bucket; use Step() after backward");
}

Tensor ZeroOptimizer::FlatRange(const Tensor& tensor, const ElementRange& range) {
  return Slice(Reshape(tensor, {-1}), 0, range.begin, range.end);
}

ElementRange ZeroOptimizer::RangeOn(size_t parameter, int rank) const {
  const Place& place = places_[parameter];
  return PieceOf(plan_[place.bucket], place.offset, ParameterAt(parameter).numel(), rank);
}

void ZeroOptimizer::CheckPlaces() const {
  for (size_t i = 0; i < places_.size(); ++i) {
    const Tensor& parameter = ParameterAt(i);
    const Bucket& bucket = buckets_[places_[i].bucket];
    if (parameter.storage() == bucket.storage && parameter.dtype() == bucket.whole.dtype() &&
        parameter.offset() == places_[i].offset) {
      continue;
    }
    throw FailedPreconditionError(absl::StrCat(
        "ZeroOptimizer::Step: parameter \"", NameOf(i),
        "\" has been moved, converted or given other memory since this optimizer was made; it is ",
        parameter.DebugString(),
        ". Make such changes first, and the DistributedDataParallel and the optimizer then"));
  }
}

// Whether there is any gradient. Ranks that have all of them know that they agree, and go on to the
// gathers, which do not fit with the collective here if some do not.
bool ZeroOptimizer::AgreeOnGradients() const {
  std::vector<uint8_t> missing;
  for (const auto& [name, parameter] : parameters()) {
    missing.push_back(autograd::RequiresGrad(parameter) && !HasGradient(parameter) ? 1 : 0);
  }
  const auto count = static_cast<int64_t>(missing.size());
  const auto first = std::find(missing.begin(), missing.end(), 1);
  if (first == missing.end()) return true;
  if (group_->size() > 1) {
    const DeviceScope device(Cpu());
    const Tensor all = Empty({group_->size(), count}, {.dtype = DType::kUInt8});
    try {
      group_->AllGather(FromVector<uint8_t>(missing, {count}), all).Wait();
    } catch (const Error& error) {
      throw error.WithContext(absl::StrCat(
          "ZeroOptimizer::Step: \"", NameOf(static_cast<size_t>(first - missing.begin())),
          "\" has no gradient on rank ", group_->rank(),
          ", and asking the others which they have failed (ranks that have all of them do not "
          "ask; the same parameters have gradients on every rank)"));
    }
    const std::vector<uint8_t> by_rank = all.ToVector<uint8_t>();
    for (size_t i = 0; i < by_rank.size(); ++i) {
      const size_t parameter = i % missing.size();
      if (by_rank[i] == by_rank[parameter]) continue;
      throw FailedPreconditionError(
          absl::StrCat("ZeroOptimizer::Step: \"", NameOf(parameter), "\" has ",
                       by_rank[parameter] != 0 ? "no gradient" : "a gradient", " on rank 0 and ",
                       by_rank[i] != 0 ? "none" : "one", " on rank ", i / missing.size(),
                       "; the same parameters have gradients on every rank. Leave gradients as the "
                       "DistributedDataParallel made them"));
    }
  }
  return std::any_of(parameters().begin(), parameters().end(),
                     [](const auto& entry) { return HasGradient(entry.second); });
}

void ZeroOptimizer::Step() {
  const autograd::NoGradScope no_grad;
  CheckPlaces();
  if (!AgreeOnGradients()) return;
  StepPieces();
  if (group_->size() > 1) GatherBuckets();
}

void ZeroOptimizer::StepPieces() {
  // The gradients are DDP's: pieces have them during the step only.
  struct DropGradients {
    const std::vector<Place>& places;
    ~DropGradients() {
      for (const Place& place : places) autograd::SetGrad(place.piece, {});
    }
  } drop{places_};
  for (size_t i = 0; i < places_.size(); ++i) {
    const Tensor gradient = autograd::Grad(ParameterAt(i));
    if (!gradient.defined()) continue;
    autograd::SetGrad(places_[i].piece, FlatRange(gradient, RangeOn(i, group_->rank())));
  }
  inner_->Step();
}

void ZeroOptimizer::GatherBuckets() {
  for (size_t b = 0; b < plan_.size(); ++b) {
    const std::vector<size_t>& members = plan_[b].parameters;
    if (std::none_of(members.begin(), members.end(),
                     [this](size_t i) { return HasGradient(ParameterAt(i)); })) {
      continue;
    }
    const Bucket& bucket = buckets_[b];
    WaitWhereUsed(bucket, group_->AllGather(bucket.mine, bucket.whole));
    // What peers write here is of none of this rank's ops: graphs, and caches of casts, must
    // notice.
    bucket.storage->BumpVersion();
  }
}

void ZeroOptimizer::WaitWhereUsed(const Bucket& bucket, const comm::Work& work) const {
  Event gathered = Event::MakePending();
  work.OnComplete([gathered, text = bucket.text](const Error* error) mutable {
    gathered.Complete(error == nullptr ? nullptr
                                       : std::make_exception_ptr(InContext(*error, text)));
  });
  bucket.storage->SetPending(gathered);
}

void ZeroOptimizer::Synchronize() const {
  for (const Bucket& bucket : buckets_) bucket.storage->WaitReady();
}

}  // namespace lockstep::strategies
