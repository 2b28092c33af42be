// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Closed forms of the papers, exactly; then what they say nothing about: uneven costs, links,
// bytes.

#include "lockstep/strategies/pipeline/simulate.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/strategies/pipeline/random_schedule.h"

namespace lockstep::pipeline {
namespace {

constexpr ComputeSeconds kUnit = {.forward = 1, .backward_input = 1, .backward_weight = 1};

Timeline Uniform(const Schedule& schedule, const ComputeSeconds& compute = kUnit) {
  return Simulate(schedule, UniformCosts(schedule.stage_count(), compute));
}

// Each rank is idle for `idle`, exactly.
void ExpectIdle(const Timeline& timeline, double idle) {
  for (const double seconds : timeline.idle_seconds) ASSERT_EQ(seconds, idle);
}

// p stages and m micro-batches, over all sizes.
template <typename Body>
void ForAllSizes(Body&& body) {
  for (int p = 2; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      SCOPED_TRACE(absl::StrCat(p, " stages, ", m, " micro-batches"));
      body(p, m);
    }
  }
}

TEST(ClosedFormTest, GPipeAndOneForwardOneBackward) {
  ForAllSizes([](int p, int m) {
    for (const ComputeSeconds& cost : {kUnit, ComputeSeconds{3, 2, 0}}) {
      const double work = cost.forward + cost.backward_input + cost.backward_weight;
      for (const Schedule& schedule : {GPipe(p, m), OneForwardOneBackward(p, m)}) {
        const Timeline timeline = Uniform(schedule, cost);
        ExpectIdle(timeline, (p - 1) * work);
        ASSERT_EQ(timeline.makespan_seconds, (m + p - 1) * work);
        ASSERT_DOUBLE_EQ(timeline.bubble, static_cast<double>(p - 1) / (m + p - 1));
      }
    }
  });
}

TEST(ClosedFormTest, Interleaved) {
  ForAllSizes([](int p, int m) {
    if (m % p != 0) return;
    for (const int v : {2, 3}) {
      for (const ComputeSeconds& cost : {kUnit, ComputeSeconds{3, 2, 0}}) {
        const double work = cost.forward + cost.backward_input + cost.backward_weight;
        const Timeline timeline = Uniform(Interleaved(p, v, m), cost);
        ExpectIdle(timeline, (p - 1) * work);
        ASSERT_DOUBLE_EQ(timeline.bubble, static_cast<double>(p - 1) / (v * m + p - 1));
      }
    }
  });
}

TEST(ClosedFormTest, ZeroBubble) {
  ForAllSizes([](int p, int m) {
    const Timeline timeline = Uniform(ZeroBubbleH1(p, m));
    if (m >= p) {
      ExpectIdle(timeline, p - 1);  // (p - 1) (F + I - W)
      ASSERT_DOUBLE_EQ(timeline.bubble, static_cast<double>(p - 1) / (3 * m + p - 1));
    }
    // Never longer than 1F1B, also with few micro-batches.
    ASSERT_LE(timeline.makespan_seconds, Uniform(OneForwardOneBackward(p, m)).makespan_seconds);
  });
}

TEST(ClosedFormTest, ZeroBubbleWithCheaperWeights) {
  // (p - 1) (F + I - W) holds as long as W fits into either of the others.
  for (int p = 2; p <= 6; ++p) {
    for (const int m : {p, p + 1, 2 * p + 1, 16}) {
      for (int cost = 0; cost < 27; ++cost) {
        const ComputeSeconds seconds = {1.0 + cost % 3, 1.0 + cost / 3 % 3, 1.0 + cost / 9};
        if (seconds.backward_weight > std::min(seconds.forward, seconds.backward_input)) continue;
        SCOPED_TRACE(absl::StrCat(p, " stages, ", m, " micro-batches, F ", seconds.forward, " I ",
                                  seconds.backward_input, " W ", seconds.backward_weight));
        ExpectIdle(Uniform(ZeroBubbleH1(p, m), seconds),
                   (p - 1) * (seconds.forward + seconds.backward_input - seconds.backward_weight));
      }
    }
  }
}

TEST(ClosedFormTest, ZeroBubbleIsNeverSlowerThanOneForwardOneBackward) {
  for (const int p : {2, 3, 4, 7}) {
    for (const int m : {1, 2, 3, 5, 8, 13}) {
      for (int cost = 0; cost < 27; ++cost) {
        const double values[] = {1, 2, 9};
        const ComputeSeconds seconds = {values[cost % 3], values[cost / 3 % 3], values[cost / 9]};
        ASSERT_LE(Uniform(ZeroBubbleH1(p, m), seconds).makespan_seconds,
                  Uniform(OneForwardOneBackward(p, m), seconds).makespan_seconds)
            << p << " stages, " << m << " micro-batches, F " << seconds.forward << " I "
            << seconds.backward_input << " W " << seconds.backward_weight;
      }
    }
  }
}

// In flight up to the last of the named kinds, from the list alone.
int PeakUpTo(const std::vector<Action>& list, ActionKind end) {
  int now = 0, peak = 0;
  for (const Action& action : list) {
    if (action.kind == ActionKind::kForward) peak = std::max(peak, ++now);
    if (action.kind == end) --now;
  }
  return peak;
}

TEST(InFlightTest, IsBoundAsTheHeaderSays) {
  ForAllSizes([](int p, int m) {
    const Schedule zero_bubble = ZeroBubbleH1(p, m);
    const std::vector<int> gpipe = Uniform(GPipe(p, m)).peak_in_flight;
    const std::vector<int> alternating = Uniform(OneForwardOneBackward(p, m)).peak_in_flight;
    const std::vector<int> halves = Uniform(zero_bubble).peak_in_flight;
    for (int stage = 0; stage < p; ++stage) {
      const auto s = static_cast<size_t>(stage);
      ASSERT_EQ(gpipe[s], m);
      ASSERT_EQ(alternating[s], std::min(m, p - stage));
      ASSERT_EQ(PeakUpTo(zero_bubble.ranks[s], ActionKind::kBackwardInput), std::min(m, p - stage));
      ASSERT_EQ(halves[s], std::min(m, p));
    }
    ASSERT_EQ(*std::max_element(halves.begin(), halves.end()), alternating[0]);
  });
}

TEST(InFlightTest, InterleavedKeepsMoreTheEarlierTheRank) {
  // 2 (p - 1 - r) + (v - 1) p forwards of warm-up, and one more, on a rank's v stages together.
  const Timeline timeline = Uniform(Interleaved(4, 2, 8));
  const Schedule schedule = Interleaved(4, 2, 8);
  for (int rank = 0; rank < 4; ++rank) {
    const auto r = static_cast<size_t>(rank);
    EXPECT_EQ(PeakUpTo(schedule.ranks[r], ActionKind::kBackward), 2 * (3 - rank) + 4 + 1);
    EXPECT_GE(timeline.peak_in_flight[r] + timeline.peak_in_flight[r + 4], 2 * (3 - rank) + 4 + 1);
  }
}

TEST(InFlightTest, ForwardsAloneKeepNothing) {
  const Timeline timeline = Uniform(ForwardOnly({0, 1, 2}, 5));
  EXPECT_EQ(timeline.peak_in_flight, (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(timeline.makespan_seconds, 7);
  EXPECT_DOUBLE_EQ(timeline.bubble, 2.0 / 7);
  // A placement in rounds: 2 ranks, 4 stages, 4 micro-batches: one step of idle each.
  EXPECT_EQ(Uniform(ForwardOnly({0, 1, 0, 1}, 4)).makespan_seconds, 9);
}

TEST(SimulateTest, FewMicroBatchesAndManyStages) {
  // One micro-batch goes there and back alone.
  EXPECT_EQ(Uniform(GPipe(8, 1)).makespan_seconds, 8 * 3);
  EXPECT_EQ(Uniform(OneForwardOneBackward(8, 1)).makespan_seconds, 8 * 3);
  EXPECT_EQ(Uniform(ZeroBubbleH1(8, 1)).makespan_seconds, 8 * 2 + 1);
  EXPECT_EQ(Uniform(GPipe(1, 3)).bubble, 0);
}

TEST(SimulateTest, SkippingEdges) {
  // Stages 1 and 2 run side by side: 0 -> {1, 2} -> 3.
  Schedule diamond = OneForwardOneBackward(4, 1);
  diamond.edges = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
  const Timeline timeline = Uniform(diamond);
  EXPECT_EQ(timeline.makespan_seconds, 3 * 3);
  // Edges along with the chain change no time while links take none.
  for (const Schedule& plain : {GPipe(4, 5), OneForwardOneBackward(4, 5), ZeroBubbleH1(4, 5)}) {
    Schedule skipping = plain;
    skipping.edges = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {2, 3}};
    EXPECT_EQ(Uniform(skipping).makespan_seconds, Uniform(plain).makespan_seconds);
  }
}

Span Find(const Timeline& timeline, const char* action) {
  for (const Span& span : timeline.spans) {
    if (span.action == ParseAction(action)) return span;
  }
  ADD_FAILURE() << "no " << action;
  return {};
}

TEST(SimulateTest, CostsOfSingleMicroBatches) {
  Costs costs = UniformCosts(2, {.forward = 2, .backward_input = 3, .backward_weight = 4});
  costs.micro_batches[{1, 1}] = {.forward = 10, .backward_input = 20, .backward_weight = 30};
  const Timeline timeline = Simulate(GPipe(2, 2), costs);
  EXPECT_EQ(Find(timeline, "1F0"), (Span{1, ParseAction("1F0"), 2, 4}));
  EXPECT_EQ(Find(timeline, "1F1"), (Span{1, ParseAction("1F1"), 4, 14}));
  EXPECT_EQ(Find(timeline, "1B0"), (Span{1, ParseAction("1B0"), 14, 21}));
  EXPECT_EQ(Find(timeline, "1B1"), (Span{1, ParseAction("1B1"), 21, 71}));
  EXPECT_EQ(Find(timeline, "0B1"), (Span{0, ParseAction("0B1"), 71, 78}));
  EXPECT_EQ(timeline.name, "gpipe");
}

TEST(SimulateTest, TransfersTakeLatencyAndBytes) {
  Costs costs = UniformCosts(2, {.forward = 10, .backward_input = 10, .backward_weight = 10});
  costs.edge_bytes[{0, 1}] = 40;
  costs.link = {.latency_seconds = 3, .bytes_per_second = 20};
  costs.links[{1, 0}] = {.latency_seconds = 1, .bytes_per_second = 40};
  const Timeline timeline = Simulate(GPipe(2, 1), costs);
  EXPECT_EQ(Find(timeline, "0SEND_F0>1"), (Span{0, ParseAction("0SEND_F0>1"), 10, 15}));
  EXPECT_EQ(Find(timeline, "1F0"), (Span{1, ParseAction("1F0"), 15, 25}));
  EXPECT_EQ(Find(timeline, "1SEND_B0>0"), (Span{1, ParseAction("1SEND_B0>0"), 45, 47}));
  EXPECT_EQ(Find(timeline, "0B0"), (Span{0, ParseAction("0B0"), 47, 67}));
  EXPECT_EQ(timeline.busy_seconds, (std::vector<double>{30, 30}));
}

TEST(SimulateTest, SerialLinksTakeOneTransferAtATime) {
  // 0F0, 0F1 and 0F2 take 1 s each, their transfers 4 s and 5 s of latency.
  Costs costs = UniformCosts(2, {.forward = 1});
  costs.edge_bytes[{0, 1}] = 4;
  costs.link = {.latency_seconds = 5, .bytes_per_second = 1};
  const Schedule schedule = WithTransfers(ForwardOnly({0, 1}, 3));
  Timeline timeline = Simulate(schedule, costs);
  EXPECT_EQ(Find(timeline, "0SEND_F1>1"), (Span{0, ParseAction("0SEND_F1>1"), 2, 11}));
  // Its RECV is started with the computation before its use.
  EXPECT_EQ(Find(timeline, "0SEND_F2>1").start_seconds, Find(timeline, "1F0").end_seconds);
  costs.link.serial = true;
  timeline = Simulate(schedule, costs);
  EXPECT_EQ(Find(timeline, "0SEND_F0>1"), (Span{0, ParseAction("0SEND_F0>1"), 1, 10}));
  EXPECT_EQ(Find(timeline, "0SEND_F1>1"), (Span{0, ParseAction("0SEND_F1>1"), 5, 14}));
  EXPECT_EQ(Find(timeline, "1F1").start_seconds, 14);
  // The transfers of a schedule that has none are WithTransfers()'s.
  EXPECT_EQ(Simulate(ForwardOnly({0, 1}, 3), costs).spans, timeline.spans);
}

TEST(SimulateTest, ReceivesThatAreStartedLateAreLate) {
  Costs costs = UniformCosts(2, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  costs.link.latency_seconds = 3;
  const Timeline early = Simulate(GPipe(2, 2), costs);
  Schedule late = WithTransfers(GPipe(2, 2));  // 0 ... 0RECV_B0<1 0F1 0SEND_F1>1 0RECV_B1<1 0B0 0B1
  std::swap(late.ranks[0][5], late.ranks[0][6]);
  ASSERT_EQ(late.ranks[0][6], ParseAction("0RECV_B1<1"));
  Validate(late);
  const Timeline lazy = Simulate(late, costs);
  EXPECT_EQ(Find(early, "1SEND_B1>0").start_seconds, Find(early, "1B1").end_seconds);
  EXPECT_EQ(Find(lazy, "1SEND_B1>0").start_seconds, Find(lazy, "0B0").end_seconds);
  EXPECT_GT(lazy.makespan_seconds, early.makespan_seconds);
}

TEST(SimulateTest, BytesOfARank) {
  Costs costs = UniformCosts(2, kUnit);
  costs.stages[0].activation_bytes = 100;
  costs.stages[0].static_bytes = 7;
  costs.stages[1].activation_bytes = 10;
  costs.stages[1].static_bytes = 1;
  EXPECT_EQ(Simulate(GPipe(2, 3), costs).peak_bytes, (std::vector<double>{307, 31}));
  EXPECT_EQ(Simulate(OneForwardOneBackward(2, 3), costs).peak_bytes,
            (std::vector<double>{207, 11}));
  // Two until their W at each stage. Stage 1: F0 I0 F1 I1 W0 F2 I2 W1 W2.
  EXPECT_EQ(Simulate(ZeroBubbleH1(2, 3), costs).peak_bytes, (std::vector<double>{207, 21}));
  costs.stages[1].share_freed_by_input = 0.75;
  EXPECT_EQ(Simulate(ZeroBubbleH1(2, 3), costs).peak_bytes, (std::vector<double>{207, 13.5}));
  EXPECT_EQ(Simulate(ForwardOnly({0, 1}, 3), costs).peak_bytes, (std::vector<double>{107, 11}));
  // The most comes late, when what came before is all freed.
  const Schedule late = ParseSchedule(
      "late: micro_batches=3 edges= placement=0\nrank 0: 0F0 0I0 0W0 0F1 0F2 0I1 0W1 0I2 0W2\n");
  Costs alone = UniformCosts(1, kUnit);
  alone.stages[0] = costs.stages[1];
  EXPECT_EQ(Simulate(late, alone).peak_bytes, (std::vector<double>{21}));
  // Both stages on one rank.
  EXPECT_EQ(Simulate(Interleaved(1, 2, 1), costs).peak_bytes, (std::vector<double>{118}));
}

TEST(CheckMemoryTest, NamesWhatDoesNotFit) {
  std::vector<StageCosts> stages(2);
  stages[0] = {.activation_bytes = 100, .static_bytes = 7};
  stages[1] = {.activation_bytes = 10, .static_bytes = 1};
  const double none = std::numeric_limits<double>::infinity();
  // The limits that are just enough, by Timeline::peak_bytes, and one byte less.
  for (const Schedule& schedule : {GPipe(2, 3), OneForwardOneBackward(2, 3), ZeroBubbleH1(2, 3),
                                   ForwardOnly({0, 1}, 3), WithTransfers(GPipe(2, 3))}) {
    SCOPED_TRACE(ToText(schedule));
    Costs costs = UniformCosts(2, kUnit);
    costs.stages = stages;
    const std::vector<double> enough = Simulate(schedule, costs).peak_bytes;
    CheckMemory(schedule, stages, enough);
    EXPECT_THROW(CheckMemory(schedule, stages, {enough[0] - 1, none}), Error);
    EXPECT_THROW(CheckMemory(schedule, stages, {none, enough[1] - 1}), Error);
  }
  const auto message = [&](const Schedule& schedule, const std::vector<double>& limits) {
    const Error error = ErrorOf([&] { CheckMemory(schedule, stages, limits); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    return error.message();
  };
  EXPECT_TRUE(absl::StartsWith(
      message(OneForwardOneBackward(2, 3), {200, none}),
      "CheckMemory: schedule \"1f1b\": rank 0 has 200 bytes and keeps 207 bytes at 0F1: 7 always, "
      "and activations of micro-batches, 2 at stage 0. Give it less of the model (more stages), "
      "checkpoint activations, or take a schedule"));
  EXPECT_TRUE(absl::StrContains(message(GPipe(2, 3), {none, 30}),
                                "rank 1 has 30 bytes and keeps 31 bytes at 1F2: 1 always"));
  EXPECT_TRUE(absl::StrContains(message(Interleaved(1, 2, 1), {117}),
                                "keeps 118 bytes at 1F0: 8 always, and activations of "
                                "micro-batches, 1 at stage 0, 1 at stage 1"));
  EXPECT_TRUE(absl::StrContains(message(GPipe(2, 3), {1}), "limits of 1 ranks"));
  EXPECT_TRUE(absl::StrContains(message(GPipe(3, 3), {1, 1, 1}), "has 3 stages"));
  EXPECT_TRUE(absl::StrContains(message(GPipe(2, 3), {-1, 1}), "the limit of rank 0 is -1"));
  stages[1].activation_bytes = -5;
  EXPECT_TRUE(absl::StrContains(message(GPipe(2, 3), {none, none}), "stage 1 keeps -5 bytes"));
  stages[1] = {.share_freed_by_input = 2};
  EXPECT_TRUE(absl::StrContains(message(GPipe(2, 3), {none, none}), "share_freed_by_input"));
  stages[1] = {.static_bytes = 50};
  EXPECT_TRUE(absl::StrContains(message(GPipe(2, 3), {none, 40}), "keeps 50 bytes, always"));
}

TEST(SimulateTest, MeasuredCostsGiveTheRunBack) {
  std::mt19937 random(5);
  for (int i = 0; i < 50; ++i) {
    const Schedule schedule = RandomSchedule({.stages = 4, .ranks = 1 + i % 4}, random);
    Costs costs = UniformCosts(4, {});
    for (int stage = 0; stage < 4; ++stage) {
      for (int micro_batch = 0; micro_batch < 5; ++micro_batch) {
        costs.micro_batches[{stage, micro_batch}] = {static_cast<double>(random() % 9),
                                                     static_cast<double>(random() % 9),
                                                     static_cast<double>(random() % 9)};
      }
    }
    const Timeline timeline = Simulate(schedule, costs);
    const Timeline again = Simulate(schedule, MeasuredCosts(timeline));
    ASSERT_EQ(again.spans, timeline.spans);
    ASSERT_EQ(again.makespan_seconds, timeline.makespan_seconds);
  }
}

// A run of whole backwards does not know how long I and W take.
TEST(SimulateTest, MeasuredWholeBackwardsAreNoHalves) {
  const Costs costs = UniformCosts(4, {.forward = 1, .backward_input = 1, .backward_weight = 2});
  const Timeline whole = Simulate(OneForwardOneBackward(4, 8), costs);
  const Schedule split = ZeroBubbleH1(4, 8);
  const Error refused = ErrorOf([&] { Simulate(split, MeasuredCosts(whole)); });
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(refused.message(), "takes is not known, only what a whole B does"));
  EXPECT_TRUE(absl::StrContains(refused.message(), "measure a run that divides backwards"));
  // What has whole ones goes on, and so does a measurement of halves.
  EXPECT_EQ(Simulate(GPipe(4, 8), MeasuredCosts(whole)).makespan_seconds,
            Simulate(GPipe(4, 8), costs).makespan_seconds);
  const Timeline halves = Simulate(split, costs);
  EXPECT_EQ(Simulate(split, MeasuredCosts(halves)).spans, halves.spans);
  // With the share the simulation is exact.
  Costs third = UniformCosts(4, {.forward = 1, .backward_input = 1, .backward_weight = 3});
  const Timeline measured = Simulate(OneForwardOneBackward(4, 8), third);
  EXPECT_EQ(Simulate(split, MeasuredCosts(measured, 0.75)).spans, Simulate(split, third).spans);
  for (const double share : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    const Error error = ErrorOf([&] { MeasuredCosts(whole, share); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << share;
  }
}

// Makespans by another way: the longest path through the order of each list and the flow of data.
double LongestPath(const Schedule& schedule) {
  const int m = schedule.micro_batches;
  const auto size = static_cast<size_t>(schedule.stage_count() * m);
  std::vector<double> forward(size, 0), gradient(size, 0);
  double makespan = 0;
  // As often as there are actions, at most, until nothing changes.
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& list : schedule.ranks) {
      double clock = 0;
      for (const Action& action : list) {
        const auto id = [&](int stage) {
          return static_cast<size_t>(stage * m + action.micro_batch);
        };
        for (const StageEdge& edge : schedule.edges) {
          if (action.kind == ActionKind::kForward && edge.to == action.stage) {
            clock = std::max(clock, forward[id(edge.from)]);
          }
          if (action.kind != ActionKind::kForward && action.kind != ActionKind::kBackwardWeight &&
              edge.from == action.stage) {
            clock = std::max(clock, gradient[id(edge.to)]);
          }
        }
        clock += action.kind == ActionKind::kForward          ? 2
                 : action.kind == ActionKind::kBackwardInput  ? 3
                 : action.kind == ActionKind::kBackwardWeight ? 5
                                                              : 8;
        if (action.kind == ActionKind::kBackwardWeight) continue;
        auto& end = (action.kind == ActionKind::kForward ? forward : gradient)[id(action.stage)];
        changed = changed || end != clock;
        end = clock;
      }
      makespan = std::max(makespan, clock);
    }
  }
  return makespan;
}

TEST(SimulateTest, RandomSchedulesTakeTheirLongestPath) {
  std::mt19937 random(6);
  for (int i = 0; i < 100; ++i) {
    RandomScheduleOptions options = {.stages = 2 + i % 4, .ranks = 2, .ordered = i % 3 == 0};
    options.edges = RandomEdges(options.stages, random);
    const Schedule schedule = RandomSchedule(options, random);
    ASSERT_EQ(Uniform(schedule, {2, 3, 5}).makespan_seconds, LongestPath(schedule))
        << ToText(schedule);
  }
}

TEST(SimulateTest, RefusesCostsThatFitNothing) {
  const auto message = [](auto&& change) {
    Costs costs = UniformCosts(2, kUnit);
    change(costs);
    return MessageOf([&] { Simulate(GPipe(2, 3), costs); });
  };
  EXPECT_EQ(message([](Costs& c) { c.stages.pop_back(); }),
            "Simulate: costs of 1 stages, and schedule \"gpipe\" has 2");
  EXPECT_EQ(message([](Costs& c) { c.stages[1].compute.backward_input = -1; }),
            "Simulate: backward_input of stage 1 cost -1: costs are finite and not negative");
  EXPECT_TRUE(absl::StrContains(message([](Costs& c) {
                                  c.stages[0].activation_bytes =
                                      std::numeric_limits<double>::infinity();
                                }),
                                "activation_bytes of stage 0 cost inf"));
  EXPECT_TRUE(absl::StrContains(message([](Costs& c) { c.stages[0].static_bytes = -2; }),
                                "static_bytes of stage 0 cost -2"));
  EXPECT_EQ(message([](Costs& c) { c.stages[0].share_freed_by_input = 1.5; }),
            "Simulate: share_freed_by_input of stage 0 is 1.5, not 0 to 1");
  EXPECT_EQ(message([](Costs& c) {
              c.micro_batches[{1, 3}] = {};
            }),
            "Simulate: costs of stage 1, micro-batch 3, and schedule \"gpipe\" has 2 stages and 3 "
            "micro-batches");
  EXPECT_TRUE(absl::StrContains(message([](Costs& c) {
                                  c.micro_batches[{1, 2}].forward = -1;
                                }),
                                "forward of stage 1, micro-batch 2 cost -1"));
  EXPECT_EQ(message([](Costs& c) {
              c.edge_bytes[{1, 0}] = 1;
            }),
            "Simulate: bytes of edge 1>0, which schedule \"gpipe\" has not");
  EXPECT_TRUE(absl::StrContains(message([](Costs& c) {
                                  c.edge_bytes[{0, 1}] = -1;
                                }),
                                "bytes of edge 0>1 cost -1"));
  EXPECT_EQ(message([](Costs& c) { c.link.bytes_per_second = 0; }),
            "Simulate: the bandwidth of any link is 0 bytes/s");
  EXPECT_EQ(message([](Costs& c) {
              c.links[{0, 2}] = {};
            }),
            "Simulate: costs of the link from rank 0 to rank 2, and there are 2 ranks");
  EXPECT_TRUE(absl::StrContains(message([](Costs& c) {
                                  c.links[{1, 1}] = {};
                                }),
                                "the link from rank 1 to rank 1"));
  EXPECT_TRUE(absl::StrContains(message([](Costs& c) {
                                  c.links[{0, 1}].latency_seconds = -1;
                                }),
                                "latency of the link from rank 0 to rank 1 cost -1"));
  Schedule wrong = GPipe(2, 3);
  wrong.ranks[0].pop_back();
  EXPECT_TRUE(absl::StrContains(MessageOf([&] { Uniform(wrong); }), "rank 0 has neither 0B2"));
  EXPECT_EQ(MessageOf([] { PeakBytes(Uniform(GPipe(2, 1)), {}); }),
            "PeakBytes: costs of 0 stages, and the timeline has 2");
}

}  // namespace
}  // namespace lockstep::pipeline
