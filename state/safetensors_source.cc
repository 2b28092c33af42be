// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/safetensors_source.h"

#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/state/file_io.h"
#include "nlohmann/json.hpp"

namespace lockstep::state {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaximumIndexBytes = 100 << 20;

// The file of each tensor.
std::map<std::string, std::string> ParseIndex(const std::string& path) {
  if (!fs::exists(path)) throw NotFoundError(absl::StrCat("'", path, "': no such file"));
  const nlohmann::json json = nlohmann::json::parse(ReadFile(path, kMaximumIndexBytes), nullptr,
                                                    /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    throw DataLossError(absl::StrCat("'", path, "' is no index: it has no object \"weight_map\""));
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : json["weight_map"].items()) {
    const bool beside = file.is_string() && !file.get<std::string>().empty() &&
                        fs::path(file.get<std::string>()).filename() == file.get<std::string>();
    if (!beside) {
      throw DataLossError(absl::StrCat("'", path, "': the file of '", name,
                                       "' is not the name of one beside the index: ", file.dump()));
    }
    files[name] = file.get<std::string>();
  }
  return files;
}

}  // namespace

SafetensorsSource::SafetensorsSource(const std::string& path) : path_(path) {
  if (absl::EndsWith(path, kSafetensorsIndexSuffix)) {
    OpenIndex(path);
  } else {
    AddFile(path);
  }
}

void SafetensorsSource::AddFile(const std::string& path) {
  const auto& reader = readers_.emplace_back(std::make_unique<SafetensorsReader>(path));
  for (const SafetensorsHeader::Entry& entry : reader->entries()) {
    if (!reader_of_.emplace(entry.name, reader.get()).second) {
      throw DataLossError(
          absl::StrCat("'", path_, "': '", entry.name, "' is in more than one of its files"));
    }
    descriptions_.push_back({entry.name, entry.dtype, entry.shape});
  }
}

void SafetensorsSource::OpenIndex(const std::string& path) {
  const std::map<std::string, std::string> file_of = ParseIndex(path);
  std::set<std::string> files;
  for (const auto& [name, file] : file_of) files.insert(file);
  const fs::path folder = fs::path(path).parent_path();
  for (const std::string& file : files) {
    AddFile((folder / file).string());
    for (const SafetensorsHeader::Entry& entry : readers_.back()->entries()) {
      const auto found = file_of.find(entry.name);
      if (found != file_of.end() && found->second == file) continue;
      throw DataLossError(absl::StrCat("'", path, "': '", file, "' has '", entry.name,
                                       "', which is not what the index says"));
    }
  }
  for (const auto& [name, file] : file_of) {
    if (reader_of_.contains(name)) continue;
    throw DataLossError(absl::StrCat("'", path, "': '", name, "' is not in '", file, "'"));
  }
}

Tensor SafetensorsSource::LoadRange(absl::string_view name, int64_t begin, int64_t end) const {
  const auto found = reader_of_.find(name);
  if (found == reader_of_.end()) {
    throw NotFoundError(absl::StrCat("'", path_, "' has no tensor '", name, "'; it has ",
                                     descriptions_.size(), " others"));
  }
  return found->second->LoadRange(name, begin, end);
}

}  // namespace lockstep::state
