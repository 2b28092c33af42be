// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Gradients that a hook makes averages of: ours in 16 bits, and a program's own.
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/comm/flight_record.h"
#include "lockstep/comm/work.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharded_communication_hook.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using absl::StatusCode;
using testing_util::FullGradients;
using testing_util::Gradients;
using testing_util::LossOf;
using testing_util::MakeMlp;
using testing_util::OnRanks;
using testing_util::RunRanks;
using testing_util::ValuesOf;
using Options = FullyShardedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;
using Values = std::vector<double>;
using enum ShardingStrategy;

Options Units(Options options = {}) {
  options.wrap_policy = WrapByType<nn::Linear>();
  return options;
}

// Three backwards that add up, the first two under NoSync.
template <typename Strategy>
void Accumulate(Strategy& strategy, models::Mlp& model, int rank, int ranks) {
  for (int64_t step = 0; step < 3; ++step) {
    if (step == 2) {
      autograd::Backward(LossOf(model, rank, ranks, step));
    } else {
      typename Strategy::NoSync no_sync(strategy);
      autograd::Backward(LossOf(model, rank, ranks, step));
    }
  }
}

Values Replicated(int ranks, std::shared_ptr<CommunicationHook> (*hook)(DType), DType dtype) {
  return ValuesOf(ranks, [&](int rank, Group world) {
    auto model = MakeMlp(rank);
    DistributedDataParallel ddp(model, world, {.communication_hook = hook(dtype)});
    Accumulate(ddp, *model, rank, ranks);
    return Gradients(*model);
  });
}
std::shared_ptr<CommunicationHook> Compressed(DType dtype) {
  return std::make_shared<CompressionHook>(dtype);
}
std::shared_ptr<CommunicationHook> NoHook(DType) { return nullptr; }

Values Sharded(int ranks, const Options& options, int replicas = 0) {
  return ValuesOf(ranks, [&](int rank, Group world) {
    auto model = MakeMlp(rank);
    std::unique_ptr<FullyShardedDataParallel> fsdp;
    if (replicas == 0) {
      fsdp = std::make_unique<FullyShardedDataParallel>(model, world, options);
    } else {
      const comm::DeviceMesh mesh(world, {{"replicate", replicas}, {"shard", ranks / replicas}});
      fsdp = std::make_unique<FullyShardedDataParallel>(model, mesh, options);
    }
    Accumulate(*fsdp, *model, rank, ranks);
    return FullGradients(*fsdp, *model);
  });
}

TEST(ShardedCompressionHookTest, IsTheOneOfDdp) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const int ranks : {1, 2, 3}) {
      // One rank has nobody to send to, and rounds nothing.
      const Values wanted = Replicated(ranks, ranks == 1 ? NoHook : Compressed, dtype);
      EXPECT_EQ(wanted == Replicated(ranks, NoHook, dtype), ranks == 1);
      for (const ShardingStrategy strategy : {kFullShard, kShardGradOp, kNoShard}) {
        EXPECT_EQ(Sharded(ranks, Units({.sharding_strategy = strategy,
                                        .communication_hook =
                                            std::make_shared<ShardedCompressionHook>(dtype)})),
                  wanted);
      }
      EXPECT_EQ(Sharded(ranks, Units({.cpu_offload = true,
                                      .communication_hook =
                                          std::make_shared<ShardedCompressionHook>(dtype)})),
                wanted);
    }
  }
}

TEST(ShardedCompressionHookTest, HybridsRoundBothHalves) {
  const Values wanted = Sharded(4, Units({.sharding_strategy = kHybridShard}), 2);
  for (const ShardingStrategy strategy : {kHybridShard, kHybridShardGradOp}) {
    const Values values = Sharded(
        4,
        Units({.sharding_strategy = strategy,
               .communication_hook = std::make_shared<ShardedCompressionHook>(DType::kBFloat16)}),
        2);
    ASSERT_EQ(values.size(), wanted.size());
    EXPECT_NE(values, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 2e-2) << i;
  }
}

// What travels is half as wide, unless it is 16 bits wide already.
TEST(ShardedCompressionHookTest, WhatIsSent) {
  OnRanks(2, [](int rank, Group world) {
    const auto sent = [&](const Options& options) {
      auto model = MakeMlp(0);
      FullyShardedDataParallel fsdp(model, world, Units(options));
      const size_t first = world->flight_record().calls.size();
      const int64_t number = first == 0 ? 0 : world->flight_record().calls.back().number + 1;
      autograd::Backward(LossOf(*model, rank, 2, 0));
      std::vector<std::string> reductions;
      for (const comm::FlightCall& call : world->flight_record().calls) {
        if (call.is_transfer() || call.number < number) continue;
        if (!absl::StrContains(call.ToString(), "ReduceScatter")) continue;
        EXPECT_NE(call.signature.tag, 0);
        reductions.push_back(call.ToString());
      }
      EXPECT_EQ(reductions.size(), 3u);
      for (const std::string& call : reductions) {
        EXPECT_EQ(absl::StrContains(call, "bfloat16"), options.communication_hook != nullptr)
            << call;
      }
    };
    const auto hook = std::make_shared<ShardedCompressionHook>(DType::kBFloat16);
    sent({});
    sent({.communication_hook = hook});
    sent({.mixed_precision = {.param_dtype = DType::kBFloat16}, .communication_hook = hook});
  });
}

TEST(ShardedCompressionHookTest, WantsSixteenBits) {
  ExpectError(StatusCode::kInvalidArgument,
              "ShardedCompressionHook: float32; gradients are compressed to float16 or bfloat16",
              [] { ShardedCompressionHook hook(DType::kFloat32); });
}

// ---- A program's own ----

// Half of the average; remembers who was reduced.
class Halved : public ShardedCommunicationHook {
 public:
  comm::Work ReduceScatter(const UnitGradients& unit, comm::Communicator& group) override {
    {
      std::lock_guard<std::mutex> lock(mutex);
      scattered.push_back(unit.unit);
    }
    EXPECT_EQ(unit.whole.numel(), unit.part.numel() * group.size());
    MulInPlace(unit.whole, 0.5);
    return group.ReduceScatter(unit.whole, unit.part,
                               {.op = comm::ReduceOp::kAverage, .tag = unit.tag});
  }
  comm::Work AllReduce(const UnitGradients& unit, comm::Communicator& group) override {
    {
      std::lock_guard<std::mutex> lock(mutex);
      reduced.push_back(unit.unit);
      if (scattered.empty()) MulInPlace(unit.part, 0.5);
    }
    return group.AllReduce(unit.part, {.op = comm::ReduceOp::kAverage, .tag = unit.tag});
  }
  std::mutex mutex;  // a hybrid's AllReduce runs while the next unit is scattered
  std::vector<std::string> scattered, reduced;
};

TEST(OwnHookTest, MakesTheAverages) {
  const std::vector<std::string> units = {"layers.4", "layers.2", "layers.0"};
  struct Case {
    ShardingStrategy strategy;
    int ranks, replicas;
    std::vector<std::string> scattered, reduced;
  };
  for (const Case& of :
       {Case{kFullShard, 2, 0, units, {}}, Case{kShardGradOp, 3, 0, units, {}},
        Case{kNoShard, 2, 0, {}, units}, Case{kHybridShard, 4, 2, units, units},
        Case{kHybridShard, 2, 2, {}, units}, Case{kHybridShard, 2, 1, units, {}}}) {
    const Options options = Units({.sharding_strategy = of.strategy});
    Values wanted = Sharded(of.ranks, options, of.replicas);
    for (double& value : wanted) value *= 0.5;
    const Values values = ValuesOf(of.ranks, [&](int rank, Group world) {
      auto model = MakeMlp(rank);
      const auto hook = std::make_shared<Halved>();
      Options with = options;
      with.communication_hook = hook;
      std::unique_ptr<FullyShardedDataParallel> fsdp;
      if (of.replicas == 0) {
        fsdp = std::make_unique<FullyShardedDataParallel>(model, world, with);
      } else {
        const comm::DeviceMesh mesh(
            world, {{"replicate", of.replicas}, {"shard", of.ranks / of.replicas}});
        fsdp = std::make_unique<FullyShardedDataParallel>(model, mesh, with);
      }
      Accumulate(*fsdp, *model, rank, of.ranks);
      EXPECT_EQ(hook->scattered, of.scattered);
      EXPECT_EQ(hook->reduced, of.reduced);
      return FullGradients(*fsdp, *model);
    });
    ASSERT_EQ(values.size(), wanted.size());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 1e-7);
  }
}

// One that throws ends the backward on all ranks.
TEST(OwnHookTest, Throws) {
  class Throwing : public Halved {
   public:
    comm::Work ReduceScatter(const UnitGradients&, comm::Communicator&) override {
      throw OutOfRangeError("this hook failed");
    }
  };
  const auto outcomes = RunRanks(2, [](int rank, Group world) {
    auto model = MakeMlp(0);
    std::shared_ptr<ShardedCommunicationHook> hook = std::make_shared<Halved>();
    if (rank == 1) hook = std::make_shared<Throwing>();
    FullyShardedDataParallel fsdp(model, world, Units({.communication_hook = hook}));
    autograd::Backward(LossOf(*model, rank, 2, 0));
    return Values();
  });
  EXPECT_TRUE(absl::StrContains(outcomes[1].message, "this hook failed")) << outcomes[1].message;
  EXPECT_TRUE(absl::StrContains(outcomes[0].message, "backward failed on rank 1"))
      << outcomes[0].message;
}

TEST(OwnHookTest, DividesByItself) {
  OnRanks(1, [](int, Group world) {
    ExpectError(StatusCode::kInvalidArgument,
                "gradient_divide_factor is 2 beside a communication_hook", [&] {
                  FullyShardedDataParallel fsdp(MakeMlp(0), world,
                                                {.gradient_divide_factor = 2,
                                                 .communication_hook = std::make_shared<Halved>()});
                });
  });
}

}  // namespace
}  // namespace lockstep::strategies
