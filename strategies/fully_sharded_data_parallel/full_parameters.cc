// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// All elements of sharded parameters, and of what optimizers keep with them.
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/fully_sharded_data_parallel/full_state_load.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::strategies {
namespace {

constexpr char kName[] = "FullyShardedDataParallel";

}  // namespace

// ---- Summon ----

FullyShardedDataParallel::SummonFullParameters::SummonFullParameters(FullyShardedDataParallel& fsdp)
    : SummonFullParameters(fsdp, SummonOptions()) {}

FullyShardedDataParallel::SummonFullParameters::SummonFullParameters(FullyShardedDataParallel& fsdp,
                                                                     const SummonOptions& options)
    : runtime_(fsdp.runtime_), options_(options) {
  if (options.writeback && (options.rank0_only || options.offload_to_cpu)) {
    throw InvalidArgumentError(absl::StrCat(
        kName, ": SummonFullParameters: writeback does not go with ",
        options.rank0_only ? "rank0_only" : "offload_to_cpu", "; give writeback = false"));
  }
  runtime_->CheckIdle("SummonFullParameters");
  using Summoned = ShardingRuntime::Summoned;
  runtime_->SetSummoned(options.rank0_only || options.offload_to_cpu ? Summoned::kElsewhere
                                                                     : Summoned::kShown);
  try {
    for (const auto& unit : runtime_->units()) {
      for (const auto& flat : unit.flats) {
        flat->Summon(options.rank0_only, options.offload_to_cpu);
      }
    }
    if (options.with_grads) SummonGradients();
  } catch (...) {
    Leave();
    throw;
  }
}

void FullyShardedDataParallel::SummonFullParameters::SummonGradients() {
  const std::vector<std::vector<bool>> has = runtime_->ExchangeHasGradient();
  size_t next = 0;
  for (const auto& unit : runtime_->units()) {
    for (const auto& flat : unit.flats) {
      flat->SummonGradients(has[next++], options_.rank0_only, options_.offload_to_cpu);
    }
  }
}

FullyShardedDataParallel::SummonFullParameters::~SummonFullParameters() {
  if (options_.writeback) {
    for (const auto& unit : runtime_->units()) {
      for (const auto& flat : unit.flats) flat->WriteBack();
    }
  }
  Leave();
}

void FullyShardedDataParallel::SummonFullParameters::Leave() {
  for (const auto& unit : runtime_->units()) {
    for (const auto& flat : unit.flats) {
      flat->Hide();
      flat->HideGradients();
    }
  }
  runtime_->SetSummoned(ShardingRuntime::Summoned::kNo);
}

// ---- Visits ----

void FullyShardedDataParallel::VisitFullParameters(
    const std::function<void(const std::string&, const Tensor&)>& visit, bool rank0_only) {
  std::map<std::string, Tensor> parameters;
  for (const auto& piece : Pieces()) parameters[piece.name] = piece.tensor;
  VisitFull([&](const std::string& name) { return parameters.at(name); }, visit, rank0_only);
}

void FullyShardedDataParallel::VisitFull(
    const std::function<Tensor(const std::string&)>& piece_of,
    const std::function<void(const std::string&, const Tensor&)>& visit, bool rank0_only) {
  runtime_->CheckIdle("VisitFull");
  const autograd::NoGradScope no_grad;
  const bool visits = !rank0_only || groups_.world->rank() == 0;
  for (const auto& unit : runtime_->units()) {
    for (const auto& flat : unit.flats) {
      std::vector<Tensor> pieces;
      std::optional<DType> dtype;
      for (const auto& [name, parameter] : flat->parameters()) {
        pieces.push_back(piece_of(name));
        if (!dtype && pieces.back().defined()) dtype = pieces.back().dtype();
      }
      if (!dtype) continue;
      Tensor whole;
      {
        const CategoryScope category(MemoryCategory::kCommunication);
        const Tensor shard = flat->AssemblePieces(*dtype, [&](size_t i) { return pieces[i]; });
        whole = flat->GatherShards(shard, /*first_only=*/rank0_only);
      }
      if (!visits) continue;
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (!pieces[i].defined()) continue;
        visit(flat->parameters()[i].first, FromStorage(whole.storage(), flat->full_shape(i),
                                                       whole.dtype(), flat->layout().offset(i)));
      }
    }
  }
}

// ---- Model state ----

NamedTensors FullyShardedDataParallel::FullStateDict(bool rank0_only) {
  const autograd::NoGradScope no_grad;
  const CategoryScope category(MemoryCategory::kOther);
  std::map<std::string, Tensor> whole;
  VisitFullParameters(
      [&](const std::string& name, const Tensor& value) { whole[name] = Clone(To(value, kHost)); },
      rank0_only);
  NamedTensors state;
  if (rank0_only && groups_.world->rank() != 0) return state;
  std::map<const TensorImpl*, std::string> first_name;
  for (const auto& piece : Pieces()) first_name[&piece.tensor.impl()] = piece.name;
  for (const auto& [name, tensor] : module_->StateTensors()) {
    const auto sharded = first_name.find(&tensor.impl());
    state.Insert(
        name, sharded != first_name.end() ? whole.at(sharded->second) : Clone(To(tensor, kHost)));
  }
  return state;
}

void FullyShardedDataParallel::LoadFullStateDict(const NamedTensors& state) {
  runtime_->CheckIdle("LoadFullStateDict");
  const state::NamedTensorsSource source(state);
  FullStateLoad(absl::StrCat(kName, ": LoadFullStateDict"), Pieces(), module_->StateTensors(),
                source)
      .Run();
}

Tensor FullyShardedDataParallel::GatherPiece(const std::string& name, const Tensor& piece) {
  runtime_->CheckIdle("GatherPiece");
  const autograd::NoGradScope no_grad;
  for (const auto& unit : runtime_->units()) {
    for (const auto& flat : unit.flats) {
      for (size_t i = 0; i < flat->parameters().size(); ++i) {
        if (flat->parameters()[i].first == name) return flat->GatherPiece(i, piece);
      }
    }
  }
  throw NotFoundError(absl::StrCat(kName, ": GatherPiece: ", name,
                                   " is no sharded parameter; Pieces() has their names"));
}

// ---- Optimizer state ----

optim::OptimizerState FullyShardedDataParallel::FullOptimizerState(
    const optim::Optimizer& optimizer, bool rank0_only) {
  const optim::OptimizerState mine = optimizer.SaveState();
  std::set<std::string> sharded;
  for (const auto& piece : Pieces()) sharded.insert(piece.name);
  std::set<std::string> kinds;
  for (const auto& [name, tensor] : mine.tensors) {
    const auto [parameter, kind] = optim::SplitStateName(name);
    if (sharded.count(parameter) > 0) kinds.insert(kind);
  }
  std::map<std::string, Tensor> whole;
  for (const std::string& kind : kinds) {
    VisitFull(
        [&](const std::string& name) {
          const Tensor* tensor = mine.tensors.Find(absl::StrCat(name, ".", kind));
          return tensor == nullptr ? Tensor() : *tensor;
        },
        [&](const std::string& name, const Tensor& value) {
          whole[absl::StrCat(name, ".", kind)] = Clone(To(value, kHost));
        },
        rank0_only);
  }
  optim::OptimizerState full;
  if (rank0_only && groups_.world->rank() != 0) return full;
  // In the optimizer's own order, as an unsharded one saves it.
  for (const auto& [name, tensor] : mine.tensors) {
    const auto gathered = whole.find(name);
    full.tensors.Insert(name,
                        gathered != whole.end() ? gathered->second : Clone(To(tensor, kHost)));
  }
  full.numbers = mine.numbers;
  return full;
}

void FullyShardedDataParallel::LoadFullOptimizerState(optim::Optimizer& optimizer,
                                                      const optim::OptimizerState& state) {
  LoadFullOptimizerState(optimizer, state::NamedTensorsSource(state.tensors), state.numbers);
}

void FullyShardedDataParallel::LoadFullOptimizerState(
    optim::Optimizer& optimizer, const state::TensorSource& tensors,
    const std::map<std::string, int64_t>& numbers) {
  const autograd::NoGradScope no_grad;
  const std::vector<Piece> all = Pieces();
  std::map<std::string, const Piece*> pieces;
  for (const Piece& piece : all) pieces[piece.name] = &piece;
  optim::OptimizerState mine;
  mine.numbers = numbers;
  for (const state::TensorDescription& tensor : tensors.tensors()) {
    const auto found = pieces.find(optim::SplitStateName(tensor.name).parameter);
    if (found == pieces.end()) {
      const int64_t numel = NumElements(tensor.shape, "LoadFullOptimizerState");
      mine.tensors.Insert(tensor.name,
                          Reshape(tensors.LoadRange(tensor.name, 0, numel), tensor.shape));
      continue;
    }
    const Piece& piece = *found->second;
    if (tensor.shape != piece.shape) {
      throw InvalidArgumentError(absl::StrCat(
          kName, ": LoadFullOptimizerState: ", tensor.name, " is ", DTypeName(tensor.dtype),
          ToString(tensor.shape), " and not of shape ", ToString(piece.shape)));
    }
    mine.tensors.Insert(tensor.name, To(tensors.LoadRange(tensor.name, piece.begin, piece.end),
                                        piece.tensor.device()));
  }
  optimizer.LoadState(mine);
}

}  // namespace lockstep::strategies
