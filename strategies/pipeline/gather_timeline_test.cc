// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/gather_timeline.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/testing.h"
#include "lockstep/strategies/pipeline/timeline.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline {
namespace {

using testing_util::CutEvenly;
using testing_util::Gate;
using testing_util::Inputs;
using testing_util::MakeMlp;
using testing_util::MseOf;
using testing_util::OnRanks;
using testing_util::StagesOf;
using testing_util::Targets;

constexpr int64_t kHour = int64_t{3'600'000'000'000};

TEST(MeasureClockOffset, ClocksOfOtherHostsAreKnownWithinTheError) {
  for (const std::string backend : {"shm", "gloo"}) {
    OnRanks(
        3,
        [&](int rank, std::shared_ptr<comm::Communicator> world) {
          // Rank 1 is an hour ahead, rank 2 as much behind.
          const int64_t ahead = rank == 1 ? kHour : rank == 2 ? -kHour : 0;
          const ClockOffset offset =
              MeasureClockOffset(*world, [&] { return MonotonicNanoseconds() + ahead; });
          EXPECT_LE(std::abs(offset.nanoseconds - ahead), offset.error) << "of rank " << rank;
          std::printf("%s, rank %d: within %.1f us, off by %.1f\n", backend.c_str(), rank,
                      static_cast<double>(offset.error) / 1e3,
                      static_cast<double>(offset.nanoseconds - ahead) / 1e3);
        },
        backend);
  }
}

TEST(MeasureClockOffset, OneClockIsTakenToBeOne) {
  OnRanks(3, [](int, std::shared_ptr<comm::Communicator> world) {
    EXPECT_EQ(MeasureClockOffset(*world, &MonotonicNanoseconds).nanoseconds, 0);
  });
}

// What depends on another rank's action begins after its end, though that rank began the step long
// before.
TEST(GatherTimeline, NothingBeginsBeforeWhatItNeeds) {
  const Schedule schedule = OneForwardOneBackward(3, 4);
  Gate first_is_done;
  OnRanks(3, [&](int rank, std::shared_ptr<comm::Communicator> world) {
    std::map<int, Stage> own = StagesOf(schedule, rank, CutEvenly(*MakeMlp(8), 3));
    if (rank == 0) {
      own.at(0).forward = [&, inner = own.at(0).forward](TensorSpan in) {
        TensorList outputs = inner(in);
        absl::SleepFor(absl::Milliseconds(20));
        first_is_done.Open();
        return outputs;
      };
    }
    Pipeline pipeline(std::move(own), world, {.schedule = schedule, .loss = MseOf});
    if (rank > 0) first_is_done.Pass();
    pipeline.Step({Inputs(0, 8)}, {Targets(0, 8)});
    const Timeline timeline = GatherTimeline(*world, pipeline.spans(), pipeline.began_ns());
    EXPECT_EQ(timeline.ranks, 3);
    std::map<std::tuple<ActionKind, int, int>, Span> computed;
    for (const Span& span : timeline.spans) {
      if (IsTransfer(span.action.kind)) continue;
      computed[{span.action.kind, span.action.stage, span.action.micro_batch}] = span;
      EXPECT_EQ(span.rank, span.action.stage);
    }
    ASSERT_EQ(computed.size(), 24u) << "all ranks have all";
    constexpr double kRounding = 2e-9;
    for (int m = 0; m < 4; ++m) {
      for (int stage = 0; stage < 2; ++stage) {
        const Span& forward = computed.at({ActionKind::kForward, stage, m});
        const Span& next_forward = computed.at({ActionKind::kForward, stage + 1, m});
        EXPECT_LE(forward.end_seconds, next_forward.start_seconds + kRounding) << stage << " " << m;
        const Span& backward = computed.at({ActionKind::kBackward, stage + 1, m});
        const Span& next_backward = computed.at({ActionKind::kBackward, stage, m});
        EXPECT_LE(backward.end_seconds, next_backward.start_seconds + kRounding)
            << stage << " " << m;
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::pipeline
