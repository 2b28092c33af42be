// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A pipeline trains as accumulation on one device does, bit for bit: MLP and GPT, with tied weights
// and skip connections, float32, bfloat16 and float16 with a scaler, with and without
// checkpointing, every schedule, 2 to 4 ranks, 1 to 8 micro-batches; in threads, over a
// communicator, and in processes. The default run takes all pairs of these, the soak run all.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/strategies/pipeline/random_schedule.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/testing.h"

namespace lockstep::pipeline {
namespace {

using testing_util::ExpectNear;
using testing_util::ExpectSame;
using testing_util::IsSoakRun;
using testing_util::ModelKind;
using testing_util::Precision;
using testing_util::TrainAlone;
using testing_util::Trained;
using testing_util::Training;
using testing_util::TrainRank;
using testing_util::TrainRanks;
using testing_util::TrainThreads;

std::string NameOf(const Schedule& schedule) {
  return absl::StrCat(schedule.name, ", ", schedule.rank_count(), " ranks, ",
                      schedule.micro_batches, " micro-batches");
}

// A value of each of: model, precision, checkpointing, schedule, ranks - 2, micro-batches - 1.
using Combination = std::array<int, 6>;
constexpr Combination kCounts = {4, 3, 2, 4, 3, 8};

std::optional<Schedule> ScheduleOf(const Combination& values) {
  const int ranks = values[4] + 2, micro_batches = values[5] + 1;
  if (values[3] == 0) return GPipe(ranks, micro_batches);
  if (values[3] == 1) return OneForwardOneBackward(ranks, micro_batches);
  if (values[3] == 2) return ZeroBubbleH1(ranks, micro_batches);
  if (micro_batches % ranks != 0) return std::nullopt;
  return Interleaved(ranks, 2, micro_batches);
}

Training TrainingOf(const Combination& values, const Schedule& schedule) {
  return {.model = static_cast<ModelKind>(values[0]),
          .precision = static_cast<Precision>(values[1]),
          .checkpointing = values[2] == 1,
          .layers = std::max(8, 2 * schedule.stage_count()),
          .dropout = 0.2};
}

std::vector<Combination> AllCombinations() {
  std::vector<Combination> all = {{}};
  for (size_t factor = 0; factor < kCounts.size(); ++factor) {
    std::vector<Combination> longer;
    for (Combination combination : all) {
      for (combination[factor] = 0; combination[factor] < kCounts[factor]; ++combination[factor]) {
        longer.push_back(combination);
      }
    }
    all = longer;
  }
  std::erase_if(all, [](const Combination& values) { return !ScheduleOf(values).has_value(); });
  return all;
}

// Some in which each pair of values occurs that occurs in `all`: one after another, that with the
// most new pairs.
std::vector<Combination> Pairs(const std::vector<Combination>& all) {
  using Pair = std::array<size_t, 4>;
  const auto pairs_of = [](const Combination& values) {
    std::vector<Pair> pairs;
    for (size_t i = 0; i < values.size(); ++i) {
      for (size_t j = i + 1; j < values.size(); ++j) {
        pairs.push_back({i, static_cast<size_t>(values[i]), j, static_cast<size_t>(values[j])});
      }
    }
    return pairs;
  };
  std::set<Pair> seen;
  std::vector<Combination> chosen;
  for (;;) {
    size_t most = 0;
    const Combination* best = nullptr;
    for (const Combination& values : all) {
      size_t fresh = 0;
      for (const Pair& pair : pairs_of(values)) fresh += seen.count(pair) == 0 ? 1 : 0;
      if (fresh <= most) continue;
      most = fresh;
      best = &values;
    }
    if (best == nullptr) return chosen;
    chosen.push_back(*best);
    for (const Pair& pair : pairs_of(*best)) seen.insert(pair);
  }
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

TEST(PipelineEquivalence, ThreadsAndRanksTrainAsAccumulationDoes) {
  std::vector<Combination> combinations = AllCombinations();
  if (!IsSoakRun()) combinations = Pairs(combinations);
  int skipped = 0, stepped = 0;
  for (const Combination& values : combinations) {
    const Schedule schedule = *ScheduleOf(values);
    const Training training = TrainingOf(values, schedule);
    SCOPED_TRACE(absl::StrCat(NameOf(schedule), "; training ", ToText(training)));
    const Trained wanted = TrainAlone(schedule, training);
    ExpectSame(TrainThreads(schedule, training), wanted);
    ExpectSame(TrainRanks(schedule, training), wanted);
    if (HasFailure()) return;  // the first of many
    for (const bool did : wanted.stepped) ++(did ? stepped : skipped);
  }
  EXPECT_GT(skipped, 0) << "else no found-inf was shared";
  EXPECT_GT(stepped, skipped);
  std::printf("%zu combinations; float16: %d steps, %d skipped\n", combinations.size(), stepped,
              skipped);
}

// A line of training, then the text of the schedule.
void TrainInProcess(comm::RankContext& context) {
  const size_t end = context.argument.find('\n');
  const Training training = testing_util::ParseTraining(context.argument.substr(0, end));
  const Schedule schedule = ParseSchedule(context.argument.substr(end + 1));
  const auto world = comm::InitProcessGroup(context.group_options());
  const Trained own = TrainRank(schedule, training, world);
  const Trained wanted = TrainAlone(schedule, training);
  if (own.losses != wanted.losses || own.stepped != wanted.stepped || own.parameters.empty()) {
    throw InternalError("losses or steps differ, or there are no parameters");
  }
  for (const auto& [name, values] : own.parameters) {
    if (values != wanted.parameters.at(name)) throw InternalError(absl::StrCat(name, " differs"));
  }
}

TEST(PipelineEquivalence, ProcessesTrainAsAccumulationDoes) {
  for (const Schedule& schedule :
       {OneForwardOneBackward(3, 5), ZeroBubbleH1(2, 4), Interleaved(2, 2, 4)}) {
    for (const Training& training :
         {Training{.model = ModelKind::kTiedGpt, .precision = Precision::kFloat16},
          Training{.model = ModelKind::kGpt, .checkpointing = true, .dropout = 0.2},
          Training{.model = ModelKind::kSkips, .precision = Precision::kBFloat16}}) {
      SCOPED_TRACE(absl::StrCat(NameOf(schedule), "; training ", ToText(training)));
      const comm::SpawnResult result =
          comm::Spawn(schedule.rank_count(), TrainInProcess,
                      {.argument = absl::StrCat(ToText(training), "\n", ToText(schedule)),
                       .threads_per_rank = 1});
      EXPECT_NO_THROW(result.ThrowIfFailed());
    }
  }
}

TEST(PipelineEquivalence, TrainingsGoToProcessesAsTheyAre) {
  const Training training = {.model = ModelKind::kTiedGpt,
                             .precision = Precision::kFloat16,
                             .checkpointing = true,
                             .layers = 3,
                             .steps = 4,
                             .rows = 5,
                             .dropout = 0.25,
                             .seed = 6};
  EXPECT_EQ(testing_util::ParseTraining(ToText(training)), training);
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
    const Training training = {.layers = 9, .dropout = 0.3};
    const auto wanted = TrainAlone(schedule, training);
    const auto threads = TrainThreads(schedule, training);
    ExpectNear(threads, wanted, 1e-6);
    if (run % 3 == 0) ExpectSame(TrainRanks(schedule, training), threads);
  }
  EXPECT_GT(out_of_order, runs / 2) << "else this shows nothing";
}

TEST(PipelineEquivalence, DropoutIsThatOfAccumulation) {
  const Training training = {.layers = 9, .dropout = 0.3};
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

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
