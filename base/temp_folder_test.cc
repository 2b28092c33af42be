// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/temp_folder.h"

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TEST(NewFolderTest, IsEmptyAndUnderTheFolderOfTheTest) {
  const fs::path folder = NewFolder();
  EXPECT_TRUE(fs::is_directory(folder));
  EXPECT_TRUE(fs::is_empty(folder));
  EXPECT_EQ(folder.parent_path(), fs::path(std::getenv("TEST_TMPDIR")).lexically_normal());
  EXPECT_EQ(folder, folder.lexically_normal());
}

TEST(NewFolderTest, EachCallOfEachThreadHasItsOwn) {
  constexpr size_t kThreads = 4, kCalls = 50;
  std::vector<std::vector<std::string>> made(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&made, i] {
      for (size_t call = 0; call < kCalls; ++call) made[i].push_back(NewFolder());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> all;
  for (const std::vector<std::string>& own : made) all.insert(own.begin(), own.end());
  EXPECT_EQ(all.size(), kThreads * kCalls);
}

TEST(NewFolderTest, SaysWhereNoneCanBeMade) {
  const std::string before = std::getenv("TEST_TMPDIR");
  setenv("TEST_TMPDIR", "/none/such", 1);
  const Error error = ErrorOf([] { NewFolder(); });
  setenv("TEST_TMPDIR", before.c_str(), 1);
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(error.message(), "'/none/such")) << error.message();
}

}  // namespace
}  // namespace lockstep
