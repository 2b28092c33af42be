// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/process_group.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

TEST(InitProcessGroupTest, RefusesBadOptions) {
  const auto refused = [](ProcessGroupOptions options, const std::string& part) {
    try {
      InitProcessGroup(options);
    } catch (const Error& error) {
      return absl::StrContains(error.message(), part) ? std::string() : error.message();
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(refused({.rank = 2, .world_size = 2}, "rank 2 is not in [0, 2)"), "");
  EXPECT_EQ(refused({.world_size = 2, .local_rank = 1, .local_world_size = 1}, "local rank 1"), "");
  EXPECT_EQ(refused({.world_size = 2}, "need a store"), "");
  EXPECT_EQ(refused({.rendezvous = "tcp://h:1"}, "file:///absolute/folder"), "");
  EXPECT_EQ(refused({.rendezvous = "file://"}, "file:///absolute/folder"), "");
  EXPECT_EQ(refused({.token = "t", .rendezvous = "file:///f"}, "one way to meet"), "");
  EXPECT_EQ(refused({.master_address = "h", .rendezvous = "file:///f"}, "one way to meet"), "");
  EXPECT_EQ(refused({.timeout = absl::ZeroDuration()}, "timeout"), "");
  EXPECT_EQ(refused({.group_name = ""}, "name"), "");
  EXPECT_EQ(refused({.backend = "smoke"}, "add //comm/smoke to its deps"), "");
}

TEST(RegisterBackendTest, OneOfAName) {
  RegisterBackend("test", [](const ProcessGroupOptions&) { return nullptr; });
  EXPECT_EQ(InitProcessGroup({.backend = "test"}), nullptr);
  EXPECT_THROW(RegisterBackend("test", nullptr), Error);
}

TEST(ThreadsPerRankTest, IsAtLeastOne) {
  EXPECT_GE(ThreadsPerRank(1), 1);
  EXPECT_EQ(ThreadsPerRank(100000), 1);
}

}  // namespace
}  // namespace lockstep::comm
