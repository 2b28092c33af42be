// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The agreement itself; tests/launch has it with real launchers.
#include "lockstep/tools/launcher/node_group.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/socket.h"
#include "lockstep/tools/launcher/options.h"

namespace lockstep::launcher {
namespace {

bool Never() { return false; }

Verdict Await(NodeGroup& group) {
  for (;;) {
    if (const std::optional<Verdict> verdict = group.Poll()) return *verdict;
    absl::SleepFor(absl::Milliseconds(1));  // between looks
  }
}

TEST(NodePlanTest, RanksAndText) {
  const NodePlan plan = {.attempt = 3,
                         .run_id = "run",
                         .nprocs = {2, 1, 4},
                         .master_address = "::1",
                         .master_port = 5,
                         .store_port = 6};
  EXPECT_EQ(plan.world_size(), 7);
  EXPECT_EQ(plan.first_rank(0), 0);
  EXPECT_EQ(plan.first_rank(2), 3);
  const NodePlan back = NodePlan::FromString(plan.ToString());
  EXPECT_EQ(back.attempt, 3);
  EXPECT_EQ(back.run_id, "run");
  EXPECT_EQ(back.nprocs, plan.nprocs);
  EXPECT_EQ(back.master_address, "::1");
  EXPECT_EQ(back.master_port, 5);
  EXPECT_EQ(back.store_port, 6);
  for (const char* bad : {"", "3 run 2,1", "x run 2 h 5 6", "3 run 2,x h 5 6", "3 run 2 h 5 6 7"}) {
    EXPECT_THROW(NodePlan::FromString(bad), Error) << bad;
  }
}

TEST(VerdictTest, Text) {
  const Verdict verdict = {.kind = VerdictKind::kGiveUp, .exit_status = 137, .text = "a b  c"};
  const Verdict back = Verdict::FromString(verdict.ToString());
  EXPECT_EQ(back.kind, VerdictKind::kGiveUp);
  EXPECT_EQ(back.exit_status, 137);
  EXPECT_EQ(back.text, "a b  c");
  for (const char* bad : {"", "1", "9 0 x", "-1 0 x", "1 y x"}) {
    EXPECT_THROW(Verdict::FromString(bad), Error) << bad;
  }
}

TEST(NodeGroupTest, OneNodeDecidesAlone) {
  NodeGroup group({.nproc = 2, .max_restarts = 1}, "token");
  for (const int attempt : {0, 1}) {
    const Meeting meeting = group.Meet(Never);
    ASSERT_TRUE(meeting.plan.has_value());
    EXPECT_EQ(meeting.plan->attempt, attempt);
    EXPECT_EQ(meeting.plan->world_size(), 2);
    EXPECT_FALSE(group.Poll().has_value());
    group.ReportFailure({.exit_status = 7, .unix_ns = 5, .text = "rank 1 failed"});
    group.ReportFailure({.exit_status = 8, .unix_ns = 4, .text = "a later report"});
    const Verdict verdict = Await(group);
    EXPECT_EQ(verdict.kind, attempt == 0 ? VerdictKind::kRestart : VerdictKind::kGiveUp);
    EXPECT_EQ(verdict.exit_status, 7);
    EXPECT_EQ(verdict.text, "rank 1 failed");
  }
  NodeGroup good({}, "token");
  good.Meet(Never);
  good.ReportDone();
  EXPECT_EQ(Await(good).kind, VerdictKind::kSuccess);
  NodeGroup stopped({.max_restarts = 5}, "token");
  stopped.Meet(Never);
  stopped.ReportFailure({.text = "x"});
  stopped.ReportStop("a signal");
  EXPECT_EQ(Await(stopped).kind, VerdictKind::kStop);
}

TEST(NodeGroupTest, NodesFailRestartAndEndTogether) {
  const int port = comm::PortOf(comm::ListenTcp("127.0.0.1", 0).get());
  std::vector<std::thread> nodes;
  std::vector<Verdict> verdicts(3);
  for (int node = 0; node < 3; ++node) {
    nodes.emplace_back([&, node] {
      NodeGroup group({.nproc = node + 1,
                       .nnodes = 3,
                       .node_rank = node,
                       .max_restarts = 9,
                       .rendezvous_host = "127.0.0.1",
                       .rendezvous_port = port},
                      "token");
      for (int last = -1; last < 2;) {
        const Meeting meeting = group.Meet(Never);
        ASSERT_TRUE(meeting.plan.has_value()) << meeting.verdict.text;
        const int attempt = meeting.plan->attempt;
        // A node that hears of a failure before it has begun leaves that attempt out.
        EXPECT_GT(attempt, last);
        last = attempt;
        EXPECT_EQ(meeting.plan->nprocs, (std::vector<int>{1, 2, 3}));
        if (attempt < 2) {
          group.ReportFailure({.exit_status = 10 * attempt + node,
                               .unix_ns = 100 - node,
                               .text = absl::StrCat("attempt ", attempt, " node ", node)});
        } else {
          group.ReportDone();
        }
        verdicts[static_cast<size_t>(node)] = Await(group);
        if (attempt < 2) {
          EXPECT_EQ(verdicts[static_cast<size_t>(node)].kind, VerdictKind::kRestart);
          EXPECT_EQ(verdicts[static_cast<size_t>(node)].exit_status / 10, attempt);
        }
      }
      group.Leave();
    });
  }
  for (std::thread& node : nodes) node.join();
  for (const Verdict& verdict : verdicts) EXPECT_EQ(verdict.kind, VerdictKind::kSuccess);
}

TEST(NodeGroupTest, MeetingCanBeInterrupted) {
  const int port = comm::PortOf(comm::ListenTcp("127.0.0.1", 0).get());
  NodeGroup group({.nnodes = 2, .rendezvous_host = "127.0.0.1", .rendezvous_port = port}, "token");
  const Meeting meeting = group.Meet([] { return true; });
  EXPECT_FALSE(meeting.plan.has_value());
  EXPECT_EQ(meeting.verdict.kind, VerdictKind::kStop);
}

}  // namespace
}  // namespace lockstep::launcher
