// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/sharded_manifest.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/state/file_io.h"
#include "lockstep/state/state_format.h"
#include "nlohmann/json.hpp"

namespace lockstep::state {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "lockstep sharded state 1";
constexpr char kRankFormat[] = "lockstep sharded state 1, part of a rank";
constexpr char kChecksum[] = "xxh64";

Json RangesToJson(const std::vector<std::optional<ShardRange>>& ranges) {
  Json json = Json::array();
  for (const auto& range : ranges) {
    json.push_back(range.has_value() ? Json{range->begin, range->end} : Json());
  }
  return json;
}

Json ToJson(const char* format, const ShardedManifest& manifest) {
  Json json;
  json["format"] = format;
  json["step"] = manifest.step;
  json["world_size"] = manifest.world_size();
  json["values"] = ValuesToJson("SaveShardedState", manifest.values);
  json["files"] = Json::array();
  for (const ShardedManifest::File& file : manifest.files) {
    json["files"].push_back({{"bytes", file.bytes}, {kChecksum, file.checksum}});
  }
  json["tensors"] = Json::object();
  for (const ShardedManifest::Tensor& tensor : manifest.tensors) {
    Json& entry = json["tensors"][tensor.name];
    entry["dtype"] = DTypeName(tensor.dtype);
    entry["shape"] = std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end());
    entry["ranges"] = RangesToJson(tensor.ranges);
  }
  return json;
}

// Of everything but the checksum, which is the last entry.
std::string ChecksumOf(const Json& json) { return TextChecksum(json.dump()); }

std::string Format(const char* format, const ShardedManifest& manifest) {
  Json json = ToJson(format, manifest);
  json[kChecksum] = ChecksumOf(json);
  return json.dump(1) + "\n";
}

std::vector<std::optional<ShardRange>> RangesFromJson(const Json& json) {
  std::vector<std::optional<ShardRange>> ranges;
  for (const Json& range : json) {
    if (range.is_null()) {
      ranges.emplace_back();
    } else {
      ranges.push_back(ShardRange{range.at(0).get<int64_t>(), range.at(1).get<int64_t>()});
    }
  }
  return ranges;
}

ShardedManifest FromJson(const Json& json) {
  ShardedManifest manifest;
  manifest.step = json.at("step").get<int64_t>();
  manifest.values = ValuesFromJson(json.at("values"));
  for (const Json& file : json.at("files")) {
    manifest.files.push_back(
        {file.at("bytes").get<int64_t>(), file.at(kChecksum).get<std::string>()});
  }
  for (const auto& [name, entry] : json.at("tensors").items()) {
    const auto shape = entry.at("shape").get<std::vector<int64_t>>();
    manifest.tensors.push_back({name, ParseDType(entry.at("dtype").get<std::string>()),
                                Shape(shape.begin(), shape.end()),
                                RangesFromJson(entry.at("ranges"))});
  }
  if (json.at("world_size").get<int64_t>() != manifest.world_size()) {
    throw DataLossError(
        absl::StrCat("world_size is not the number of files, ", manifest.world_size()));
  }
  return manifest;
}

// The checksum finds damage; the rest is for what some other program has written.
ShardedManifest Parse(const char* format, absl::string_view text) {
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  CheckFormat(json, format);
  const Json checksum = json.value(kChecksum, Json());
  json.erase(kChecksum);
  if (checksum != ChecksumOf(json)) {
    throw DataLossError(
        "damaged: its contents do not have its checksum; go on from an earlier state");
  }
  try {
    return FromJson(json);
  } catch (const nlohmann::json::exception& error) {
    throw DataLossError(absl::StrCat("incomplete: ", error.what()));
  } catch (const Error& error) {
    throw DataLossError(error.message());
  }
}

std::string RangeText(const ShardRange& range) {
  return absl::StrCat("[", range.begin, ", ", range.end, ")");
}

std::string CheckTensor(const ShardedManifest::Tensor& tensor, size_t ranks) {
  const std::string text =
      absl::StrCat("'", tensor.name, "', ", DTypeName(tensor.dtype), ToString(tensor.shape));
  if (tensor.ranges.size() != ranks) {
    return absl::StrCat(text, " has ranges of ", tensor.ranges.size(), " ranks and not of ", ranks);
  }
  int64_t numel = 1;
  for (const int64_t size : tensor.shape) {
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel)) {
      return absl::StrCat(text, " has an impossible shape");
    }
  }
  std::vector<ShardRange> ranges;
  for (const auto& range : tensor.ranges) {
    if (!range.has_value()) continue;
    if (range->begin < 0 || range->begin > range->end || range->end > numel) {
      return absl::StrCat(text, " has the range ", RangeText(*range), " and ", numel, " elements");
    }
    if (range->begin < range->end) ranges.push_back(*range);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const ShardRange& a, const ShardRange& b) { return a.begin < b.begin; });
  int64_t covered = 0;
  ranges.push_back({numel, numel});
  for (const ShardRange& range : ranges) {
    if (range.begin > covered) {
      return absl::StrCat("no rank has the elements ", RangeText({covered, range.begin}), " of ",
                          text);
    }
    covered = std::max(covered, range.end);
  }
  return "";
}

}  // namespace

std::string FormatManifest(const ShardedManifest& manifest) { return Format(kFormat, manifest); }
std::string FormatRankManifest(const ShardedManifest& manifest) {
  return Format(kRankFormat, manifest);
}

ShardedManifest ParseManifest(absl::string_view text) {
  ShardedManifest manifest = Parse(kFormat, text);
  const std::string wrong = CheckManifest(manifest);
  if (!wrong.empty()) throw DataLossError(wrong);
  return manifest;
}

ShardedManifest ParseRankManifest(absl::string_view text) {
  ShardedManifest manifest = Parse(kRankFormat, text);
  if (manifest.world_size() != 1) throw DataLossError("not that of one rank");
  return manifest;
}

std::string CheckManifest(const ShardedManifest& manifest) {
  if (manifest.files.empty()) return "there are no files";
  absl::flat_hash_set<std::string> names;
  for (const ShardedManifest::Tensor& tensor : manifest.tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::StrCat("'", tensor.name, "' is there twice");
    }
    const std::string wrong = CheckTensor(tensor, manifest.files.size());
    if (!wrong.empty()) return wrong;
  }
  return "";
}

ShardedManifest MergeManifests(const std::vector<ShardedManifest>& ranks) {
  ShardedManifest merged;
  absl::flat_hash_map<std::string, size_t> index;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    merged.files.push_back(ranks[rank].files.at(0));
    for (const ShardedManifest::Tensor& part : ranks[rank].tensors) {
      const auto [found, is_new] = index.try_emplace(part.name, merged.tensors.size());
      if (is_new) {
        merged.tensors.push_back({part.name, part.dtype, part.shape, {}});
        merged.tensors.back().ranges.resize(ranks.size());
      }
      ShardedManifest::Tensor& tensor = merged.tensors[found->second];
      if (tensor.dtype != part.dtype || tensor.shape != part.shape) {
        throw InvalidArgumentError(absl::StrCat(
            "SaveShardedState: '", part.name, "' is ", DTypeName(part.dtype), ToString(part.shape),
            " on rank ", rank, " and ", DTypeName(tensor.dtype), ToString(tensor.shape),
            " on a rank before it; give the dtype and shape of the whole tensor"));
      }
      tensor.ranges[rank] = part.ranges.at(0);
    }
  }
  const std::string wrong = CheckManifest(merged);
  if (!wrong.empty()) throw InvalidArgumentError(absl::StrCat("SaveShardedState: ", wrong));
  return merged;
}

}  // namespace lockstep::state
