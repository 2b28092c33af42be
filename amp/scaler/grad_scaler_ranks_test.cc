// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Scalers of several ranks, as threads.
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::amp {
namespace {

using Values = std::vector<double>;
using RankBody = std::function<Values(int rank, std::shared_ptr<comm::Communicator> world)>;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<Values> RunRanks(int ranks, const RankBody& body) {
  std::vector<Values> values(static_cast<size_t>(ranks));
  comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
    comm::ProcessGroupOptions options = context.group_options();
    options.timeout = absl::Seconds(30);
    values[static_cast<size_t>(context.rank)] = body(context.rank, comm::InitProcessGroup(options));
  }).ThrowIfFailed();
  return values;
}

// Field report: an overflow that one rank sees skips the step of all, and the next step completes.
TEST(GradScalerRanksTest, AgreeOnAnOverflow) {
  for (int ranks : {2, 3}) {
    for (int culprit = 0; culprit < ranks; ++culprit) {
      const auto results = RunRanks(ranks, [&](int rank, auto world) {
        GradScaler scaler({.init_scale = 2, .group = world});
        const Tensor w = autograd::SetRequiresGrad(Full({1}, 1.0), true);
        optim::Sgd optimizer({{"w", w}}, {.lr = 0.5});
        Values seen;
        for (int step = 0; step < 3; ++step) {
          const bool overflow = step == 1 && rank == culprit;
          autograd::SetGrad(w, Full({1}, overflow ? kInf : scaler.scale()));
          seen.push_back(scaler.Step(optimizer));
          scaler.Update();
          seen.push_back(scaler.scale());
          seen.push_back(w.template Item<double>());
        }
        return seen;
      });
      for (const Values& seen : results) {
        EXPECT_EQ(seen, (Values{1, 2, 0.5, 0, 1, 0.5, 1, 1, 0})) << ranks << " " << culprit;
      }
    }
  }
}

// Field report: one parameter of three elements over four ranks, so that the last holds none of it.
TEST(GradScalerRanksTest, ARankWithoutElementsTakesPart) {
  // True gradients, and an overflow in step 2 of element 1; the result of one rank with all.
  const auto train = [](const Tensor& w, int first, int count,
                        std::shared_ptr<comm::Communicator> world, bool without_gradient) {
    GradScaler scaler({.init_scale = 8, .growth_interval = 2, .group = world});
    optim::Sgd optimizer({{"w", w}}, {.lr = 0.5});
    Values seen;
    for (int step = 0; step < 4; ++step) {
      std::vector<float> gradient;
      for (int i = first; i < first + count; ++i) {
        gradient.push_back(static_cast<float>((1 + i + 3 * step) * scaler.scale()));
        if (step == 2 && i == 1) gradient.back() = kInf;
      }
      if (!without_gradient) autograd::SetGrad(w, FromVector<float>(gradient, {count}));
      scaler.UnscaleGradients(optimizer);
      scaler.Step(optimizer);
      scaler.Update();
      seen.push_back(scaler.scale());
    }
    return seen;
  };
  const Tensor whole = autograd::SetRequiresGrad(Zeros({3}), true);
  const Values scales = train(whole, 0, 3, nullptr, false);
  EXPECT_EQ(scales, (Values{8, 16, 8, 8}));
  const Values expected = whole.ToVector<double>();
  EXPECT_EQ(expected, (Values{-7.5, -9, -10.5}));
  for (bool without_gradient : {false, true}) {
    RunRanks(4, [&](int rank, auto world) {
      const int count = rank < 3 ? 1 : 0;
      const Tensor shard = autograd::SetRequiresGrad(Zeros({count}), true);
      EXPECT_EQ(train(shard, rank, count, world, without_gradient && count == 0), scales);
      if (count > 0) {
        EXPECT_EQ(shard.template Item<double>(), expected[static_cast<size_t>(rank)]);
      }
      return Values();
    });
  }
}

TEST(GradScalerRanksTest, NoGradientOnAnyRankIsOneClearErrorOnAll) {
  RunRanks(3, [](int, auto world) {
    GradScaler scaler({.group = world});
    const Tensor w = autograd::SetRequiresGrad(Full({1}, 1.0), true);
    optim::Sgd optimizer({{"w", w}}, {.lr = 0.5});
    for (int step = 0; step < 3; ++step) {
      const Error error = ErrorOf([&] { scaler.Step(optimizer); });
      EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(error.message(), ::testing::HasSubstr("has a gradient on any rank"));
    }
    autograd::SetGrad(w, Full({1}, scaler.scale()));
    EXPECT_TRUE(scaler.Step(optimizer));
    scaler.Update();
    EXPECT_EQ(w.template Item<double>(), 0.5);
    return Values();
  });
}

}  // namespace
}  // namespace lockstep::amp
