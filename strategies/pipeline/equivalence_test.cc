// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A pipeline trains as accumulation on one device does, bit for bit: every schedule, 2 to 4 stages,
// 1 to 8 micro-batches, in threads and over a communicator. The default run takes some of them, the
// soak run all.
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/strategies/pipeline/random_schedule.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/testing.h"

namespace lockstep::pipeline {
namespace {

using testing_util::ExpectNear;
using testing_util::ExpectSame;
using testing_util::IsSoakRun;
using testing_util::TrainAlone;
using testing_util::TrainRanks;
using testing_util::TrainThreads;

// What there is for `ranks` ranks and a number of micro-batches.
std::vector<Schedule> SchedulesOf(int ranks, int micro_batches) {
  std::vector<Schedule> schedules = {GPipe(ranks, micro_batches),
                                     OneForwardOneBackward(ranks, micro_batches),
                                     ZeroBubbleH1(ranks, micro_batches)};
  if (micro_batches % ranks == 0) schedules.push_back(Interleaved(ranks, 2, micro_batches));
  return schedules;
}

std::string NameOf(const Schedule& schedule) {
  return absl::StrCat(schedule.name, ", ", schedule.rank_count(), " ranks, ",
                      schedule.micro_batches, " micro-batches");
}

std::vector<int> MicroBatchesToTry(int ranks) {
  if (IsSoakRun()) return {1, 2, 3, 4, 5, 6, 7, 8};
  return ranks == 4 ? std::vector<int>{3, 8} : std::vector<int>{1, ranks == 2 ? 4 : 6};
}

// Whether each stage adds gradients of weights in the order of micro-batches.
bool RunsBackwardsInOrder(const Schedule& schedule) {
  std::map<int, int> next;
  for (const std::vector<Action>& list : schedule.ranks) {
    for (const Action& action : list) {
      if (action.kind != ActionKind::kBackward && action.kind != ActionKind::kBackwardWeight) {
        continue;
      }
      if (action.micro_batch != next[action.stage]++) return false;
    }
  }
  return true;
}

TEST(PipelineEquivalence, ThreadsTrainAsAccumulationDoes) {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (const int micro_batches : MicroBatchesToTry(ranks)) {
      for (const Schedule& schedule : SchedulesOf(ranks, micro_batches)) {
        SCOPED_TRACE(NameOf(schedule));
        ExpectSame(TrainThreads(schedule, {}), TrainAlone(schedule, {}));
      }
    }
  }
}

TEST(PipelineEquivalence, RanksTrainAsAccumulationDoes) {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (const int micro_batches : MicroBatchesToTry(ranks)) {
      for (const Schedule& schedule : SchedulesOf(ranks, micro_batches)) {
        SCOPED_TRACE(NameOf(schedule));
        ExpectSame(TrainRanks(schedule, {}), TrainAlone(schedule, {}));
      }
    }
  }
}

TEST(PipelineEquivalence, RanksOverGlooTrainAsAccumulationDoes) {
  for (const Schedule& schedule : {OneForwardOneBackward(3, 5), Interleaved(2, 2, 4)}) {
    SCOPED_TRACE(NameOf(schedule));
    ExpectSame(TrainRanks(schedule, {}, "gloo"), TrainAlone(schedule, {}));
  }
}

// What one micro-batch a rank never shows: that a stage's order is kept across schedules.
TEST(PipelineEquivalence, RandomSchedulesTrainAsAccumulationDoes) {
  const int runs = IsSoakRun() ? 200 : 12;
  std::mt19937 random(20261130);
  for (int run = 0; run < runs; ++run) {
    RandomScheduleOptions options;
    options.stages = 2 + run % 4;
    options.ranks = 1 + run % options.stages;
    options.micro_batches = 1 + run % 7;
    const Schedule schedule = RandomSchedule(options, random);
    SCOPED_TRACE(ToText(schedule));
    const auto wanted = TrainAlone(schedule, {});
    ExpectSame(TrainThreads(schedule, {}), wanted);
    if (run % 3 == 0) ExpectSame(TrainRanks(schedule, {}), wanted);
  }
}

// In an order of its own at each stage gradients are other sums of the same addends.
TEST(PipelineEquivalence, SchedulesInAnyOrderTrainNearlyAsAccumulationDoes) {
  const int runs = IsSoakRun() ? 200 : 12;
  std::mt19937 random(20261201);
  int out_of_order = 0;
  for (int run = 0; run < runs; ++run) {
    RandomScheduleOptions options;
    options.stages = 2 + run % 4;
    options.ranks = 1 + run % options.stages;
    options.micro_batches = 2 + run % 6;
    options.ordered = false;
    const Schedule schedule = RandomSchedule(options, random);
    SCOPED_TRACE(ToText(schedule));
    out_of_order += RunsBackwardsInOrder(schedule) ? 0 : 1;
    const testing_util::Training training = {.layers = 9, .dropout = 0.3};
    const auto wanted = TrainAlone(schedule, training);
    const auto threads = TrainThreads(schedule, training);
    ExpectNear(threads, wanted, 1e-6);
    if (run % 3 == 0) ExpectSame(TrainRanks(schedule, training), threads);
  }
  EXPECT_GT(out_of_order, runs / 2) << "else this shows nothing";
}

TEST(PipelineEquivalence, DropoutIsThatOfAccumulation) {
  const testing_util::Training training = {.layers = 9, .dropout = 0.3};
  for (const Schedule& schedule :
       {OneForwardOneBackward(3, 4), ZeroBubbleH1(3, 4), Interleaved(2, 2, 4)}) {
    SCOPED_TRACE(NameOf(schedule));
    const auto wanted = TrainAlone(schedule, training);
    ExpectSame(TrainThreads(schedule, training), wanted);
    ExpectSame(TrainRanks(schedule, training), wanted);
  }
}

}  // namespace
}  // namespace lockstep::pipeline
