// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/caller_path.h"

#include <cstdlib>
#include <filesystem>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(CallerPathTest, IsTheFolderOfBazelRunElseTheCurrentOne) {
  setenv("BUILD_WORKING_DIRECTORY", "/home/user/work", 1);
  EXPECT_EQ(CallerPath("a/b.txt"), "/home/user/work/a/b.txt");
  EXPECT_EQ(CallerPath("../b.txt"), "/home/user/b.txt");
  EXPECT_EQ(CallerPath("/tmp/b.txt"), "/tmp/b.txt");
  EXPECT_EQ(CallerPath(""), "");
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(CallerPath("b.txt"), (std::filesystem::current_path() / "b.txt").string());
}

}  // namespace
}  // namespace lockstep
