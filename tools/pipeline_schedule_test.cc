// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The program as its users call it.

#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/strategies/pipeline/draw.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/simulate.h"

namespace lockstep::pipeline_schedule {
namespace {

using absl::StartsWith;
using absl::StrContains;

// The exit status, a space, and what was printed.
std::string Output(const std::string& arguments) {
  FILE* pipe = popen(absl::StrCat("tools/pipeline_schedule ", arguments, " 2>&1").c_str(), "r");
  std::string output;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) output.push_back(static_cast<char>(c));
  return absl::StrCat(WEXITSTATUS(pclose(pipe)), " ", output);
}

TEST(PipelineScheduleTest, Draws) {
  EXPECT_EQ(Output("--schedule=zb_h1 --stages=2 --micro_batches=2 --width=14"),
            "0 zb_h1: 2 ranks, makespan 0.007 s, bubble 14.3%\n"
            "rank 0 |F0F1..I0W0I1W1| idle 14.3%\n"
            "rank 1 |..F0I0F1I1W0W1| idle 14.3%\n"
            "most micro-batches in flight, by stage: 2 2\n");
  const std::string plain = Output("");
  EXPECT_TRUE(StartsWith(plain, "0 1f1b: 4 ranks, makespan 0.033 s, bubble 27.3%\n")) << plain;
  EXPECT_TRUE(StrContains(plain, "by stage: 4 3 2 1\n"));
  EXPECT_TRUE(
      StartsWith(Output("--schedule=gpipe --forward=2 --backward_input=0 --backward_weight=0"),
                 "0 gpipe: 4 ranks, makespan 0.022 s, bubble 27.3%\n"));
  EXPECT_TRUE(StartsWith(Output("--schedule=interleaved --stages=8 --stages_per_rank=2"),
                         "0 interleaved: 4 ranks, makespan 0.057 s, bubble 15.8%\n"));
  EXPECT_TRUE(StartsWith(Output("--help"), "0 Simulates a schedule"));
  EXPECT_EQ(Output("-h"), Output("--help"));
}

TEST(PipelineScheduleTest, LinksTakeTime) {
  // 1 micro-batch over 2 stages: 6 ms of work, and two transfers of 500 us + 1e6 bytes at 1 GB/s.
  const std::string flags = "--stages=2 --micro_batches=1 --latency_us=500 --transfer_bytes=1e6 ";
  EXPECT_TRUE(StrContains(Output(flags + "--bandwidth_gbps=1"), "makespan 0.009 s"));
  // Forwards that take no time: the second transfer follows the first, or does not.
  const std::string free =
      "--schedule=gpipe --stages=2 --micro_batches=2 --forward=0 "
      "--transfer_bytes=1e6 --bandwidth_gbps=1 ";
  EXPECT_TRUE(StrContains(Output(free), "makespan 0.008 s"));
  EXPECT_TRUE(StrContains(Output(free + "--serial_links"), "makespan 0.009 s"));
}

TEST(PipelineScheduleTest, CountsMemory) {
  const std::string flags = "--stages=2 --micro_batches=3 --activation_mb=10 --static_mb=1.5 ";
  EXPECT_TRUE(StrContains(Output(flags), "by stage: 2 1\nmost MiB, by rank: 21.5 11.5\n"));
  EXPECT_TRUE(StrContains(Output(flags + "--memory_limit_mb=21.5"), "most MiB, by rank: 21.5"));
  EXPECT_EQ(Output(flags + "--memory_limit_mb=22 --schedule=gpipe,1f1b --micro_batches=1,3"),
            "0 | schedule | m = 1 | m = 3 |\n"
            "|---|---|---|\n"
            "| gpipe | 50.0 % (1) | 25.0 % (3), too large |\n"
            "| 1f1b | 50.0 % (1) | 25.0 % (2) |\n");
  EXPECT_EQ(
      Output(flags + "--memory_limit_mb=30 --schedule=gpipe"),
      "1 pipeline_schedule: CheckMemory: schedule \"gpipe\": rank 0 has 31457280 bytes and "
      "keeps 33030144 bytes at 0F2: 1572864 always, and activations of micro-batches, 3 at "
      "stage 0. Give it less of the model (more stages), checkpoint activations, or take a "
      "schedule that keeps fewer micro-batches (1f1b: at most as many as there are stages)\n");
  EXPECT_TRUE(StrContains(Output("--memory_limit_mb=30"), "needs --activation_mb or --static_mb"));
  EXPECT_TRUE(
      StrContains(Output("--schedule=gpipe,1f1b --static_mb=1"), "only with --memory_limit_mb"));
  EXPECT_TRUE(StrContains(Output("--print=schedule --static_mb=1"), "--static_mb does not go"));
}

TEST(PipelineScheduleTest, WritesThePictureAndReadsSchedules) {
  const std::string svg = NewFolder() + "/picture.svg";
  EXPECT_TRUE(
      StartsWith(Output("--schedule=gpipe --stages=3 --micro_batches=3 --svg=" + svg), "0 "));
  std::ifstream file(svg);
  const std::string picture((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
  EXPECT_EQ(picture, pipeline::DrawSvg(pipeline::Simulate(
                         pipeline::GPipe(3, 3), pipeline::UniformCosts(3, {1e-3, 1e-3, 1e-3}))));

  const std::string text = NewFolder() + "/schedule.txt";
  EXPECT_EQ(Output("--stages=3 --micro_batches=3 --print=schedule > " + text), "0 ");
  EXPECT_EQ(Output("--print=schedule --file=" + text),
            absl::StrCat("0 ", pipeline::ToText(pipeline::OneForwardOneBackward(3, 3))));
  EXPECT_EQ(
      Output("--print=transfers --file=" + text),
      absl::StrCat(
          "0 ", pipeline::ToText(pipeline::WithTransfers(pipeline::OneForwardOneBackward(3, 3)))));
  EXPECT_EQ(Output("--file=" + text), Output("--stages=3 --micro_batches=3"));
}

TEST(PipelineScheduleTest, SeveralMakeATable) {
  EXPECT_EQ(Output("--schedule=gpipe,1f1b,zb_h1 --micro_batches=2,8"),
            "0 | schedule | m = 2 | m = 8 |\n"
            "|---|---|---|\n"
            "| gpipe | 60.0 % (2) | 27.3 % (8) |\n"
            "| 1f1b | 60.0 % (2) | 27.3 % (4) |\n"
            "| zb_h1 | 45.5 % (2) | 11.1 % (4) |\n");
  EXPECT_EQ(Output("--schedule=interleaved --stages=8 --stages_per_rank=2 --micro_batches=4,8"),
            "0 | schedule | m = 4 | m = 8 |\n"
            "|---|---|---|\n"
            "| interleaved | 27.3 % (4) | 15.8 % (5.5) |\n");
}

TEST(PipelineScheduleTest, RefusesInOneLine) {
  const auto refused = [](const std::string& arguments) {
    const std::string output = Output(arguments);
    EXPECT_TRUE(StartsWith(output, "1 pipeline_schedule: ")) << arguments << ": " << output;
    EXPECT_EQ(output.find('\n'), output.size() - 1) << output;
    return output.substr(std::string("1 pipeline_schedule: ").size());
  };
  EXPECT_EQ(refused("--schedule=2f2b"),
            "--schedule=2f2b: some of gpipe, 1f1b, interleaved, zb_h1 (see --help)\n");
  EXPECT_EQ(refused("--stages=0"), "--stages=0: 1 to 256 (see --help)\n");
  EXPECT_EQ(refused("--micro_batches=4,x"), "--micro_batches=x: 1 to 4096 (see --help)\n");
  EXPECT_EQ(refused("--forward=-1"), "--forward=-1: a number from 0 (see --help)\n");
  EXPECT_EQ(refused("--backward_weight=inf"),
            "--backward_weight=inf: a number from 0 (see --help)\n");
  EXPECT_EQ(refused("--transfer_bytes=1 --bandwidth_gbps=0"),
            "--bandwidth_gbps=0: more than 0 GB/s (see --help)\n");
  EXPECT_EQ(refused("--width=0"), "--width=0: 1 to 10000 (see --help)\n");
  EXPECT_EQ(refused("--print=all"), "--print=all: timeline, schedule or transfers (see --help)\n");
  EXPECT_EQ(refused("--svg="), "--svg=: a path (see --help)\n");
  EXPECT_EQ(refused("--colour=red"), "--colour=red: no such flag (see --help)\n");
  EXPECT_EQ(refused("stages"), "\"stages\" is not --flag=value (see --help)\n");
  EXPECT_EQ(refused("--stages"), "\"--stages\" is not --flag=value (see --help)\n");
  EXPECT_EQ(refused("--schedule=interleaved --stages=6 --stages_per_rank=4"),
            "--stages_per_rank=4: --stages=6 is no multiple of it (see --help)\n");
  EXPECT_EQ(refused("--schedule=gpipe --stages_per_rank=2"),
            "--stages_per_rank=2: gpipe has one stage a rank; use interleaved (see --help)\n");
  EXPECT_TRUE(StrContains(refused("--schedule=interleaved --stages=8 --stages_per_rank=2 "
                                  "--micro_batches=6"),
                          "6 micro-batches are no multiple of 4 ranks"));
  EXPECT_EQ(refused("--schedule=interleaved"),
            "--stages_per_rank=1: interleaved has several stages a rank; give 2 or more (see "
            "--help)\n");
}

TEST(PipelineScheduleTest, RefusesWhatItWouldIgnore) {
  EXPECT_TRUE(StrContains(Output("--file=x --stages=2"),
                          "1 pipeline_schedule: --stages does not go "
                          "with --file"));
  EXPECT_TRUE(StrContains(Output("--micro_batches=2,3 --svg=x"), "--svg does not go with several"));
  EXPECT_TRUE(StrContains(Output("--print=schedule --forward=3"), "--forward does not go with"));
  EXPECT_TRUE(StrContains(Output("--transfer_bytes=3"), "say something only together"));
  EXPECT_TRUE(StrContains(Output("--bandwidth_gbps=3"), "say something only together"));
  EXPECT_TRUE(StrContains(Output("--serial_links"), "--serial_links needs --bandwidth_gbps"));
  EXPECT_TRUE(StrContains(Output("--file=/nowhere/x"), "'/nowhere/x': No such file"));
  EXPECT_TRUE(StrContains(Output("--file=/dev/zero"), "'/dev/zero' has more than 16777216 bytes"));
  EXPECT_TRUE(
      StrContains(Output("--svg=/nowhere/x.svg"), "cannot write /nowhere/x.svg: No such file"));
}

TEST(PipelineScheduleTest, RefusesScheduleFiles) {
  const std::string path = NewFolder() + "/wrong.txt";
  std::ofstream(path) << "mine: micro_batches=1 edges=0>1 placement=0,1\nrank 0: 0F0 0B\n";
  EXPECT_TRUE(StrContains(Output("--file=" + path),
                          "1 pipeline_schedule: ParseSchedule: line 2: "
                          "\"0B\" is no action"));
  std::ofstream(path) << "mine: micro_batches=1 edges=0>1 placement=0,1\n"
                         "rank 0: 0B0 0F0\nrank 1: 1F0 1B0\n";
  EXPECT_TRUE(StrContains(Output("--file=" + path),
                          "schedule \"mine\": rank 0, action 0 (0B0) comes before 0F0, action 1"));
}

}  // namespace
}  // namespace lockstep::pipeline_schedule
