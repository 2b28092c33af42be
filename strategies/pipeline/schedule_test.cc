// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the generators make, and text. Times and bubbles are simulate_test.cc's.

#include "lockstep/strategies/pipeline/schedule.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing.h"

namespace lockstep::pipeline {
namespace {

using absl::StrContains;

std::string List(const Schedule& schedule, size_t rank) {
  return absl::StrJoin(schedule.ranks[rank], " ", [](std::string* out, const Action& action) {
    absl::StrAppend(out, ToString(action));
  });
}

TEST(GeneratorsTest, GPipeRunsAllForwardsThenAllBackwards) {
  const Schedule schedule = GPipe(2, 3);
  EXPECT_EQ(schedule.name, "gpipe");
  EXPECT_EQ(schedule.micro_batches, 3);
  EXPECT_EQ(schedule.rank_of_stage, (std::vector<int>{0, 1}));
  EXPECT_EQ(schedule.edges, ChainEdges(2));
  EXPECT_EQ(List(schedule, 0), "0F0 0F1 0F2 0B0 0B1 0B2");
  EXPECT_EQ(List(schedule, 1), "1F0 1F1 1F2 1B0 1B1 1B2");
}

TEST(GeneratorsTest, OneForwardOneBackwardWarmsUpByWhatComesAfter) {
  const Schedule schedule = OneForwardOneBackward(3, 4);
  EXPECT_EQ(schedule.name, "1f1b");
  EXPECT_EQ(List(schedule, 0), "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3");
  EXPECT_EQ(List(schedule, 1), "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3");
  EXPECT_EQ(List(schedule, 2), "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3");
}

TEST(GeneratorsTest, ZeroBubbleHoldsWeightsBackByTheStage) {
  const Schedule schedule = ZeroBubbleH1(3, 4);
  EXPECT_EQ(schedule.name, "zb_h1");
  EXPECT_EQ(List(schedule, 0), "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3");
  EXPECT_EQ(List(schedule, 1), "1F0 1F1 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3");
  EXPECT_EQ(List(schedule, 2), "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3");
}

TEST(GeneratorsTest, InterleavedGoesRoundThroughTheRanks) {
  const Schedule schedule = Interleaved(2, 2, 4);
  EXPECT_EQ(schedule.name, "interleaved");
  EXPECT_EQ(schedule.rank_of_stage, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(schedule.edges, ChainEdges(4));
  // Warm-up of 2 (p - 1 - r) + (v - 1) p: 4 and 2.
  EXPECT_EQ(List(schedule, 0), "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3");
  EXPECT_EQ(List(schedule, 1), "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3");
}

TEST(GeneratorsTest, ForwardOnlyRunsTheLatestStageThatCan) {
  const Schedule schedule = ForwardOnly({0, 1, 0, 1}, 3);
  EXPECT_TRUE(schedule.forward_only);
  EXPECT_EQ(List(schedule, 0), "0F0 0F1 2F0 2F1 0F2 2F2");
  EXPECT_EQ(List(schedule, 1), "1F0 1F1 3F0 3F1 1F2 3F2");
  // Any placement: here rank 1 has the ends.
  const Schedule horseshoe = ForwardOnly({1, 0, 0, 1}, 2);
  EXPECT_EQ(List(horseshoe, 1), "0F0 0F1 3F0 3F1");
  EXPECT_EQ(horseshoe.rank_of_stage, (std::vector<int>{1, 0, 0, 1}));
}

// Of each generator, over the sizes of the issue: valid, also with transfers, and each stage adds
// its gradients in the order of micro-batches.
void ExpectSound(const Schedule& schedule) {
  SCOPED_TRACE(absl::StrCat(schedule.name, ", ", schedule.rank_count(), " ranks, ",
                            schedule.stage_count(), " stages, ", schedule.micro_batches));
  Validate(schedule);
  const Schedule with_transfers = WithTransfers(schedule);
  Validate(with_transfers);
  // Started transfers change nothing else, and are the same however often they are made.
  Schedule without = with_transfers;
  for (auto& list : without.ranks) {
    std::erase_if(list, [](const Action& action) { return IsTransfer(action.kind); });
  }
  EXPECT_EQ(without.ranks, schedule.ranks);
  EXPECT_EQ(WithTransfers(with_transfers).ranks, with_transfers.ranks);
  for (const auto& list : schedule.ranks) {
    std::map<std::pair<ActionKind, int>, int> next;
    for (const Action& action : list) {
      EXPECT_EQ(action.micro_batch, (next[{action.kind, action.stage}]++)) << ToString(action);
    }
  }
}

TEST(GeneratorsTest, AreSoundForAllSizes) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
      ExpectSound(GPipe(stages, micro_batches));
      ExpectSound(OneForwardOneBackward(stages, micro_batches));
      ExpectSound(ZeroBubbleH1(stages, micro_batches));
      std::vector<int> placement;
      for (int stage = 0; stage < stages; ++stage) placement.push_back(stage % (1 + stages / 2));
      ExpectSound(ForwardOnly(placement, micro_batches));
      if (micro_batches % stages != 0) continue;
      ExpectSound(Interleaved(stages, 2, micro_batches));
      ExpectSound(Interleaved(stages, 3, micro_batches));
    }
  }
}

TEST(GeneratorsTest, RefuseWithTheNumbers) {
  EXPECT_EQ(MessageOf([] { GPipe(0, 4); }), "gpipe: 0 stages; there must be at least one");
  EXPECT_EQ(MessageOf([] { GPipe(2, 2'000'000'000); }),
            "gpipe: 2 stages and 2000000000 micro-batches are more than 16777216 forwards; give "
            "fewer");
  EXPECT_EQ(MessageOf([] { Interleaved(1 << 20, 1 << 20, 1 << 20); }),
            "interleaved: 1099511627776 stages and 1048576 micro-batches are more than 16777216 "
            "forwards; give fewer");
  EXPECT_EQ(MessageOf([] { OneForwardOneBackward(2, 0); }),
            "1f1b: 0 micro-batches; there must be at least one");
  EXPECT_EQ(MessageOf([] { ZeroBubbleH1(-1, 2); }), "zb_h1: -1 stages; there must be at least one");
  EXPECT_EQ(MessageOf([] { Interleaved(4, 2, 6); }),
            "interleaved: 6 micro-batches are no multiple of 4 ranks; use 8 micro-batches, or 1f1b "
            "or zb_h1, which take any number");
  EXPECT_TRUE(StrContains(MessageOf([] { Interleaved(4, 2, 3); }), "use 4 micro-batches"));
  EXPECT_EQ(MessageOf([] { Interleaved(4, 1, 8); }),
            "interleaved: 1 stages a rank; with one, use OneForwardOneBackward");
  EXPECT_EQ(MessageOf([] { Interleaved(0, 2, 8); }),
            "interleaved: 0 ranks; there must be at least one");
  EXPECT_EQ(MessageOf([] { ForwardOnly({}, 1); }), "forward: 0 stages; there must be at least one");
  EXPECT_TRUE(StrContains(MessageOf([] { ForwardOnly({0, 2}, 1); }), "a stage is on rank 2"));
  EXPECT_TRUE(StrContains(MessageOf([] { ForwardOnly({0, -1}, 1); }), "a stage is on rank -1"));
  EXPECT_TRUE(StrContains(MessageOf([] { ForwardOnly({0, 2, 2}, 1); }), "rank 1 has no stage"));
  EXPECT_EQ(ErrorOf([] { GPipe(0, 4); }).code(), absl::StatusCode::kInvalidArgument);
}

TEST(TextTest, ActionsGoRound) {
  for (const char* text :
       {"2F0", "0B12", "3I1", "10W7", "1SEND_F0>2", "2RECV_F0<1", "2SEND_B31>1", "1RECV_B31<2"}) {
    EXPECT_EQ(ToString(ParseAction(text)), text);
  }
  EXPECT_EQ(ParseAction("1SEND_F3>2"), (Action{ActionKind::kSendForward, 1, 3, 2}));
  for (const char* text :
       {"", "F", "2", "2F", "F0", "2X0", "2F0 ", " 2F0", "2f0", "-1F0", "2F-1", "2F0>1", "1SEND_F0",
        "1SEND_F0<2", "2RECV_F0>1", "1SEND_F0>", "99999999999F0", "2F0,2F1"}) {
    EXPECT_TRUE(StrContains(MessageOf([&] { ParseAction(text); }),
                            absl::StrCat("\"", text, "\" is no action, like 2F0")));
  }
}

void ExpectSame(const Schedule& a, const Schedule& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.micro_batches, b.micro_batches);
  EXPECT_EQ(a.forward_only, b.forward_only);
  EXPECT_EQ(a.rank_of_stage, b.rank_of_stage);
  EXPECT_EQ(a.edges, b.edges);
  EXPECT_EQ(a.ranks, b.ranks);
}

TEST(TextTest, SchedulesGoRound) {
  EXPECT_EQ(ToText(GPipe(2, 2)),
            "gpipe: micro_batches=2 edges=0>1 placement=0,1\n"
            "rank 0: 0F0 0F1 0B0 0B1\n"
            "rank 1: 1F0 1F1 1B0 1B1\n");
  Schedule skipping = WithTransfers(ZeroBubbleH1(4, 3));
  skipping.edges = {{0, 1}, {0, 2}, {1, 2}, {2, 3}};
  for (const Schedule& schedule :
       {GPipe(1, 1), OneForwardOneBackward(3, 5), WithTransfers(Interleaved(2, 3, 4)), skipping,
        ForwardOnly({1, 0, 1}, 2), Schedule{}}) {
    ExpectSame(ParseSchedule(ToText(schedule)), schedule);
  }
  ExpectSame(ParseSchedule("# mine\n\n  gpipe :placement=0,1\tmicro_batches=2  edges=0>1\r\n"
                           "rank 0:0F0 0F1 0B0 0B1\n # more\nrank 1: 1F0   1F1 1B0 1B1"),
             GPipe(2, 2));
  for (const char* name : {"a:b", "a\nb", "a#", " a", "a "}) {
    Schedule schedule = GPipe(1, 1);
    schedule.name = name;
    EXPECT_TRUE(StrContains(MessageOf([&] { ToText(schedule); }), "has a colon"));
  }
}

TEST(TextTest, ParsingNamesTheLine) {
  const auto message = [](const std::string& text) {
    return MessageOf([&] { ParseSchedule(text); });
  };
  const std::string head = "x: micro_batches=1 edges=0>1 placement=0,1\n";
  EXPECT_EQ(message(""), "ParseSchedule: line 1: there is no line \"name: micro_batches=...\"");
  EXPECT_TRUE(StrContains(message("\n0F0 0B0"), "line 2: \"0F0 0B0\" has no colon"));
  EXPECT_TRUE(StrContains(message("x: edges= placement=0"), "line 1: no micro_batches="));
  EXPECT_TRUE(StrContains(message("x: micro_batches=1"), "no edges=, placement="));
  EXPECT_TRUE(StrContains(message("x: micro_batches=two edges= placement=0"),
                          "\"two\" is no number (micro_batches)"));
  EXPECT_TRUE(StrContains(message("x: micro_batches=1 edges=01 placement=0"),
                          "edge \"01\" is not like 0>1"));
  EXPECT_TRUE(StrContains(message("x: micro_batches=1 edges=0>1> placement=0"),
                          "\"1>\" is no number (edges)"));
  EXPECT_TRUE(StrContains(message("x: micro_batches=1 edges= placement=0 colour=red"),
                          "\"colour=red\": settings are"));
  EXPECT_TRUE(StrContains(message("x: micro_batches=1 micro_batches=1 edges= placement=0"),
                          "\"micro_batches=1\": settings are micro_batches=, edges=, placement="));
  EXPECT_TRUE(StrContains(message(head + "rank 0: 0F0\nrank 2: 1F0"),
                          "line 3: \"rank 2:\" where \"rank 1:\" must come"));
  EXPECT_TRUE(StrContains(message(head + "rank 0: 0F0\n\nrank 1: 1F0 1F"),
                          "line 4: \"1F\" is no action, like 2F0, 2B0"));
}

}  // namespace
}  // namespace lockstep::pipeline
