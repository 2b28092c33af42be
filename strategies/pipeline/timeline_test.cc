// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/pipeline/timeline.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing.h"
#include "lockstep/strategies/pipeline/schedule.h"

namespace lockstep::pipeline {
namespace {

Span At(int rank, const char* action, double start, double end) {
  return {rank, ParseAction(action), start, end};
}

TEST(TimelineTest, CountsWhatWasMeasured) {
  // On a clock that began long before, and not in order.
  const Timeline timeline =
      MakeTimeline({At(1, "1B0", 1003, 1005), At(0, "0F0", 1000, 1001), At(0, "0B0", 1006, 1008),
                    At(0, "0F1", 1001, 1002), At(1, "1F0", 1002, 1003), At(1, "1F1", 1005, 1006),
                    At(1, "1B1", 1006, 1008), At(0, "0B1", 1008, 1010),
                    At(0, "0SEND_F0>1", 1001, 1002), At(0, "0RECV_B0<1", 999, 1006)},
                   2);
  EXPECT_EQ(timeline.ranks, 2);
  EXPECT_EQ(timeline.makespan_seconds, 10);
  EXPECT_EQ(timeline.busy_seconds, (std::vector<double>{6, 6}));
  EXPECT_EQ(timeline.idle_seconds, (std::vector<double>{4, 4}));
  EXPECT_DOUBLE_EQ(timeline.bubble, 0.4);
  EXPECT_EQ(timeline.peak_in_flight, (std::vector<int>{2, 1}));
  EXPECT_TRUE(timeline.peak_bytes.empty());
  EXPECT_EQ(timeline.spans.size(), 10u);
  EXPECT_EQ(timeline.spans[0], At(0, "0RECV_B0<1", -1, 6));
  EXPECT_EQ(timeline.spans[1], At(0, "0F0", 0, 1));
  EXPECT_EQ(timeline.spans.back(), At(1, "1B1", 6, 8));
}

TEST(TimelineTest, InFlightEndsWithTheWeights) {
  const Timeline timeline =
      MakeTimeline({At(0, "0F0", 0, 1), At(0, "0I0", 1, 2), At(0, "0F1", 2, 3), At(0, "0I1", 3, 4),
                    At(0, "0W0", 4, 5), At(0, "0F2", 5, 6), At(0, "0W1", 6, 7), At(0, "0B2", 7, 8)},
                   1);
  EXPECT_EQ(timeline.peak_in_flight, (std::vector<int>{2}));
  EXPECT_EQ(timeline.bubble, 0);
  // What never runs backward keeps nothing.
  EXPECT_EQ(MakeTimeline({At(0, "0F0", 0, 1), At(0, "0F1", 1, 2)}, 1).peak_in_flight,
            (std::vector<int>{1}));
}

TEST(TimelineTest, EmptyOnes) {
  const Timeline nothing = MakeTimeline({}, 3);
  EXPECT_EQ(nothing.makespan_seconds, 0);
  EXPECT_EQ(nothing.bubble, 0);
  EXPECT_EQ(nothing.idle_seconds, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(MakeTimeline({At(0, "0SEND_F0>1", 5, 6)}, 2).makespan_seconds, 0);
  // Computations that took no time: their order is that of the list given.
  const Timeline instant = MakeTimeline({At(0, "0F0", 2, 2), At(0, "0B0", 2, 2)}, 1);
  EXPECT_EQ(instant.makespan_seconds, 0);
  EXPECT_EQ(instant.peak_in_flight, (std::vector<int>{1}));
}

TEST(TimelineTest, RefusesNamingTheSpan) {
  const auto message = [](std::vector<Span> spans) {
    return MessageOf([&] { MakeTimeline(std::move(spans), 2); });
  };
  EXPECT_EQ(message({At(2, "0F0", 0, 1)}),
            "MakeTimeline: 0F0 on rank 2 from 0 to 1 s: there are 2 ranks");
  EXPECT_TRUE(absl::StrContains(message({At(-1, "0F0", 0, 1)}), "there are 2 ranks"));
  EXPECT_EQ(message({At(1, "1B0", 2, 1)}),
            "MakeTimeline: 1B0 on rank 1 from 2 to 1 s: no stage, or an end before the start");
  EXPECT_EQ(message({At(0, "0F1", 1, 3), At(0, "0F0", 0, 2)}),
            "MakeTimeline: 0F1 on rank 0 from 1 to 3 s: it overlaps 0F0 on rank 0 from 0 to 2 s");
}

}  // namespace
}  // namespace lockstep::pipeline
