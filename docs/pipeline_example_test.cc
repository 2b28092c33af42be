// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of pipeline.md, and its commands: what they print stands in the page, and what they
// draw is in docs/images.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/testing.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/strategies/pipeline/draw.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/simulate.h"
#include "lockstep/strategies/pipeline/timeline.h"

namespace lockstep {
namespace {

constexpr char kPage[] = "docs/pipeline.md";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(PipelineExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled(kPage, "docs/pipeline_example_test.cc");
}

TEST(PipelineExample, CommandsPrintAndDrawWhatThePageHas) {
  const std::string page = ReadFile(kPage);
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/");
  int printed = 0, drawn = 0;
  for (absl::string_view flags : absl::StrSplit(page, '\n')) {
    if (!absl::ConsumePrefix(&flags, "    ./bazelw run //tools:pipeline_schedule -- ")) continue;
    SCOPED_TRACE(flags);
    const std::string command = absl::StrCat(
        "tools/pipeline_schedule ", absl::StrReplaceAll(flags, {{"docs/images/", folder}}));
    FILE* pipe = popen(command.c_str(), "r");
    std::string output;
    for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) output.push_back(static_cast<char>(c));
    ASSERT_EQ(WEXITSTATUS(pclose(pipe)), 0);
    const std::vector<absl::string_view> picture = absl::StrSplit(flags, "--svg=docs/images/");
    if (picture.size() == 2) {
      EXPECT_EQ(ReadFile(absl::StrCat("docs/images/", picture[1])),
                ReadFile(absl::StrCat(folder, picture[1])))
          << "run the command again, and commit what it draws";
      ++drawn;
    } else {
      EXPECT_TRUE(absl::StrContains(page, output)) << "the page lacks\n" << output;
      ++printed;
    }
  }
  EXPECT_EQ(drawn, 4);
  EXPECT_EQ(printed, 5);
}

TEST(PipelineExample, CostsOfItsOwn) {
  pipeline::Costs costs =
      pipeline::UniformCosts(4, {.forward = 2, .backward_input = 2, .backward_weight = 2});
  costs.stages[3].compute.forward = 3;          // the head
  costs.stages[0].activation_bytes = 64 << 20;  // of a micro-batch
  costs.edge_bytes[{0, 1}] = 8 << 20;
  costs.links[{0, 1}] = {.latency_seconds = 0.25, .bytes_per_second = 8 << 20, .serial = true};
  const pipeline::Timeline timeline = pipeline::Simulate(pipeline::ZeroBubbleH1(4, 8), costs);
  std::cout << pipeline::DrawText(timeline, /*width=*/120);
  std::cout << timeline.bubble << " idle, rank 0 keeps " << timeline.peak_bytes[0] << " bytes\n";
  EXPECT_EQ(timeline.peak_bytes[0], 4 * (64 << 20));
  EXPECT_EQ(timeline.peak_in_flight[0], 4);
}

pipeline::Schedule EagerOneForwardOneBackward(int stages, int micro_batches) {
  pipeline::Schedule schedule = pipeline::OneForwardOneBackward(stages, micro_batches);
  schedule.name = "eager_1f1b";
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<pipeline::Action> list;
    const int warm_up = std::min(2 * (stages - 1 - stage), micro_batches);
    int forward = 0;
    while (forward < warm_up) list.push_back({pipeline::ActionKind::kForward, stage, forward++});
    for (int i = 0; i < micro_batches; ++i) {
      if (forward < micro_batches) {
        list.push_back({pipeline::ActionKind::kForward, stage, forward++});
      }
      list.push_back({pipeline::ActionKind::kBackward, stage, i});
    }
    schedule.ranks[stage] = list;
  }
  pipeline::Validate(schedule);
  return schedule;
}

TEST(PipelineExample, EagerSchedulesHideTransfers) {
  pipeline::Costs costs =
      pipeline::UniformCosts(4, {.forward = 2, .backward_input = 2, .backward_weight = 2});
  costs.link.latency_seconds = 1;
  const double plain =
      pipeline::Simulate(pipeline::OneForwardOneBackward(4, 16), costs).makespan_seconds;
  const double eager =
      pipeline::Simulate(EagerOneForwardOneBackward(4, 16), costs).makespan_seconds;
  EXPECT_EQ(plain, 142);
  EXPECT_EQ(eager, 120);
}

TEST(PipelineExample, RanksThatWaitForEachOtherAreNamed) {
  const pipeline::Schedule schedule = pipeline::ParseSchedule(
      "mine: micro_batches=2 edges=0>1 placement=0,1\n"
      "rank 0: 0F0 0B0 0F1 0B1\n"
      "rank 1: 1F0 1F1 1B0 1B1\n");
  const std::string message = MessageOf([&] { pipeline::Validate(schedule); });
  EXPECT_TRUE(absl::StrContains(ReadFile(kPage), absl::StrCat("\n", message, "\n"))) << message;
}

}  // namespace
}  // namespace lockstep
