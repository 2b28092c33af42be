// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Estimates against the formulas; //tests/equivalence:fsdp_memory_test has them against what
// training holds.
#include "lockstep/strategies/fully_sharded_data_parallel/memory_estimate.h"

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/nn/linear.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

using Options = FullyShardedDataParallelOptions;
using enum ShardingStrategy;

constexpr int64_t kLayers = 5;
constexpr int64_t kUnit = 64 * 64 + 64;  // elements; nothing needs padding
constexpr int64_t kP = 4 * kLayers * kUnit;

std::shared_ptr<models::Mlp> Deferred() {
  const nn::DeferredInitScope deferred;
  models::MlpConfig config;
  config.sizes.assign(kLayers + 1, 64);
  return std::make_shared<models::Mlp>(config);
}

MemoryEstimate Of(Options options, const MemoryEstimateOptions& estimate) {
  options.wrap_policy = WrapByType<nn::Linear>();
  return EstimateMemory(*Deferred(), options, estimate);
}

void Expect(const MemoryEstimate& bytes, int64_t parameters, int64_t gradients, int64_t optimizer,
            int64_t gathered) {
  EXPECT_EQ(bytes.parameters, parameters);
  EXPECT_EQ(bytes.gradients, gradients);
  EXPECT_EQ(bytes.optimizer, optimizer);
  EXPECT_EQ(bytes.gathered, gathered);
  EXPECT_EQ(bytes.state(), parameters + gradients + optimizer);
}

TEST(MemoryEstimateTest, TheZeroStages) {
  const int64_t unit = 4 * kUnit;  // bytes
  Expect(Of({.sharding_strategy = kNoShard}, {.ranks = 4}), kP, kP, 2 * kP, 2 * unit);
  Expect(Of({.sharding_strategy = kNoShard}, {.ranks = 4, .zero_optimizer = true}), kP, kP, kP / 2,
         2 * unit);
  Expect(Of({.sharding_strategy = kShardGradOp}, {.ranks = 4}), kP, kP / 4, kP / 2, 2 * unit);
  Expect(Of({}, {.ranks = 4}), kP / 4, kP / 4, kP / 2, 5 * unit);
  Expect(Of({.sharding_strategy = kHybridShard}, {.ranks = 4}), kP / 4, kP / 4, kP / 2, 5 * unit);
  Expect(Of({.cpu_offload = true}, {.ranks = 4}), kP / 4, kP / 4, kP / 2, 4 * unit + 3 * unit / 4);
  // One rank has everything, whatever the strategy.
  Expect(Of({}, {.ranks = 1}), kP, kP, 2 * kP, 2 * unit);
}

TEST(MemoryEstimateTest, OptionsCount) {
  const int64_t unit = 4 * kUnit;
  EXPECT_EQ(Of({}, {.ranks = 2, .optimizer_values = 1}).optimizer, kP / 2);
  EXPECT_EQ(Of({}, {.ranks = 2, .optimizer_values = 0}).optimizer, 0);
  // One unit: no others beside it.
  EXPECT_EQ(EstimateMemory(*Deferred(), {}, {.ranks = 2}).gathered, 2 * kP);
  // Kept until backward: all of them, beside the parts where these are no part of them.
  EXPECT_EQ(Of({.reshard_after_forward = false}, {.ranks = 2}).parameters, kP);
  const MemoryEstimate half =
      Of({.sharding_strategy = kShardGradOp,
          .mixed_precision = {.param_dtype = DType::kBFloat16, .reduce_dtype = DType::kFloat32}},
         {.ranks = 2});
  Expect(half, kP / 2, kP / 2, kP, kP / 2 + 2 * unit);
  Expect(Of({.mixed_precision = {.param_dtype = DType::kBFloat16}}, {.ranks = 2}), kP / 2, kP / 2,
         kP, 5 * unit / 2);
  // A secondary partition.
  EXPECT_EQ(Of({.reshard_ranks = 2}, {.ranks = 4}).gathered, 5 * unit + kP / 2);
  // What is ignored is whole on every rank.
  const MemoryEstimate ignored = Of({.ignored = {"layers.0"}}, {.ranks = 4});
  EXPECT_EQ(ignored.parameters, (kP - unit) / 4 + unit);
  EXPECT_EQ(ignored.optimizer, 2 * ((kP - unit) / 4 + unit));
}

TEST(MemoryEstimateTest, WhatIsFrozenHasNoGradients) {
  const auto model = Deferred();
  model->SetRequiresGrad(false);
  autograd::SetRequiresGrad(model->Parameters()[0], true);
  const MemoryEstimate bytes =
      EstimateMemory(*model, {.wrap_policy = WrapByType<nn::Linear>()}, {.ranks = 4});
  Expect(bytes, kP / 4, 64 * 64, 2 * 64 * 64, 3 * 4 * kUnit + 4 * 64 * 64);
}

TEST(MemoryEstimateTest, SixteenBitParametersHaveStateOf32) {
  const auto model = Deferred();
  model->To(DType::kBFloat16);
  const MemoryEstimate bytes = EstimateMemory(*model, {}, {.ranks = 2});
  EXPECT_EQ(bytes.parameters, kP / 4);
  EXPECT_EQ(bytes.gradients, kP / 4);
  EXPECT_EQ(bytes.optimizer, kP);
}

TEST(MemoryEstimateTest, NeedsNoMemory) {
  const int64_t before = GetMemoryStats(CurrentDevice()).current_bytes;
  ResetPeakBytes(CurrentDevice());
  const auto model = Deferred();
  EstimateMemory(*model, {.wrap_policy = WrapByType<nn::Linear>()}, {.ranks = 2});
  EXPECT_LE(GetMemoryStats(CurrentDevice()).peak_bytes, before + 1000);
}

TEST(MemoryEstimateTest, Refusals) {
  const auto refuses = [](const std::string& part, const Options& options,
                          const MemoryEstimateOptions& estimate) {
    ExpectError(absl::StatusCode::kInvalidArgument, part, [&] { Of(options, estimate); });
  };
  refuses("ranks is 0 and optimizer_values 2; give at least 1 and 0", {}, {.ranks = 0});
  refuses("optimizer_values -1", {}, {.optimizer_values = -1});
  refuses("zero_optimizer is for kNoShard", {}, {.zero_optimizer = true});
  refuses("reshard_ranks is 3 of 4 ranks; give a divisor", {.reshard_ranks = 3}, {.ranks = 4});
  refuses("ignored names \"layers.77\"", {.ignored = {"layers.77"}}, {});
}

}  // namespace
}  // namespace lockstep::strategies
