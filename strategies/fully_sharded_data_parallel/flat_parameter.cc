// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/flat_parameter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/lost_parameter.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

std::vector<int64_t> Numels(const NamedTensors& parameters) {
  std::vector<int64_t> numels;
  for (const auto& [name, parameter] : parameters) numels.push_back(parameter.numel());
  return numels;
}

// Makes `reduced` its average over the replicas. `whole`: there was no first half, among ranks that
// share, which divides where a division comes before the sum.
comm::Work ReduceAmongReplicas(const FlatParameterOptions& options, bool whole,
                               const Tensor& reduced, comm::Communicator& replicas) {
  if (options.hook) {
    return options.hook->AllReduce({options.unit, options.tag, reduced, reduced}, replicas);
  }
  const GradientDivision& division = options.division;
  return whole ? replicas.AllReduce(
                     reduced, {.op = division.op, .factor = division.factor, .tag = options.tag})
               : replicas.AllReduce(reduced, {.op = division.replicate_op, .tag = options.tag});
}

double SecondsSince(int64_t start_ns) {
  return 1e-9 * static_cast<double>(MonotonicNanoseconds() - start_ns);
}

}  // namespace

FlatParameter::FlatParameter(FlatPlan plan, const FlatParameterOptions& options,
                             const ShardingGroups& groups, std::shared_ptr<BufferPool> pool,
                             std::shared_ptr<ShardingStatistics> statistics,
                             absl::FunctionRef<Tensor(const Tensor&)> value_of)
    : plan_(std::move(plan)),
      options_(options),
      groups_(groups),
      pool_(std::move(pool)),
      statistics_(std::move(statistics)),
      shard_ranks_(groups.shard ? groups.shard->size() : 1),
      shard_rank_(groups.shard ? groups.shard->rank() : 0),
      layout_(Numels(plan_.parameters), shard_ranks_),
      before_(plan_.parameters.size()),
      in_sum_(plan_.parameters.size(), false),
      in_partial_(plan_.parameters.size(), false) {
  const autograd::NoGradScope no_grad;
  MakeMemory();
  size_t taken = 0;
  try {
    for (; taken < plan_.parameters.size(); ++taken) TakeValue(taken, value_of);
  } catch (...) {
    pieces_.resize(taken);
    Lose();
    throw;
  }
}

FlatParameter::~FlatParameter() {
  if (gathering_) {
    try {
      gather_.Wait();
    } catch (const Error&) {
      // The group has failed; its next call says why.
    }
  }
  if (!released_) Lose();
}

// A part without the others must not pass for a parameter: whatever comes next would train on it.
void FlatParameter::Lose() {
  lent_->Detach();
  shard_ = Tensor();
  full_ = nullptr;
  const size_t taken = pieces_.size();
  pieces_.clear();
  summoned_.clear();
  for (size_t i = 0; i < taken; ++i) {
    const auto& [name, parameter] = plan_.parameters[i];
    autograd::SetGrad(parameter, {});
    try {
      LoseParameter(
          parameter, shapes_[i], {.dtype = plan_.dtype, .device = options_.compute_device},
          absl::StrCat("parameter ", name, ", of unit \"", options_.unit, "\" of a ", kName,
                       " that is gone, has lost its elements, of which each rank had a part; build "
                       "the module anew and load a state, and next time call Unwrap() before that "
                       "object goes"));
    } catch (const Error&) {
      // No memory for one element: what was given back says less.
      parameter.SetData(whole_[i]);
    }
  }
}

// ---- Memory ----

void FlatParameter::MakeMemory() {
  const DType dtype = plan_.dtype;
  const Device home = options_.offload ? kHost : options_.compute_device;
  const int64_t numel = options_.keeps_full ? layout_.numel() : layout_.shard_numel();
  RefPtr<Storage> memory;
  if (options_.offload) {
    const CategoryScope category(MemoryCategory::kParameter);
    memory = Storage::Allocate(home, numel * ItemSize(dtype));
  } else {
    // Peers read the shard where it is.
    const DeviceScope device(home);
    memory = groups_.world->Allocate(numel * ItemSize(dtype), MemoryCategory::kParameter);
  }
  shard_ = FromStorage(memory, {layout_.shard_numel()}, dtype,
                       options_.keeps_full ? shard_rank_ * layout_.shard_numel() : 0);
  ZeroInPlace(shard_);  // the padding
  if (options_.keeps_full) full_ = memory;
  lent_ = Storage::Lent(options_.compute_device, gathered_bytes());
  lent_->SetCategory(MemoryCategory::kParameter);
}

void FlatParameter::TakeValue(size_t i, absl::FunctionRef<Tensor(const Tensor&)> value_of) {
  const Tensor& parameter = plan_.parameters[i].second;
  shapes_.push_back(parameter.shape());
  whole_.push_back(FromStorage(lent_, parameter.shape(), options_.param_dtype, layout_.offset(i)));
  const FlatLayout::Piece piece = this->piece(i);
  pieces_.push_back(
      FromStorage(shard_.storage(), {piece.numel()}, plan_.dtype, shard_.offset() + piece.offset));
  const Tensor value = value_of(parameter);
  if (piece.numel() > 0) {
    const Tensor part = Slice(Flatten(value), 0, piece.begin, piece.end);
    CopyInto(pieces_[i], To(part, shard_.device()));
  }
  // What may fail is over when the parameter becomes a part.
  const Tensor gradient = autograd::Grad(parameter);
  Tensor kept;
  if (gradient.defined()) {
    const CategoryScope category(MemoryCategory::kGradient);
    const Tensor part = Slice(Flatten(gradient), 0, piece.begin, piece.end);
    kept = Clone(To(part, shard_.device()));
  }
  autograd::SetGrad(parameter, {});
  parameter.SetData(pieces_[i]);
  autograd::SetGrad(parameter, kept);
}

// ---- The whole ----

void FlatParameter::Rethrow(const Error& error, const char* doing) const {
  throw error.WithContext(absl::StrCat(
      "FullyShardedDataParallel: ", doing, " of unit \"", options_.unit, "\" (tag ", options_.tag,
      "; ranks that use units in different orders have different tags)"));
}

Tensor FlatParameter::ShardToGather() const {
  Tensor source = shard_;
  if (source.dtype() != options_.param_dtype) source = To(source, options_.param_dtype);
  return To(source, options_.compute_device, {.non_blocking = true});
}

RefPtr<Storage> FlatParameter::CopyOfShard() const {
  RefPtr<Storage> copy = Storage::Allocate(options_.compute_device, gathered_bytes());
  CopyInto(FromStorage(copy, {layout_.numel()}, options_.param_dtype), ShardToGather());
  return copy;
}

void FlatParameter::StartGather() {
  if (gathering_ || resident_) return;
  const autograd::NoGradScope no_grad;
  const LayerScope no_autocast(DispatchLayer::kAutocast, false);
  const CategoryScope category(MemoryCategory::kCommunication);
  if (shard_.storage()->version() != gathered_version_) {
    secondary_ = Tensor();
    // Other contents: graphs, and caches of casts, must notice.
    lent_->BumpVersion();
  }
  gathered_version_ = shard_.storage()->version();
  if (shard_ranks_ == 1) {
    memory_ = options_.keeps_full ? full_ : CopyOfShard();
    gathering_ = true;
    return;
  }
  Tensor output;
  comm::Communicator* group = groups_.shard.get();
  if (options_.keeps_full) {
    // Through a storage of its own: the contents that graphs know do not change.
    const RefPtr<Storage> alias = Storage::Lent(options_.compute_device, full_->bytes());
    alias->Attach(full_);
    memory_ = full_;
    source_ = FromStorage(alias, {layout_.shard_numel()}, plan_.dtype, shard_.offset());
    output = FromStorage(alias, {layout_.numel()}, plan_.dtype);
  } else {
    memory_ = Storage::Allocate(options_.compute_device, gathered_bytes());
    output = FromStorage(memory_, {layout_.numel()}, options_.param_dtype);
    if (secondary_.defined()) group = groups_.reshard.get();
    source_ = secondary_.defined() ? secondary_ : ShardToGather();
  }
  try {
    gather_ = group->AllGather(source_, output, {.tag = options_.tag});
  } catch (const Error& error) {
    memory_ = nullptr;
    source_ = Tensor();
    Rethrow(error, "gathering the parameters");
  }
  gathering_ = true;
  statistics_->CountGather(gathered_bytes());
  gather_.OnComplete([statistics = statistics_, start = MonotonicNanoseconds()](const Error*) {
    statistics->AddGatherNanoseconds(MonotonicNanoseconds() - start);
  });
}

void FlatParameter::FinishGather() {
  if (!gathering_) return;
  gathering_ = false;
  const int64_t start = MonotonicNanoseconds();
  if (shard_ranks_ > 1) statistics_->CountGatherWaitedFor();
  try {
    gather_.Wait();
  } catch (const Error& error) {
    memory_ = nullptr;
    Rethrow(error, "gathering the parameters");
  }
  statistics_->AddExposedGather(SecondsSince(start));
  gather_ = {};
  source_ = secondary_ = Tensor();
  lent_->Attach(std::move(memory_));
  resident_ = true;
}

void FlatParameter::Free(bool after_forward) {
  if (gathering_) FinishGather();
  if (!resident_) return;
  if (shown_) Hide();
  if (after_forward && groups_.reshard && shard_ranks_ > 1) {
    const autograd::NoGradScope no_grad;
    const int64_t numel = layout_.numel() / groups_.reshard->size();
    const CategoryScope category(MemoryCategory::kCommunication);
    const DeviceScope device(options_.compute_device);
    const RefPtr<Storage> part = groups_.reshard->Allocate(numel * ItemSize(options_.param_dtype));
    secondary_ = FromStorage(part, {numel}, options_.param_dtype);
    CopyInto(secondary_,
             FromStorage(lent_, {numel}, options_.param_dtype, numel * groups_.reshard->rank()));
  }
  lent_->Detach();
  resident_ = false;
}

void FlatParameter::FreeIfChanged() {
  if (shard_.storage()->version() != gathered_version_) Free(/*after_forward=*/false);
}

void FlatParameter::CheckShowsPieces() const {
  CheckStored();
  for (const auto& [name, parameter] : plan_.parameters) {
    if (autograd::RequiresGrad(parameter) == plan_.trainable) continue;
    throw FailedPreconditionError(absl::StrCat(
        kName, ": parameter ", name, " was ", plan_.trainable ? "frozen" : "thawed",
        " after it was sharded; call Unwrap() on all ranks, and make a new ", kName, " then"));
  }
}

void FlatParameter::CheckStored() const {
  for (const auto& [name, parameter] : plan_.parameters) {
    if (parameter.impl().storage == shard_.storage() && parameter.dtype() == plan_.dtype) continue;
    throw FailedPreconditionError(absl::StrCat(
        kName, ": parameter ", name, " was moved, converted or replaced after it was sharded (now ",
        parameter.DebugString(),
        "), which the parts on other ranks do not follow; call Unwrap() before such a change and "
        "make a new ",
        kName, " after it. Now build the module anew and load a state"));
  }
}

void FlatParameter::Show() {
  if (shown_) return;
  ShowThese(whole_);
}

void FlatParameter::ShowThese(const std::vector<Tensor>& tensors) {
  CheckShowsPieces();
  for (size_t i = 0; i < tensors.size(); ++i) plan_.parameters[i].second.SetData(tensors[i]);
  shown_ = true;
}

void FlatParameter::Hide() {
  if (!shown_) return;
  for (size_t i = 0; i < whole_.size(); ++i) plan_.parameters[i].second.SetData(pieces_[i]);
  summoned_.clear();
  shown_ = false;
}

void FlatParameter::Summon(bool first_only, bool on_host) {
  const autograd::NoGradScope no_grad;
  const CategoryScope category(MemoryCategory::kParameter);
  Tensor whole = GatherShards(To(shard_, options_.compute_device), first_only);
  // What is written to it is kept by WriteBack() only.
  if (shard_ranks_ == 1) whole = Clone(whole);
  if (!whole.defined() || (first_only && groups_.world->rank() != 0)) return;
  if (on_host) whole = To(whole, kHost);
  summoned_ = SplitWhole(whole);
  ShowThese(summoned_);
}

std::vector<Tensor> FlatParameter::SplitWhole(const Tensor& whole) const {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    tensors.push_back(FromStorage(whole.storage(), shapes_[i], whole.dtype(),
                                  whole.offset() + layout_.offset(i)));
  }
  return tensors;
}

Tensor FlatParameter::GatherGradients(const std::vector<bool>& has, bool first_only) const {
  if (std::find(has.begin(), has.end(), true) == has.end()) return Tensor();
  const Tensor shard = AssemblePieces(plan_.dtype, [&](size_t i) {
    return has[i] ? autograd::Grad(plan_.parameters[i].second) : Tensor();
  });
  return GatherShards(shard, first_only);
}

void FlatParameter::SummonGradients(const std::vector<bool>& has, bool first_only, bool on_host) {
  const autograd::NoGradScope no_grad;
  const CategoryScope category(MemoryCategory::kGradient);
  for (const auto& [name, parameter] : plan_.parameters) {
    // What Grad() has is of the pieces' shape, as the parameter is only while it is hidden.
    unsummoned_gradients_.push_back(autograd::Grad(parameter));
  }
  Tensor whole = GatherGradients(has, first_only);
  if (summoned_.empty() || !whole.defined()) return;
  if (on_host) whole = To(whole, kHost);
  const std::vector<Tensor> gradients = SplitWhole(whole);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (has[i]) autograd::SetGrad(plan_.parameters[i].second, gradients[i]);
  }
}

void FlatParameter::HideGradients() {
  if (unsummoned_gradients_.empty()) return;
  for (size_t i = 0; i < unsummoned_gradients_.size(); ++i) {
    autograd::SetGrad(plan_.parameters[i].second, unsummoned_gradients_[i]);
  }
  unsummoned_gradients_.clear();
}

void FlatParameter::CheckUnchanged() const {
  if (shard_.storage()->version() == gathered_version_) return;
  throw FailedPreconditionError(absl::StrCat(
      "FullyShardedDataParallel: parameters of unit \"", options_.unit,
      "\" were changed between the forward pass and its backward; call Backward() before Step()"));
}

void FlatParameter::WriteBack() {
  const autograd::NoGradScope no_grad;
  for (size_t i = 0; i < whole_.size(); ++i) {
    const FlatLayout::Piece piece = this->piece(i);
    if (piece.numel() == 0 || summoned_.empty()) continue;
    const Tensor part = Slice(Flatten(summoned_[i]), 0, piece.begin, piece.end);
    CopyInto(pieces_[i], To(part, shard_.device()));
  }
  for (size_t i = 0; i < unsummoned_gradients_.size(); ++i) {
    const Tensor gradient = autograd::Grad(plan_.parameters[i].second);
    Tensor& kept = unsummoned_gradients_[i];
    if (!gradient.defined()) {
      kept = Tensor();
      continue;
    }
    const FlatLayout::Piece piece = this->piece(i);
    const Tensor part = To(Slice(Flatten(gradient), 0, piece.begin, piece.end), shard_.device());
    if (kept.defined()) {
      CopyInto(kept, part);
    } else {
      const CategoryScope category(MemoryCategory::kGradient);
      kept = Clone(part);
    }
  }
}

// ---- The end ----

TensorList FlatParameter::Whole() const {
  const autograd::NoGradScope no_grad;
  const CategoryScope category(MemoryCategory::kParameter);
  TensorList result;
  for (const Tensor& tensor :
       SplitWhole(GatherShards(To(shard_, options_.compute_device), /*first_only=*/false))) {
    result.push_back(Clone(tensor));
  }
  return result;
}

TensorList FlatParameter::WholeGradients(const std::vector<bool>& has) const {
  const autograd::NoGradScope no_grad;
  const CategoryScope category(MemoryCategory::kGradient);
  TensorList result(shapes_.size());
  const Tensor whole = GatherGradients(has, /*first_only=*/false);
  if (!whole.defined()) return result;
  const std::vector<Tensor> gradients = SplitWhole(whole);
  for (size_t i = 0; i < result.size(); ++i) {
    if (has[i]) result[i] = Clone(gradients[i]);
  }
  return result;
}

void FlatParameter::Release(const TensorList& whole, const TensorList& gradients) {
  released_ = true;
  for (size_t i = 0; i < whole.size(); ++i) {
    const Tensor& parameter = plan_.parameters[i].second;
    autograd::SetGrad(parameter, {});
    parameter.SetData(whole[i]);
    autograd::SetGrad(parameter, gradients[i]);
  }
  // A graph of before finds nothing there.
  lent_->Detach();
}

// ---- Gradients ----

void FlatParameter::BeginBackward() {
  if (!plan_.trainable || in_backward_) return;
  in_backward_ = true;
  for (size_t i = 0; i < before_.size(); ++i) {
    const Tensor& parameter = plan_.parameters[i].second;
    before_[i] = autograd::Grad(parameter);
    if (before_[i].defined()) autograd::SetGrad(parameter, {});
  }
}

void FlatParameter::MakeSum() {
  sum_ = FromStorage(pool_->Take(layout_.numel() * ItemSize(options_.reduce_dtype)),
                     {layout_.numel()}, options_.reduce_dtype);
}

Tensor FlatParameter::SumView(size_t i) const {
  return FromStorage(sum_.storage(), shapes_[i], options_.reduce_dtype, layout_.offset(i));
}

void FlatParameter::TakeGradient(size_t i) {
  const Tensor& parameter = plan_.parameters[i].second;
  const Tensor gradient = autograd::Grad(parameter);
  if (!gradient.defined()) return;
  if (!sum_.defined()) MakeSum();
  const Tensor place = SumView(i);
  if (in_sum_[i]) {
    AddInPlace(place, To(gradient, options_.reduce_dtype));
  } else {
    CopyInto(place, gradient);
  }
  in_sum_[i] = true;
  autograd::SetGrad(parameter, {});
}

void FlatParameter::DropSum() {
  if (sum_.defined()) pool_->GiveBack(sum_.storage());
  sum_ = partial_ = Tensor();
  in_sum_.assign(in_sum_.size(), false);
  in_partial_.assign(in_sum_.size(), false);
}

std::vector<bool> FlatParameter::in_sum() const {
  std::vector<bool> result = in_sum_;
  for (size_t i = 0; i < result.size(); ++i) result[i] = result[i] || in_partial_[i];
  return result;
}

comm::Work FlatParameter::ReduceAmongSharers() {
  if (options_.hook) {
    return options_.hook->ReduceScatter({options_.unit, options_.tag, sum_, reduced_},
                                        *groups_.shard);
  }
  return groups_.shard->ReduceScatter(
      sum_, reduced_,
      {.op = options_.division.op, .factor = options_.division.factor, .tag = options_.tag});
}

void FlatParameter::StartReduce(bool partial) {
  if (!sum_.defined()) MakeSum();
  for (size_t i = 0; i < in_sum_.size(); ++i) {
    if (!in_sum_[i]) ZeroInPlace(SumView(i));
  }
  // What is offloaded is gradient on the host only.
  const CategoryScope category(options_.offload ? MemoryCategory::kCommunication
                                                : MemoryCategory::kGradient);
  reducing_ = true;
  partial_only_ = partial;
  statistics_->CountReduction(sum_.bytes());
  Tensor earlier;  // sums of NoAllReduce
  if (!partial && partial_.defined()) {
    earlier = To(std::exchange(partial_, Tensor()), options_.compute_device);
    for (size_t i = 0; i < in_sum_.size(); ++i) in_sum_[i] = in_sum_[i] || in_partial_[i];
    in_partial_.assign(in_partial_.size(), false);
  }
  if (shard_ranks_ == 1) {
    reduced_ = Clone(sum_);
    if (earlier.defined()) AddInPlace(reduced_, earlier);
    if (groups_.replicate && !partial) {
      try {
        reduce_ = ReduceAmongReplicas(options_, /*whole=*/true, reduced_, *groups_.replicate);
      } catch (const Error& error) {
        Rethrow(error, "reducing the gradients");
      }
    } else if (!groups_.replicate && !partial && !options_.hook && options_.division.factor != 1) {
      MulInPlace(reduced_, options_.division.factor);
    }
    reduce_.OnComplete([](const Error*) {});
    return;
  }
  reduced_ = Empty({layout_.shard_numel()},
                   {.dtype = options_.reduce_dtype, .device = options_.compute_device});
  try {
    reduce_ = ReduceAmongSharers();
  } catch (const Error& error) {
    Rethrow(error, "reducing the gradients");
  }
  const std::shared_ptr<comm::Communicator> replicas = partial ? nullptr : groups_.replicate;
  if (replicas) replicate_ = std::make_shared<comm::Work>();
  if (replicas || earlier.defined()) {
    // Issued in the order in which the first halves end, which is the same on all ranks. Ops on the
    // group's thread run as this thread's do.
    reduce_ = reduce_.Then([work = replicate_, replicas, reduced = reduced_, earlier,
                            options = options_, state = CurrentThreadState()] {
      const ScopedThreadState scope(state);
      if (earlier.defined()) AddInPlace(reduced, earlier);
      if (!replicas) return;
      *work = ReduceAmongReplicas(options, /*whole=*/false, reduced, *replicas);
      work->OnComplete([](const Error*) {});
    });
  }
  reduce_.OnComplete([](const Error*) {});  // asks for it: it runs beside what is computed
}

void FlatParameter::FinishReduce() {
  if (!reducing_) return;
  const int64_t start = MonotonicNanoseconds();
  reducing_ = false;
  try {
    reduce_.Wait();
    if (replicate_) replicate_->Wait();
  } catch (const Error& error) {
    Rethrow(error, "reducing the gradients");
  }
  statistics_->AddExposedReduce(SecondsSince(start));
  reduce_ = {};
  replicate_ = nullptr;
  pool_->GiveBack(sum_.storage());
  sum_ = Tensor();
  if (partial_only_) {
    KeepPartial();
    return;
  }
  {
    const CategoryScope category(options_.offload ? MemoryCategory::kCommunication
                                                  : MemoryCategory::kGradient);
    reduced_ = To(reduced_, plan_.dtype);
    if (options_.division.after != 1) MulInPlace(reduced_, options_.division.after);
  }
  const CategoryScope category(MemoryCategory::kGradient);
  if (options_.offload) reduced_ = To(reduced_, kHost, {.non_blocking = true});
}

void FlatParameter::KeepPartial() {
  const CategoryScope category(MemoryCategory::kGradient);
  const Tensor mine =
      To(std::exchange(reduced_, Tensor()), options_.offload ? kHost : options_.compute_device);
  if (partial_.defined()) {
    AddInPlace(partial_, mine);
  } else {
    partial_ = mine;
  }
  for (size_t i = 0; i < in_sum_.size(); ++i) in_partial_[i] = in_partial_[i] || in_sum_[i];
  in_sum_.assign(in_sum_.size(), false);
}

void FlatParameter::FinishOffload() {
  if (reduced_.defined()) reduced_.storage()->WaitReady();
}

Tensor FlatParameter::PieceView(const Tensor& flat, size_t i) const {
  const FlatLayout::Piece piece = this->piece(i);
  return FromStorage(flat.storage(), {piece.numel()}, flat.dtype(), flat.offset() + piece.offset);
}

void FlatParameter::EndBackward(const std::vector<bool>& used) {
  if (!in_backward_) return;
  in_backward_ = false;
  Hide();
  for (size_t i = 0; i < before_.size(); ++i) {
    const Tensor& parameter = plan_.parameters[i].second;
    Tensor gradient = std::exchange(before_[i], Tensor());
    if (reduced_.defined() && used[i]) {
      const Tensor piece = PieceView(reduced_, i);
      if (gradient.defined()) {
        AddInPlace(gradient, piece);
      } else {
        gradient = piece;
      }
    }
    autograd::SetGrad(parameter, gradient);
  }
  if (reduced_.defined()) in_sum_.assign(in_sum_.size(), false);
  reduced_ = Tensor();
}

void FlatParameter::AbandonBackward() {
  reducing_ = false;
  reduce_ = {};
  replicate_ = nullptr;
  reduced_ = Tensor();
  // Peers may still read it: it does not go back to the pool.
  sum_ = partial_ = Tensor();
  in_sum_.assign(in_sum_.size(), false);
  in_partial_.assign(in_partial_.size(), false);
  EndBackward(in_sum_);
}

// ---- Pieces ----

Tensor FlatParameter::AssemblePieces(DType dtype,
                                     absl::FunctionRef<Tensor(size_t i)> piece_of) const {
  const autograd::NoGradScope no_grad;
  const Tensor flat =
      Zeros({layout_.shard_numel()}, {.dtype = dtype, .device = options_.compute_device});
  for (size_t i = 0; i < shapes_.size(); ++i) {
    const Tensor piece = piece_of(i);
    if (!piece.defined() || piece.numel() == 0) continue;
    CopyInto(PieceView(flat, i), To(piece, options_.compute_device));
  }
  return flat;
}

Tensor FlatParameter::GatherShards(const Tensor& shard, bool first_only) const {
  if (shard_ranks_ == 1) return shard;
  Tensor whole;
  if (!first_only || shard_rank_ == 0) {
    whole = Empty({layout_.numel()}, {.dtype = shard.dtype(), .device = shard.device()});
  }
  try {
    if (first_only) {
      groups_.shard->Gather(shard, whole).Wait();
    } else {
      groups_.shard->AllGather(shard, whole, {.tag = options_.tag}).Wait();
    }
  } catch (const Error& error) {
    Rethrow(error, "gathering the parts");
  }
  return whole;
}

Tensor FlatParameter::GatherPiece(size_t i, const Tensor& piece) const {
  const bool first = groups_.world->rank() == 0;
  // Replicas have the same.
  if (groups_.replicate && groups_.replicate->rank() != 0) return Tensor();
  const CategoryScope category(MemoryCategory::kCommunication);
  const Tensor mine = Contiguous(To(Flatten(piece), options_.compute_device));
  if (shard_ranks_ == 1) return first ? Reshape(mine, shapes_[i]) : Tensor();
  comm::GatherOptions options;
  for (int rank = 0; rank < shard_ranks_; ++rank) {
    options.counts.push_back(layout_.PieceOf(i, rank).numel());
  }
  Tensor whole;
  if (first) whole = Empty(shapes_[i], {.dtype = mine.dtype(), .device = mine.device()});
  try {
    groups_.shard->Gather(mine, whole, options).Wait();
  } catch (const Error& error) {
    Rethrow(error, "gathering a parameter");
  }
  return whole;
}

}  // namespace lockstep::strategies
