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
#include "absl/strings/str_join.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/state/safetensors_reader.h"
#include "lockstep/state/safetensors_writer.h"
#include "lockstep/tensor/device.h"
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

// Throws `failure`, or what says that another rank has one.
void AgreeOrThrow(FullyShardedDataParallel& fsdp, const char* call,
                  const std::optional<Error>& failure) {
  const bool good = AllAgree(fsdp, !failure.has_value());
  if (failure.has_value()) throw *failure;
  if (!good) throw AbortedError(absl::StrCat(call, ": another rank failed, and says why"));
}

// What runs on one rank and may fail there.
template <typename Function>
std::optional<Error> Try(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// All names of each sharded parameter, by its first one; and the tensors that are not sharded.
struct Names {
  explicit Names(const FullyShardedDataParallel& fsdp) {
    std::map<const TensorImpl*, std::string> first;
    for (const Piece& piece : fsdp.Pieces()) first[&piece.tensor.impl()] = piece.name;
    for (const auto& [name, tensor] : fsdp.module()->StateTensors()) {
      const auto found = first.find(&tensor.impl());
      if (found == first.end()) {
        whole.Insert(name, tensor);
      } else {
        of_sharded[found->second].push_back(name);
      }
    }
  }
  std::map<std::string, std::vector<std::string>> of_sharded;
  NamedTensors whole;
};

}  // namespace

// ---- One file ----

void SaveFullState(FullyShardedDataParallel& fsdp, const std::string& path) {
  const autograd::NoGradScope no_grad;
  const Names names(fsdp);
  const bool writes = fsdp.groups().world->rank() == 0;
  std::unique_ptr<state::SafetensorsWriter> writer;
  std::optional<Error> failure = Try([&] {
    if (!writes) return;
    std::vector<state::TensorDescription> tensors;
    for (const Piece& piece : fsdp.Pieces()) {
      for (const std::string& name : names.of_sharded.at(piece.name)) {
        tensors.push_back({name, piece.tensor.dtype(), piece.shape});
      }
    }
    for (const auto& [name, tensor] : names.whole) {
      tensors.push_back({name, tensor.dtype(), tensor.shape()});
    }
    writer = std::make_unique<state::SafetensorsWriter>(path, std::move(tensors));
  });
  fsdp.VisitFullParameters(
      [&](const std::string& name, const Tensor& value) {
        if (failure.has_value()) return;  // the other ranks' gathers go on
        failure = Try([&] {
          for (const std::string& each : names.of_sharded.at(name)) writer->Append(each, value);
        });
      },
      /*rank0_only=*/true);
  if (!failure.has_value()) {
    failure = Try([&] {
      if (!writes) return;
      for (const auto& [name, tensor] : names.whole) writer->Append(name, tensor);
      writer->Finish();
    });
  }
  AgreeOrThrow(fsdp, "SaveFullState", failure);
}

namespace {

void CheckFits(const FullyShardedDataParallel& fsdp, const Names& names,
               const state::SafetensorsReader& reader, const std::string& path) {
  std::vector<std::string> wrong;
  std::set<std::string> known;
  const auto check = [&](const std::string& name, const Shape& shape) {
    const Shape& given = reader.At(name).shape;
    if (given == shape) return;
    wrong.push_back(
        absl::StrCat(name, " has shape ", ToString(given), " and not ", ToString(shape)));
  };
  for (const Piece& piece : fsdp.Pieces()) {
    bool any = false;
    for (const std::string& name : names.of_sharded.at(piece.name)) {
      known.insert(name);
      if (!reader.Contains(name)) continue;
      check(name, piece.shape);
      any = true;
    }
    if (!any) wrong.push_back(absl::StrCat(piece.name, " is missing"));
  }
  for (const auto& [name, tensor] : names.whole) {
    known.insert(name);
    if (reader.Contains(name)) {
      check(name, tensor.shape());
    } else {
      wrong.push_back(absl::StrCat(name, " is missing"));
    }
  }
  for (const auto& entry : reader.entries()) {
    if (known.count(entry.name) == 0) {
      wrong.push_back(absl::StrCat(entry.name, " is not in the module"));
    }
  }
  if (wrong.empty()) return;
  throw InvalidArgumentError(
      absl::StrCat("LoadFullState: '", path, "' does not fit:\n  ", absl::StrJoin(wrong, "\n  ")));
}

}  // namespace

void LoadFullState(FullyShardedDataParallel& fsdp, const std::string& path) {
  const autograd::NoGradScope no_grad;
  const Names names(fsdp);
  std::unique_ptr<state::SafetensorsReader> reader;
  AgreeOrThrow(fsdp, "LoadFullState", Try([&] {
                 reader = std::make_unique<state::SafetensorsReader>(path);
                 CheckFits(fsdp, names, *reader, path);
               }));
  AgreeOrThrow(fsdp, "LoadFullState", Try([&] {
                 for (const Piece& piece : fsdp.Pieces()) {
                   if (piece.begin == piece.end) continue;
                   for (const std::string& name : names.of_sharded.at(piece.name)) {
                     if (!reader->Contains(name)) continue;
                     const Tensor part = reader->LoadRange(name, piece.begin, piece.end);
                     CopyInto(piece.tensor,
                              To(To(part, piece.tensor.dtype()), piece.tensor.device()));
                     break;
                   }
                 }
                 for (const auto& [name, tensor] : names.whole) {
                   const Tensor whole = reader->Load(name);
                   CopyInto(tensor, To(To(whole, tensor.dtype()), tensor.device()));
                 }
               }));
}

// ---- A file a rank ----

namespace {

state::ShardingRank RankOf(FullyShardedDataParallel& fsdp) {
  const comm::Communicator& world = *fsdp.groups().world;
  return {.rank = world.rank(), .world_size = world.size(), .agree = [&fsdp](bool good) {
            return AllAgree(fsdp, good);
          }};
}

// Where a tensor of the state belongs.
std::string NameOfMoment(const std::string& state_name) {
  return state_name.substr(0, state_name.rfind('.'));
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
    const auto piece = pieces.find(NameOfMoment(name));
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
  const Names names(fsdp);
  std::vector<Destination> destinations;
  optim::OptimizerState moments;
  // The model is looked at as a whole, and all ranks agree, before anything changes.
  AgreeOrThrow(
      fsdp, kCall, Try([&] {
        ShardsByName shards;
        for (const state::Shard& shard : saved.shards) shards[shard.name] = &shard;
        std::map<std::string, Piece> pieces;
        for (const Piece& piece : fsdp.Pieces()) {
          pieces[piece.name] = piece;
          destinations.push_back(DestinationOf(absl::StrCat(kModelPrefix, piece.name), piece.tensor,
                                               piece.shape, piece.begin, piece.end, shards));
        }
        if (fsdp.groups().world->rank() == 0) {
          for (const auto& [name, tensor] : names.whole) {
            destinations.push_back(DestinationOf(absl::StrCat(kModelPrefix, name), tensor,
                                                 tensor.shape(), 0, tensor.numel(), shards));
          }
        }
        moments = MomentsOf(saved, pieces);
      }));
  // The optimizer checks its part before it changes anything.
  AgreeOrThrow(fsdp, kCall, Try([&] { optimizer.LoadState(moments); }));
  for (const Destination& destination : destinations) PutBack(destination);
  // Rank 0 has saved what is whole on every rank.
  for (const auto& [name, tensor] : names.whole) {
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
    for (const auto& [name, tensor] : Names(fsdp).whole) {
      shards.push_back(
          {absl::StrCat(kModelPrefix, name), tensor.shape(), 0, tensor.numel(), tensor});
    }
  }
  const optim::OptimizerState state = optimizer.SaveState();
  state::Values all = values;
  for (const auto& [name, tensor] : state.tensors) {
    const auto piece = pieces.find(NameOfMoment(name));
    if (piece == pieces.end()) {
      throw InvalidArgumentError(absl::StrCat(
          "SaveShardedTraining: the optimizer has state of ", NameOfMoment(name),
          ", which is not sharded; save a full state (FullStateDict, FullOptimizerState)"));
    }
    all[absl::StrCat(kKindPrefix, name.substr(name.rfind('.') + 1))] = int64_t{1};
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
