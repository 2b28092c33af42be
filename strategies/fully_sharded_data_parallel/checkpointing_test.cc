// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Activation checkpointing on and around units, steps inside of backward, dropout: bitwise what
// training without them does.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies {
namespace {

using testing_util::FullParameters;
using testing_util::Rows;
using testing_util::ValuesOf;
using Options = FullyShardedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;
using Values = std::vector<double>;

Tensor Gpt2Loss(models::Gpt2& model, int64_t step) {
  std::vector<int64_t> ids, targets;
  for (int64_t i = 0; i < 12; ++i) {
    ids.push_back((3 * i + step) % 11);
    targets.push_back((5 * i + 2 * step) % 11);
  }
  return model.Loss(FromVector<int64_t>(ids, {3, 4}), FromVector<int64_t>(targets, {3, 4}));
}

// Losses and parameters of three steps of a GPT-2 with dropout; other rows on each rank.
Values Train(int ranks, const Options& options, const std::function<void(models::Gpt2&)>& prepare) {
  return ValuesOf(
      ranks,
      [&](int rank, Group world) {
        ManualSeed(4, rank);
        auto model = std::make_shared<models::Gpt2>(models::Gpt2Config{
            .layers = 3, .heads = 2, .width = 8, .block = 4, .vocabulary = 11, .dropout = 0.2});
        prepare(*model);
        FullyShardedDataParallel fsdp(model, world, options);
        optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
        Values result;
        for (int64_t step = 0; step < 3; ++step) {
          optimizer.ZeroGrad();
          const Tensor loss = Gpt2Loss(*model, 7 * step + rank);
          autograd::Backward(loss);
          optimizer.Step();
          result.push_back(loss.Item<double>());
        }
        for (const double value : FullParameters(fsdp, *model)) result.push_back(value);
        return result;
      },
      /*same_on_all_ranks=*/false);
}

std::vector<Options> Settings() {
  const WrapPolicy blocks = WrapByType<models::Gpt2Block>();
  const WrapPolicy small = WrapAny({blocks, WrapByType<nn::CausalSelfAttention>()});
  return {{},
          {.wrap_policy = blocks},
          {.wrap_policy = small},
          {.wrap_policy = small, .backward_prefetch = BackwardPrefetch::kNone},
          {.sharding_strategy = ShardingStrategy::kShardGradOp, .wrap_policy = blocks},
          {.wrap_policy = blocks, .cpu_offload = true}};
}

TEST(CheckpointingTest, OnUnits) {
  for (const int ranks : {1, 2}) {
    for (const Options& options : Settings()) {
      const Values wanted = Train(ranks, options, [](models::Gpt2&) {});
      EXPECT_EQ(Train(ranks, options,
                      [](models::Gpt2& model) {
                        checkpoint::ApplyCheckpointing(
                            model, {.choose = checkpoint::OfType<models::Gpt2Block>()});
                      }),
                wanted);
      // What is in units, and every second one.
      EXPECT_EQ(Train(ranks, options,
                      [](models::Gpt2& model) {
                        checkpoint::ApplyCheckpointing(
                            model, {.choose = checkpoint::OfType<models::Gpt2Mlp>()});
                      }),
                wanted);
      EXPECT_EQ(Train(ranks, options,
                      [](models::Gpt2& model) {
                        checkpoint::ApplyCheckpointing(
                            model, {.choose = checkpoint::OfType<models::Gpt2Block>(), .every = 2},
                            {.early_stop = false, .verify_values = true});
                      }),
                wanted);
      // A region that has units inside: the whole transformer.
      EXPECT_EQ(Train(ranks, options,
                      [](models::Gpt2& model) {
                        checkpoint::ApplyCheckpointing(
                            model, {.choose = [](const std::string& name, nn::Module&) {
                              return name == "transformer";
                            }});
                      }),
                wanted);
    }
  }
}

// Regions of several units, made by hand, with a unit in between.
TEST(CheckpointingTest, AroundUnits) {
  const auto train = [](bool checkpoints) {
    return ValuesOf(2, [&](int rank, Group world) {
      ManualSeed(4);
      auto model = std::make_shared<nn::Sequential>();
      const std::vector<int64_t> sizes = {3, 6, 5, 7, 4, 2};
      for (size_t i = 0; i + 1 < sizes.size(); ++i) {
        model->Emplace<nn::Linear>(sizes[i], sizes[i + 1]);
      }
      FullyShardedDataParallel fsdp(model, world, {.wrap_policy = WrapByType<nn::Linear>()});
      optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
      for (int step = 0; step < 3; ++step) {
        optimizer.ZeroGrad();
        const Tensor x = Rows(10 * step + 4 * rank, 4).At("inputs");
        const Tensor y = checkpoints ? checkpoint::CheckpointSequential(*model, 2, x) : (*model)(x);
        autograd::Backward(Sum(y * y));
        optimizer.Step();
      }
      return FullParameters(fsdp, *model);
    });
  };
  EXPECT_EQ(train(true), train(false));
}

// Steps while backward runs are the same steps.
TEST(CheckpointingTest, OptimizerInBackward) {
  for (Options options : Settings()) {
    const auto train = [&](bool in_backward) {
      return ValuesOf(2, [&](int rank, Group world) {
        ManualSeed(4);
        auto model = std::make_shared<models::Gpt2>(
            models::Gpt2Config{.layers = 2, .heads = 2, .width = 8, .block = 4, .vocabulary = 11});
        optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
        Options own = options;
        if (in_backward) own.optimizer_in_backward = &optimizer;
        FullyShardedDataParallel fsdp(model, world, own);
        for (int64_t step = 0; step < 4; ++step) {
          autograd::Backward(Gpt2Loss(*model, 7 * step + rank));
          for (const auto& piece : fsdp.Pieces()) {
            EXPECT_EQ(autograd::Grad(piece.tensor).defined(), !in_backward);
          }
          if (in_backward) continue;
          optimizer.Step();
          optimizer.ZeroGrad();
        }
        return FullParameters(fsdp, *model);
      });
    };
    EXPECT_EQ(train(true), train(false));
  }
}

}  // namespace
}  // namespace lockstep::strategies
