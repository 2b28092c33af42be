// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Launchers as on several nodes, on one host: they start, fail, restart and end together.
#include <gtest/gtest.h>
#include <signal.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/comm/socket.h"
#include "lockstep/tests/launch/test_process.h"

namespace lockstep::launch_test {
namespace {

namespace fs = std::filesystem;

constexpr char kLaunch[] = "tools/launch";

// A port that was free a moment ago.
int FreePort() { return comm::PortOf(comm::ListenTcp("127.0.0.1", 0).get()); }

class Nodes {
 public:
  // `place`: --rendezvous; empty: a free port of this host.
  Nodes(int count, std::vector<std::string> flags, std::string script, std::string place = "")
      : count_(count), flags_(std::move(flags)), script_(std::move(script)) {
    if (place.empty()) place = absl::StrCat("127.0.0.1:", FreePort());
    std::ofstream(folder_ / "token") << "a token for tests";
    fs::permissions(folder_ / "token", fs::perms::owner_read | fs::perms::owner_write);
    flags_.push_back("--rendezvous=" + place);
    if (!Contains(place, "file:")) flags_.push_back("--token_file=token");
  }

  std::unique_ptr<TestProcess> Start(int node, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {absl::StrCat("--nnodes=", count_),
                                          absl::StrCat("--node_rank=", node)};
    arguments.insert(arguments.end(), flags_.begin(), flags_.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {"sh", "-c", script_});
    return std::make_unique<TestProcess>(kLaunch, arguments, folder_);
  }

  const TestFolder& folder() const { return folder_; }
  void Touch(const std::string& name) const { std::ofstream(folder_ / name) << ""; }
  bool Await(const std::string& name) const {
    return WaitUntil([&] { return fs::exists(folder_ / name); });
  }

 private:
  TestFolder folder_;
  const int count_;
  std::vector<std::string> flags_;
  const std::string script_;
};

// Ends when every rank of an attempt has come; waits without using the processors.
constexpr char kMeet[] =
    "echo > here-$LOCKSTEP_RESTART_COUNT-$RANK; "
    "meet() { for r in $(seq 0 $((WORLD_SIZE - 1))); do "
    "while [ ! -e here-$LOCKSTEP_RESTART_COUNT-$r ]; do sleep 0.02; done; done; }; meet; ";

TEST(LaunchNodesTest, NodesOfDifferentSizesAreOneJob) {
  for (const bool in_folder : {false, true}) {
    const TestFolder meeting;
    Nodes nodes(
        3, {},
        "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "
        "$LOCKSTEP_RUN_ID $LOCKSTEP_STORE$LOCKSTEP_RENDEZVOUS",
        in_folder ? "file://" + (meeting / "job") : "");
    // Node 0 comes last.
    auto last = nodes.Start(2, {"--nproc=1"});
    auto middle = nodes.Start(1, {"--nproc=3"});
    auto first = nodes.Start(0, {"--nproc=2"});
    EXPECT_EQ(first->Wait(), 0) << first->err();
    EXPECT_EQ(middle->Wait(), 0) << middle->err();
    EXPECT_EQ(last->Wait(), 0) << last->err();
    const std::vector<std::string> zero = LinesWith(first->out(), "[0] 0/6 0/2 0/3 ");
    ASSERT_EQ(zero.size(), 1u) << first->out();
    EXPECT_EQ(LinesWith(first->out(), "[1] 1/6 1/2 0/3 "), zero) << "the same run and store";
    EXPECT_EQ(LinesWith(middle->out(), "[4] 4/6 2/3 1/3 "), zero);
    EXPECT_EQ(LinesWith(last->out(), "[5] 5/6 0/1 2/3 "), zero);
    EXPECT_TRUE(nodes.folder().NoneLeft());
  }
}

TEST(LaunchNodesTest, AFailureOnOneNodeRestartsAll) {
  for (const bool in_folder : {false, true}) {
    const TestFolder meeting;
    Nodes nodes(2, {"--nproc=2", "--max_restarts=3"},
                absl::StrCat(kMeet,
                             "[ $LOCKSTEP_RESTART_COUNT = 0 -a $RANK = 3 ] && kill -9 $$; "
                             "[ $LOCKSTEP_RESTART_COUNT = 1 -a $RANK = 0 ] && exit 5; "
                             "[ $LOCKSTEP_RESTART_COUNT = 2 ] || exec sleep 600; echo end"),
                in_folder ? "file://" + (meeting / "job") : "");
    auto first = nodes.Start(0);
    auto second = nodes.Start(1);
    EXPECT_EQ(first->Wait(), 0) << first->err();
    EXPECT_EQ(second->Wait(), 0) << second->err();
    for (const auto* node : {first.get(), second.get()}) {
      for (const char* part :
           {"attempt 0: node 1: rank 3 was killed by signal 9 (Killed)\n",
            "attempt 1: node 0: rank 0 ended with exit status 5\n",
            "starting all ranks again: attempt 1\n", "starting all ranks again: attempt 2\n"}) {
        EXPECT_TRUE(Contains(node->err(), part)) << part << " in\n" << node->err();
      }
    }
    EXPECT_TRUE(Contains(first->out(), "[0] end\n") && Contains(first->out(), "[1] end\n"));
    EXPECT_TRUE(Contains(second->out(), "[2] end\n") && Contains(second->out(), "[3] end\n"));
    EXPECT_TRUE(nodes.folder().NoneLeft());
  }
}

TEST(LaunchNodesTest, AllNodesGiveUpWithTheFirstFailuresStatus) {
  Nodes nodes(2, {"--nproc=1", "--max_restarts=1"},
              absl::StrCat(kMeet,
                           "[ $RANK = 1 ] && exit $((30 + LOCKSTEP_RESTART_COUNT)); "
                           "exec sleep 600"));
  auto first = nodes.Start(0);
  auto second = nodes.Start(1);
  EXPECT_EQ(first->Wait(), 31) << first->err();
  EXPECT_EQ(second->Wait(), 31) << second->err();
  EXPECT_TRUE(Contains(first->err(), "giving up after 2 attempts")) << first->err();
  EXPECT_TRUE(nodes.folder().NoneLeft());
}

TEST(LaunchNodesTest, ASignalToOneLauncherStopsAllNodes) {
  for (const int target : {0, 1}) {
    Nodes nodes(2, {"--nproc=1", "--max_restarts=3"},
                absl::StrCat("trap 'echo got; exit 0' TERM; ", kMeet,
                             "echo > met$RANK; while :; do sleep 0.02; done"));
    std::vector<std::unique_ptr<TestProcess>> launchers;
    launchers.push_back(nodes.Start(0));
    launchers.push_back(nodes.Start(1));
    ASSERT_TRUE(nodes.Await("met0") && nodes.Await("met1"));
    launchers[static_cast<size_t>(target)]->Signal(SIGTERM);
    for (const int node : {0, 1}) {
      TestProcess& launcher = *launchers[static_cast<size_t>(node)];
      EXPECT_EQ(launcher.Wait(), 0) << launcher.err();
      EXPECT_EQ(launcher.out(), absl::StrCat("[", node, "] got\n"));
      EXPECT_TRUE(Contains(launcher.err(),
                           absl::StrCat("stopped: node ", target, "'s launcher got signal 15")))
          << launcher.err();
    }
    EXPECT_TRUE(nodes.folder().NoneLeft());
  }
}

TEST(LaunchNodesTest, ADeadNodeIsNoticedAndItsSuccessorJoins) {
  Nodes nodes(2, {"--nproc=1", "--max_restarts=3", "--node_timeout=2s"},
              absl::StrCat(kMeet, "[ $LOCKSTEP_RESTART_COUNT = 0 ] && exec sleep 600; echo end"));
  auto first = nodes.Start(0);
  auto second = nodes.Start(1);
  ASSERT_TRUE(nodes.Await("here-0-0") && nodes.Await("here-0-1"));
  second->Signal(SIGKILL);
  EXPECT_EQ(second->Wait(), 1000 + SIGKILL);
  ASSERT_TRUE(first->WaitForErr("node 1 has given no sign of life for 2s")) << first->err();
  ASSERT_TRUE(first->WaitForErr("starting all ranks again: attempt 1"));
  auto successor = nodes.Start(1);
  EXPECT_EQ(first->Wait(), 0) << first->err();
  EXPECT_EQ(successor->Wait(), 0) << successor->err();
  EXPECT_EQ(first->out(), "[0] end\n");
  EXPECT_EQ(successor->out(), "[1] end\n");
  EXPECT_TRUE(nodes.folder().NoneLeft());
}

// The successor comes before anybody has noticed that a node died.
TEST(LaunchNodesTest, ASuccessorThatComesAtOnceBringsANewAttempt) {
  Nodes nodes(2, {"--nproc=1", "--max_restarts=3"},
              absl::StrCat(kMeet, "[ $LOCKSTEP_RESTART_COUNT = 0 ] && exec sleep 600; echo end"));
  auto first = nodes.Start(0);
  auto second = nodes.Start(1);
  ASSERT_TRUE(nodes.Await("here-0-0") && nodes.Await("here-0-1"));
  second->Signal(SIGKILL);
  EXPECT_EQ(second->Wait(), 1000 + SIGKILL);
  auto successor = nodes.Start(1);
  EXPECT_EQ(first->Wait(), 0) << first->err();
  EXPECT_EQ(successor->Wait(), 0) << successor->err();
  EXPECT_TRUE(Contains(first->err(), "node 1 came when the attempt had started")) << first->err();
}

TEST(LaunchNodesTest, WhenNodeZeroDiesTheOthersEnd) {
  for (const bool in_folder : {false, true}) {
    const TestFolder meeting;
    Nodes nodes(2, {"--nproc=1", "--node_timeout=1s", "--join_timeout=3s"},
                absl::StrCat(kMeet, "exec sleep 600"),
                in_folder ? "file://" + (meeting / "job") : "");
    auto first = nodes.Start(0);
    auto second = nodes.Start(1);
    ASSERT_TRUE(nodes.Await("here-0-0") && nodes.Await("here-0-1"));
    first->Signal(SIGKILL);
    EXPECT_EQ(first->Wait(), 1000 + SIGKILL);
    EXPECT_EQ(second->Wait(), 1) << second->err();
    EXPECT_TRUE(Contains(second->err(), "has given no sign of life for 1s")) << second->err();
    EXPECT_TRUE(Contains(second->err(),
                         "node 0 did not start an attempt with this node (1) within "
                         "3s"))
        << second->err();
    EXPECT_TRUE(nodes.folder().NoneLeft());
  }
}

TEST(LaunchNodesTest, NodesThatDoNotComeAreNamed) {
  Nodes nodes(3, {"--join_timeout=1s"}, "exit 0");
  auto first = nodes.Start(0);
  EXPECT_EQ(first->Wait(), 1);
  EXPECT_TRUE(Contains(first->err(), "nodes 1, 2 did not come to the store at 127.0.0.1:"))
      << first->err();
  Nodes alone(2, {"--join_timeout=1s"}, "exit 0");
  auto second = alone.Start(1);
  EXPECT_EQ(second->Wait(), 1);
  EXPECT_TRUE(Contains(second->err(), "nobody answers at 127.0.0.1:")) << second->err();
  const TestFolder meeting;
  Nodes folder(2, {"--join_timeout=1s"}, "exit 0", "file://" + (meeting / "job"));
  auto only = folder.Start(0);
  EXPECT_EQ(only->Wait(), 1);
  EXPECT_TRUE(Contains(only->err(), meeting / "job")) << only->err();
}

TEST(LaunchNodesTest, AnotherTokenIsRefused) {
  Nodes nodes(2, {"--join_timeout=5s"}, "exit 0");
  auto first = nodes.Start(0);
  std::ofstream(nodes.folder() / "other") << "another token";
  fs::permissions(nodes.folder() / "other", fs::perms::owner_read);
  auto second = nodes.Start(1, {"--token_file=other"});
  EXPECT_EQ(second->Wait(), 1);
  EXPECT_TRUE(Contains(second->err(), "refuses our token")) << second->err();
  first->Signal(SIGTERM);
  EXPECT_EQ(first->Wait(), 128 + SIGTERM) << first->err();
}

}  // namespace
}  // namespace lockstep::launch_test
