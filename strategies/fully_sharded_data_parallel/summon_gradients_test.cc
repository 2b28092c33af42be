// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Whole gradients inside SummonFullParameters.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using testing_util::FullGradients;
using testing_util::Gradients;
using testing_util::LossOf;
using testing_util::MakeMlp;
using testing_util::OnRanks;
using Fsdp = FullyShardedDataParallel;
using Options = FullyShardedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;
using Values = std::vector<double>;

constexpr size_t kFrozen = 3;  // of the parameters

// Runs `body` with a model that has gradients, but for one parameter, under several settings.
template <typename Body>
void WithGradients(const Body& body) {
  using enum ShardingStrategy;
  for (const Options& some : {Options{}, Options{.sharding_strategy = kShardGradOp},
                              Options{.sharding_strategy = kNoShard}, Options{.cpu_offload = true},
                              Options{.sharding_strategy = kHybridShard}}) {
    Options options = some;
    options.wrap_policy = WrapByType<nn::Linear>();
    OnRanks(4, [&](int rank, Group world) {
      auto model = MakeMlp(rank);
      autograd::SetRequiresGrad(model->Parameters()[kFrozen], false);
      std::unique_ptr<Fsdp> fsdp;
      if (options.sharding_strategy == kHybridShard) {
        const comm::DeviceMesh mesh(world, {{"replicate", 2}, {"shard", 2}});
        fsdp = std::make_unique<Fsdp>(model, mesh, options);
      } else {
        fsdp = std::make_unique<Fsdp>(model, world, options);
      }
      autograd::Backward(LossOf(*model, rank, 4, 0));
      body(*fsdp, *model, rank);
    });
  }
}

TEST(SummonGradientsTest, AreWholeAndKept) {
  WithGradients([](Fsdp& fsdp, models::Mlp& model, int) {
    Values wanted = FullGradients(fsdp, model);
    {
      Fsdp::SummonFullParameters full(fsdp, {.with_grads = true});
      EXPECT_EQ(Gradients(model), wanted);
      const autograd::NoGradScope no_grad;
      for (size_t i = 0; i < 6; ++i) {
        const Tensor parameter = model.Parameters()[i];
        const Tensor gradient = autograd::Grad(parameter);
        EXPECT_EQ(gradient.defined(), i != kFrozen);
        if (!gradient.defined()) continue;
        EXPECT_EQ(gradient.shape(), parameter.shape());
        MulInPlace(gradient, 2);
      }
    }
    const Tensor frozen = model.Parameters()[kFrozen];
    EXPECT_FALSE(autograd::Grad(frozen).defined());
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] != -1) wanted[i] *= 2;
    }
    EXPECT_EQ(FullGradients(fsdp, model), wanted);
  });
}

TEST(SummonGradientsTest, MayBeReplacedAndDropped) {
  WithGradients([](Fsdp& fsdp, models::Mlp& model, int) {
    const Tensor weight = model.Parameters()[0], bias = model.Parameters()[1],
                 frozen = model.Parameters()[kFrozen];
    {
      Fsdp::SummonFullParameters full(fsdp, {.with_grads = true});
      autograd::SetGrad(weight, {});
      autograd::SetGrad(bias, Ones(bias.shape()) * 3);
      autograd::SetGrad(frozen, Ones(frozen.shape()) * 5);
    }
    EXPECT_FALSE(autograd::Grad(weight).defined());
    for (const auto& [parameter, value] : {std::pair(bias, 3.0), std::pair(frozen, 5.0)}) {
      const Tensor gradient = autograd::Grad(parameter);
      ASSERT_TRUE(gradient.defined());
      EXPECT_EQ(gradient.shape(), parameter.shape());
      EXPECT_EQ(gradient.device(), parameter.device());
      for (const double element : gradient.ToVector<double>()) EXPECT_EQ(element, value);
    }
    // And are added to.
    {
      Fsdp::SummonFullParameters full(fsdp, {.with_grads = true});
      EXPECT_EQ(autograd::Grad(bias).ToVector<double>(), Values(7, 3.0));
    }
  });
}

TEST(SummonGradientsTest, WithoutWritebackAreAsBefore) {
  WithGradients([](Fsdp& fsdp, models::Mlp& model, int rank) {
    const Values wanted = FullGradients(fsdp, model);
    for (const bool rank0_only : {false, true}) {
      for (const bool offload : {false, true}) {
        {
          Fsdp::SummonFullParameters full(fsdp, {.writeback = false,
                                                 .rank0_only = rank0_only,
                                                 .offload_to_cpu = offload,
                                                 .with_grads = true});
          if (rank == 0 || !rank0_only) {
            EXPECT_EQ(Gradients(model), wanted);
            const Tensor gradient = autograd::Grad(model.Parameters()[0]);
            EXPECT_EQ(gradient.device(), offload ? kHost : Cpu());
            autograd::SetGrad(model.Parameters()[0], {});
          } else {
            EXPECT_EQ(autograd::Grad(model.Parameters()[0]).rank(), 1);
          }
        }
        EXPECT_EQ(FullGradients(fsdp, model), wanted);
      }
    }
    // Not asked for: this rank's elements.
    Fsdp::SummonFullParameters full(fsdp);
    EXPECT_EQ(autograd::Grad(model.Parameters()[0]).rank(), 1);
  });
}

TEST(SummonGradientsTest, ThereMayBeNone) {
  WithGradients([](Fsdp& fsdp, models::Mlp& model, int) {
    model.ZeroGrad();
    {
      Fsdp::SummonFullParameters full(fsdp, {.with_grads = true});
      for (const Tensor& parameter : model.Parameters()) {
        EXPECT_FALSE(autograd::Grad(parameter).defined());
      }
    }
    for (const Tensor& parameter : model.Parameters()) {
      EXPECT_FALSE(autograd::Grad(parameter).defined());
    }
  });
}

}  // namespace
}  // namespace lockstep::strategies
