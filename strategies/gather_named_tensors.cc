// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/gather_named_tensors.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/byte_strings.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

struct Entry {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
};

// A line a tensor: name (escaped), dtype and sizes between tabs.
std::string Describe(const NamedTensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    absl::StrAppend(&text, absl::CEscape(name), "\t", DTypeName(tensor.dtype()), "\t",
                    absl::StrJoin(tensor.shape(), ","), "\n");
  }
  return text;
}

std::vector<Entry> ParseEntries(const std::string& text) {
  std::vector<Entry> entries;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    Entry entry{"", ParseDType(fields.at(1)), {}};
    if (!absl::CUnescape(fields.at(0), &entry.name)) {
      throw InternalError(absl::StrCat("GatherNamedTensors: no tensor is \"", line, "\""));
    }
    for (const absl::string_view size : absl::StrSplit(fields.at(2), ',', absl::SkipEmpty())) {
      int64_t value = 0;
      if (!absl::SimpleAtoi(size, &value)) {
        throw InternalError(absl::StrCat("GatherNamedTensors: no tensor is \"", line, "\""));
      }
      entry.shape.push_back(value);
    }
    entries.push_back(entry);
  }
  return entries;
}

void CheckDistinct(const std::vector<std::vector<Entry>>& entries) {
  std::map<std::string, size_t> owners;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    for (const Entry& entry : entries[rank]) {
      const auto [owner, is_new] = owners.emplace(entry.name, rank);
      if (is_new) continue;
      throw AlreadyExistsError(absl::StrCat("GatherNamedTensors: ranks ", owner->second, " and ",
                                            rank, " both have \"", entry.name,
                                            "\"; leave it out on one of them"));
    }
  }
}

}  // namespace

NamedTensors GatherNamedTensors(const NamedTensors& own, comm::Communicator& group, int root) {
  std::vector<std::vector<Entry>> entries;
  for (const std::string& text : comm::AllGatherBytes(group, Describe(own))) {
    entries.push_back(ParseEntries(text));
  }
  CheckDistinct(entries);
  if (group.rank() != root) {
    for (const auto& [name, tensor] : own) group.Send(tensor, root).Wait();
    return {};
  }
  NamedTensors all;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == root) {
      all.InsertAll(own);
      continue;
    }
    for (const Entry& entry : entries[static_cast<size_t>(rank)]) {
      const Tensor tensor = Empty(entry.shape, {.dtype = entry.dtype});
      group.Recv(tensor, rank).Wait();
      all.Insert(entry.name, tensor);
    }
  }
  return all;
}

}  // namespace lockstep::strategies
