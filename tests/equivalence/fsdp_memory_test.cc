// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The bytes of sharded training are those of the formulas, on each rank's device.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/strategies/fully_sharded_data_parallel/memory_estimate.h"
#include "lockstep/strategies/fully_sharded_data_parallel/options.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/thread_state.h"
#include "lockstep/tests/equivalence/sharded_memory.h"

namespace lockstep::equivalence {
namespace {

models::Gpt2Config Config(int64_t layers) {
  return {.layers = layers, .heads = 2, .width = 64, .block = 16, .vocabulary = 61};
}

double Share(int64_t bytes, double wanted) { return static_cast<double>(bytes) / wanted; }

// Of a model without bytes.
strategies::MemoryEstimate Estimated(const models::Gpt2Config& config, const std::string& strategy,
                                     int ranks) {
  const DeviceScope on_meta(kMeta);
  models::Gpt2 model(config);
  strategies::FullyShardedDataParallelOptions options;
  options.wrap_policy = strategies::WrapByType<models::Gpt2Block>();
  const bool is_zero1 = strategy == "zero1";
  if (is_zero1 || strategy == "ddp") {
    options.sharding_strategy = strategies::ShardingStrategy::kNoShard;
  }
  if (strategy == "fsdp_grad_op") {
    options.sharding_strategy = strategies::ShardingStrategy::kShardGradOp;
  }
  options.cpu_offload = strategy == "fsdp_offload";
  return strategies::EstimateMemory(model, options, {.ranks = ranks, .zero_optimizer = is_zero1});
}

TEST(FsdpMemoryTest, StateIsThatOfTheFormulas) {
  const models::Gpt2Config config = Config(6);
  const int64_t all = UnitBytesOf(config).all;
  for (const std::string strategy : {"ddp", "zero1", "fsdp_grad_op", "fsdp"}) {
    for (const int ranks : {1, 2, 4, 8}) {
      for (const RankMemory& memory :
           TrainAndMeasure({.config = config, .strategy = strategy, .ranks = ranks})) {
        EXPECT_NEAR(Share(memory.state_bytes(), FormulaBytes(strategy, all, ranks)), 1, 0.05)
            << strategy << " on " << ranks << " ranks: " << memory.parameter_bytes << " + "
            << memory.gradient_bytes << " + " << memory.optimizer_bytes;
        // Padding is in the estimate.
        const strategies::MemoryEstimate estimate = Estimated(config, strategy, ranks);
        const bool is_zero1 = strategy == "zero1";
        const auto near = [&](int64_t bytes, int64_t estimated) {
          // The last ranks' parts are shorter, and ZeroOptimizer's are whole parameters.
          EXPECT_NEAR(Share(bytes, static_cast<double>(estimated)), 1, is_zero1 ? 0.05 : 0.02)
              << strategy << " on " << ranks << " ranks";
        };
        near(memory.parameter_bytes, estimate.parameters);
        near(memory.gradient_bytes, estimate.gradients);
        near(memory.optimizer_bytes, estimate.optimizer);
      }
    }
  }
}

TEST(FsdpMemoryTest, OffloadKeepsTheStateOnTheHost) {
  const models::Gpt2Config config = Config(6);
  const int64_t all = UnitBytesOf(config).all;
  for (const int ranks : {1, 2, 4, 8}) {
    for (const RankMemory& memory :
         TrainAndMeasure({.config = config, .strategy = "fsdp_offload", .ranks = ranks})) {
      EXPECT_EQ(memory.state_bytes(), 0);
      EXPECT_NEAR(Share(memory.host_bytes, FormulaBytes("fsdp", all, ranks)), 1, 0.05);
      const strategies::MemoryEstimate estimate = Estimated(config, "fsdp_offload", ranks);
      EXPECT_NEAR(Share(memory.host_bytes, static_cast<double>(estimate.state())), 1, 0.02);
    }
  }
}

// Beside the state: what `strategy` may hold of units and of a rank's pieces of them.
double WorkingBound(const std::string& strategy, const UnitBytes& unit, int ranks) {
  const double root = static_cast<double>(unit.root), block = static_cast<double>(unit.block);
  const double piece = block / ranks;
  // A gradient while it is copied into its bucket.
  if (strategy == "zero1") return static_cast<double>(unit.largest);
  // Gradients of the root and of two units, one being made and one reduced to pieces.
  if (strategy == "fsdp_grad_op") return root + 2 * block + 2 * piece;
  // The root, three units of parameters, two of gradients.
  if (strategy == "fsdp") return root + 3 * block + 2 * block;
  // The root, which is used through all of backward, and its gradients; the unit in use and the one
  // ahead; one unit's gradients, made from those of single parameters; pieces on their way from the
  // host and to it, whose number is a matter of time.
  return 2 * root + 2 * block + block + static_cast<double>(unit.largest) + 5 * piece;
}

// Units in use and ahead, their gradients, and no more, however many layers there are.
TEST(FsdpMemoryTest, TheWorkingSetIsAFewUnits) {
  for (const int ranks : {2, 4, 8}) {
    for (const std::string strategy : {"zero1", "fsdp_grad_op", "fsdp", "fsdp_offload"}) {
      std::vector<int64_t> of_layers;
      for (const int64_t layers : {6, 12}) {
        const UnitBytes unit = UnitBytesOf(Config(layers));
        MemoryRun run{.config = Config(layers), .strategy = strategy, .ranks = ranks, .steps = 3};
        run.bucket_bytes = 3 * unit.block / 2;
        run.without_first_step = strategy == "zero1";
        const int64_t working = TrainAndMeasure(run)[0].working_bytes();
        of_layers.push_back(working);
        EXPECT_LE(Share(working, WorkingBound(strategy, unit, ranks)), 1.02)
            << strategy << ", " << ranks << " ranks, " << layers << " layers: " << working
            << "; root " << unit.root << ", block " << unit.block;
        if (strategy != "fsdp" && strategy != "fsdp_offload") continue;
        const auto estimated =
            static_cast<double>(Estimated(Config(layers), strategy, ranks).gathered);
        EXPECT_LE(Share(working, estimated), 1.1) << strategy << ", " << ranks << " ranks";
      }
      if (strategy == "fsdp_offload") continue;  // the bound has no layers either
      EXPECT_LE(Share(of_layers[1], static_cast<double>(of_layers[0])), 1.01) << strategy;
    }
  }
}

// All that a device holds, activations too, with those of blocks recomputed.
TEST(FsdpMemoryTest, APeakIsAThirdOfReplicatedTrainings) {
  MemoryRun run{.config = Config(12), .strategy = "ddp", .ranks = 8, .checkpointed = true};
  const auto replicated = TrainAndMeasure(run);
  run.strategy = "fsdp";
  const auto sharded = TrainAndMeasure(run);
  for (size_t rank = 0; rank < 8; ++rank) {
    EXPECT_GE(replicated[rank].peaks.peak_bytes, 3 * sharded[rank].peaks.peak_bytes) << rank;
  }
}

TEST(FsdpMemoryTest, DeferredParametersAreMadeOneAtATime) {
  MemoryRun run{.config = Config(6), .strategy = "fsdp", .ranks = 4, .deferred = true};
  const UnitBytes unit = UnitBytesOf(run.config);
  const auto deferred = TrainAndMeasure(run);
  run.deferred = false;
  const auto ordinary = TrainAndMeasure(run);
  EXPECT_EQ(deferred[0].loss, ordinary[0].loss);
  EXPECT_LE(deferred[0].construction_peak_bytes,
            1.1 * static_cast<double>(unit.all) / 4 + static_cast<double>(unit.block));
  EXPECT_GE(ordinary[0].construction_peak_bytes, unit.all);
}

// Training state three times the device's limit; replicated ranks are told who holds what.
TEST(FsdpMemoryTest, WhatDoesNotFitADeviceTrainsSharded) {
  MemoryRun run{.config = Config(24), .strategy = "fsdp_offload", .ranks = 2, .deferred = true};
  run.checkpointed = true;
  const UnitBytes unit = UnitBytesOf(run.config);
  run.capacity_bytes = 4 * unit.all / 3;  // of the 4 P that the state has
  const auto memory = TrainAndMeasure(run);
  EXPECT_LE(memory[0].peaks.peak_bytes, *run.capacity_bytes);
  run.strategy = "ddp";
  run.deferred = false;
  try {
    TrainAndMeasure(run);
    FAIL() << "replicated training fitted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted) << error.message();
    EXPECT_TRUE(absl::StrContains(error.message(), "parameter")) << error.message();
    EXPECT_TRUE(absl::StrContains(error.message(), "gradient")) << error.message();
    EXPECT_TRUE(absl::StrContains(error.message(),
                                  "Use a smaller batch, activation checkpointing "
                                  "or sharding"))
        << error.message();
  }
}

}  // namespace
}  // namespace lockstep::equivalence
