// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// FullyShardedDataParallel inside the stages of a pipeline: four ranks are two pipelines of two
// stages, and the ranks of one stage share its parameters, gradients and optimizer state.
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
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/testing.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::equivalence {
namespace {

using pipeline::testing_util::Inputs;
using pipeline::testing_util::MakeMlp;
using pipeline::testing_util::OnRanks;
using pipeline::testing_util::Targets;
using strategies::FullyShardedDataParallel;

constexpr int kSteps = 3;
constexpr int kReplicas = 2;
constexpr int64_t kRows = 6;  // of a replica and step
constexpr double kClip = 0.02;

struct Result {
  std::vector<double> losses;
  std::vector<double> norms;  // of the gradients before clipping
  std::map<std::string, std::vector<float>> parameters;
};

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

// The layers of a half, under their numbers in the whole.
std::shared_ptr<nn::Sequential> Half(const nn::Sequential& whole, int stage) {
  auto half = std::make_shared<nn::Sequential>();
  for (size_t i = 0; i < 4; ++i) half->Append(whole[static_cast<size_t>(stage) * 4 + i]);
  return half;
}

pipeline::testing_util::RankBody TrainSharded(const pipeline::Schedule& schedule,
                                              const Result& wanted) {
  return [&schedule, &wanted](int, const std::shared_ptr<comm::Communicator>& world) {
    const comm::DeviceMesh mesh(world, {{"pipeline", 2}, {"shard", kReplicas}});
    const int stage = mesh.Coordinate("pipeline"), replica = mesh.Coordinate("shard");
    const auto half = Half(*MakeMlp(8), stage);
    FullyShardedDataParallel fsdp(half, mesh.Group("shard"),
                                  {.wrap_policy = strategies::WrapByType<nn::Linear>()});
    std::map<int, pipeline::Stage> own;
    own[stage] = pipeline::MakeStage("half", half);
    pipeline::PipelineOptions options;
    options.schedule = schedule;
    options.loss = pipeline::testing_util::MseOf;
    options.no_sync = [&](int) { return std::make_shared<FullyShardedDataParallel::NoSync>(fsdp); };
    options.shard_group = mesh.Group("shard");
    pipeline::Pipeline pipe(std::move(own), mesh.Group("pipeline"), options);
    optim::AdamW optimizer(half->NamedParameters(), {.lr = 0.01});
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
    const NamedTensors state = fsdp.FullStateDict(/*rank0_only=*/false);
    for (const auto& [name, tensor] : state) {
      const std::string whole_name =
          std::to_string(std::stoi(name) + 4 * stage) + name.substr(name.find('.'));
      const std::vector<float>& values = wanted.parameters.at(whole_name);
      const std::vector<float> got = tensor.ToVector<float>();
      ASSERT_EQ(got.size(), values.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], values[i], 2e-6) << whole_name;
    }
    for (int step = 0; step < kSteps; ++step) {
      const auto at = static_cast<size_t>(step);
      const Tensor mean = FromVector<double>({losses[at] / kReplicas}, {1});
      mesh.Group("shard")->AllReduce(mean).Wait();
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

}  // namespace
}  // namespace lockstep::equivalence
