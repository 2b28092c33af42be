// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/wait_graph.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/comm/signature.h"

namespace lockstep::comm {
namespace {

RankWait Wait(int rank, const std::string& group, int64_t number, std::vector<int> missing) {
  return {.rank = rank,
          .group = group,
          .op = CollectiveId::kAllReduce,
          .number = number,
          .call = "AllReduce(float32 x 5, sum)",
          .missing = std::move(missing)};
}

struct Graph {
  std::map<int, std::vector<RankWait>> waits;
  std::map<int, int> asked;

  std::vector<RankWait> Of(int rank) {
    ++asked[rank];
    return waits[rank];
  }
};

std::string Explain(Graph graph, const RankWait& wait) {
  const std::string text = ExplainWait(wait, [&](int rank) { return graph.Of(rank); });
  for (const auto& [rank, times] : graph.asked) EXPECT_EQ(times, 1) << "rank " << rank;
  return text;
}

TEST(WaitGraphTest, TwoGroupsInDifferentOrder) {
  Graph graph;
  graph.waits[0] = {Wait(0, "a", 5, {1})};
  graph.waits[1] = {Wait(1, "b", 3, {0})};
  EXPECT_EQ(Explain(graph, graph.waits[1][0]),
            "rank 1 waits in group \"b\" for collective 3 (AllReduce(float32 x 5, sum)), which "
            "rank 0 has not issued: rank 0 waits in group \"a\" for collective 5 "
            "(AllReduce(float32 x 5, sum)), which rank 1 has not issued: the ranks enter groups "
            "\"a\" and \"b\" in different order");
}

TEST(WaitGraphTest, ThreeGroupsOfThreeRanks) {
  Graph graph;
  graph.waits[0] = {Wait(0, "a", 0, {1})};
  graph.waits[1] = {Wait(1, "b", 1, {2})};
  graph.waits[2] = {Wait(2, "c", 2, {0})};
  const std::string text = Explain(graph, graph.waits[2][0]);
  EXPECT_NE(text.find("the ranks enter groups \"a\", \"b\" and \"c\" in different order"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("rank 2 waits in group \"c\""), 0u) << text;
}

TEST(WaitGraphTest, PrefersACircleToAWayOut) {
  Graph graph;
  graph.waits[0] = {Wait(0, "a", 0, {1, 2})};
  graph.waits[1] = {};  // busy
  graph.waits[2] = {Wait(2, "b", 7, {3}), Wait(2, "c", 1, {0})};
  graph.waits[3] = {};
  const std::string text = Explain(graph, graph.waits[0][0]);
  EXPECT_NE(text.find("which ranks 1, 2 have not issued: rank 2 waits in group \"c\""),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\"a\" and \"c\""), std::string::npos) << text;
  EXPECT_TRUE(IsCircle(graph.waits[0][0], [&](int rank) { return graph.Of(rank); }));
}

TEST(WaitGraphTest, FollowsAChainToItsEnd) {
  Graph graph;
  graph.waits[0] = {Wait(0, "a", 4, {1})};
  graph.waits[1] = {Wait(1, "b", 9, {2})};
  const std::string text = Explain(graph, graph.waits[0][0]);
  EXPECT_NE(text.find("collective 9 (AllReduce(float32 x 5, sum)), which rank 2 has not issued: "
                      "rank 2 is not known to wait for anyone"),
            std::string::npos)
      << text;
  EXPECT_FALSE(IsCircle(graph.waits[0][0], [&](int rank) { return graph.Of(rank); }));
}

TEST(WaitGraphTest, ACircleThatTheRankIsNotPartOf) {
  Graph graph;
  graph.waits[1] = {Wait(1, "b", 0, {2})};
  graph.waits[2] = {Wait(2, "c", 0, {1})};
  const std::string text = Explain(graph, Wait(0, "a", 0, {1}));
  EXPECT_NE(text.find("groups \"b\" and \"c\" in different order"), std::string::npos) << text;
}

TEST(WaitGraphTest, TransfersInOneGroup) {
  RankWait receive = Wait(0, "world", 2, {1});
  receive.op = CollectiveId::kRecv;
  receive.call = "Recv(float32 x 3, from rank 1)";
  RankWait send = Wait(1, "world", 0, {0});
  send.op = CollectiveId::kSend;
  send.call = "Send(float32 x 9, to rank 0)";
  Graph graph;
  graph.waits[1] = {send};
  EXPECT_EQ(Explain(graph, receive),
            "rank 0 waits in group \"world\" for message 2 (Recv(float32 x 3, from rank 1)), which "
            "rank 1 has not sent: rank 1 waits in group \"world\" for message 0 (Send(float32 x 9, "
            "to rank 0)), which rank 0 has not received: the ranks wait for each other");
}

TEST(WaitGraphTest, ManyRanksAreWalkedOnce) {
  Graph graph;  // everybody waits for everybody that comes later
  for (int rank = 0; rank < 60; ++rank) {
    std::vector<int> later;
    for (int other = rank + 1; other < 60; ++other) later.push_back(other);
    if (!later.empty()) graph.waits[rank] = {Wait(rank, "g", 0, later)};
  }
  EXPECT_NE(Explain(graph, graph.waits[0][0]).find("rank 59 is not known"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::comm
