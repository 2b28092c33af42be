// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/engine/engine.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/amp/training/training_step.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/engine/deepspeed_config.h"
#include "lockstep/strategies/engine/engine_support.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::engine {
namespace {

using strategies::testing_util::Outcome;
using strategies::testing_util::Rows;
using strategies::testing_util::RunRanks;

std::string Config(const std::string& more) {
  return absl::StrCat(R"({"train_batch_size": 12, "gradient_accumulation_steps": 2,
      "gradient_clipping": 1.0,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.01}},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.01,
                                                   "warmup_num_steps": 2}})",
                      more.empty() ? "" : ", ", more, "}");
}

std::shared_ptr<models::Mlp> MakeMlp(int rank) {
  ManualSeed(static_cast<uint64_t>(7 + rank));
  return std::make_shared<models::Mlp>(
      models::MlpConfig{.sizes = {3, 7, 5, 2}, .activation = models::MlpActivation::kTanh});
}

EngineOptions ByLinear() { return {.wrap_policy = strategies::WrapByType<nn::Linear>()}; }

// Losses of three steps and the parameters after them, on rank 0; nothing elsewhere.
std::vector<double> Train(const std::string& json, int rank,
                          const std::shared_ptr<comm::Communicator>& world,
                          const EngineOptions& options = ByLinear()) {
  auto model = MakeMlp(rank);
  Engine engine(model, world, ParseDeepSpeedConfig(json, world->size()), options);
  const int64_t rows = engine.config().train_micro_batch_size_per_gpu;
  std::vector<double> values;
  for (int64_t step = 0; step < 3; ++step) {
    const amp::StepReport report = engine.Step([&](int64_t micro_batch) {
      const NamedTensors batch = Rows(12 * step + (2 * world->rank() + micro_batch) * rows, rows);
      return MseLoss((*model)(batch.At("inputs")), batch.At("targets"));
    });
    values.push_back(report.loss);
  }
  for (const auto& [name, tensor] : engine.ModelState()) {
    for (const double value : tensor.ToVector<double>()) values.push_back(value);
  }
  return rank == 0 ? values : std::vector<double>();
}

std::vector<double> TrainOnRanks(int ranks, const std::string& json) {
  const std::vector<Outcome> outcomes =
      RunRanks(ranks, [&](int rank, auto world) { return Train(json, rank, world); });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.message, "");
  return outcomes[0].values;
}

void ExpectNear(const std::vector<double>& values, const std::vector<double>& wanted,
                double bound) {
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(values[i], wanted[i], bound) << i;
}

TEST(EngineTest, EveryStageTrainsAsStageZero) {
  for (const int ranks : {1, 2, 3}) {
    const std::vector<double> wanted = TrainOnRanks(ranks, Config(""));
    ASSERT_GT(wanted.size(), 3u);
    EXPECT_LT(wanted[2], wanted[0]);
    for (const std::string zero : {R"({"stage": 1})", R"({"stage": 2})", R"({"stage": 3})",
                                   R"({"stage": 1, "offload_optimizer": {"device": "cpu"}})",
                                   R"({"stage": 2, "offload_optimizer": {"device": "cpu"}})",
                                   R"({"stage": 3, "offload_optimizer": {"device": "cpu"},
              "offload_param": {"device": "cpu"}})"}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", zero));
      ExpectNear(TrainOnRanks(ranks, Config(absl::StrCat(R"("zero_optimization": )", zero))),
                 wanted, 1e-5);
    }
  }
  ExpectNear(TrainOnRanks(2, Config("")), TrainOnRanks(1, Config("")), 1e-5);
}

TEST(EngineTest, PrecisionsAndGroupsOfRanks) {
  const std::vector<double> wanted = TrainOnRanks(2, Config(""));
  for (const std::string more : {R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 1})",
                                 R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 3})",
                                 R"("bf16": {"enabled": true}, "communication_data_type": "bf16",
           "zero_optimization": {"stage": 2})",
                                 R"("fp16": {"enabled": true, "initial_scale_power": 8},
           "zero_optimization": {"stage": 3})"}) {
    SCOPED_TRACE(more);
    const std::vector<double> values = TrainOnRanks(2, Config(more));
    EXPECT_NE(values, wanted);
    ExpectNear(values, wanted, 3e-2);
  }
  const std::vector<double> four =
      TrainOnRanks(4, R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2,
             "optimizer": {"type": "SGD", "params": {"lr": 0.1}}})");
  for (const std::string zero :
       {R"({"stage": 3, "mics_shard_size": 2})", R"({"stage": 3, "zero_hpz_partition_size": 2})"}) {
    SCOPED_TRACE(zero);
    ExpectNear(TrainOnRanks(
                   4, absl::StrCat(
                          R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2,
                              "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
                              "zero_optimization": )",
                          zero, "}")),
               four, 1e-5);
  }
}

TEST(EngineTest, StatesGoFromStageToStage) {
  const std::vector<Outcome> outcomes = RunRanks(2, [&](int rank, auto world) {
    auto first = MakeMlp(rank);
    Engine three(first, world,
                 ParseDeepSpeedConfig(Config(R"("zero_optimization": {"stage": 3})"), 2),
                 ByLinear());
    const auto loss_of = [&](models::Mlp& model) {
      return [&, rank](int64_t i) {
        const NamedTensors batch = Rows(6 * rank + 3 * i, 3);
        return MseLoss(model(batch.At("inputs")), batch.At("targets"));
      };
    };
    three.Step(loss_of(*first));
    // What rank 0 has is handed to both by a file in a program; here both keep a whole.
    const NamedTensors weights = three.fsdp()->FullStateDict(/*rank0_only=*/false);
    const optim::OptimizerState moments =
        three.fsdp()->FullOptimizerState(three.optimizer(), /*rank0_only=*/false);
    auto second = MakeMlp(5);
    Engine one(second, world,
               ParseDeepSpeedConfig(Config(R"("zero_optimization": {"stage": 1})"), 2));
    one.Load(weights, moments);
    one.schedule()->LoadState(three.schedule()->SaveState());
    const double a = three.Step(loss_of(*first)).loss;
    const double b = one.Step(loss_of(*second)).loss;
    const double c = three.Step(loss_of(*first)).loss;
    const double d = one.Step(loss_of(*second)).loss;
    return std::vector<double>{a, b, c, d};
  });
  for (const Outcome& outcome : outcomes) {
    ASSERT_EQ(outcome.message, "");
    EXPECT_NEAR(outcome.values[0], outcome.values[1], 1e-6);
    EXPECT_NEAR(outcome.values[2], outcome.values[3], 1e-6);
  }
}

// A type for gradients that are float32 anyway is no change.
TEST(EngineTest, Float32GradientsGoWithEveryStage) {
  for (const int stage : {0, 1, 2, 3}) {
    const std::string zero = absl::StrCat(R"("zero_optimization": {"stage": )", stage, "}");
    EXPECT_EQ(TrainOnRanks(2, Config(absl::StrCat(zero, R"(, "communication_data_type": "fp32")"))),
              TrainOnRanks(2, Config(zero)));
  }
}

// Ranks return, and give up the group, at different times.
TEST(EngineTest, NoRankLeavesBeforeTheLastParametersHaveCome) {
  for (int i = 0; i < 20; ++i) {
    TrainOnRanks(3, Config(R"("zero_optimization": {"stage": 1})"));
  }
}

// The state is on the host, as asked for, and no rank keeps whole gradients for it.
TEST(EngineTest, StageOneOffloadedIsDoneAsStageTwo) {
  const auto zero = [](int stage) {
    return absl::StrCat(R"("zero_optimization": {"stage": )", stage,
                        R"(, "offload_optimizer": {"device": "cpu"}})");
  };
  for (const int ranks : {2, 3}) {
    EXPECT_EQ(TrainOnRanks(ranks, Config(zero(1))), TrainOnRanks(ranks, Config(zero(2))));
  }
  const std::vector<Outcome> outcomes = RunRanks(2, [&](int rank, auto world) {
    auto model = MakeMlp(rank);
    Engine engine(model, world, ParseDeepSpeedConfig(Config(zero(1)), 2), ByLinear());
    EXPECT_NE(engine.fsdp(), nullptr);
    EXPECT_TRUE(ShardsGradients(engine.config()));
    for (const Tensor& parameter : model->Parameters()) EXPECT_EQ(parameter.device(), kHost);
    return std::vector<double>();
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.message, "");
}

// As found in files: the nodes' ranks, written where there is one node.
TEST(EngineTest, ASecondCopyOverAllRanksIsNone) {
  for (const int hpz : {2, 8}) {
    const std::string json = Config(
        absl::StrCat(R"("zero_optimization": {"stage": 3, "zero_hpz_partition_size": )", hpz, "}"));
    EXPECT_EQ(TrainOnRanks(2, json),
              TrainOnRanks(2, Config(R"("zero_optimization": {"stage": 3})")));
  }
}

TEST(EngineTest, GroupsOfAnOptimizerOfOnesOwn) {
  const EngineOptions by_groups{
      .wrap_policy = strategies::WrapByType<nn::Linear>(),
      .make_optimizer =
          [](const std::vector<NamedTensors>& groups) {
            EXPECT_EQ(groups.size(), 2u);
            return std::make_unique<optim::Sgd>(
                std::vector<optim::ParameterGroup<optim::SgdOptions>>{{groups[0], {.lr = 0.1}},
                                                                      {groups[1], {.lr = 0.02}}});
          },
      .group_of = [](const std::string& name) { return absl::EndsWith(name, "bias") ? 1 : 0; }};
  const auto train = [&](int ranks, int stage) {
    const std::vector<Outcome> outcomes = RunRanks(ranks, [&](int rank, auto world) {
      return Train(absl::StrCat(R"({"train_batch_size": 12, "gradient_accumulation_steps": 2,
                                   "zero_optimization": {"stage": )",
                                stage, "}}"),
                   rank, world, by_groups);
    });
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.message, "");
    return outcomes[0].values;
  };
  const std::vector<double> wanted = train(2, 0);
  for (const int stage : {1, 2, 3}) ExpectNear(train(2, stage), wanted, 1e-5);
}

TEST(EngineTest, RefusesWhatItCannotDo) {
  const auto message = [](const std::string& json, EngineOptions options = {}) {
    const std::vector<Outcome> outcomes = RunRanks(1, [&](int rank, auto world) {
      auto model = MakeMlp(rank);
      Engine engine(model, world, ParseDeepSpeedConfig(json, 1), options);
      return std::vector<double>();
    });
    return outcomes[0].message;
  };
  EXPECT_TRUE(absl::StrContains(message(R"({"train_batch_size": 4})"), "has no \"optimizer\""));
  EXPECT_TRUE(absl::StrContains(message(Config(R"("gradient_predivide_factor": 2)")),
                                "gradient_predivide_factor 2"));
  EXPECT_TRUE(absl::StrContains(message(Config(R"("communication_data_type": "bf16")")),
                                "communication_data_type with a stage below 2"));
  EXPECT_TRUE(absl::StrContains(message(Config(R"("fp16": {"enabled": true, "auto_cast": true})")),
                                "fp16.auto_cast: leave it out"));
  EXPECT_TRUE(absl::StrContains(message(R"({"train_batch_size": 4})",
                                        {.make_optimizer = [](const auto&) { return nullptr; }}),
                                "make_optimizer returned null"));
  EXPECT_TRUE(absl::StrContains(message(R"({"train_batch_size": 4})",
                                        {.make_optimizer = [](const auto&) { return nullptr; },
                                         .group_of = [](const std::string&) { return SIZE_MAX; }}),
                                "group_of(\"layers.0.weight\") is 18446744073709551615 of 6 "
                                "parameters; number the groups from 0"));
  EXPECT_EQ(message(R"({"train_batch_size": 4})", {.make_optimizer =
                                                       [](const auto& groups) {
                                                         return std::make_unique<optim::Sgd>(
                                                             groups.at(0),
                                                             optim::SgdOptions{.lr = 0.1});
                                                       }}),
            "");
}

}  // namespace
}  // namespace lockstep::engine
