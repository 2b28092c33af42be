// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The example of performance.md.
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/profile/machine_limits.h"
#include "lockstep/profile/profiler.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {
namespace {

void Step() { Exp(Ones({3, 5})); }

TEST(PerformanceExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/performance.md", "docs/performance_example_test.cc");
}

TEST(PerformanceExample, Profiles) {
  const std::string folder = testing::TempDir();
  auto profiler = std::make_shared<profile::Profiler>();
  {
    profile::ProfileScope scope(profiler);
    profile::Range range("step");
    Step();
  }
  std::cout << profiler->Table(profile::MeasureMachineLimits());
  profiler->WriteTrace(folder + "/step.json");
  EXPECT_TRUE(std::ifstream(folder + "/step.json").good());
}

}  // namespace
}  // namespace lockstep
