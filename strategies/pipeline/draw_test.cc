// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/pipeline/draw.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/simulate.h"
#include "lockstep/strategies/pipeline/timeline.h"

namespace lockstep::pipeline {
namespace {

using absl::StrContains;

Timeline Unit(const Schedule& schedule) {
  return Simulate(schedule, UniformCosts(schedule.stage_count(), {1, 1, 1}));
}

TEST(DrawTextTest, OneForwardOneBackward) {
  EXPECT_EQ(DrawText(Unit(OneForwardOneBackward(3, 3)), 30),
            "1f1b: 3 ranks, makespan 15 s, bubble 40.0%\n"
            "rank 0 |F0F1F2........B0--..B1--..B2--| idle 40.0%\n"
            "rank 1 |..F0F1....B0--F2B1--..B2--....| idle 40.0%\n"
            "rank 2 |....F0B0--F1B1--F2B2--........| idle 40.0%\n");
}

TEST(DrawTextTest, GPipeAndZeroBubble) {
  EXPECT_EQ(DrawText(Unit(GPipe(2, 2)), 27),
            "gpipe: 2 ranks, makespan 9 s, bubble 33.3%\n"
            "rank 0 |F0-F1-.........B0----B1----| idle 33.3%\n"
            "rank 1 |...F0-F1-B0----B1----......| idle 33.3%\n");
  EXPECT_EQ(DrawText(Unit(ZeroBubbleH1(2, 2)), 14),
            "zb_h1: 2 ranks, makespan 7 s, bubble 14.3%\n"
            "rank 0 |F0F1..I0W0I1W1| idle 14.3%\n"
            "rank 1 |..F0I0F1I1W0W1| idle 14.3%\n");
}

TEST(DrawTextTest, StagesWhereRanksHaveSeveral) {
  EXPECT_EQ(DrawText(Unit(ForwardOnly({0, 1, 0, 1}, 2)), 15),
            "forward: 2 ranks, makespan 5 s, bubble 20.0%\n"
            "rank 0 |0F00F12F02F1...| idle 20.0%\n"
            "rank 1 |...1F01F13F03F1| idle 20.0%\n");
}

TEST(DrawTextTest, NarrowLanesKeepTheLetter) {
  EXPECT_EQ(DrawText(Unit(OneForwardOneBackward(2, 2)), 9),
            "1f1b: 2 ranks, makespan 9 s, bubble 33.3%\n"
            "rank 0 |FF..B0.B1| idle 33.3%\n"
            "rank 1 |.FB0FB1..| idle 33.3%\n");
}

TEST(DrawTextTest, RanksLineUpAndWidthIsChecked) {
  const std::string text = DrawText(Unit(GPipe(11, 1)), 33);
  EXPECT_TRUE(StrContains(text, "\nrank  0 |F"));
  EXPECT_TRUE(StrContains(text, "\nrank 10 |."));
  EXPECT_EQ(MessageOf([] { DrawText(Unit(GPipe(1, 1)), 0); }),
            "DrawText: width 0 is not 1 to 10000");
  EXPECT_TRUE(StrContains(MessageOf([] { DrawText({}, 10001); }), "width 10001"));
  EXPECT_EQ(DrawText(MakeTimeline({}, 1), 3),
            "timeline: 1 ranks, makespan 0 s, bubble 0.0%\nrank 0 |...| idle 0.0%\n");
}

TEST(DrawSvgTest, HasWhatItPromises) {
  Timeline timeline = Unit(ZeroBubbleH1(2, 2));
  timeline.name = "<my> & 'best' \"one\"";
  const std::string svg = DrawSvg(timeline);
  EXPECT_TRUE(absl::StartsWith(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox="));
  EXPECT_TRUE(absl::EndsWith(svg, "</svg>\n"));
  EXPECT_TRUE(StrContains(svg,
                          "<title>&lt;my&gt; &amp; &apos;best&apos; &quot;one&quot;: 2 ranks, "
                          "makespan 7 s, bubble 14.3%</title>"));
  EXPECT_TRUE(StrContains(svg, "rank 0<"));
  EXPECT_TRUE(StrContains(svg, "rank 1<"));
  // Stage 1's I of micro-batch 1 from 4 to 5 of 7 s, in the second lane, and its number.
  EXPECT_TRUE(StrContains(svg,
                          "<rect x=\"635.43\" y=\"70.00\" width=\"142.86\" height=\"26\" "
                          "fill=\"#3aa6a0\" fill-opacity=\"1.00\" stroke=\"#ffffff\">"
                          "<title>1I1: 4 to 5 s</title></rect>\n"
                          "<text x=\"706.86\" y=\"87.00\" text-anchor=\"middle\">1</text>"));
  for (const char* colour : {"#4c8bd6", "#3aa6a0", "#e3983e"})
    EXPECT_TRUE(StrContains(svg, colour));
  EXPECT_FALSE(StrContains(svg, "#4fae6a")) << "there is no whole backward";
  EXPECT_FALSE(StrContains(svg, "SEND")) << "transfers take no time";
  EXPECT_FALSE(StrContains(svg, "href"));
}

TEST(DrawSvgTest, TransfersAndLaterStages) {
  Costs costs = UniformCosts(4, {1, 1, 1});
  costs.link.latency_seconds = 0.5;
  const std::string svg = DrawSvg(Simulate(Interleaved(2, 2, 2), costs));
  EXPECT_TRUE(StrContains(svg, "<title>0SEND_F0&gt;1: 1 to 1.5 s</title>"));
  EXPECT_TRUE(StrContains(svg, ">transfer<"));
  EXPECT_TRUE(StrContains(svg, "fill-opacity=\"0.75\""));
}

}  // namespace
}  // namespace lockstep::pipeline
