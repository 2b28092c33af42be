// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Each way in which a schedule can be wrong, and what is said about it.

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing.h"
#include "lockstep/strategies/pipeline/schedule.h"

namespace lockstep::pipeline {
namespace {

// What Validate() says about 1F1B of 3 stages and 3 micro-batches (or the given schedule) after a
// change, without the name in front.
std::string Wrong(const std::function<void(Schedule&)>& change,
                  Schedule schedule = OneForwardOneBackward(3, 3)) {
  Validate(schedule);
  change(schedule);
  const Error error = ErrorOf([&] { Validate(schedule); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  const std::string name = absl::StrCat("schedule \"", schedule.name, "\": ");
  EXPECT_EQ(std::string(error.message()).substr(0, name.size()), name);
  return std::string(error.message()).substr(name.size());
}

std::vector<Action>::iterator Find(Schedule& s, size_t rank, const char* action) {
  const auto found = std::find(s.ranks[rank].begin(), s.ranks[rank].end(), ParseAction(action));
  EXPECT_NE(found, s.ranks[rank].end()) << action;
  return found;
}

void Drop(Schedule& s, size_t rank, const char* action) {
  s.ranks[rank].erase(Find(s, rank, action));
}

void Swap(Schedule& s, size_t rank, const char* a, const char* b) {
  std::iter_swap(Find(s, rank, a), Find(s, rank, b));
}

TEST(ValidateTest, Sizes) {
  EXPECT_EQ(Wrong([](Schedule& s) { s.micro_batches = 0; }),
            "0 micro-batches; there must be at least one");
  EXPECT_EQ(Wrong([](Schedule& s) { s.rank_of_stage.clear(); }),
            "0 stages on 3 ranks; there must be at least one of each");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks.clear(); }),
            "3 stages on 0 ranks; there must be at least one of each");
  EXPECT_EQ(Wrong([](Schedule& s) { s.rank_of_stage[1] = 3; }),
            "stage 1 is on rank 3, and there are lists for 3 ranks");
  EXPECT_EQ(Wrong([](Schedule& s) { s.rank_of_stage[1] = -1; }),
            "stage 1 is on rank -1, and there are lists for 3 ranks");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks.emplace_back(); }), "rank 3 has no stage");
  EXPECT_EQ(Wrong([](Schedule& s) { s.micro_batches = 2; }),
            "rank 0, action 2 (0F2): there is no micro-batch 2, only 2");
  EXPECT_EQ(Wrong([](Schedule& s) { s.micro_batches = 4; }), "rank 0 has no 0F3");
}

TEST(ValidateTest, Edges) {
  EXPECT_EQ(Wrong([](Schedule& s) {
              s.edges = {{0, 1}, {2, 1}};
            }),
            "edge 2>1: an edge goes from an earlier stage to a later one of 3");
  EXPECT_EQ(Wrong([](Schedule& s) {
              s.edges = {{0, 0}};
            }),
            "edge 0>0: an edge goes from an earlier stage to a later one of 3");
  EXPECT_EQ(Wrong([](Schedule& s) {
              s.edges = {{0, 3}};
            }),
            "edge 0>3: an edge goes from an earlier stage to a later one of 3");
  EXPECT_EQ(Wrong([](Schedule& s) {
              s.edges = {{-1, 1}};
            }),
            "edge -1>1: an edge goes from an earlier stage to a later one of 3");
  EXPECT_EQ(Wrong([](Schedule& s) {
              s.edges = {{1, 2}, {0, 1}};
            }),
            "edge 0>1 comes after 1>2: edges are sorted, each once");
  EXPECT_EQ(Wrong([](Schedule& s) {
              s.edges = {{0, 1}, {0, 1}, {1, 2}};
            }),
            "edge 0>1 comes after 0>1: edges are sorted, each once");
  EXPECT_EQ(Wrong([](Schedule& s) {
              s.edges = {{0, 2}};
            }),
            "stage 1 has no inputs: no edge leads to it");
  EXPECT_EQ(Wrong([](Schedule& s) {
              s.edges = {{0, 1}, {0, 2}};
            }),
            "the outputs of stage 1 go nowhere: no edge begins at it");
  EXPECT_EQ(Wrong([](Schedule& s) { s.edges.clear(); }),
            "the outputs of stage 0 go nowhere: no edge begins at it");
}

TEST(ValidateTest, Actions) {
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[1].push_back(ParseAction("3F0")); }),
            "rank 1, action 6 (3F0): there is no stage 3, only 3 stages");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[1][0].stage = -1; }),
            "rank 1, action 0 (-1F0): there is no stage -1, only 3 stages");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[1][0].micro_batch = -1; }),
            "rank 1, action 0 (1F-1): there is no micro-batch -1, only 3");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[0].push_back(ParseAction("2F0")); }),
            "rank 0, action 6 (2F0): stage 2 is on rank 2");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[0][0].peer_stage = 1; }),
            "rank 0, action 0 (0F0): a computation has no peer stage, and this has 1");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[2].push_back(ParseAction("2F1")); }),
            "rank 2, action 6 (2F1) is action 2 again");
  EXPECT_EQ(Wrong([](Schedule& s) { s.forward_only = true; }),
            "rank 0, action 3 (0B0): the schedule has forwards only");
}

TEST(ValidateTest, Computations) {
  EXPECT_EQ(Wrong([](Schedule& s) { Drop(s, 1, "1F2"); }), "rank 1 has no 1F2");
  EXPECT_EQ(Wrong([](Schedule& s) { Drop(s, 2, "2B1"); }),
            "rank 2 has neither 2B1 nor 2I1 and 2W1");
  EXPECT_EQ(Wrong([](Schedule& s) { Drop(s, 0, "0F1"); }, ForwardOnly({0, 1}, 2)),
            "rank 0 has no 0F1");
  EXPECT_EQ(Wrong([](Schedule& s) { Swap(s, 2, "2F1", "2B1"); }),
            "rank 2, action 2 (2B1) comes before 2F1, action 3");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[1].push_back(ParseAction("1I0")); }),
            "rank 1, action 6 (1I0) and 1B0, action 2, are the same gradients");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[1].push_back(ParseAction("1W0")); }),
            "rank 1, action 6 (1W0) and 1B0, action 2, are the same gradients");
  const Schedule halves = ZeroBubbleH1(2, 2);
  EXPECT_EQ(Wrong([](Schedule& s) { Drop(s, 1, "1W1"); }, halves), "rank 1 has no 1W1");
  EXPECT_EQ(Wrong([](Schedule& s) { Drop(s, 1, "1I1"); }, halves), "rank 1 has no 1I1");
  EXPECT_EQ(Wrong([](Schedule& s) { Swap(s, 0, "0I1", "0W1"); }, halves),
            "rank 0, action 4 (0W1) comes before 0I1, action 5");
  EXPECT_EQ(Wrong([](Schedule& s) { Swap(s, 1, "1F1", "1I1"); }, halves),
            "rank 1, action 2 (1I1) comes before 1F1, action 3");
}

TEST(ValidateTest, MixedBackwardsAreValid) {
  Schedule schedule = OneForwardOneBackward(3, 3);
  Find(schedule, 1, "1B1")->kind = ActionKind::kBackwardInput;
  schedule.ranks[1].push_back(ParseAction("1W1"));
  Validate(schedule);
  Validate(WithTransfers(schedule));
}

TEST(ValidateTest, Transfers) {
  const Schedule with = WithTransfers(OneForwardOneBackward(3, 3));
  EXPECT_EQ(Wrong([](Schedule& s) { Drop(s, 1, "1RECV_F0<0"); }, with), "rank 1 has no 1RECV_F0<0");
  EXPECT_EQ(Wrong([](Schedule& s) { Drop(s, 0, "0SEND_F0>1"); }, with), "rank 0 has no 0SEND_F0>1");
  EXPECT_EQ(Wrong([](Schedule& s) { Drop(s, 2, "2SEND_B2>1"); }, with), "rank 2 has no 2SEND_B2>1");
  EXPECT_EQ(Wrong([](Schedule& s) { Drop(s, 0, "0RECV_B1<1"); }, with), "rank 0 has no 0RECV_B1<1");
  EXPECT_EQ(Wrong([](Schedule& s) { Swap(s, 0, "0F1", "0SEND_F1>1"); }, with),
            "rank 0, action 2 (0SEND_F1>1) comes before 0F1, action 3");
  EXPECT_EQ(Wrong([](Schedule& s) { Swap(s, 2, "2B0", "2SEND_B0>1"); }, with),
            "rank 2, action 3 (2SEND_B0>1) comes before 2B0, action 4");
  EXPECT_EQ(Wrong([](Schedule& s) { Swap(s, 2, "2RECV_F0<1", "2F0"); }, with),
            "rank 2, action 0 (2F0) comes before 2RECV_F0<1, action 1");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[1].push_back(ParseAction("1SEND_B0>0")); }, with),
            "rank 1, action 18 (1SEND_B0>0) is action 9 again");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[0].push_back(ParseAction("0SEND_F0>2")); }, with),
            "rank 0, action 12 (0SEND_F0>2): there is no edge 0>2");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[0].push_back(ParseAction("0SEND_B0>1")); }, with),
            "rank 0, action 12 (0SEND_B0>1): there is no edge 1>0");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[0].push_back(ParseAction("0SEND_F0>1")); },
                  Interleaved(1, 2, 1)),
            "rank 0, action 4 (0SEND_F0>1): stages 0 and 1 are both on rank 0, where nothing is "
            "transferred");
  EXPECT_EQ(Wrong([](Schedule& s) { s.ranks[0].push_back(ParseAction("0RECV_B0<1")); },
                  WithTransfers(ForwardOnly({0, 1}, 1))),
            "rank 0, action 2 (0RECV_B0<1): the schedule has forwards only");
}

TEST(ValidateTest, TheNthSendIsTheNthReceive) {
  const Schedule with = WithTransfers(GPipe(2, 2));
  // 0F0 0SEND_F0>1 0F1 0SEND_F1>1 ...: the first send later than the second, both after their F.
  EXPECT_EQ(Wrong([](Schedule& s) { Swap(s, 0, "0SEND_F0>1", "0SEND_F1>1"); }, with),
            "rank 0, action 1 (0SEND_F1>1) comes before 0F1, action 3");
  EXPECT_EQ(Wrong(
                [](Schedule& s) {
                  Swap(s, 0, "0SEND_F0>1", "0F1");
                  Swap(s, 0, "0SEND_F0>1", "0SEND_F1>1");
                },
                with),
            "rank 1, action 0 (1RECV_F0<0) is receive 0 from rank 0, whose send 0 to rank 1 is "
            "0SEND_F1>1");
  EXPECT_EQ(Wrong([](Schedule& s) { Swap(s, 1, "1RECV_F0<0", "1RECV_F1<0"); }, with),
            "rank 1, action 0 (1RECV_F1<0) is receive 0 from rank 0, whose send 0 to rank 1 is "
            "0SEND_F0>1");
}

TEST(ValidateTest, RanksThatWaitForEachOther) {
  // Stage 0 wants the gradients of micro-batch 0 before it has sent micro-batch 1, which stage 1
  // wants before it makes them.
  EXPECT_EQ(Wrong([](Schedule& s) { Swap(s, 0, "0F1", "0B0"); }, GPipe(2, 2)),
            "it cannot run to its end: rank 0, action 1 (0B0) waits for 1B0, which is action 2 of "
            "rank 1; rank 1, action 1 (1F1) waits for 0F1, which is action 2 of rank 0");
  // A SEND that stands too late.
  EXPECT_EQ(
      Wrong(
          [](Schedule& s) {
            const auto send = Find(s, 0, "0SEND_F1>1");
            const auto backward = Find(s, 0, "0B0");
            std::rotate(send, send + 1, backward + 1);
          },
          WithTransfers(GPipe(2, 2))),
      "it cannot run to its end: rank 0, action 5 (0B0) waits for 1SEND_B0>0, which is action "
      "5 of rank 1; rank 1, action 3 (1F1) waits for 0SEND_F1>1, which is action 6 of rank 0");
  // A rank waits for itself.
  EXPECT_EQ(Wrong([](Schedule& s) { Swap(s, 0, "0F0", "1F0"); }, Interleaved(1, 2, 1)),
            "it cannot run to its end: rank 0, action 0 (1F0) waits for 0F0, which is action 1 of "
            "rank 0");
  // Only those that wait in a circle are named; rank 0 waits for rank 1, and nobody for rank 0.
  EXPECT_EQ(Wrong([](Schedule& s) { Swap(s, 1, "1F1", "1B0"); }, GPipe(3, 2)),
            "it cannot run to its end: rank 1, action 1 (1B0) waits for 2B0, which is action 2 of "
            "rank 2; rank 2, action 1 (2F1) waits for 1F1, which is action 2 of rank 1");
}

}  // namespace
}  // namespace lockstep::pipeline
