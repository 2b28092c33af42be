// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/sharded_files.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/on_every_rank.h"
#include "lockstep/state/safetensors_source.h"
#include "lockstep/strategies/fully_sharded_data_parallel/full_state_load.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::strategies {
namespace {

using Piece = FullyShardedDataParallel::Piece;

constexpr absl::string_view kModelPrefix = "model.";
constexpr absl::string_view kOptimizerPrefix = "optimizer.";
constexpr absl::string_view kKindPrefix = "optimizer_kind.";

// Whether `good` holds on all ranks.
bool AllAgree(FullyShardedDataParallel& fsdp, bool good) {
  const Tensor all = FromVector<int64_t>({good ? 1 : 0}, {1}, {.device = Cpu()});
  fsdp.groups().world->AllReduce(all, {.op = comm::ReduceOp::kMin}).Wait();
  return all.Item<int64_t>() == 1;
}

// The tensors that are not sharded.
NamedTensors NotSharded(const FullyShardedDataParallel& fsdp) {
  std::set<const TensorImpl*> sharded;
  for (const Piece& piece : fsdp.Pieces()) sharded.insert(&piece.tensor.impl());
  return fsdp.module()->StateTensors().Filter(
      [&](const std::string&, const Tensor& tensor) { return sharded.count(&tensor.impl()) == 0; });
}

}  // namespace

// ---- One file ----

namespace {

// Where a file is written from.
Tensor InMemory(const Tensor& tensor) {
  const DeviceType type = tensor.device().type;
  const bool is = type == DeviceType::kCpu || type == DeviceType::kHost;
  return is ? tensor : To(tensor, kHost);
}

}  // namespace

state::GatheredTensors FullModelTensors(FullyShardedDataParallel& fsdp) {
  struct Entry {
    std::string parameter;  // "": not sharded
    Tensor tensor;
  };
  std::map<const TensorImpl*, Piece> pieces;
  for (const Piece& piece : fsdp.Pieces()) pieces[&piece.tensor.impl()] = piece;
  state::GatheredTensors gathered;
  std::vector<Entry> entries;
  for (const auto& [name, tensor] : fsdp.module()->StateTensors()) {
    const auto found = pieces.find(&tensor.impl());
    const bool sharded = found != pieces.end();
    gathered.tensors.push_back(
        {name, tensor.dtype(), sharded ? found->second.shape : tensor.shape()});
    entries.push_back({sharded ? found->second.name : "", tensor});
  }
  gathered.gather = [&fsdp, entries](size_t i) {
    const autograd::NoGradScope no_grad;
    const auto& [parameter, tensor] = entries[i];
    const Tensor whole = parameter.empty() ? tensor : fsdp.GatherPiece(parameter, tensor);
    return whole.defined() ? InMemory(whole) : whole;
  };
  return gathered;
}

state::GatheredTensors FullOptimizerTensors(FullyShardedDataParallel& fsdp,
                                            const optim::Optimizer& optimizer) {
  std::map<std::string, Shape> shapes;
  for (const Piece& piece : fsdp.Pieces()) shapes[piece.name] = piece.shape;
  state::GatheredTensors gathered;
  const NamedTensors mine = optimizer.SaveState().tensors;
  for (const auto& [name, tensor] : mine) {
    const auto found = shapes.find(optim::SplitStateName(name).parameter);
    gathered.tensors.push_back(
        {name, tensor.dtype(), found != shapes.end() ? found->second : tensor.shape()});
  }
  gathered.gather = [&fsdp, mine, shapes](size_t i) {
    const autograd::NoGradScope no_grad;
    const auto& [name, tensor] = mine[i];
    const std::string parameter = optim::SplitStateName(name).parameter;
    const Tensor whole = shapes.contains(parameter) ? fsdp.GatherPiece(parameter, tensor) : tensor;
    return whole.defined() ? InMemory(whole) : whole;
  };
  return gathered;
}

void SaveFullState(FullyShardedDataParallel& fsdp, const std::string& path) {
  comm::Communicator& world = *fsdp.groups().world;
  comm::AllOrNone(world, "SaveFullState", [&] {
    state::WriteGathered(path, FullModelTensors(fsdp), /*writes=*/world.rank() == 0);
  });
}

void LoadFullState(FullyShardedDataParallel& fsdp, const std::string& path) {
  std::unique_ptr<state::SafetensorsSource> source;
  comm::AllOrNone(*fsdp.groups().world, "LoadFullState",
                  [&] { source = std::make_unique<state::SafetensorsSource>(path); });
  try {
    LoadFullState(fsdp, *source);
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat("'", path, "'"));
  }
}

void LoadFullState(FullyShardedDataParallel& fsdp, const state::TensorSource& source) {
  constexpr char kCall[] = "LoadFullState";
  comm::Communicator& world = *fsdp.groups().world;
  const std::vector<Piece> pieces = fsdp.Pieces();
  const NamedTensors tensors = fsdp.module()->StateTensors();
  std::optional<FullStateLoad> load;
  comm::AllOrNone(world, kCall, [&] { load.emplace(kCall, pieces, tensors, source); });
  comm::AllOrNone(world, kCall, [&] { load->Run(); });
}

// ---- A file a rank ----

namespace {

state::ShardingRank RankOf(FullyShardedDataParallel& fsdp) {
  const comm::Communicator& world = *fsdp.groups().world;
  return {.rank = world.rank(), .world_size = world.size(), .agree = [&fsdp](bool good) {
            return AllAgree(fsdp, good);
          }};
}

// Where a shard of the state goes.
struct Destination {
  const state::Shard* shard = nullptr;  // null: this rank has no elements
  Tensor into;
};

using ShardsByName = std::map<std::string, const state::Shard*>;

Destination DestinationOf(const std::string& name, const Tensor& into, const Shape& full_shape,
                          int64_t begin, int64_t end, const ShardsByName& shards) {
  const auto found = shards.find(name);
  const bool missing = found == shards.end() && begin < end;
  if (missing ||
      (found != shards.end() && (found->second->full_shape != full_shape ||
                                 found->second->begin != begin || found->second->end != end))) {
    throw InvalidArgumentError(absl::StrCat(
        "LoadShardedTraining: ", name, missing ? " is missing" : " was cut in another way",
        "; wrap the model in the units that it was saved with, or load a full state"));
  }
  return {found == shards.end() || begin == end ? nullptr : found->second, into};
}

void PutBack(const Destination& destination) {
  if (destination.shard == nullptr) return;
  const Tensor& into = destination.into;
  const Tensor& tensor = destination.shard->tensor;
  CopyInto(into, To(To(Reshape(tensor, into.shape()), into.dtype()), into.device()));
}

// This rank's part of the optimizer's state.
optim::OptimizerState MomentsOf(const state::ShardedState& saved,
                                const std::map<std::string, Piece>& pieces) {
  optim::OptimizerState state;
  std::set<std::string> kinds;
  for (const auto& [name, value] : saved.values) {
    if (absl::StartsWith(name, kOptimizerPrefix)) {
      state.numbers[name.substr(kOptimizerPrefix.size())] = std::get<int64_t>(value);
    } else if (absl::StartsWith(name, kKindPrefix)) {
      kinds.insert(name.substr(kKindPrefix.size()));
    }
  }
  for (const state::Shard& shard : saved.shards) {
    if (!absl::StartsWith(shard.name, kOptimizerPrefix)) continue;
    const std::string name = shard.name.substr(kOptimizerPrefix.size());
    const auto piece = pieces.find(optim::SplitStateName(name).parameter);
    if (piece == pieces.end()) {
      throw InvalidArgumentError(absl::StrCat("LoadShardedTraining: the state has ", name,
                                              ", and no such parameter is sharded here"));
    }
    state.tensors.Insert(name, To(shard.tensor, piece->second.tensor.device()));
  }
  // A rank with nothing of a parameter has no file entry for its moments either.
  for (const auto& [name, piece] : pieces) {
    if (piece.begin != piece.end || !state.numbers.contains(absl::StrCat(name, ".step"))) continue;
    for (const std::string& kind : kinds) {
      const std::string full = absl::StrCat(name, ".", kind);
      if (!state.tensors.Contains(full)) state.tensors.Insert(full, Clone(piece.tensor));
    }
  }
  return state;
}

ShardedTraining Restore(FullyShardedDataParallel& fsdp, optim::Optimizer& optimizer,
                        const state::ShardedState& saved, const std::string& path) {
  constexpr char kCall[] = "LoadShardedTraining";
  const autograd::NoGradScope no_grad;
  const NamedTensors not_sharded = NotSharded(fsdp);
  std::vector<Destination> destinations;
  optim::OptimizerState moments;
  // The model is looked at as a whole, and all ranks agree, before anything changes.
  comm::Communicator& world = *fsdp.groups().world;
  comm::AllOrNone(world, kCall, [&] {
    ShardsByName shards;
    for (const state::Shard& shard : saved.shards) shards[shard.name] = &shard;
    std::map<std::string, Piece> pieces;
    for (const Piece& piece : fsdp.Pieces()) {
      pieces[piece.name] = piece;
      destinations.push_back(DestinationOf(absl::StrCat(kModelPrefix, piece.name), piece.tensor,
                                           piece.shape, piece.begin, piece.end, shards));
    }
    if (fsdp.groups().world->rank() == 0) {
      for (const auto& [name, tensor] : not_sharded) {
        destinations.push_back(DestinationOf(absl::StrCat(kModelPrefix, name), tensor,
                                             tensor.shape(), 0, tensor.numel(), shards));
      }
    }
    moments = MomentsOf(saved, pieces);
  });
  // The optimizer checks its part before it changes anything.
  comm::AllOrNone(world, kCall, [&] { optimizer.LoadState(moments); });
  for (const Destination& destination : destinations) PutBack(destination);
  // Rank 0 has saved what is whole on every rank.
  for (const auto& [name, tensor] : not_sharded) {
    fsdp.groups().world->Broadcast(tensor).Wait();
  }
  ShardedTraining result{saved.step, {}, path};
  for (const auto& [name, value] : saved.values) {
    if (absl::StartsWith(name, kOptimizerPrefix) || absl::StartsWith(name, kKindPrefix)) continue;
    result.values[name] = value;
  }
  return result;
}

}  // namespace

std::string SaveShardedTraining(FullyShardedDataParallel& fsdp, const optim::Optimizer& optimizer,
                                const std::string& root, int64_t step, const state::Values& values,
                                const state::SaveOptions& options) {
  std::vector<state::Shard> shards;
  std::map<std::string, Piece> pieces;
  for (const Piece& piece : fsdp.Pieces()) {
    pieces[piece.name] = piece;
    if (piece.begin == piece.end) continue;
    shards.push_back({absl::StrCat(kModelPrefix, piece.name), piece.shape, piece.begin, piece.end,
                      piece.tensor});
  }
  if (fsdp.groups().world->rank() == 0) {
    for (const auto& [name, tensor] : NotSharded(fsdp)) {
      shards.push_back(
          {absl::StrCat(kModelPrefix, name), tensor.shape(), 0, tensor.numel(), tensor});
    }
  }
  const optim::OptimizerState state = optimizer.SaveState();
  state::Values all = values;
  for (const auto& [name, tensor] : state.tensors) {
    const auto [parameter, kind] = optim::SplitStateName(name);
    const auto piece = pieces.find(parameter);
    if (piece == pieces.end()) {
      throw InvalidArgumentError(absl::StrCat(
          "SaveShardedTraining: the optimizer has state of ", parameter,
          ", which is not sharded; save a full state (FullStateDict, FullOptimizerState)"));
    }
    all[absl::StrCat(kKindPrefix, kind)] = int64_t{1};
    if (piece->second.begin == piece->second.end) continue;
    shards.push_back({absl::StrCat(kOptimizerPrefix, name), piece->second.shape,
                      piece->second.begin, piece->second.end, tensor});
  }
  for (const auto& [name, number] : state.numbers) {
    all[absl::StrCat(kOptimizerPrefix, name)] = number;
  }
  return state::SaveShardedState(root, step, shards, all, RankOf(fsdp), options);
}

ShardedTraining LoadShardedTraining(FullyShardedDataParallel& fsdp, optim::Optimizer& optimizer,
                                    const std::string& path) {
  return Restore(fsdp, optimizer, state::LoadShardedState(path, RankOf(fsdp)), path);
}

ShardedTraining LoadLatestShardedTraining(FullyShardedDataParallel& fsdp,
                                          optim::Optimizer& optimizer, const std::string& root) {
  const state::LoadedShardedState latest = state::LoadLatestShardedState(root, RankOf(fsdp));
  return Restore(fsdp, optimizer, latest.state, latest.path);
}

}  // namespace lockstep::strategies
