// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Pipelines beside each other: four ranks are two pipelines of two stages. The ranks of one stage
// share its parameters, gradients and optimizer state, or have a replica each.
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/gpt2_parts.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/nn/layer_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/strategies/average_gradients.h"
#include "lockstep/strategies/fully_sharded_data_parallel/options.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/sharded_stage.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/testing.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::equivalence {
namespace {

using pipeline::ShardedStage;
using pipeline::ShardedStageOptions;
using pipeline::testing_util::Inputs;
using pipeline::testing_util::MakeMlp;
using pipeline::testing_util::OnRanks;
using pipeline::testing_util::Targets;

constexpr int kSteps = 3;
constexpr int kReplicas = 2;
constexpr int64_t kRows = 6;  // of a replica and step
constexpr double kClip = 0.02;

struct Result {
  std::vector<double> losses;
  std::vector<double> norms;  // of the gradients before clipping
  std::map<std::string, std::vector<float>> parameters;
};

void ExpectNear(const NamedTensors& state, const Result& wanted, double tolerance = 2e-6) {
  EXPECT_GT(state.size(), 0);
  for (const auto& [name, tensor] : state) {
    const std::vector<float>& values = wanted.parameters.at(name);
    const std::vector<float> got = tensor.ToVector<float>();
    ASSERT_EQ(got.size(), values.size()) << name;
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], values[i], tolerance) << name;
  }
}

Result TrainWhole() {
  const auto model = MakeMlp(8);
  optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
  Result result;
  for (int step = 0; step < kSteps; ++step) {
    const int64_t first = step * kReplicas * kRows;
    optimizer.ZeroGrad();
    const Tensor loss =
        MseLoss((*model)(Inputs(first, kReplicas * kRows)), Targets(first, kReplicas * kRows));
    autograd::Backward(loss);
    result.norms.push_back(optim::ClipGradNorm(model->Parameters(), kClip).Item<double>());
    optimizer.Step();
    result.losses.push_back(loss.Item<double>());
  }
  for (const auto& [name, tensor] : model->StateDict()) {
    result.parameters[name] = tensor.ToVector<float>();
  }
  return result;
}

// A pipeline of two ranks, whose other dimensions, if any, divide the rows: "shard", or "replicate"
// and "shard".
pipeline::testing_util::RankBody TrainSharded(const pipeline::Schedule& schedule,
                                              const Result& wanted, bool hybrid = false) {
  return [&schedule, &wanted, hybrid](int, const std::shared_ptr<comm::Communicator>& world) {
    const comm::DeviceMesh mesh(world, {{"pipeline", 2}, {"data", kReplicas}});
    const comm::DeviceMesh data =
        hybrid ? comm::DeviceMesh(mesh.Group("data"), {{"replicate", kReplicas}, {"shard", 1}})
               : comm::DeviceMesh(mesh.Group("data"), {{"shard", kReplicas}});
    const int stage = mesh.Coordinate("pipeline"), replica = mesh.Coordinate("data");
    ShardedStage sharded(
        pipeline::testing_util::CutEvenly(*MakeMlp(8), 2)[static_cast<size_t>(stage)], data,
        {.sharding = {.sharding_strategy = hybrid ? strategies::ShardingStrategy::kHybridShard
                                                  : strategies::ShardingStrategy::kFullShard,
                      .wrap_policy = strategies::WrapByType<nn::Linear>()}});
    pipeline::PipelineOptions options;
    options.schedule = schedule;
    options.loss = pipeline::testing_util::MseOf;
    options.no_sync = [&](int) { return sharded.NoSync(); };
    options.shard_group = data.Group("shard");
    pipeline::Pipeline pipe({{stage, sharded.stage()}}, mesh.Group("pipeline"), options);
    optim::AdamW optimizer(pipe.module().NamedParameters(), {.lr = 0.01});
    std::vector<double> losses;
    for (int step = 0; step < kSteps; ++step) {
      const int64_t first = (step * kReplicas + replica) * kRows;
      optimizer.ZeroGrad();
      losses.push_back(pipe.Step({Inputs(first, kRows)}, {Targets(first, kRows)}).loss);
      const double norm = pipe.ClipGradNorm(kClip).Item<double>();
      EXPECT_NEAR(norm, wanted.norms[static_cast<size_t>(step)], 1e-6) << schedule.name;
      EXPECT_GT(norm, kClip);
      optimizer.Step();
    }
    ExpectNear(sharded.fsdp().FullStateDict(/*rank0_only=*/false), wanted);
    for (int step = 0; step < kSteps; ++step) {
      const auto at = static_cast<size_t>(step);
      const Tensor mean = FromVector<double>({losses[at] / kReplicas}, {1});
      mesh.Group("data")->AllReduce(mean).Wait();
      EXPECT_NEAR(mean.Item<double>(), wanted.losses[at], 1e-6) << schedule.name;
    }
  };
}

TEST(PipelineShardingTest, ShardedStagesTrainAsTheWhole) {
  const Result wanted = TrainWhole();
  for (const pipeline::Schedule& schedule :
       {pipeline::GPipe(2, 3), pipeline::OneForwardOneBackward(2, 3),
        pipeline::OneForwardOneBackward(2, 1)}) {
    OnRanks(4, TrainSharded(schedule, wanted));
  }
}

TEST(PipelineShardingTest, HybridStagesTrainAsTheWhole) {
  const Result wanted = TrainWhole();
  const pipeline::Schedule schedule = pipeline::OneForwardOneBackward(2, 3);
  OnRanks(4, TrainSharded(schedule, wanted, /*hybrid=*/true));
}

// A unit's parameters are gone when W runs.
TEST(PipelineShardingTest, SplitBackwardsAreRefusedNamingTheAction) {
  const Result wanted = TrainWhole();
  const pipeline::Schedule schedule = pipeline::ZeroBubbleH1(2, 3);
  int named = 0;
  for (const auto& outcome : pipeline::testing_util::RunRanks(4, TrainSharded(schedule, wanted))) {
    EXPECT_NE(outcome.code, absl::StatusCode::kOk);
    named += absl::StrContains(outcome.message, "action 1W0: FullyShardedDataParallel: ") ? 1 : 0;
  }
  EXPECT_GE(named, 1);
}

// ---- Replicas that have different numbers of things to learn from ----

// Of a batch of 12 rows the first replica has 2 whose target counts, the second 5.
Tensor Counted(int64_t first, int64_t rows) {
  std::vector<float> mask;
  for (int64_t row = first; row < first + rows; ++row) {
    mask.push_back(row == 1 || row == 4 || row >= 7 ? 1 : 0);
  }
  return FromVector<float>(mask, {rows, 1});
}

Tensor CountedLoss(TensorSpan outputs, TensorSpan targets) {
  const Tensor error = outputs[0] - targets[0];
  // No row counts: 0 and a gradient of 0.
  return Sum(error * error * targets[1]) / Clamp(Sum(targets[1]), 1.0, 1e9);
}

TEST(PipelineReplicasTest, WeightsCountOverAllReplicas) {
  const auto whole = MakeMlp(8);
  const Tensor wanted =
      CountedLoss({(*whole)(Inputs(0, 2 * kRows))}, {Targets(0, 2 * kRows), Counted(0, 2 * kRows)});
  autograd::Backward(wanted);
  const auto gradients = pipeline::testing_util::GradientsOf(*whole);
  OnRanks(4, [&](int, const std::shared_ptr<comm::Communicator>& world) {
    const comm::DeviceMesh mesh(world, {{"replicate", 2}, {"pipeline", 2}});
    const int stage = mesh.Coordinate("pipeline"), replica = mesh.Coordinate("replicate");
    pipeline::Stage own =
        pipeline::testing_util::CutEvenly(*MakeMlp(8), 2)[static_cast<size_t>(stage)];
    pipeline::PipelineOptions options;
    options.schedule = pipeline::OneForwardOneBackward(2, 3);
    options.loss = CountedLoss;
    options.weight = [](TensorSpan targets) { return Sum(targets[1]).Item<double>(); };
    options.replica_group = mesh.Group("replicate");
    std::vector<Tensor> parameters;
    for (const auto& [path, module] : own.parts) {
      for (const Tensor& parameter : module->Parameters()) parameters.push_back(parameter);
    }
    options.after_last_backward = [&](int) {
      strategies::AverageGradients(parameters, *mesh.Group("replicate"));
    };
    pipeline::Pipeline pipe({{stage, own}}, mesh.Group("pipeline"), options);
    const int64_t first = replica * kRows;
    const double loss =
        pipe.Step({Inputs(first, kRows)}, {Targets(first, kRows), Counted(first, kRows)}).loss;
    const Tensor mean = FromVector<double>({loss / 2}, {1});
    mesh.Group("replicate")->AllReduce(mean).Wait();
    EXPECT_NEAR(mean.Item<double>(), wanted.Item<double>(), 1e-6);
    for (const auto& [name, values] : pipeline::testing_util::GradientsOf(pipe.module())) {
      const std::vector<float>& expected = gradients.at(name);
      ASSERT_EQ(values.size(), expected.size()) << name;
      for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-6) << name;
    }
  });
}

// ---- GPT, whose head is the embedding ----

constexpr int64_t kBlock = 5;

models::Gpt2Config TinyGpt() {
  return {.layers = 4, .heads = 2, .width = 10, .block = kBlock, .vocabulary = 11};
}

Tensor Ids(int64_t first, int64_t rows, int64_t factor) {
  std::vector<int64_t> ids;
  for (int64_t i = first * kBlock; i < (first + rows) * kBlock; ++i) {
    ids.push_back((factor * i + i / 7) % 11);
  }
  return FromVector<int64_t>(ids, {rows, kBlock});
}

Result TrainWholeGpt() {
  ManualSeed(5);
  const auto model = std::make_shared<models::Gpt2>(TinyGpt());
  optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
  Result result;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.ZeroGrad();
    const int64_t rows = kReplicas * kRows;
    for (int round = 0; round < 2; ++round) {
      const int64_t first = (2 * step + round) * rows;
      const Tensor loss = model->Loss(Ids(first, rows, 3), Ids(first, rows, 5));
      autograd::Backward(loss);
      result.losses.push_back(loss.Item<double>());
    }
    result.norms.push_back(optim::ClipGradNorm(model->Parameters(), kClip).Item<double>());
    optimizer.Step();
  }
  for (const auto& [name, tensor] : model->StateDict()) {
    result.parameters[name] = tensor.ToVector<float>();
  }
  return result;
}

// Stages of a block each, on meta until they are sharded; the copy of the embedding that is the
// head gets its values from the pipeline.
std::vector<pipeline::Stage> GptStages() {
  std::unique_ptr<models::Gpt2> model;
  {
    const nn::DeferredInitScope deferred;
    ManualSeed(5);
    model = std::make_unique<models::Gpt2>(TinyGpt());
  }
  std::vector<pipeline::Stage> stages;
  for (const models::Gpt2Part& part : models::SplitGpt2(*model, {1, 2, 3})) {
    pipeline::Stage& stage = stages.emplace_back();
    stage.parts = part.modules;
    stage.forward = [part](TensorSpan in) -> TensorList { return {part.forward(in[0])}; };
  }
  auto& head = static_cast<nn::Linear&>(*stages.back().parts.back().second);
  head.weight = autograd::SetRequiresGrad(Zeros({11, 10}), true);
  return stages;
}

TEST(PipelineShardingTest, TiedCopiesAreCutAlikeAndAccumulate) {
  const Result wanted = TrainWholeGpt();
  OnRanks(4, [&](int, const std::shared_ptr<comm::Communicator>& world) {
    const comm::DeviceMesh mesh(world, {{"shard", kReplicas}, {"pipeline", 2}});
    const int rank = mesh.Coordinate("pipeline"), replica = mesh.Coordinate("shard");
    pipeline::PipelineOptions options;
    options.schedule = pipeline::Interleaved(2, 2, 2);
    std::map<int, std::unique_ptr<ShardedStage>> sharded;
    std::map<int, pipeline::Stage> own;
    for (auto& [s, stage] : pipeline::testing_util::StagesOf(options.schedule, rank, GptStages())) {
      ShardedStageOptions sharding = {
          .sharding = {.wrap_policy = strategies::WrapByType<models::Gpt2Block>()}};
      if (s == 0) sharding.tied = {"transformer.wte.weight"};
      if (s == 3) sharding.tied = {"lm_head.weight"};
      sharded[s] = std::make_unique<ShardedStage>(stage, mesh.Group("shard"), sharding);
      own[s] = sharded[s]->stage();
    }
    options.loss = [](TensorSpan outputs, TensorSpan targets) {
      return CrossEntropy(Reshape(outputs[0], {-1, 11}), Reshape(targets[0], {-1}));
    };
    options.tied = {{{0, "transformer.wte.weight"}, {3, "lm_head.weight"}}};
    options.no_sync = [&](int s) { return sharded.at(s)->NoSync(); };
    options.shard_group = mesh.Group("shard");
    pipeline::Pipeline pipe(own, mesh.Group("pipeline"), options);
    optim::AdamW optimizer(pipe.module().NamedParameters(), {.lr = 0.01});
    for (int step = 0; step < kSteps; ++step) {
      optimizer.ZeroGrad();
      for (int round = 0; round < 2; ++round) {
        const int64_t first = ((2 * step + round) * kReplicas + replica) * kRows;
        pipe.Evaluate({Ids(first, kRows, 3)});
        pipe.Step({Ids(first, kRows, 3)}, {Ids(first, kRows, 5)});
      }
      EXPECT_NEAR(pipe.ClipGradNorm(kClip).Item<double>(), wanted.norms[static_cast<size_t>(step)],
                  1e-5);
      optimizer.Step();
    }
    for (const auto& [s, stage] : sharded) {
      ExpectNear(stage->fsdp().FullStateDict(/*rank0_only=*/false), wanted, 2e-5);
    }
  });
}

// The root's unit of the last stage has a norm beside the head: a rank would add gradients of other
// elements.
TEST(PipelineShardingTest, TiedCopiesThatAreCutDifferentlyAreRefused) {
  int named = 0;
  const auto body = [](int, const std::shared_ptr<comm::Communicator>& world) {
    const comm::DeviceMesh mesh(world, {{"shard", 2}, {"pipeline", 2}});
    const int rank = mesh.Coordinate("pipeline");
    const auto first = std::make_shared<nn::Linear>(4, 4, nn::LinearOptions{.bias = false});
    const auto norm = std::make_shared<nn::LayerNorm>(Shape{8});
    const auto second = std::make_shared<nn::Linear>(4, 4, nn::LinearOptions{.bias = false});
    pipeline::Stage stage;
    if (rank == 0) {
      stage = pipeline::MakeStage("a", first);
    } else {
      stage = pipeline::MakeStage("b", second);
      stage.parts.insert(stage.parts.begin(), {"norm", norm});
    }
    ShardedStage sharded(stage, mesh.Group("shard"), {});
    pipeline::Pipeline pipe({{rank, sharded.stage()}}, mesh.Group("pipeline"),
                            {.schedule = pipeline::GPipe(2, 2),
                             .loss = pipeline::testing_util::MseOf,
                             .tied = {{{0, "a.weight"}, {1, "b.weight"}}},
                             .shard_group = mesh.Group("shard")});
    pipe.Step({Zeros({2, 4})}, {Zeros({2, 4})});  // the first copy's ranks learn it here
  };
  for (const auto& outcome : pipeline::testing_util::RunRanks(4, body)) {
    EXPECT_NE(outcome.code, absl::StatusCode::kOk);
    named += absl::StrContains(outcome.message, "ShardedStageOptions::tied") ? 1 : 0;
  }
  EXPECT_EQ(named, 4);
}

TEST(PipelineShardingTest, TiedNamesAreParametersOfModulesOfTheirOwn) {
  OnRanks(2, [](int, const std::shared_ptr<comm::Communicator>& world) {
    const auto message = [&](const std::string& tied) {
      try {
        ShardedStage sharded(pipeline::MakeStage("a", std::make_shared<nn::Linear>(3, 2)), world,
                             {.tied = {tied}});
      } catch (const Error& error) {
        return error.message();
      }
      return std::string();
    };
    EXPECT_TRUE(absl::StrContains(message("a.weight"), "has 1 other parameters")) << "a bias";
    EXPECT_TRUE(absl::StrContains(message("a.wieght"), "is no parameter of this stage"));
    EXPECT_TRUE(absl::StrContains(message("weight"), "is no parameter of this stage"));
  });
}

}  // namespace
}  // namespace lockstep::equivalence
