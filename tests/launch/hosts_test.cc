// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Launchers on several hosts, whose links are cut.

#include <gtest/gtest.h>
#include <signal.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/comm/test_hosts.h"
#include "lockstep/tests/launch/test_process.h"

namespace lockstep::launch_test {
namespace {

namespace fs = std::filesystem;

using comm::Hosts;

class HostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = Hosts::WhyNot(); !reason.empty()) GTEST_SKIP() << reason;
    std::ofstream(folder_ / "token") << "a token for tests";
    fs::permissions(folder_ / "token", fs::perms::owner_read | fs::perms::owner_write);
  }

  // Launchers on all hosts, two ranks each, that run `command`.
  std::vector<std::unique_ptr<TestProcess>> Launch(const Hosts& hosts, int count,
                                                   const std::vector<std::string>& flags,
                                                   const std::vector<std::string>& command) {
    std::vector<std::unique_ptr<TestProcess>> launchers;
    for (int host = 0; host < count; ++host) {
      std::vector<std::string> words = {ProgramPath("tools/launch"),
                                        "--nproc=2",
                                        absl::StrCat("--nnodes=", count),
                                        absl::StrCat("--node_rank=", host),
                                        "--rendezvous=" + hosts.Address(0) + ":29400",
                                        "--token_file=token"};
      words.insert(words.end(), flags.begin(), flags.end());
      words.insert(words.end(), command.begin(), command.end());
      launchers.push_back(
          std::make_unique<TestProcess>("/bin/sh", hosts.Run(host, words), folder_));
    }
    return launchers;
  }

  TestFolder folder_;
};

TEST_F(HostsTest, EachHasItsOwnNetwork) {
  const Hosts hosts(3);
  for (const int host : {0, 1, 2}) {
    TestProcess process("/bin/sh", hosts.Run(host, {"/bin/sh", "-c", "/usr/sbin/ip -4 -o address"}),
                        folder_);
    EXPECT_EQ(process.Wait(), 0) << process.err();
    for (const int other : {0, 1, 2}) {
      EXPECT_EQ(Contains(process.out(), hosts.Address(other) + "/24"), other == host)
          << process.out();
    }
  }
}

TEST_F(HostsTest, RanksOfTwoAndThreeHostsMeetInTheStore) {
  for (const int count : {2, 3}) {
    const Hosts hosts(count);
    const auto launchers =
        Launch(hosts, count, {}, {ProgramPath("tests/launch/store_rank"), "200"});
    for (int host = 0; host < count; ++host) {
      TestProcess& launcher = *launchers[static_cast<size_t>(host)];
      EXPECT_EQ(launcher.Wait(), 0) << launcher.err();
      for (const int rank : {2 * host, 2 * host + 1}) {
        EXPECT_TRUE(Contains(launcher.out(), absl::StrCat("[", rank, "] step 200\n")))
            << launcher.out();
      }
    }
    EXPECT_TRUE(folder_.NoneLeft());
  }
}

TEST_F(HostsTest, ACutLinkIsNamedAndTheRestartFinishesWhenItIsBack) {
  Hosts hosts(2);
  const auto launchers = Launch(hosts, 2, {"--max_restarts=3", "--node_timeout=20s"},
                                {ProgramPath("tests/launch/store_rank"), "1000000000"});
  for (const auto& launcher : launchers) {
    ASSERT_TRUE(launcher->WaitForOut("step 10\n")) << launcher->err();
  }
  hosts.CutLink(1);
  // The ranks say what they waited for.
  for (const int host : {0, 1}) {
    const TestProcess& launcher = *launchers[static_cast<size_t>(host)];
    ASSERT_TRUE(launcher.WaitForErr("store_rank: DEADLINE_EXCEEDED: ")) << launcher.err();
  }
  hosts.RestoreLink(1);
  for (const int host : {0, 1}) {
    TestProcess& launcher = *launchers[static_cast<size_t>(host)];
    EXPECT_EQ(launcher.Wait(), 0) << launcher.err();
    EXPECT_TRUE(Contains(launcher.out(), absl::StrCat("[", 2 * host, "] step 20\n")))
        << launcher.out();
    EXPECT_TRUE(Contains(launcher.err(), "starting all ranks again: attempt 1")) << launcher.err();
  }
  EXPECT_TRUE(folder_.NoneLeft());
}

// Promised: 15 s, of the ten minutes that the call would wait (docs/comm.md).
TEST_F(HostsTest, AStoresHostThatIsGoneIsNoticedUnderALongGet) {
  Hosts hosts(2);
  const std::string program = ProgramPath("tests/launch/store_wait");
  const TestProcess server("/bin/sh", hosts.Run(0, {program, "serve", hosts.Address(0), "29400"}),
                           folder_);
  ASSERT_TRUE(server.WaitForOut("serving\n")) << server.err();
  TestProcess client("/bin/sh", hosts.Run(1, {program, "get", hosts.Address(0), "29400"}), folder_);
  ASSERT_TRUE(client.WaitForOut("waiting\n")) << client.err();
  hosts.CutLink(1);
  ASSERT_EQ(client.Wait(), 0) << client.err();
  EXPECT_TRUE(Contains(client.out(), "UNAVAILABLE: ")) << client.out();
  EXPECT_TRUE(Contains(client.out(), "Get of key never: ")) << client.out();
  EXPECT_TRUE(Contains(client.out(), "or its host does not answer")) << client.out();
  const std::vector<std::string> seconds = LinesWith(client.out(), "seconds: ");
  ASSERT_EQ(seconds.size(), 1u) << client.out();
  std::printf("the host's silence was noticed after %s s (promised: 15 s)\n", seconds[0].c_str());
}

TEST_F(HostsTest, AHostThatStaysAwayIsGivenUp) {
  Hosts hosts(2);
  const auto launchers =
      Launch(hosts, 2, {"--max_restarts=3", "--node_timeout=2s", "--join_timeout=4s"},
             {"/bin/sleep", "600"});
  ASSERT_TRUE(WaitUntil([&] { return folder_.Processes("/bin/sleep 600").size() >= 8; }));
  hosts.CutLink(1);
  EXPECT_EQ(launchers[0]->Wait(), 1);
  EXPECT_EQ(launchers[1]->Wait(), 1);
  EXPECT_TRUE(Contains(launchers[0]->err(), "node 1 has given no sign of life for 2s"))
      << launchers[0]->err();
  EXPECT_TRUE(Contains(launchers[0]->err(), "node 1 did not come")) << launchers[0]->err();
  EXPECT_TRUE(Contains(launchers[1]->err(),
                       "node 0's launcher (store at 10.83.0.1:29400) has given "
                       "no sign of life for 2s"))
      << launchers[1]->err();
  EXPECT_TRUE(folder_.NoneLeft());
}

}  // namespace
}  // namespace lockstep::launch_test
