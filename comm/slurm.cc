// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/slurm.h"

#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace lockstep::comm {

std::optional<std::string> FirstSlurmHost(absl::string_view hosts) {
  std::string host;
  while (!hosts.empty() && hosts.front() != ',') {
    if (hosts.front() != '[') {
      host += hosts.front();
      hosts.remove_prefix(1);
      continue;
    }
    const size_t end = hosts.find(']');
    if (end == absl::string_view::npos) return std::nullopt;
    const absl::string_view numbers = hosts.substr(1, end - 1);
    const absl::string_view first = numbers.substr(0, numbers.find_first_of("-,"));
    if (first.empty()) return std::nullopt;
    host.append(first.data(), first.size());
    hosts.remove_prefix(end + 1);
  }
  if (host.empty() || host.find(']') != std::string::npos) return std::nullopt;
  return host;
}

std::optional<int> SlurmTasksOnNode(absl::string_view counts, int node) {
  int every = 0;
  if (absl::SimpleAtoi(counts, &every))
    return every >= 1 ? std::optional<int>(every) : std::nullopt;
  for (absl::string_view part : absl::StrSplit(counts, ',')) {
    int repeat = 1;
    const size_t times = part.find("(x");
    if (times != absl::string_view::npos) {
      absl::string_view number = part.substr(times + 2);
      if (!absl::ConsumeSuffix(&number, ")") || !absl::SimpleAtoi(number, &repeat) || repeat < 1) {
        return std::nullopt;
      }
      part = part.substr(0, times);
    }
    int tasks = 0;
    if (!absl::SimpleAtoi(part, &tasks) || tasks < 1) return std::nullopt;
    if (node < repeat) return tasks;
    node -= repeat;
  }
  return std::nullopt;
}

}  // namespace lockstep::comm
