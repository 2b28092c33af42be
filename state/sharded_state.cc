// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/sharded_state.h"

#include <exception>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/error.h"
#include "lockstep/state/file_io.h"
#include "lockstep/state/safetensors_reader.h"
#include "lockstep/state/safetensors_writer.h"
#include "lockstep/state/state_folder.h"

namespace lockstep::state {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaximumManifestBytes = 256 << 20;

// Runs this rank's `work` and waits for the others, whatever becomes of it.
template <typename Work>
void Together(const ShardingRank& rank, absl::string_view what, const Work& work) {
  std::optional<Error> failure;
  try {
    work();
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = InternalError(absl::StrCat(what, ": ", error.what()));
  }
  const bool all_good = rank.agree == nullptr ? !failure.has_value() : rank.agree(!failure);
  if (failure.has_value()) throw Error(*failure);
  if (!all_good) {
    throw AbortedError(
        absl::StrCat(what, ": another rank failed, and says why; rank ", rank.rank, " did not"));
  }
}

void CheckRank(absl::string_view call, const ShardingRank& rank) {
  if (rank.world_size < 1 || rank.rank < 0 || rank.rank >= rank.world_size) {
    throw InvalidArgumentError(absl::StrCat(call, ": rank ", rank.rank, " of ", rank.world_size));
  }
  if (rank.world_size > 1 && rank.agree == nullptr) {
    throw InvalidArgumentError(absl::StrCat(
        call, ": no `agree` for ", rank.world_size,
        " ranks; give a function that returns whether all of them called it with true"));
  }
}

void CheckShards(absl::Span<const Shard> shards) {
  absl::flat_hash_set<std::string> names;
  for (const Shard& shard : shards) {
    const auto refuse = [&](absl::string_view why) {
      throw InvalidArgumentError(absl::StrCat("SaveShardedState: '", shard.name, "': ", why));
    };
    if (!names.insert(shard.name).second) refuse("given twice; a rank has one piece of a tensor");
    if (!shard.tensor.defined()) refuse("the piece is undefined");
    const int64_t numel = NumElements(shard.full_shape, "SaveShardedState");
    if (shard.begin < 0 || shard.begin > shard.end || shard.end > numel ||
        shard.end - shard.begin != shard.tensor.numel()) {
      refuse(absl::StrCat("the piece is ", shard.tensor.DebugString(), " for the elements [",
                          shard.begin, ", ", shard.end, ") of shape ", ToString(shard.full_shape)));
    }
  }
}

std::string FilePath(const std::string& folder, int rank) {
  return absl::StrCat(folder, "/", RankFileName(rank));
}
// Where a rank tells rank 0 what it has written; gone before the state appears.
std::string RankManifestPath(const std::string& folder, int rank) {
  return absl::StrFormat("%s/rank-%05d.json", folder, rank);
}

void WritePart(const std::string& folder, int64_t step, absl::Span<const Shard> shards, int rank) {
  const std::string path = FilePath(folder, rank);
  std::vector<TensorDescription> descriptions;
  ShardedManifest manifest;
  for (const Shard& shard : shards) {
    descriptions.push_back({shard.name, shard.tensor.dtype(), {shard.end - shard.begin}});
    manifest.tensors.push_back(
        {shard.name, shard.tensor.dtype(), shard.full_shape, {ShardRange{shard.begin, shard.end}}});
  }
  SafetensorsWriter writer(path, std::move(descriptions), {{"lockstep.step", absl::StrCat(step)}});
  for (const Shard& shard : shards) writer.AppendElements(shard.name, shard.tensor);
  writer.Finish();
  manifest.files.push_back({static_cast<int64_t>(fs::file_size(path)), FileChecksum(path)});
  WriteFile(RankManifestPath(folder, rank), FormatRankManifest(manifest));
}

ShardedManifest CollectParts(const std::string& folder, int world_size) {
  std::vector<ShardedManifest> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    const std::string path = RankManifestPath(folder, rank);
    if (!fs::exists(path)) {
      throw FailedPreconditionError(
          absl::StrCat("SaveShardedState: rank 0 does not see '", path, "', which rank ", rank,
                       " has written; all ranks write into one file system"));
    }
    ranks.push_back(ParseRankManifest(ReadFile(path, kMaximumManifestBytes)));
  }
  ShardedManifest manifest = MergeManifests(ranks);
  for (int rank = 0; rank < world_size; ++rank) fs::remove(RankManifestPath(folder, rank));
  return manifest;
}

// The file of every rank, as far as that can be told without reading it.
void CheckFiles(const std::string& path, const ShardedManifest& manifest) {
  for (int rank = 0; rank < manifest.world_size(); ++rank) {
    const std::string file = FilePath(path, rank);
    std::error_code failure;
    const auto bytes = fs::file_size(file, failure);
    if (failure) throw DataLossError(absl::StrCat("'", file, "' is missing"));
    const int64_t expected = manifest.files[static_cast<size_t>(rank)].bytes;
    if (static_cast<int64_t>(bytes) != expected) {
      throw DataLossError(absl::StrCat("'", file, "' has ", bytes, " bytes and not the ", expected,
                                       " of ", kManifestFileName,
                                       ": it is damaged, or belongs to another step"));
    }
  }
}

void ReadPart(const std::string& path, const ShardedManifest& manifest, int rank,
              std::vector<Shard>& shards) {
  const std::string file = FilePath(path, rank);
  VerifyFile(file, manifest.files[static_cast<size_t>(rank)].checksum, kManifestFileName);
  const SafetensorsReader reader(file);
  for (const ShardedManifest::Tensor& tensor : manifest.tensors) {
    const std::optional<ShardRange>& range = tensor.ranges[static_cast<size_t>(rank)];
    if (!range.has_value()) continue;
    const SafetensorsHeader::Entry* const entry =
        reader.Contains(tensor.name) ? &reader.At(tensor.name) : nullptr;
    if (entry == nullptr || entry->dtype != tensor.dtype ||
        entry->shape != Shape{range->end - range->begin}) {
      throw DataLossError(absl::StrCat("'", file, "' does not have the elements [", range->begin,
                                       ", ", range->end, ") of '", tensor.name, "' that ",
                                       kManifestFileName, " says"));
    }
    shards.push_back(
        {tensor.name, tensor.shape, range->begin, range->end, reader.Load(tensor.name)});
  }
}

}  // namespace

std::string SaveShardedState(const std::string& root, int64_t step, absl::Span<const Shard> shards,
                             const Values& values, const ShardingRank& rank,
                             const SaveOptions& options) {
  constexpr char kCall[] = "SaveShardedState";
  CheckRank(kCall, rank);
  const bool first = rank.rank == 0;
  // The same name on every rank.
  const std::string temporary = absl::StrFormat("%s/.saving-step-%08d", root, step);
  std::optional<TemporaryFolder> folder;
  const std::string target = StepFolder(root, step);
  Together(rank, kCall, [&] {
    CheckSave(kCall, step, options);
    CheckShards(shards);
    if (!first) return;
    // What cannot be written is refused before anything is.
    FormatManifest({.step = step, .values = values, .files = {}, .tensors = {}});
    folder.emplace(kCall, MakeEmptyFolder(kCall, temporary));
  });
  Together(rank, kCall, [&] { WritePart(temporary, step, shards, rank.rank); });
  Together(rank, kCall, [&] {
    if (!first) return;
    ShardedManifest manifest = CollectParts(temporary, rank.world_size);
    manifest.step = step;
    manifest.values = values;
    WriteFile(absl::StrCat(temporary, "/", kManifestFileName), FormatManifest(manifest));
    folder->Publish(target);
    KeepNewest(root, target, options.keep);
  });
  return target;
}

ShardedManifest ReadShardedManifest(const std::string& path) {
  const std::string text =
      ReadIndexFile(path, kManifestFileName, "sharded state", kMaximumManifestBytes);
  try {
    return ParseManifest(text);
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat("'", path, "/", kManifestFileName, "'"));
  }
}

ShardedManifest VerifyShardedState(const std::string& path) {
  ShardedManifest manifest = ReadShardedManifest(path);
  CheckFiles(path, manifest);
  for (int rank = 0; rank < manifest.world_size(); ++rank) {
    VerifyFile(FilePath(path, rank), manifest.files[static_cast<size_t>(rank)].checksum,
               kManifestFileName);
  }
  return manifest;
}

ShardedState LoadShardedState(const std::string& path, const ShardingRank& rank) {
  constexpr char kCall[] = "LoadShardedState";
  CheckRank(kCall, rank);
  ShardedState state;
  Together(rank, kCall, [&] {
    ShardedManifest manifest = ReadShardedManifest(path);
    if (manifest.world_size() != rank.world_size) {
      throw InvalidArgumentError(absl::StrCat(
          kCall, ": '", path, "' was saved by ", manifest.world_size(), " ranks and this run has ",
          rank.world_size, "; resume it on ", manifest.world_size(),
          " ranks, or save a whole state there (SafetensorsWriter) and load that"));
    }
    CheckFiles(path, manifest);
    ReadPart(path, manifest, rank.rank, state.shards);
    state.step = manifest.step;
    state.values = std::move(manifest.values);
  });
  return state;
}

LoadedShardedState LoadLatestShardedState(const std::string& root, const ShardingRank& rank) {
  LoadedShardedState loaded;
  const auto load = [&](const std::string& path) { loaded.state = LoadShardedState(path, rank); };
  loaded.path = LoadNewest(root, "sharded state", load, loaded.skipped);
  return loaded;
}

}  // namespace lockstep::state
