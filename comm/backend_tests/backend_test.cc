// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/backend_tests/backend_test.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lockstep::comm {

bool BackendTest::IsShm() const { return !absl::StrContains(GetParam(), "backend="); }

std::vector<SpawnMode> BackendTest::Modes() const {
  if (absl::StrContains(GetParam(), "in=threads")) return {SpawnMode::kThreads};
  if (absl::StrContains(GetParam(), "in=processes")) return {SpawnMode::kProcesses};
  return AllModes();
}

SpawnResult BackendTest::Spawn(int n, RankFunction function, SpawnOptions options) const {
  if (!IsShm() && absl::StrContains(options.argument, "staged")) return {};
  options.argument = absl::StrCat(GetParam(), " ", options.argument);
  return comm::Spawn(n, function, options);
}

SpawnResult BackendTest::SpawnThreads(int n, const std::function<void(RankContext&)>& function,
                                      SpawnOptions options) const {
  if (!IsShm() && absl::StrContains(options.argument, "staged")) return {};
  options.argument = absl::StrCat(GetParam(), " ", options.argument);
  return comm::SpawnThreads(n, function, options);
}

std::string VariantName(const testing::TestParamInfo<std::string>& info) {
  if (info.param.empty()) return "Shm";
  std::string name;
  for (const char c : info.param)
    name += absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

}  // namespace lockstep::comm
