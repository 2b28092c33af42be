// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What is refused, with which words, and that no rank is left waiting for another.
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

using absl::StatusCode;
using testing_util::FullParameters;
using testing_util::LossOf;
using testing_util::MakeMlp;
using testing_util::OnRanks;
using testing_util::Rows;
using testing_util::RunRanks;
using Options = FullyShardedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;
using Values = std::vector<double>;

Options Units(Options options = {}) {
  options.wrap_policy = WrapByType<nn::Linear>();
  return options;
}

nn::Linear& LayerOf(models::Mlp& model, const std::string& wanted) {
  for (const auto& [name, module] : model.NamedModules()) {
    if (name == wanted) return dynamic_cast<nn::Linear&>(*module);
  }
  throw NotFoundError(wanted);
}

// ---- Construction ----

TEST(ErrorsTest, OptionsOutOfRange) {
  OnRanks(2, [](int, Group world) {
    const auto refuses = [&](StatusCode code, const std::string& part, const Options& options) {
      auto model = MakeMlp(0);
      const Values before = testing_util::AllParameters(*model);
      ExpectError(code, part, [&] { FullyShardedDataParallel fsdp(model, world, options); });
      EXPECT_EQ(testing_util::AllParameters(*model), before);  // whole, and as they were
    };
    const auto invalid = [&](const std::string& part, const Options& options) {
      refuses(StatusCode::kInvalidArgument, part, options);
    };
    invalid("mixed_precision.param_dtype is int64; give a floating-point dtype",
            {.mixed_precision = {.param_dtype = DType::kInt64}});
    invalid("mixed_precision.reduce_dtype is bool",
            {.mixed_precision = {.reduce_dtype = DType::kBool}});
    invalid("mixed_precision.buffer_dtype is uint8",
            {.mixed_precision = {.buffer_dtype = DType::kUInt8}});
    invalid("mixed_precision.output_dtype is int32",
            {.mixed_precision = {.output_dtype = DType::kInt32}});
    invalid("max_gathers_in_flight is 0; give at least 1", {.max_gathers_in_flight = 0});
    invalid("gradient_divide_factor is 0; give a positive number", {.gradient_divide_factor = 0});
    invalid("gradient_divide_factor is -2", {.gradient_divide_factor = -2});
    invalid("gradient_divide_factor is inf",
            {.gradient_divide_factor = std::numeric_limits<double>::infinity()});
    invalid("gradient_divide_factor is nan",
            {.gradient_divide_factor = std::numeric_limits<double>::quiet_NaN()});
    invalid("compute_device is meta, where nothing is computed", {.compute_device = kMeta});
    invalid("compute_device is host", {.compute_device = kHost});
    invalid("reshard_ranks is 2 where 2 ranks share", {.reshard_ranks = 2});
    invalid("reshard_ranks is -1 where 2 ranks share", {.reshard_ranks = -1});
    invalid("reshard_ranks is 2 where 2 ranks share and nothing is let go after forward",
            {.sharding_strategy = ShardingStrategy::kShardGradOp, .reshard_ranks = 2});
    invalid("a hybrid strategy wants to know which ranks share",
            {.sharding_strategy = ShardingStrategy::kHybridShard});
    invalid("ignored names \"layers.7\"", {.ignored = {"layers.7"}});
    refuses(StatusCode::kUnimplemented, "cpu_offload does not go with kNoShard",
            {.sharding_strategy = ShardingStrategy::kNoShard, .cpu_offload = true});
  });
}

TEST(ErrorsTest, NullsAndMeshes) {
  OnRanks(2, [](int, Group world) {
    ExpectError(StatusCode::kInvalidArgument, "the module is null",
                [&] { FullyShardedDataParallel fsdp(nullptr, world); });
    ExpectError(StatusCode::kInvalidArgument, "the process group is null",
                [&] { FullyShardedDataParallel fsdp(MakeMlp(0), Group()); });
    const comm::DeviceMesh flat(world, {{"shard", 2}});
    const comm::DeviceMesh grid(world, {{"replicate", 2}, {"shard", 1}});
    const comm::DeviceMesh other(world, {{"dp", 2}});
    ExpectError(StatusCode::kInvalidArgument, "the module is null",
                [&] { FullyShardedDataParallel fsdp(nullptr, flat, {}); });
    ExpectError(StatusCode::kNotFound, "shard",
                [&] { FullyShardedDataParallel fsdp(MakeMlp(0), other, {}); });
    ExpectError(StatusCode::kNotFound, "replicate", [&] {
      FullyShardedDataParallel fsdp(MakeMlp(0), flat,
                                    {.sharding_strategy = ShardingStrategy::kHybridShard});
    });
    ExpectError(StatusCode::kInvalidArgument,
                "the mesh is {replicate: 2, shard: 1}; hybrid strategies want",
                [&] { FullyShardedDataParallel fsdp(MakeMlp(0), grid, {}); });
    FullyShardedDataParallel fsdp(MakeMlp(0), flat, {});
  });
}

// A gradient is averaged once, and what is wrapped already stays as it is.
TEST(ErrorsTest, WrappingTwice) {
  OnRanks(1, [](int, Group world) {
    auto model = MakeMlp(0);
    FullyShardedDataParallel fsdp(model, world, Units());
    ExpectError(StatusCode::kAlreadyExists, "is averaged by another strategy already",
                [&] { FullyShardedDataParallel again(model, world); });
    ExpectError(StatusCode::kAlreadyExists,
                "layers.0.weight is sharded by a FullyShardedDataParallel already",
                [&] { DistributedDataParallel ddp(model, world); });
    autograd::Backward(LossOf(*model, 0, 1, 0));
    EXPECT_EQ(FullParameters(fsdp, *model), testing_util::AllParameters(*MakeMlp(0)));
  });
  OnRanks(2, [](int rank, Group world) {
    auto model = MakeMlp(0);
    {
      DistributedDataParallel ddp(model, world);
      ExpectError(StatusCode::kAlreadyExists, "is averaged by another strategy already",
                  [&] { FullyShardedDataParallel fsdp(model, world); });
    }
    EXPECT_EQ(testing_util::AllParameters(*model), testing_util::AllParameters(*MakeMlp(0)));
    FullyShardedDataParallel fsdp(model, world, Units());
    // Each rank has other parts by now.
    ExpectError(StatusCode::kInvalidArgument, "shard it once",
                [&] { FullyShardedDataParallel again(model, world); });
    autograd::Backward(LossOf(*model, rank, 2, 0));
    EXPECT_EQ(FullParameters(fsdp, *model), testing_util::AllParameters(*MakeMlp(0)));
  });
}

TEST(ErrorsTest, RanksThatDiffer) {
  OnRanks(3, [](int rank, Group world) {
    auto model =
        std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {3, rank == 2 ? 6 : 7, 2}});
    ExpectError(StatusCode::kInvalidArgument,
                "the ranks' parameters differ: number 0 is 'layers.0.weight float32[7, 3]' on rank "
                "0 and 'layers.0.weight float32[6, 3]' on rank 2",
                [&] { FullyShardedDataParallel fsdp(model, world); });
    // A parameter that is frozen on one rank.
    auto frozen = MakeMlp(0);
    if (rank == 1) autograd::SetRequiresGrad(frozen->Parameters()[1], false);
    ExpectError(StatusCode::kInvalidArgument, "without gradient' on rank 1",
                [&] { FullyShardedDataParallel fsdp(frozen, world); });
    // Options: each would communicate in its own way.
    Options options = Units();
    if (rank == 2) options.reshard_after_forward = false;
    ExpectError(StatusCode::kInvalidArgument,
                "the ranks' options differ: 'reshard_after_forward=true' on rank 0 and "
                "'reshard_after_forward=false' on rank 2",
                [&] { FullyShardedDataParallel fsdp(MakeMlp(0), world, options); });
    FullyShardedDataParallel fsdp(MakeMlp(rank), world);
  });
}

// ---- Parameters that change under it ----

TEST(ErrorsTest, ParametersThatAreChangedAfterwards) {
  const std::string moved = "was moved, converted or replaced after it was sharded";
  const std::vector<std::pair<std::string, std::function<void(models::Mlp&)>>> changes = {
      {moved, [](models::Mlp& model) { model.To(DType::kFloat64); }},
      {moved, [](models::Mlp& model) { model.To(Cpu(1)); }},
      {"was frozen after it was sharded; call Unwrap() on all ranks",
       [](models::Mlp& model) { model.SetRequiresGrad(false); }},
      {moved, [](models::Mlp& model) {
         const Tensor weight = LayerOf(model, "layers.0").weight;
         weight.SetData(Clone(weight));
       }}};
  for (const auto& [words, change] : changes) {
    OnRanks(2, [&](int rank, Group world) {
      auto model = MakeMlp(0);
      FullyShardedDataParallel fsdp(model, world, Units());
      autograd::Backward(LossOf(*model, rank, 2, 0));
      model->ZeroGrad();
      change(*model);
      ExpectError(StatusCode::kFailedPrecondition, "parameter layers.0.weight " + words,
                  [&] { LossOf(*model, rank, 2, 0); });
    });
  }
}

TEST(ErrorsTest, AStepBetweenForwardAndBackward) {
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp}) {
    OnRanks(2, [&](int rank, Group world) {
      auto model = MakeMlp(0);
      FullyShardedDataParallel fsdp(model, world, Units({.sharding_strategy = strategy}));
      optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1});
      autograd::Backward(LossOf(*model, rank, 2, 0));
      const Tensor loss = LossOf(*model, rank, 2, 1);
      optimizer.Step();
      ExpectError(StatusCode::kFailedPrecondition,
                  "were changed between the forward pass and its backward",
                  [&] { autograd::Backward(loss); });
    });
  }
}

TEST(ErrorsTest, BackwardTwice) {
  OnRanks(2, [](int rank, Group world) {
    auto model = MakeMlp(0);
    FullyShardedDataParallel fsdp(model, world, Units());
    const Tensor loss = LossOf(*model, rank, 2, 0);
    autograd::Backward(loss);
    const Values gradients = testing_util::FullGradients(fsdp, *model);
    ExpectError(StatusCode::kFailedPrecondition, "", [&] { autograd::Backward(loss); });
    EXPECT_EQ(testing_util::FullGradients(fsdp, *model), gradients);
  });
}

// A sharded parameter outside of its unit.
TEST(ErrorsTest, ParametersAreNotThereOutside) {
  OnRanks(2, [](int, Group world) {
    auto model = MakeMlp(0);
    FullyShardedDataParallel fsdp(model, world, Units());
    nn::Linear& layer = LayerOf(*model, "layers.0");
    Tensor kept;
    fsdp.CallMethod(layer, {}, [&](TensorSpan) -> TensorList {
      kept = Transpose(layer.weight, 0, 1);
      return {Sum(layer.bias)};
    });
    ASSERT_TRUE(kept.defined());
    ExpectError(StatusCode::kFailedPrecondition,
                "have been given back: a sharded parameter outside of the forward and backward",
                [&] { Sum(kept); });
    ExpectError(StatusCode::kFailedPrecondition, "have been given back",
                [&] { kept.ToVector<float>(); });
    // Forward() runs no hooks: the parameter is this rank's part.
    ExpectError(StatusCode::kInvalidArgument, "weight has shape",
                [&] { layer.Forward(Rows(0, 2).At("inputs")); });
  });
}

// A gradient that reaches a parameter by another way than its unit's outputs.
TEST(ErrorsTest, GradientsThatComeByAnotherWay) {
  OnRanks(2, [](int, Group world) {
    auto model = MakeMlp(0);
    FullyShardedDataParallel fsdp(model, world, Units());
    nn::Linear& layer = LayerOf(*model, "layers.0");
    Tensor leaked;
    fsdp.CallMethod(layer, {}, [&](TensorSpan) -> TensorList {
      leaked = Sum(layer.bias);
      return {Sum(layer.weight)};
    });
    ExpectError(StatusCode::kFailedPrecondition, "layers.0.bias",
                [&] { autograd::Backward(leaked); });
  });
}

TEST(ErrorsTest, OptimizerInBackwardWantsAllGradients) {
  OnRanks(2, [](int, Group world) {
    auto model = std::make_shared<testing_util::Weights>(Values{1, 2});
    optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1});
    FullyShardedDataParallel fsdp(model, world, {.optimizer_in_backward = &optimizer});
    const Tensor y = fsdp.CallMethod(
        *model, {}, [&](TensorSpan) -> TensorList { return {(*model)[0] * 2.0}; })[0];
    ExpectError(StatusCode::kFailedPrecondition,
                "optimizer_in_backward: b has no gradient; step after backward",
                [&] { autograd::Backward(y); });
  });
}

// ---- Ranks that do not go together ----

// What each rank threw, in groups that give up after two seconds.
std::vector<testing_util::Outcome> RunImpatientRanks(int ranks,
                                                     const testing_util::RankBody& body) {
  std::vector<testing_util::Outcome> outcomes(static_cast<size_t>(ranks));
  comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
    testing_util::Outcome& outcome = outcomes[static_cast<size_t>(context.rank)];
    try {
      comm::ProcessGroupOptions options = context.group_options();
      options.timeout = absl::Seconds(2);
      outcome.values = body(context.rank, comm::InitProcessGroup(options));
    } catch (const Error& error) {
      outcome.code = error.code();
      outcome.message = error.message();
    }
  }).ThrowIfFailed();
  return outcomes;
}

TEST(ErrorsTest, UnitsInAnotherOrder) {
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp}) {
    const auto outcomes = RunRanks(3, [&](int rank, Group world) {
      auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {4, 4, 4}});
      FullyShardedDataParallel fsdp(model, world, Units({.sharding_strategy = strategy}));
      nn::Linear& a = LayerOf(*model, "layers.0");
      nn::Linear& b = LayerOf(*model, "layers.2");
      const Tensor x = Ones({2, 4});
      autograd::Backward(Sum(rank == 1 ? a(b(x)) : b(a(x))));
      return Values();
    });
    for (const testing_util::Outcome& outcome : outcomes) {
      EXPECT_NE(outcome.code, StatusCode::kOk);
      EXPECT_TRUE(absl::StrContains(outcome.message, "gathering the parameters of unit \"layers."))
          << outcome.message;
      EXPECT_TRUE(absl::StrContains(outcome.message, "tag")) << outcome.message;
      EXPECT_TRUE(absl::StrContains(outcome.message, "disagree")) << outcome.message;
    }
  }
}

TEST(ErrorsTest, OneRankLeavesAUnitOut) {
  const auto outcomes = RunRanks(2, [&](int rank, Group world) {
    auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {4, 4, 4}});
    FullyShardedDataParallel fsdp(model, world, Units());
    Tensor x = LayerOf(*model, "layers.0")(Ones({2, 4}));
    if (rank == 0) x = LayerOf(*model, "layers.2")(x);
    autograd::Backward(Sum(x));
    return Values();
  });
  for (const testing_util::Outcome& outcome : outcomes) {
    EXPECT_TRUE(absl::StrContains(outcome.message, "disagree")) << outcome.message;
  }
}

// An exception in one rank's forward pass leaves it as it was; the others give up in time. After
// that the group is of no use, and every call says so.
TEST(ErrorsTest, ForwardThrowsOnOneRank) {
  const auto outcomes = RunImpatientRanks(2, [&](int rank, Group world) {
    auto model = MakeMlp(0);
    FullyShardedDataParallel fsdp(model, world, Units());
    autograd::Backward(LossOf(*model, rank, 2, 0));
    model->ZeroGrad();
    LayerOf(*model, "layers.2").RegisterForwardPreHook([&](nn::Module&, TensorList&) {
      if (rank == 1) throw OutOfRangeError("the data ended");
    });
    try {
      autograd::Backward(LossOf(*model, rank, 2, 0));
    } catch (const Error& error) {
      // The other one misses this rank's gather, or hears that it has left.
      EXPECT_EQ(error.code() == StatusCode::kOutOfRange, rank == 1) << error.message();
      for (const Tensor& parameter : model->Parameters()) EXPECT_EQ(parameter.rank(), 1);
      EXPECT_THROW(LossOf(*model, rank, 2, 0), Error);
      throw;
    }
    return Values();
  });
  EXPECT_EQ(outcomes[1].message, "the data ended");
  EXPECT_NE(outcomes[0].code, StatusCode::kOk);
}

// A forward pass that throws on all ranks costs nothing.
TEST(ErrorsTest, ForwardThrowsOnAllRanks) {
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp, ShardingStrategy::kNoShard}) {
    const auto run = [&](bool throws) {
      return testing_util::ValuesOf(2, [&](int rank, Group world) {
        auto model = MakeMlp(0);
        FullyShardedDataParallel fsdp(model, world, Units({.sharding_strategy = strategy}));
        optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1});
        bool now = false;
        LayerOf(*model, "layers.2").RegisterForwardHook([&](nn::Module&, TensorSpan, TensorList&) {
          if (now) throw OutOfRangeError("the data ended");
        });
        for (int step = 0; step < 3; ++step) {
          now = throws;
          if (throws) {
            ExpectError(StatusCode::kOutOfRange, "ended", [&] { LossOf(*model, rank, 2, 9); });
          }
          now = false;
          for (const Tensor& parameter : model->Parameters()) EXPECT_EQ(parameter.rank(), 1);
          optimizer.ZeroGrad();
          autograd::Backward(LossOf(*model, rank, 2, step));
          optimizer.Step();
        }
        return FullParameters(fsdp, *model);
      });
    };
    EXPECT_EQ(run(true), run(false));
  }
}

// Peers of a rank whose backward fails hear of it at once.
TEST(ErrorsTest, BackwardThrowsOnOneRank) {
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp, ShardingStrategy::kNoShard}) {
    const auto outcomes = RunRanks(2, [&](int rank, Group world) {
      auto model = MakeMlp(0);
      FullyShardedDataParallel fsdp(model, world, Units({.sharding_strategy = strategy}));
      autograd::Backward(LossOf(*model, rank, 2, 0));
      const Values before = [&] {
        Values values;
        for (const auto& piece : fsdp.Pieces()) {
          const Values part = autograd::Grad(piece.tensor).ToVector<double>();
          values.insert(values.end(), part.begin(), part.end());
        }
        return values;
      }();
      if (rank == 1) {
        LayerOf(*model, "layers.0")
            .RegisterForwardHook([&](nn::Module&, TensorSpan, TensorList& outputs) {
              autograd::RegisterHook(outputs[0], [](const Tensor&) -> Tensor {
                throw OutOfRangeError("this one failed");
              });
            });
      }
      const Tensor loss = LossOf(*model, rank, 2, 1);
      try {
        autograd::Backward(loss);
      } catch (const Error&) {
        // Gradients are those of before, and parameters are hidden.
        Values after;
        for (const auto& piece : fsdp.Pieces()) {
          EXPECT_EQ(piece.tensor.rank(), 1);
          const Values part = autograd::Grad(piece.tensor).ToVector<double>();
          after.insert(after.end(), part.begin(), part.end());
        }
        EXPECT_EQ(after, before);
        // It says why it cannot go on.
        try {
          autograd::Backward(LossOf(*model, rank, 2, 2));
          ADD_FAILURE() << "nothing was thrown";
        } catch (const Error& error) {
          EXPECT_TRUE(absl::StrContains(error.message(), "backward failed on rank 1") ||
                      absl::StrContains(error.message(), "this one failed"))
              << error.message();
        }
        throw;
      }
      return Values();
    });
    EXPECT_EQ(outcomes[1].message, "this one failed");
    EXPECT_TRUE(absl::StrContains(outcomes[0].message, "backward failed on rank 1"))
        << outcomes[0].message;
  }
}

// A rank whose loss depends on no unit takes no part: the others say whom they waited for.
TEST(ErrorsTest, ALossThatNeedsNothing) {
  const auto outcomes = RunImpatientRanks(2, [&](int rank, Group world) {
    auto model = MakeMlp(0);
    FullyShardedDataParallel fsdp(model, world, Units());
    const Tensor loss = LossOf(*model, rank, 2, 0);
    if (rank == 0) autograd::Backward(loss);
    if (rank == 1) {
      // Until the other has given up.
      try {
        world->Barrier({.timeout = absl::Seconds(20)}).Wait();
      } catch (const Error&) {
      }
    }
    return Values();
  });
  EXPECT_NE(outcomes[0].code, StatusCode::kOk);
}

// ---- Memory ----

// A gather that finds no memory is an error of that call, and the next one works.
TEST(ErrorsTest, NoMemoryForAGather) {
  OnRanks(1, [](int, Group world) {
    const DeviceScope device(Cpu(7));
    auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {64, 512, 64}});
    FullyShardedDataParallel fsdp(model, world, Units({.cpu_offload = true}));
    const Tensor x = Ones({1, 64});
    const Values wanted = (*model)(x).ToVector<double>();
    SetCapacityLimit(Cpu(7), GetMemoryStats(Cpu(7)).current_bytes + 64 * 512 * 2);
    for (int i = 0; i < 2; ++i) {
      ExpectError(StatusCode::kResourceExhausted, "", [&] { (*model)(x); });
      for (const Tensor& parameter : model->Parameters()) EXPECT_EQ(parameter.rank(), 1);
    }
    SetCapacityLimit(Cpu(7), std::nullopt);
    EXPECT_EQ((*model)(x).ToVector<double>(), wanted);
  });
}

}  // namespace
}  // namespace lockstep::strategies
