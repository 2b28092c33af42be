// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/flat_parameter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
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
      in_sum_(plan_.parameters.size(), false) {
  const autograd::NoGradScope no_grad;
  MakeMemory();
  for (size_t i = 0; i < plan_.parameters.size(); ++i) TakeValue(i, value_of);
}

FlatParameter::~FlatParameter() {
  if (gathering_) {
    try {
      gather_.Wait();
    } catch (const Error&) {
      // The group has failed; its next call says why.
    }
  }
  if (shown_) Hide();
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
  parameter.SetData(pieces_[i]);
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

void FlatParameter::CheckShowsPiece(size_t i) const {
  const auto& [name, parameter] = plan_.parameters[i];
  if (parameter.impl().storage == shard_.storage() && parameter.dtype() == plan_.dtype &&
      autograd::RequiresGrad(parameter) == plan_.trainable) {
    return;
  }
  throw FailedPreconditionError(absl::StrCat(
      "FullyShardedDataParallel: parameter ", name,
      " was moved, converted, replaced, frozen or thawed after it was sharded (now ",
      parameter.DebugString(), "); do that before, or make a new FullyShardedDataParallel"));
}

void FlatParameter::Show() {
  if (shown_) return;
  ShowThese(whole_);
}

void FlatParameter::ShowThese(const std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) CheckShowsPiece(i);
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
  summoned_.clear();
  for (size_t i = 0; i < shapes_.size(); ++i) {
    summoned_.push_back(FromStorage(whole.storage(), shapes_[i], whole.dtype(),
                                    whole.offset() + layout_.offset(i)));
  }
  ShowThese(summoned_);
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
  sum_ = Tensor();
  in_sum_.assign(in_sum_.size(), false);
}

void FlatParameter::StartReduce() {
  if (!sum_.defined()) MakeSum();
  for (size_t i = 0; i < in_sum_.size(); ++i) {
    if (!in_sum_[i]) ZeroInPlace(SumView(i));
  }
  // What is offloaded is gradient on the host only.
  const CategoryScope category(options_.offload ? MemoryCategory::kCommunication
                                                : MemoryCategory::kGradient);
  const GradientDivision& division = options_.division;
  reducing_ = true;
  statistics_->CountReduction(sum_.bytes());
  if (shard_ranks_ == 1) {
    reduced_ = Clone(sum_);
    if (groups_.replicate) {
      try {
        reduce_ = groups_.replicate->AllReduce(
            reduced_, {.op = division.op, .factor = division.factor, .tag = options_.tag});
      } catch (const Error& error) {
        Rethrow(error, "reducing the gradients");
      }
    } else if (division.factor != 1) {
      MulInPlace(reduced_, division.factor);
    }
    reduce_.OnComplete([](const Error*) {});
    return;
  }
  reduced_ = Empty({layout_.shard_numel()},
                   {.dtype = options_.reduce_dtype, .device = options_.compute_device});
  try {
    reduce_ = groups_.shard->ReduceScatter(
        sum_, reduced_, {.op = division.op, .factor = division.factor, .tag = options_.tag});
  } catch (const Error& error) {
    Rethrow(error, "reducing the gradients");
  }
  if (groups_.replicate) {
    // Issued in the order in which the first halves end, which is the same on all ranks.
    replicate_ = std::make_shared<comm::Work>();
    reduce_ = reduce_.Then([work = replicate_, group = groups_.replicate, reduced = reduced_,
                            op = division.replicate_op, tag = options_.tag] {
      *work = group->AllReduce(reduced, {.op = op, .tag = tag});
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
  {
    const CategoryScope category(options_.offload ? MemoryCategory::kCommunication
                                                  : MemoryCategory::kGradient);
    reduced_ = To(reduced_, plan_.dtype);
    if (options_.division.after != 1) MulInPlace(reduced_, options_.division.after);
  }
  const CategoryScope category(MemoryCategory::kGradient);
  if (options_.offload) reduced_ = To(reduced_, kHost, {.non_blocking = true});
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
  sum_ = Tensor();
  in_sum_.assign(in_sum_.size(), false);
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
