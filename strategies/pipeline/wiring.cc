// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/wiring.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"

namespace lockstep::pipeline {
namespace {

std::string ToText(const std::vector<StageEdge>& edges) {
  return absl::StrJoin(edges, ",", [](std::string* out, const StageEdge& edge) {
    absl::StrAppend(out, edge.from, ">", edge.to);
  });
}

}  // namespace

std::vector<StageEdge> EdgesOf(const Wiring& wiring) {
  std::set<std::pair<int, int>> edges;
  for (size_t to = 0; to < wiring.size(); ++to) {
    for (const InputSource& source : wiring[to]) {
      if (source.stage != kBatch) edges.emplace(source.stage, static_cast<int>(to));
    }
  }
  std::vector<StageEdge> result;
  for (const auto& [from, to] : edges) result.push_back({from, to});
  return result;
}

std::vector<int> OutputsOnEdge(const Wiring& wiring, const StageEdge& edge) {
  std::vector<int> outputs;
  for (const InputSource& source : wiring[static_cast<size_t>(edge.to)]) {
    if (source.stage != edge.from) continue;
    if (std::find(outputs.begin(), outputs.end(), source.index) == outputs.end()) {
      outputs.push_back(source.index);
    }
  }
  return outputs;
}

void CheckWiring(const Wiring& wiring, const std::vector<StageEdge>& edges, int stages) {
  if (static_cast<int>(wiring.size()) != stages) {
    throw InvalidArgumentError(absl::StrCat("pipeline: the wiring has inputs of ", wiring.size(),
                                            " stages and the schedule has ", stages, " stages"));
  }
  for (int to = 0; to < stages; ++to) {
    for (const InputSource& source : wiring[static_cast<size_t>(to)]) {
      if (source.stage >= kBatch && source.stage < to && source.index >= 0) continue;
      throw InvalidArgumentError(absl::StrCat(
          "pipeline: the wiring gives stage ", to, " output ", source.index, " of stage ",
          source.stage, "; a source is kBatch or an earlier stage, and an index not negative"));
    }
  }
  if (const std::vector<StageEdge> own = EdgesOf(wiring); own != edges) {
    throw InvalidArgumentError(absl::StrCat("pipeline: the wiring has the edges ", ToText(own),
                                            " and the schedule ", ToText(edges),
                                            "; set schedule.edges = EdgesOf(wiring)"));
  }
}

}  // namespace lockstep::pipeline
