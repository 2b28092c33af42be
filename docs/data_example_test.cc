// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of data.md.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sampler.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep {
namespace {

// Points on the plane, labelled by the quadrant they lie in.
NamedTensors Quadrants(int64_t count) {
  Tensor inputs = RandomUniform({count, 2}, -1, 1);
  Tensor right = To(Greater(Select(inputs, 1, 0), 0), DType::kInt64);
  Tensor upper = To(Greater(Select(inputs, 1, 1), 0), DType::kInt64);
  return {{"inputs", inputs}, {"labels", Add(right, upper, 2)}};
}

class Squares : public data::Dataset {
 public:
  int64_t size() const override { return 1000; }
  NamedTensors Get(int64_t index, data::SampleContext& context) const override {
    const float x = static_cast<float>(index) / 1000;
    Tensor noise = RandomNormal({1}, 0, 0.01, {.generator = &context.generator});
    return {{"x", FromVector<float>({x}, {1})}, {"y", Add(noise, x * x)}};
  }
};

TEST(DataExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/data.md", "docs/data_example_test.cc");
}

TEST(DataExample, TrainsAnMlpOnRows) {
  ManualSeed(1);
  NamedTensors rows = Quadrants(600);
  auto dataset = std::make_shared<data::TensorDataset>(rows);
  auto sampler =
      std::make_shared<data::DistributedSampler>(dataset->size(), data::SamplerOptions{.seed = 1});
  data::DataLoader loader(dataset, sampler, {.batch_size = 20, .threads = 2});

  models::Mlp model({.sizes = {2, 16, 4}});
  optim::AdamW optimizer(model.NamedParameters(), {.lr = 0.02});
  double last_loss = 0;
  for (int epoch = 0; epoch < 10; ++epoch) {
    while (std::optional<NamedTensors> batch = loader.Next()) {
      optimizer.ZeroGrad();
      Tensor loss = CrossEntropy(model(batch->At("inputs")), batch->At("labels"));
      autograd::Backward(loss);
      optimizer.Step();
      last_loss = loss.Item<double>();
    }
  }
  EXPECT_LT(last_loss, 0.5) << "from ln 4 = 1.39";
}

TEST(DataExample, RowsOnDemandAndPositions) {
  auto dataset = std::make_shared<Squares>();
  auto sampler = std::make_shared<data::DistributedSampler>(
      dataset->size(), data::SamplerOptions{.rank = 1, .world_size = 3, .seed = 7});
  data::DataLoader loader(dataset, sampler, {.batch_size = 8});
  loader.Next();
  data::LoaderPosition position = loader.position();
  std::optional<NamedTensors> expected = loader.Next();

  data::DataLoader resumed(dataset, sampler, {.batch_size = 8});
  resumed.Seek(position);
  std::optional<NamedTensors> next = resumed.Next();
  EXPECT_EQ(next->At("y").ToVector<float>(), expected->At("y").ToVector<float>());
}

TEST(DataExample, EvaluatesEachRowOnce) {
  int64_t total = 0;
  for (int64_t rank = 0; rank < 4; ++rank) {
    data::SamplerOptions options{.rank = rank, .world_size = 4, .shuffle = false};
    options.remainder = data::Remainder::kExact;
    total += data::DistributedSampler(10, options).Count();
  }
  EXPECT_EQ(total, 10);
}

}  // namespace
}  // namespace lockstep
