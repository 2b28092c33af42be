// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Accumulation among the ranks that share, averaged over the replicas once.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using absl::StatusCode;
using testing_util::CallsSince;
using testing_util::FullGradients;
using testing_util::LossOf;
using testing_util::MakeMlp;
using testing_util::OnRanks;
using testing_util::ValuesOf;
using Fsdp = FullyShardedDataParallel;
using Options = FullyShardedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;
using Values = std::vector<double>;
using enum ShardingStrategy;

Options Units(Options options) {
  options.wrap_policy = WrapByType<nn::Linear>();
  return options;
}

bool HasGradient(const nn::Module& module) {
  for (const Tensor& parameter : module.Parameters()) {
    if (autograd::Grad(parameter).defined()) return true;
  }
  return false;
}

enum class How { kEachBackward, kNoAllReduce, kNoSyncInside };

Values Accumulated(const Options& options, int replicas, int shares, How how) {
  const int ranks = replicas * shares;
  return ValuesOf(ranks, [&](int rank, Group world) {
    auto model = MakeMlp(rank);
    const comm::DeviceMesh mesh(world, {{"replicate", replicas}, {"shard", shares}});
    Fsdp fsdp(model, mesh, options);
    const auto add = [&](int64_t step) { autograd::Backward(LossOf(*model, rank, ranks, step)); };
    // Twice: the second sums know nothing of the first.
    for (int round = 0; round < 2; ++round) {
      model->ZeroGrad();
      if (how == How::kEachBackward) {
        for (int64_t step = 0; step < 3; ++step) add(step);
        continue;
      }
      {
        Fsdp::NoAllReduce scope(fsdp);
        if (how == How::kNoSyncInside) {
          Fsdp::NoSync no_sync(fsdp);
          add(0);
        } else {
          add(0);
        }
        add(1);
      }
      EXPECT_FALSE(HasGradient(*model));
      add(2);
    }
    return FullGradients(fsdp, *model);
  });
}

TEST(NoAllReduceTest, SumsAreThoseOfEachBackward) {
  const std::vector<std::vector<int>> meshes = {{2, 2}, {2, 1}, {1, 2}, {1, 1}};
  const std::vector<Options> all = {
      {.sharding_strategy = kHybridShard},
      {.sharding_strategy = kHybridShardGradOp},
      {.sharding_strategy = kHybridShard, .cpu_offload = true},
      // Divided before and after the sum, and by more than the ranks.
      {.sharding_strategy = kHybridShard, .gradient_divide_factor = 8},
      {.sharding_strategy = kHybridShard, .mixed_precision = {.reduce_dtype = DType::kFloat16}}};
  for (size_t number = 0; number < all.size(); ++number) {
    const Options options = Units(all[number]);
    const double tolerance = options.mixed_precision.reduce_dtype ? 3e-3 : 1e-6;
    for (const auto& mesh : meshes) {
      const Values wanted = Accumulated(options, mesh[0], mesh[1], How::kEachBackward);
      for (const How how : {How::kNoAllReduce, How::kNoSyncInside}) {
        const Values values = Accumulated(options, mesh[0], mesh[1], how);
        ASSERT_EQ(values.size(), wanted.size());
        for (size_t i = 0; i < values.size(); ++i) {
          EXPECT_NEAR(values[i], wanted[i], tolerance)
              << "options " << number << ", " << mesh[0] << " x " << mesh[1];
        }
      }
    }
  }
}

TEST(NoAllReduceTest, WhatIsCommunicated) {
  OnRanks(4, [](int rank, Group world) {
    auto model = MakeMlp(0);
    const comm::DeviceMesh mesh(world, {{"replicate", 2}, {"shard", 2}});
    Fsdp fsdp(model, mesh, Units({.sharding_strategy = kHybridShard}));
    const auto calls = [&](const Group& group, const auto& body) {
      const auto before = CallsSince(*group, 0).size();
      body();
      std::vector<std::string> all = CallsSince(*group, 0);
      return std::vector<std::string>(all.begin() + static_cast<std::ptrdiff_t>(before), all.end());
    };
    const auto add = [&] { autograd::Backward(LossOf(*model, rank, 4, 0)); };
    const std::vector<std::string> none;
    {
      Fsdp::NoAllReduce scope(fsdp);
      EXPECT_EQ(calls(mesh.Group("replicate"), add), none);
      EXPECT_EQ(calls(world, add), none);
      fsdp.ResetStatistics();
      add();
      EXPECT_EQ(fsdp.statistics().reductions, 3);
    }
    EXPECT_EQ(calls(mesh.Group("replicate"), add),
              (std::vector<std::string>{"AllReduce 3", "AllReduce 2", "AllReduce 1"}));
    // Which parameters were used.
    EXPECT_EQ(calls(world, add), std::vector<std::string>{"AllReduce"});
  });
}

// A unit that only a backward inside has used.
TEST(NoAllReduceTest, UnitsThatTheLastBackwardLeavesOut) {
  const auto run = [](bool scoped) {
    return ValuesOf(4, [&](int rank, Group world) {
      auto model = MakeMlp(0);
      const comm::DeviceMesh mesh(world, {{"replicate", 2}, {"shard", 2}});
      Fsdp fsdp(model, mesh, Units({.sharding_strategy = kHybridShard}));
      const auto layer = [&](const std::string& wanted) -> nn::Linear& {
        for (const auto& [name, module] : model->NamedModules()) {
          if (name == wanted) return dynamic_cast<nn::Linear&>(*module);
        }
        throw NotFoundError(wanted);
      };
      {
        std::optional<Fsdp::NoAllReduce> scope;
        if (scoped) scope.emplace(fsdp);
        autograd::Backward(LossOf(*model, rank, 4, 0));
      }
      autograd::Backward(Sum(layer("layers.0")(Ones({2, 3}) * (rank + 1.0))));
      return FullGradients(fsdp, *model);
    });
  };
  const Values wanted = run(false), values = run(true);
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 1e-6) << i;
}

TEST(NoAllReduceTest, Dropped) {
  OnRanks(2, [](int rank, Group world) {
    auto model = MakeMlp(0);
    const comm::DeviceMesh mesh(world, {{"replicate", 2}, {"shard", 1}});
    Fsdp fsdp(model, mesh, Units({.sharding_strategy = kHybridShard}));
    autograd::Backward(LossOf(*model, rank, 2, 0));
    const Values wanted = FullGradients(fsdp, *model);
    model->ZeroGrad();
    {
      Fsdp::NoAllReduce scope(fsdp);
      autograd::Backward(LossOf(*model, rank, 2, 1));
    }
    ExpectError(StatusCode::kFailedPrecondition, "NoSync or NoAllReduce were not reduced",
                [&] { fsdp.Unwrap(); });
    fsdp.DropAccumulated();
    autograd::Backward(LossOf(*model, rank, 2, 0));
    EXPECT_EQ(FullGradients(fsdp, *model), wanted);
  });
}

TEST(NoAllReduceTest, IsForHybrids) {
  OnRanks(2, [](int, Group world) {
    for (const ShardingStrategy strategy : {kFullShard, kShardGradOp, kNoShard}) {
      Fsdp fsdp(MakeMlp(0), world, {.sharding_strategy = strategy});
      ExpectError(StatusCode::kInvalidArgument, "this one is no hybrid; use NoSync",
                  [&] { Fsdp::NoAllReduce scope(fsdp); });
    }
    auto model = MakeMlp(0);
    optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1});
    const comm::DeviceMesh mesh(world, {{"replicate", 2}, {"shard", 1}});
    Fsdp fsdp(model, mesh,
              {.sharding_strategy = kHybridShard, .optimizer_in_backward = &optimizer});
    ExpectError(StatusCode::kUnimplemented, "does not go with optimizer_in_backward",
                [&] { Fsdp::NoAllReduce scope(fsdp); });
  });
}

}  // namespace
}  // namespace lockstep::strategies
