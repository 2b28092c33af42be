// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/stage.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/strategies/model_parallel/place_blocks.h"
#include "lockstep/strategies/pipeline/balance.h"
#include "lockstep/strategies/pipeline/micro_batches.h"
#include "lockstep/strategies/pipeline/stage_streams.h"
#include "lockstep/strategies/pipeline/stage_tree.h"
#include "lockstep/strategies/pipeline/wiring.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::pipeline {
namespace {

std::vector<int64_t> Sizes(const std::vector<std::vector<Tensor>>& micro_batches) {
  std::vector<int64_t> sizes;
  for (const auto& tensors : micro_batches) sizes.push_back(tensors[0].size(0));
  return sizes;
}

TEST(Stage, SplitSequentialKeepsNamesAndValues) {
  nn::Sequential model({std::make_shared<nn::Linear>(3, 5), std::make_shared<nn::Tanh>(),
                        std::make_shared<nn::Linear>(5, 2)});
  const std::vector<Stage> stages = SplitSequential(model, {1, 2});
  ASSERT_EQ(stages.size(), 3u);
  StageTree tree;
  for (const auto& [path, module] : stages[2].parts) tree.Add(path, module);
  EXPECT_EQ(tree.NamedParameters().Names(), (std::vector<std::string>{"2.weight", "2.bias"}));
  const Tensor x = Reshape(Arange(6.0), {2, 3});
  TensorList y = {x};
  for (const Stage& stage : stages) y = stage.forward(y);
  EXPECT_EQ(y[0].ToVector<float>(), model(x).ToVector<float>());
}

TEST(Stage, RefusesSplitPointsThatDoNotRise) {
  const nn::Sequential model(
      {std::make_shared<nn::Tanh>(), std::make_shared<nn::Tanh>(), std::make_shared<nn::Tanh>()});
  for (const std::vector<int64_t>& points :
       std::vector<std::vector<int64_t>>{{0}, {3}, {2, 1}, {1, 1}, {-1}, {1, 2, 3}}) {
    const Error error = ErrorOf([&] { SplitSequential(model, points); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(error.message(), "3 layers")) << error.message();
  }
  EXPECT_EQ(SplitSequential(model, {}).size(), 1u);
  EXPECT_EQ(ErrorOf([] { MakeStage("a", nullptr); }).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Stage, TreesHaveTheNamesOfTheUnsplitModel) {
  StageTree tree;
  tree.Add("transformer.h.0", std::make_shared<nn::Linear>(2, 2));
  tree.Add("transformer.h.2", std::make_shared<nn::Linear>(2, 2));
  tree.Add("transformer.wte", std::make_shared<nn::Linear>(2, 2));
  EXPECT_EQ(tree.StateDict().Names(),
            (std::vector<std::string>{"transformer.h.0.weight", "transformer.h.0.bias",
                                      "transformer.h.2.weight", "transformer.h.2.bias",
                                      "transformer.wte.weight", "transformer.wte.bias"}));
  for (const std::string path :
       {"", "a..b", ".", "transformer.h.2", "transformer.h", "transformer.h.2.inner"}) {
    EXPECT_EQ(ErrorOf([&] { tree.Add(path, std::make_shared<nn::Tanh>()); }).code(),
              absl::StatusCode::kInvalidArgument)
        << path;
  }
  EXPECT_EQ(ErrorOf([&] { tree.Add("b", nullptr); }).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Balance, CutsByCountBytesAndCost) {
  EXPECT_EQ(SplitPoints(std::vector<double>{1, 1, 1, 1, 4}, 2), (std::vector<int64_t>{4}));
  const nn::Sequential model({std::make_shared<nn::Linear>(3, 50), std::make_shared<nn::Tanh>(),
                              std::make_shared<nn::Linear>(50, 50)});
  const std::vector<double> bytes = strategies::BlockBytes(strategies::BlocksOf(model));
  EXPECT_EQ(bytes, (std::vector<double>{800, 0, 10200}));
  EXPECT_EQ(SplitPoints(bytes, 2), (std::vector<int64_t>{2}));
  const std::vector<double> ones(3, 1);
  EXPECT_EQ(SplitPoints(ones, 3), (std::vector<int64_t>{1, 2}));
  const std::string message = MessageOf([&] { SplitPoints(ones, 4); });
  EXPECT_TRUE(absl::StrContains(message, "4")) << message;
  EXPECT_TRUE(absl::StrContains(message, "3")) << message;
}

TEST(MicroBatches, RowsAreSplitAndJoined) {
  const Tensor x = Reshape(Arange(16.0), {8, 2});
  const auto parts = SplitRows({x, Tensor()}, 3, "input");
  EXPECT_EQ(Sizes(parts), (std::vector<int64_t>{3, 3, 2}));
  EXPECT_FALSE(parts[0][1].defined());
  EXPECT_EQ(MergeRows({{parts[0][0]}, {parts[1][0]}, {parts[2][0]}})[0].ToVector<float>(),
            x.ToVector<float>());
  // Where chunks would leave the last one empty.
  EXPECT_EQ(Sizes(SplitRows({Ones({5})}, 4, "input")), (std::vector<int64_t>{2, 1, 1, 1}));
  const Tensor joined = MergeRows({{Full({}, 1.0)}, {Full({}, 2.0)}})[0];
  EXPECT_EQ(joined.ToVector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(ErrorOf([] { SplitRows({Ones({3})}, 4, "input"); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([] {
              SplitRows({Ones({4}), Ones({5})}, 2, "input");
            }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([] {
              MergeRows({{Ones({1})}, {}});
            }).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Wiring, HasItsEdges) {
  const Wiring wiring = {{{kBatch, 0}}, {{0, 0}}, {{1, 0}, {0, 1}, {0, 0}, {0, 1}}};
  EXPECT_EQ(EdgesOf(wiring), (std::vector<StageEdge>{{0, 1}, {0, 2}, {1, 2}}));
  EXPECT_EQ(OutputsOnEdge(wiring, {0, 2}), (std::vector<int>{1, 0}));
}

TEST(StageStreams, AreApartForEachStageAndMicroBatch) {
  ManualSeed(3);
  const RandomStreams start = ThreadGenerators();
  EXPECT_EQ(StageStreams(start, 0, 3, 0).dropout.key, start.dropout.key);
  EXPECT_EQ(StageStreams(start, 2, 3, 1).dropout.key.offset,
            start.dropout.key.offset + (uint64_t{5} << 32));
  EXPECT_EQ(StreamsAfter(start, 3, 2).dropout.key.offset,
            start.dropout.key.offset + (uint64_t{6} << 32));
  EXPECT_EQ(StageStreams(start, 2, 3, 1).parameters.key, start.parameters.key);
  // Noise is apart as dropout is, and the caller's stream is not touched.
  EXPECT_NE(StageStreams(start, 0, 3, 0).data.key.stream, start.data.key.stream);
  EXPECT_NE(StageStreams(start, 0, 3, 1).data.key, StageStreams(start, 1, 3, 1).data.key);
  EXPECT_EQ(StreamsAfter(start, 3, 2).data.key, start.data.key);
}

}  // namespace
}  // namespace lockstep::pipeline
