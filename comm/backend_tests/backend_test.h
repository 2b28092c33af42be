// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests that every backend passes. Each file of this package is a test program without its list of
// backends; a backend's package adds that, as a file that defines BackendVariants(), and so makes a
// test target of it:
//
//   lockstep_test(
//       name = "collectives_test",
//       srcs = ["backend_variants.cc"],
//       deps = [":shm", "//comm/backend_tests:backend_test", "//comm/backend_tests:collectives"],
//
// A variant is a list of words for MakeTestGroup (comm/rank_checks.h): "backend=gloo hosts=own".
#ifndef LOCKSTEP_COMM_BACKEND_TESTS_BACKEND_TEST_H_
#define LOCKSTEP_COMM_BACKEND_TESTS_BACKEND_TEST_H_

#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/spawn.h"

namespace lockstep::comm {

// What the linked backend is tested as. Not empty.
std::vector<std::string> BackendVariants();

class BackendTest : public testing::TestWithParam<std::string> {
 protected:
  // As comm::Spawn, with the variant's words in front of the argument. Where the variant has no use
  // for an argument that chooses how memory is reached ("staged"), nothing is run.
  SpawnResult Spawn(int n, RankFunction function, SpawnOptions options = {}) const;
  SpawnResult SpawnThreads(int n, const std::function<void(RankContext&)>& function,
                           SpawnOptions options = {}) const;

  bool IsShm() const;

  static std::vector<SpawnMode> AllModes() { return {SpawnMode::kThreads, SpawnMode::kProcesses}; }
  // All, or the one that a variant names ("in=threads", "in=processes"): for tests that take their
  // time, where a backend's ways do not differ by the mode.
  std::vector<SpawnMode> Modes() const;
};

// "Shm", "GlooOwn", for the names of tests.
std::string VariantName(const testing::TestParamInfo<std::string>& info);

// Declares a suite over all variants.
#define LOCKSTEP_BACKEND_SUITE(Suite)  \
  class Suite : public BackendTest {}; \
  INSTANTIATE_TEST_SUITE_P(Variants, Suite, testing::ValuesIn(BackendVariants()), VariantName)

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_BACKEND_TESTS_BACKEND_TEST_H_
