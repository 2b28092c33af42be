// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Where WithTransfers() puts SENDs and RECVs.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing.h"
#include "lockstep/strategies/pipeline/schedule.h"

namespace lockstep::pipeline {
namespace {

std::string List(const Schedule& schedule, size_t rank) {
  return absl::StrJoin(schedule.ranks[rank], " ", [](std::string* out, const Action& action) {
    absl::StrAppend(out, ToString(action));
  });
}

// Of a kind, in the whole schedule.
int Count(const Schedule& schedule, ActionKind kind) {
  int count = 0;
  for (const auto& list : schedule.ranks) {
    for (const Action& action : list) count += action.kind == kind ? 1 : 0;
  }
  return count;
}

TEST(TransfersTest, ReceivesAreOneComputationAhead) {
  const Schedule schedule = WithTransfers(OneForwardOneBackward(2, 3));
  EXPECT_EQ(List(schedule, 0),
            "0F0 0SEND_F0>1 0RECV_B0<1 0F1 0SEND_F1>1 0B0 0RECV_B1<1 0F2 0SEND_F2>1 0RECV_B2<1 "
            "0B1 0B2");
  EXPECT_EQ(List(schedule, 1),
            "1RECV_F0<0 1F0 1RECV_F1<0 1B0 1SEND_B0>0 1F1 1RECV_F2<0 1B1 1SEND_B1>0 1F2 1B2 "
            "1SEND_B2>0");
  EXPECT_EQ(WithTransfers(OneForwardOneBackward(4, 8)).ranks[3][0], ParseAction("3RECV_F0<2"));
}

TEST(TransfersTest, InputGradientsLeaveBeforeWeights) {
  const Schedule schedule = WithTransfers(ZeroBubbleH1(2, 2));
  EXPECT_EQ(List(schedule, 1),
            "1RECV_F0<0 1F0 1RECV_F1<0 1I0 1SEND_B0>0 1F1 1I1 1SEND_B1>0 1W0 1W1");
}

TEST(TransfersTest, NoneInsideARank) {
  Schedule schedule = GPipe(3, 2);
  schedule.rank_of_stage = {0, 0, 1};
  schedule.ranks = {{}, schedule.ranks[2]};
  for (const char* action : {"0F0", "1F0", "0F1", "1F1", "1B0", "0B0", "1B1", "0B1"}) {
    schedule.ranks[0].push_back(ParseAction(action));
  }
  const Schedule with = WithTransfers(schedule);
  Validate(with);
  EXPECT_EQ(List(with, 0),
            "0F0 1F0 1SEND_F0>2 0F1 1RECV_B0<2 1F1 1SEND_F1>2 1B0 1RECV_B1<2 0B0 1B1 0B1");
  EXPECT_EQ(WithTransfers(GPipe(1, 2)).ranks, GPipe(1, 2).ranks);
}

TEST(TransfersTest, ReceivesAreInTheOrderOfSendsEvenWhereUseIsNot) {
  // Stage 0 sends micro-batch 0 first; stage 1 uses micro-batch 1 first.
  Schedule schedule = GPipe(2, 3);
  for (Action& action : schedule.ranks[1]) action.micro_batch = 2 - action.micro_batch;
  const Schedule with = WithTransfers(schedule);
  Validate(with);
  EXPECT_EQ(List(with, 1),
            "1RECV_F0<0 1RECV_F1<0 1RECV_F2<0 1F2 1F1 1F0 1B2 1SEND_B2>0 1B1 1SEND_B1>0 1B0 "
            "1SEND_B0>0");
  EXPECT_EQ(List(with, 0),
            "0F0 0SEND_F0>1 0F1 0SEND_F1>1 0RECV_B2<1 0RECV_B1<1 0RECV_B0<1 0F2 0SEND_F2>1 0B0 "
            "0B1 0B2");
}

TEST(TransfersTest, EachSkippingEdgeHasItsOwn) {
  Schedule schedule = OneForwardOneBackward(4, 3);
  schedule.edges = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {2, 3}};
  const Schedule with = WithTransfers(schedule);
  Validate(with);
  EXPECT_EQ(Count(with, ActionKind::kSendForward), 5 * 3);
  EXPECT_EQ(Count(with, ActionKind::kRecvForward), 5 * 3);
  EXPECT_EQ(Count(with, ActionKind::kSendBackward), 5 * 3);
  EXPECT_EQ(Count(with, ActionKind::kRecvBackward), 5 * 3);
  EXPECT_TRUE(absl::StartsWith(List(with, 0), "0F0 0SEND_F0>1 0SEND_F0>2 0SEND_F0>3 "));
  EXPECT_TRUE(absl::StartsWith(List(with, 3), "3RECV_F0<0 3RECV_F0<2 3F0 "));
  EXPECT_TRUE(absl::EndsWith(List(with, 3), "3B2 3SEND_B2>0 3SEND_B2>2"));

  // Two edges between the same two ranks, too.
  Schedule same_rank = Interleaved(2, 2, 2);
  same_rank.edges = {{0, 1}, {0, 3}, {1, 2}, {2, 3}};
  Validate(WithTransfers(same_rank));
  EXPECT_EQ(Count(WithTransfers(same_rank), ActionKind::kSendBackward), 4 * 2);
}

TEST(TransfersTest, ForwardOnlySendsNoGradients) {
  const Schedule with = WithTransfers(ForwardOnly({0, 1, 2}, 2));
  Validate(with);
  EXPECT_EQ(List(with, 1), "1RECV_F0<0 1RECV_F1<0 1F0 1SEND_F0>2 1F1 1SEND_F1>2");
}

TEST(TransfersTest, RefusesWhatIsNotValid) {
  Schedule schedule = GPipe(2, 1);
  schedule.ranks[0].pop_back();
  EXPECT_TRUE(absl::StrContains(MessageOf([&] { WithTransfers(schedule); }),
                                "rank 0 has neither 0B0 nor 0I0 and 0W0"));
}

}  // namespace
}  // namespace lockstep::pipeline
