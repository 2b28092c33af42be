// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// TrainingStep under DistributedDataParallel. Ranks are threads.
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/amp/training/training_step.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::amp {
namespace {

using strategies::DistributedDataParallel;
using Values = std::vector<double>;
using RankBody = std::function<Values(int rank, std::shared_ptr<comm::Communicator> world)>;

std::vector<Values> RunRanks(int ranks, const RankBody& body) {
  std::vector<Values> values(static_cast<size_t>(ranks));
  comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
    comm::ProcessGroupOptions options = context.group_options();
    options.timeout = absl::Seconds(30);
    values[static_cast<size_t>(context.rank)] = body(context.rank, comm::InitProcessGroup(options));
  }).ThrowIfFailed();
  return values;
}

// The same on every rank.
Values ValuesOf(int ranks, const RankBody& body) {
  const std::vector<Values> values = RunRanks(ranks, body);
  for (const Values& own : values) EXPECT_EQ(own, values[0]) << "ranks differ";
  return values[0];
}

class OneWeight : public nn::Module {
 public:
  explicit OneWeight(double value) { RegisterParameter("w", &w, Full({1}, value)); }
  Tensor w;
};

// Field report: one rank overflows. All skip, with the scale halved, and the next step completes.
TEST(TrainingStepDdpTest, AnOverflowOfOneRankSkipsTheStepOfAll) {
  for (int ranks : {2, 3}) {
    const Values seen = ValuesOf(ranks, [&](int rank, auto world) {
      auto model = std::make_shared<OneWeight>(1);
      DistributedDataParallel ddp(model, world);
      optim::Adam optimizer(model->NamedParameters(), {.lr = 0.25});
      optim::Schedule schedule(&optimizer, [](int64_t) { return 1.0; });
      GradScaler scaler({.init_scale = 2, .group = world});
      TrainingStep training({.optimizers = {{&optimizer, &schedule}},
                             .scaler = &scaler,
                             .clip_norm = 10.0,
                             .group = world});
      Values values;
      for (int step = 0; step < 4; ++step) {
        const double before = model->w.template Item<double>();
        const bool overflow = step == 1 && rank == ranks - 1;
        const StepReport report =
            training.Run([&](int64_t) { return Sum(model->w * (overflow ? 3e38 : 1.0)); });
        const double after = model->w.template Item<double>();
        EXPECT_EQ(after == before, step == 1);
        EXPECT_EQ(report.found_inf, step == 1);
        for (double value : {report.stepped ? 1.0 : 0.0, scaler.scale(),
                             static_cast<double>(schedule.step()), after, report.loss}) {
          values.push_back(value);
        }
      }
      values.push_back(static_cast<double>(optimizer.SaveState().numbers.at("w.step")));
      return values;
    });
    EXPECT_EQ(seen[5], 0);
    EXPECT_EQ(seen[6], 1) << "scale";
    EXPECT_EQ(seen[7], 1) << "schedule";
    EXPECT_EQ(seen[10], 1);
    EXPECT_EQ(seen.back(), 3) << "steps of Adam";
  }
}

TEST(TrainingStepDdpTest, ScalersWithoutTheGroupAreRefused) {
  ValuesOf(2, [](int, auto world) {
    OneWeight model(1);
    optim::Sgd optimizer(model.NamedParameters(), {.lr = 1});
    GradScaler alone;
    const Error error = ErrorOf([&] {
      TrainingStep training({.optimizers = {{&optimizer}}, .scaler = &alone, .group = world});
    });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(error.message(), ::testing::HasSubstr("group of 2 ranks and its scaler has none"));
    GradScaler off({.enabled = false});
    TrainingStep training({.optimizers = {{&optimizer}}, .scaler = &off, .group = world});
    return Values();
  });
}

// Field report: rank 0 has one token with gradient 4, rank 1 three with gradient 0.
TEST(TrainingStepDdpTest, WeightsCountTokensOfAllRanks) {
  for (double scale : {0.0, 256.0}) {
    const Values seen = ValuesOf(2, [&](int rank, auto world) {
      auto model = std::make_shared<OneWeight>(3);
      DistributedDataParallel ddp(model, world);
      optim::Sgd optimizer(model->NamedParameters(), {.lr = 1});
      GradScaler scaler({.enabled = scale > 0, .init_scale = 256, .group = world});
      TrainingStep training(
          {.optimizers = {{&optimizer}}, .scaler = &scaler, .group = world, .no_sync = [&] {
             return std::make_shared<DistributedDataParallel::NoSync>(ddp);
           }});
      const auto gradient = [&](double value) {
        return [&, value](int64_t) { return Sum(model->w * value); };
      };
      Values values;
      const auto note = [&](const StepReport& report) {
        values.push_back(report.loss);
        values.push_back(model->w.template Item<double>());
      };
      note(training.RunWeighted(gradient(rank == 0 ? 4 : 0), {rank == 0 ? 1.0 : 3.0}));
      // The same three tokens in micro-batches of 1 and 2, beside a window without any.
      const Values split = {1, 2, 0};
      note(training.RunWeighted(
          gradient(rank == 0 ? 4 : 0),
          rank == 0 ? absl::MakeConstSpan(split.data(), 1) : absl::MakeConstSpan(split)));
      // No tokens anywhere, with losses that are means over nothing.
      note(training.RunWeighted([&](int64_t) { return Sum(model->w * 0.0) + std::nan(""); }, {0}));
      return values;
    });
    EXPECT_EQ(seen, (Values{3, 2, 2, 1, 0, 1})) << "a mean of means would step by 2";
  }
}

// Accumulation with NoSync is one bigger batch: the same weights, and one reduction a step.
TEST(TrainingStepDdpTest, AccumulatesWithOneReductionAStep) {
  const auto train = [](int64_t micro_batches) {
    return ValuesOf(2, [&](int rank, auto world) {
      auto model = std::make_shared<OneWeight>(0.5);
      DistributedDataParallel ddp(model, world);
      optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.125, .momentum = 0.5});
      TrainingStep training(
          {.optimizers = {{&optimizer}},
           .micro_batches = micro_batches,
           .group = world,
           .no_sync = [&] { return std::make_shared<DistributedDataParallel::NoSync>(ddp); }});
      const int64_t rows = 4 / micro_batches;
      Values values;
      for (int step = 0; step < 3; ++step) {
        const int64_t before = world->sequence();
        const StepReport report = training.Run([&](int64_t i) {
          const double first = static_cast<double>(16 * step + 8 * rank + rows * i);
          const Tensor x = Arange(first, first + static_cast<double>(rows)) * 0.0625;
          return Mean(x * model->w);
        });
        EXPECT_EQ(world->sequence() - before, 2) << "a bucket and the loss";
        values.push_back(report.loss);
        values.push_back(model->w.template Item<double>());
      }
      return values;
    });
  };
  const Values whole = train(1);
  EXPECT_EQ(train(2), whole);
  EXPECT_EQ(train(4), whole);
}

models::Gpt2Config TinyGpt() {
  return {.layers = 2, .heads = 2, .width = 8, .block = 4, .vocabulary = 11};
}

TEST(TrainingStepDdpTest, ALossOfOneRankEndsTheStepOfAllAndNamesItsSource) {
  for (int ranks : {2, 3}) {
    ValuesOf(ranks, [&](int rank, auto world) {
      ManualSeed(4, rank);
      auto model = std::make_shared<models::Gpt2>(TinyGpt());
      DistributedDataParallel ddp(model, world);
      optim::AdamW optimizer(model->NamedParameters(), {});
      TrainingStep training(
          {.optimizers = {{&optimizer}}, .module = model.get(), .clip_norm = 1.0, .group = world});
      const Tensor ids = FromVector<int64_t>({1, 2, 3, 4}, {1, 4});
      const auto forward = [&](bool bad) {
        return [&, bad](int64_t) {
          const Tensor loss = model->Loss(ids, ids);
          return bad ? Log(loss * 0.0) : loss;
        };
      };
      for (int step = 0; step < 3; ++step) {
        const bool bad = rank == 1;
        const Values before = model->Parameters()[0].template ToVector<double>();
        const Error error = ErrorOf([&] { training.Run(forward(bad)); });
        EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(error.message(),
                    ::testing::HasSubstr(bad ? "begins with op Log" : "on another rank"));
        EXPECT_EQ(model->Parameters()[0].template ToVector<double>(), before);
        EXPECT_TRUE(training.Run(forward(false)).stepped) << "the ranks are still in step";
      }
      return model->Parameters()[0].template ToVector<double>();
    });
  }
}

TEST(TrainingStepDdpTest, NamesAParameterOfADeepModel) {
  ManualSeed(4);
  models::Gpt2 model(TinyGpt());
  optim::AdamW optimizer(model.NamedParameters(), {});
  TrainingStep training({.optimizers = {{&optimizer}}, .module = &model});
  const Tensor ids = FromVector<int64_t>({1, 2, 3, 4}, {1, 4});
  const auto forward = [&](int64_t) { return model.Loss(ids, ids); };
  EXPECT_TRUE(training.Run(forward).stepped);
  const Tensor weight = Detach(model.NamedParameters().At("transformer.h.1.mlp.c_fc.weight"));
  FillInPlace(Slice(Slice(weight, 0, 3, 4), 1, 5, 6), std::nan(""));
  EXPECT_THAT(MessageOf([&] { training.Run(forward); }),
              ::testing::HasSubstr(
                  "begins with parameter \"transformer.h.1.mlp.c_fc.weight\": float32[32, 8] on "
                  "cpu:0 has nan at [3, 5]"));
  // All parameters finite, but too large together.
  ZeroInPlace(weight);
  FillInPlace(Detach(model.NamedParameters().At("transformer.h.1.mlp.c_fc.bias")), 3e38);
  FillInPlace(Detach(model.NamedParameters().At("transformer.h.1.mlp.c_proj.weight")), 1e3);
  EXPECT_THAT(
      MessageOf([&] { training.Run(forward); }),
      ::testing::HasSubstr("op Linear, output 0 (y) in module \"transformer.h.1.mlp.c_proj\""));
}

}  // namespace
}  // namespace lockstep::amp
