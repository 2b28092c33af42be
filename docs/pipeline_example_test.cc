// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of pipeline.md, and its commands: what they print stands in the page, and what they
// draw is in docs/images.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/layer_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/strategies/model_parallel/place_blocks.h"
#include "lockstep/strategies/pipeline/balance.h"
#include "lockstep/strategies/pipeline/draw.h"
#include "lockstep/strategies/pipeline/gather_timeline.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/sharded_stage.h"
#include "lockstep/strategies/pipeline/simulate.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/timeline.h"
#include "lockstep/strategies/pipeline/wiring.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

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
  const std::string folder = NewFolder() + "/";
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
  EXPECT_EQ(printed, 6);
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

TEST(PipelineExample, WhatDoesNotFitIsRefused) {
  const auto check = [] {
    std::vector<pipeline::StageCosts> stages(4, {.activation_bytes = 300 << 20});
    stages[0].static_bytes = 1200 << 20;  // parameters, gradients, optimizer state
    const double gpu = 3000.0 * (1 << 20);
    pipeline::CheckMemory(pipeline::OneForwardOneBackward(4, 8), stages, {gpu, gpu, gpu, gpu});
    pipeline::CheckMemory(pipeline::GPipe(4, 8), stages, {gpu, gpu, gpu, gpu});  // throws
  };
  const std::string message = MessageOf(check);
  EXPECT_TRUE(absl::StrContains(ReadFile(kPage), absl::StrCat("\n", message, "\n"))) << message;
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

TEST(PipelineExample, MeasuredWholeBackwards) {
  const pipeline::Timeline measured = pipeline::Simulate(pipeline::OneForwardOneBackward(4, 8),
                                                         pipeline::UniformCosts(4, {2, 2, 2}));
  const pipeline::Costs known = pipeline::MeasuredCosts(measured, /*weight_share=*/0.5);
  const double bubble = pipeline::Simulate(pipeline::ZeroBubbleH1(4, 8), known).bubble;
  EXPECT_LT(bubble, measured.bubble);
}

TEST(PipelineExample, RanksThatWaitForEachOtherAreNamed) {
  const pipeline::Schedule schedule = pipeline::ParseSchedule(
      "mine: micro_batches=2 edges=0>1 placement=0,1\n"
      "rank 0: 0F0 0B0 0F1 0B1\n"
      "rank 1: 1F0 1F1 1B0 1B1\n");
  const std::string message = MessageOf([&] { pipeline::Validate(schedule); });
  EXPECT_TRUE(absl::StrContains(ReadFile(kPage), absl::StrCat("\n", message, "\n"))) << message;
}

TEST(PipelineExample, Running) {
  ManualSeed(1);
  nn::Sequential model;
  model.Emplace<nn::Linear>(3, 17);
  model.Emplace<nn::Tanh>();
  model.Emplace<nn::Linear>(17, 17);
  model.Emplace<nn::Tanh>();
  model.Emplace<nn::Linear>(17, 2);
  const Tensor x = RandomNormal({10, 3}), y = RandomNormal({10, 2});
  std::vector<double> losses;
  const strategies::BlockList layers = strategies::BlocksOf(model);
  const std::vector<int64_t> cuts =
      pipeline::SplitPoints(strategies::BlockBytes(layers), /*stages=*/3);
  pipeline::Pipeline pipe(pipeline::SplitSequential(model, cuts),
                          {.schedule = pipeline::OneForwardOneBackward(3, 4),
                           .loss = [](TensorSpan outputs, TensorSpan targets) {
                             return MseLoss(outputs[0], targets[0]);
                           }});
  optim::Sgd optimizer(pipe.module().NamedParameters(), {.lr = 0.1});
  for (int step = 0; step < 20; ++step) {
    optimizer.ZeroGrad();
    const pipeline::StepResult result = pipe.Step({x}, {y});  // forward and backward
    pipe.ClipGradNorm(1.0);
    optimizer.Step();
    losses.push_back(result.loss);
  }
  pipe.module().Eval();
  const Tensor predicted = pipe.Evaluate({x}).outputs[0];
  std::cout << pipeline::DrawText(pipe.MeasuredTimeline(), /*width=*/100);
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(predicted.shape(), y.shape());
}

TEST(PipelineExample, RunningOverACommunicator) {
  comm::SpawnThreads(2, [](comm::RankContext& context) {
    auto world = comm::InitProcessGroup(context.group_options());
    ManualSeed(1);
    const std::string path = std::to_string(world->rank());
    const auto layer = std::make_shared<nn::Linear>(3, 3);
    const Tensor x = RandomNormal({10, 3}), y = RandomNormal({10, 3});
    pipeline::Pipeline pipe({{world->rank(), pipeline::MakeStage(path, layer)}}, world,
                            {.schedule = pipeline::ZeroBubbleH1(world->size(), 4),
                             .loss = [](TensorSpan outputs, TensorSpan targets) {
                               return MseLoss(outputs[0], targets[0]);
                             }});
    const pipeline::StepResult result = pipe.Step({x}, {y});  // the loss is known on every rank
    const pipeline::Timeline all = pipeline::GatherTimeline(*world, pipe.spans(), pipe.began_ns());
    EXPECT_GT(result.loss, 0);
    EXPECT_EQ(all.ranks, world->size());
    EXPECT_TRUE(autograd::Grad(layer->weight).defined());
  }).ThrowIfFailed();
}

// A layer each.
pipeline::Stage StageOfRank(int stage) {
  ManualSeed(1);
  return pipeline::MakeStage(std::to_string(stage), std::make_shared<nn::Linear>(3, 3));
}

TEST(PipelineExample, ShardedStages) {
  comm::SpawnThreads(4, [](comm::RankContext& context) {
    const auto world = comm::InitProcessGroup(context.group_options());
    const auto loss = [](TensorSpan outputs, TensorSpan targets) {
      return MseLoss(outputs[0], targets[0]);
    };
    const comm::DeviceMesh mesh(world, {{"shard", 2}, {"pipeline", 2}});
    const int s = mesh.Coordinate("pipeline");
    pipeline::ShardedStage sharded(
        StageOfRank(s), mesh.Group("shard"),
        {.sharding = {.wrap_policy = strategies::WrapByType<nn::Linear>()}});
    pipeline::Pipeline pipe({{s, sharded.stage()}}, mesh.Group("pipeline"),
                            {.schedule = pipeline::OneForwardOneBackward(2, 4),
                             .loss = loss,
                             .no_sync = [&](int) { return sharded.NoSync(); },
                             .shard_group = mesh.Group("shard")});
    const Tensor x = RandomNormal({8, 3}), y = RandomNormal({8, 3});
    EXPECT_GT(pipe.Step({x}, {y}).loss, 0);
    int64_t elements = 0;
    for (const Tensor& parameter : pipe.module().Parameters()) elements += parameter.numel();
    EXPECT_LT(elements, 12) << "a part of 9 + 3";
  }).ThrowIfFailed();
}

TEST(PipelineExample, StagesByHand) {
  const auto norm = std::make_shared<nn::LayerNorm>(Shape{5});
  const auto linear = std::make_shared<nn::Linear>(5, 2);
  const auto first = std::make_shared<nn::Linear>(3, 5),
             second = std::make_shared<nn::Linear>(5, 5);
  const pipeline::Stage head = {
      .parts = {{"decoder.norm", norm}, {"decoder.head", linear}},
      .forward = [=](TensorSpan in) -> TensorList { return {(*linear)((*norm)(in[0] + in[1]))}; }};
  const pipeline::Wiring wiring = {{{pipeline::kBatch, 0}},  // stage 0 takes the batch,
                                   {{0, 0}},                 // stage 1 what stage 0 made,
                                   {{1, 0}, {0, 0}}};        // and stage 2 both: a skip connection
  pipeline::Schedule schedule = pipeline::OneForwardOneBackward(3, 2);
  schedule.edges = pipeline::EdgesOf(wiring);
  pipeline::Pipeline pipe(
      {pipeline::MakeStage("encoder.0", first), pipeline::MakeStage("encoder.1", second), head},
      {.schedule = schedule,
       .loss = [](TensorSpan out, TensorSpan) { return Mean(out[0]); },
       .wiring = wiring});
  pipe.Step({Ones({4, 3})}, {});
  EXPECT_TRUE(pipe.module().StateDict().Contains("decoder.norm.weight"));
}

}  // namespace
}  // namespace lockstep
