// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What is left when a FullyShardedDataParallel ends: a whole module after Unwrap(), which can be
// thawed and wrapped again, and one that refuses to be used without.
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::strategies {
namespace {

using absl::StatusCode;
using testing_util::AllParameters;
using testing_util::FullGradients;
using testing_util::FullParameters;
using testing_util::Gradients;
using testing_util::LossOf;
using testing_util::MakeMlp;
using testing_util::OnRanks;
using testing_util::ValuesOf;
using Fsdp = FullyShardedDataParallel;
using Options = FullyShardedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;
using Values = std::vector<double>;

Options Units(Options options = {}) {
  options.wrap_policy = WrapByType<nn::Linear>();
  return options;
}

struct Setting {
  std::string name;
  int ranks;
  Options options;
  int replicas = 0;  // above 0: over a mesh
};

std::vector<Setting> Settings() {
  using enum ShardingStrategy;
  return {{"one rank", 1, Units()},
          {"full", 2, Units()},
          {"full of 5", 5, Units()},
          {"one unit", 3, {}},
          {"kept", 2, Units({.sharding_strategy = kShardGradOp})},
          {"none", 2, Units({.sharding_strategy = kNoShard})},
          {"hybrid", 4, Units({.sharding_strategy = kHybridShard}), 2},
          {"offload", 2, Units({.cpu_offload = true})},
          {"bfloat16", 2, Units({.mixed_precision = {.param_dtype = DType::kBFloat16}})},
          {"ignored", 2, Units({.ignored = {"layers.2"}})}};
}

std::unique_ptr<Fsdp> Shard(const Setting& setting, const Group& world,
                            std::shared_ptr<nn::Module> module) {
  if (setting.replicas == 0) {
    return std::make_unique<Fsdp>(std::move(module), world, setting.options);
  }
  const comm::DeviceMesh mesh(
      world, {{"replicate", setting.replicas}, {"shard", setting.ranks / setting.replicas}});
  return std::make_unique<Fsdp>(std::move(module), mesh, setting.options);
}

// ---- Unwrap ----

TEST(UnwrapTest, TheModuleIsAsIfItHadNeverBeenSharded) {
  for (const Setting& setting : Settings()) {
    SCOPED_TRACE(setting.name);
    OnRanks(setting.ranks, [&](int rank, Group world) {
      auto model = MakeMlp(rank);
      autograd::SetRequiresGrad(model->Parameters()[3], false);
      std::vector<Shape> shapes;
      for (const Tensor& parameter : model->Parameters()) shapes.push_back(parameter.shape());
      auto fsdp = Shard(setting, world, model);
      optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.1});
      autograd::Backward(LossOf(*model, 0, 1, 0));
      optimizer.Step();
      LossOf(*model, 0, 1, 0);  // a forward pass whose backward never comes
      const Values parameters = FullParameters(*fsdp, *model);
      const Values gradients = FullGradients(*fsdp, *model);
      fsdp->Unwrap();
      for (size_t i = 0; i < shapes.size(); ++i) {
        EXPECT_EQ(model->Parameters()[i].shape(), shapes[i]);
        EXPECT_EQ(model->Parameters()[i].dtype(), DType::kFloat32);
        EXPECT_EQ(model->Parameters()[i].device(), Cpu());
      }
      EXPECT_EQ(AllParameters(*model), parameters);
      EXPECT_EQ(Gradients(*model), gradients);
      // And back.
      fsdp = Shard(setting, world, model);
      EXPECT_EQ(FullParameters(*fsdp, *model), parameters);
      EXPECT_EQ(FullGradients(*fsdp, *model), gradients);
      fsdp->Unwrap();
      EXPECT_EQ(Gradients(*model), gradients);
      // By itself, with nobody else: a rank may leave the others out.
      const auto train = [&] {
        model->ZeroGrad();
        autograd::Backward(LossOf(*model, 0, 1, 1));
        return Gradients(*model);
      };
      const Values alone = train();
      EXPECT_NE(alone, gradients);
      fsdp = nullptr;
      EXPECT_EQ(train(), alone);
      EXPECT_EQ(AllParameters(*model), parameters);
      DistributedDataParallel ddp(model, world);
      train();
    });
  }
}

TEST(UnwrapTest, EveryLaterCallIsRefused) {
  OnRanks(2, [](int rank, Group world) {
    auto model = MakeMlp(0);
    Fsdp fsdp(model, world, Units());
    optim::AdamW optimizer(model->NamedParameters());
    const Tensor loss = LossOf(*model, rank, 2, 0);
    fsdp.Unwrap();
    const std::vector<std::pair<std::string, std::function<void()>>> calls = {
        {"Unwrap", [&] { fsdp.Unwrap(); }},
        {"NoSync", [&] { Fsdp::NoSync scope(fsdp); }},
        {"NoAllReduce", [&] { Fsdp::NoAllReduce scope(fsdp); }},
        {"DropAccumulated", [&] { fsdp.DropAccumulated(); }},
        {"ClipGradNorm", [&] { fsdp.ClipGradNorm(1); }},
        {"Unshard", [&] { fsdp.Unshard(*model); }},
        {"Reshard", [&] { fsdp.Reshard(*model); }},
        {"SummonFullParameters", [&] { Fsdp::SummonFullParameters scope(fsdp); }},
        {"Pieces", [&] { fsdp.FullStateDict(); }},
        {"LoadFullStateDict", [&] { fsdp.LoadFullStateDict({}); }},
        {"Pieces", [&] { fsdp.FullOptimizerState(optimizer); }},
        {"Pieces", [&] { fsdp.LoadFullOptimizerState(optimizer, optimizer.SaveState()); }},
        {"GatherPiece", [&] { fsdp.GatherPiece("layers.0.weight", {}); }},
        {"unit_names", [&] { fsdp.unit_names(); }},
        {"execution_order", [&] { fsdp.execution_order(); }},
        {"Backward() over a forward pass of before", [&] { autograd::Backward(loss); }}};
    for (const auto& [name, call] : calls) {
      ExpectError(StatusCode::kFailedPrecondition, name + " was called after Unwrap()", call);
    }
    EXPECT_EQ(fsdp.module(), model);
  });
}

TEST(UnwrapTest, RefusesWithoutAChangeOnAnyRank) {
  OnRanks(2, [](int rank, Group world) {
    auto model = MakeMlp(0);
    Fsdp fsdp(model, world, Units());
    const auto refuses = [&](const std::string& part) {
      const Values before = FullParameters(fsdp, *model);
      ExpectError(StatusCode::kFailedPrecondition, part, [&] { fsdp.Unwrap(); });
      EXPECT_EQ(FullParameters(fsdp, *model), before);
    };
    {
      Fsdp::NoSync no_sync(fsdp);
      autograd::Backward(LossOf(*model, rank, 2, 0));
    }
    refuses("NoSync or NoAllReduce were not reduced");
    fsdp.DropAccumulated();
    {
      Fsdp::SummonFullParameters full(fsdp);
      ExpectError(StatusCode::kFailedPrecondition, "leave that scope first",
                  [&] { fsdp.Unwrap(); });
    }
    const Tensor weight = model->Parameters()[0];
    const Tensor piece = Detach(weight);
    if (rank == 1) weight.SetData(Clone(piece));
    ExpectError(
        StatusCode::kFailedPrecondition,
        rank == 1 ? "layers.0.weight was moved, converted or replaced" : "another rank cannot",
        [&] { fsdp.Unwrap(); });
    weight.SetData(piece);
    fsdp.Unwrap();
    EXPECT_EQ(AllParameters(*model), AllParameters(*MakeMlp(0)));
  });
}

// ---- Gone without it ----

// A linear layer whose parts are equally large on two ranks.
std::shared_ptr<nn::Linear> Square() {
  return std::make_shared<nn::Linear>(16, 16, nn::LinearOptions{.bias = false});
}

TEST(GoneTest, NothingUsesWhatIsLeft) {
  for (const Setting& setting : Settings()) {
    SCOPED_TRACE(setting.name);
    OnRanks(setting.ranks, [&](int rank, Group world) {
      auto model = MakeMlp(rank);
      Shard(setting, world, model).reset();
      const auto refuses = [](const std::function<void()>& call) {
        ExpectError(StatusCode::kFailedPrecondition,
                    "parameter layers.0.weight, of unit \"" /* layers.0 or the root */, call);
      };
      refuses([&] { LossOf(*model, 0, 1, 0); });
      refuses([&] { (*model)(Ones({1, 3})); });
      refuses([&] { Fsdp fsdp(model, world); });
      refuses([&] { Fsdp fsdp(model, world, {.sync_module_states = false}); });
      refuses([&] { DistributedDataParallel ddp(model, world); });
      refuses([&] { DistributedDataParallel ddp(model, world, {.init_sync = false}); });
      refuses([&] { AllParameters(*model); });
      refuses([&] { model->To(DType::kFloat64); });
    });
  }
}

// Here because the copy of its gradient has failed.
TEST(GoneTest, WhatCouldNotBeTakenStaysWhole) {
  OnRanks(2, [](int, Group world) {
    auto model = MakeMlp(0);
    const NamedTensors parameters = model->NamedParameters();
    const auto& [name, bias] = parameters[parameters.size() - 1];
    const Values values = bias.ToVector<double>();
    const Tensor gradient = Zeros(bias.shape());
    Event failed = Event::MakePending();
    failed.Complete(std::make_exception_ptr(InternalError("the link is cut")));
    gradient.storage()->SetPending(failed);
    autograd::SetGrad(bias, gradient);
    ExpectError(StatusCode::kInternal, "the link is cut",
                [&] { Fsdp fsdp(model, world, Units()); });
    EXPECT_EQ(bias.shape(), Shape({2})) << name;
    EXPECT_EQ(bias.ToVector<double>(), values) << name;
    ExpectError(StatusCode::kFailedPrecondition, "parameter layers.0.weight",
                [&] { parameters[0].second.ToVector<double>(); });
  });
}

TEST(GoneTest, PartsOfOneSizeAreNotTakenForParameters) {
  OnRanks(2, [](int rank, Group world) {
    for (const bool frozen : {false, true}) {
      auto layer = Square();
      layer->SetRequiresGrad(!frozen);
      auto fsdp = std::make_unique<Fsdp>(layer, world);
      EXPECT_EQ(layer->weight.numel(), 128);
      // It is there.
      ExpectError(StatusCode::kAlreadyExists, "weight is ", [&] { Fsdp again(layer, world); });
      ExpectError(StatusCode::kAlreadyExists, "weight is ",
                  [&] { Fsdp again(layer, world, {.sync_module_states = false}); });
      // Under another module, where something else is trained.
      auto both = std::make_shared<nn::Sequential>();
      both->Append(layer);
      both->Append(std::make_shared<nn::Linear>(16, 2));
      const Values before = layer->weight.ToVector<double>();
      ExpectError(StatusCode::kAlreadyExists, "0.weight is ",
                  [&] { DistributedDataParallel ddp(both, world); });
      ExpectError(StatusCode::kAlreadyExists, "0.weight is ", [&] { Fsdp around(both, world); });
      ExpectError(StatusCode::kAlreadyExists, "0.weight is sharded by a FullyShardedDataParallel",
                  [&] { Fsdp around(both, world, {.ignored = {"0"}}); });
      EXPECT_EQ(layer->weight.ToVector<double>(), before);
      {
        // Left alone altogether.
        Fsdp around(both, world, {.sync_module_states = false, .ignored = {"0"}});
        autograd::Backward(Sum((*both)(Ones({2, 16}))));
      }
      // It is gone.
      fsdp = nullptr;
      layer->SetRequiresGrad(true);
      const std::string part = "parameter weight, of unit \"\" of a FullyShardedDataParallel";
      ExpectError(StatusCode::kFailedPrecondition, part, [&] { Fsdp again(layer, world); });
      ExpectError(StatusCode::kFailedPrecondition, part,
                  [&] { DistributedDataParallel ddp(layer, world); });
      ExpectError(StatusCode::kFailedPrecondition, part, [&] { (*layer)(Ones({2, 16})); });
      ExpectError(StatusCode::kFailedPrecondition, "call Unwrap() before", [&] {
        (*layer)(Ones({2, 16}));
      });
      // On one rank only: the other one hears of it.
      auto other = rank == 0 ? layer : Square();
      ExpectError(StatusCode::kInvalidArgument,
                  "float32[16, 16] whose elements are lost' on rank 0",
                  [&] { DistributedDataParallel ddp(other, world); });
    }
  });
}

// An optimizer that outlives it changes nothing.
TEST(GoneTest, GradientsAreGone) {
  OnRanks(2, [](int rank, Group world) {
    auto model = MakeMlp(0);
    auto fsdp = std::make_unique<Fsdp>(model, world, Units());
    const Tensor loss = LossOf(*model, rank, 2, 1);
    autograd::Backward(LossOf(*model, rank, 2, 0));
    fsdp = nullptr;
    for (const Tensor& parameter : model->Parameters()) {
      EXPECT_FALSE(autograd::Grad(parameter).defined());
    }
    // Saved tensors were views of what is gone.
    EXPECT_THROW(autograd::Backward(loss), Error);
  });
}

// ---- Thawing ----

// Numbers that differ, [count].
Tensor Wave(int64_t count, double seed) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::sin(0.7 * static_cast<double>(i) + seed));
  return FromVector<double>(values, {count}, {.dtype = DType::kFloat32});
}

// The field's: frozen f(1000) and trainable t(10) in one unit.
class Both : public nn::UnaryModule {
 public:
  Both() {
    RegisterParameter("f", &f, Wave(1000, 0) * 0.1);
    RegisterParameter("t", &t, Wave(10, 1.5));
  }
  Tensor Forward(const Tensor& x) override { return Tanh(x * Reshape(f, {100, 10})) * t; }
  Tensor f, t;
};

Tensor LossOf(Both& model, int rank, int64_t step) {
  const double seed = 7.0 * static_cast<double>(step) + rank;
  const Tensor x = Reshape(Wave(1000, seed), {100, 10});
  const Tensor y = model(x) - Reshape(Wave(1000, seed + 2.0), {100, 10});
  return Mean(y * y);
}

constexpr optim::AdamOptions kAdam = {.lr = 0.01, .weight_decay = 0.1};

void Train(Both& model, optim::Optimizer& optimizer, int rank, int64_t first) {
  for (int64_t step = first; step < first + 5; ++step) {
    optimizer.ZeroGrad();
    autograd::Backward(LossOf(model, rank, step));
    optimizer.Step();
  }
}

// What is trained after step 5: f too, or f instead of t.
void Change(const Both& model, bool freeze) {
  autograd::SetRequiresGrad(model.f, true);
  autograd::SetRequiresGrad(model.t, !freeze);
}

Values Replicated(int ranks, bool freeze, bool fresh) {
  return ValuesOf(ranks, [&](int rank, Group world) {
    auto model = std::make_shared<Both>();
    autograd::SetRequiresGrad(model->f, false);
    auto optimizer = std::make_unique<optim::Adam>(model->NamedParameters(), kAdam);
    auto ddp = std::make_unique<DistributedDataParallel>(model, world);
    Train(*model, *optimizer, rank, 0);
    ddp = nullptr;
    Change(*model, freeze);
    ddp = std::make_unique<DistributedDataParallel>(model, world);
    model->ZeroGrad();
    if (fresh) optimizer = std::make_unique<optim::Adam>(model->NamedParameters(), kAdam);
    Train(*model, *optimizer, rank, 5);
    return AllParameters(*model);
  });
}

Values Sharded(int ranks, bool freeze, bool fresh, ShardingStrategy strategy) {
  return ValuesOf(ranks, [&](int rank, Group world) {
    auto model = std::make_shared<Both>();
    autograd::SetRequiresGrad(model->f, false);
    const Values frozen = model->f.ToVector<double>();
    auto fsdp = std::make_unique<Fsdp>(model, world, Options{.sharding_strategy = strategy});
    auto optimizer = std::make_unique<optim::Adam>(model->NamedParameters(), kAdam);
    Train(*model, *optimizer, rank, 0);
    // Nothing of f is reduced, nor changed.
    EXPECT_LE(fsdp->statistics().reduced_bytes, 5 * 4 * 16 * ranks);
    EXPECT_FALSE(autograd::Grad(model->f).defined());
    // In place: refused, and the way out works from there.
    Change(*model, freeze);
    ExpectError(StatusCode::kFailedPrecondition,
                "parameter f was thawed after it was sharded; "
                "call Unwrap() on all ranks, and make a new FullyShardedDataParallel then",
                [&] { LossOf(*model, rank, 5); });
    const optim::OptimizerState state = fsdp->FullOptimizerState(*optimizer, /*rank0_only=*/false);
    fsdp->Unwrap();
    EXPECT_EQ(model->f.ToVector<double>(), frozen);
    fsdp = std::make_unique<Fsdp>(model, world, Options{.sharding_strategy = strategy});
    optimizer = std::make_unique<optim::Adam>(model->NamedParameters(), kAdam);
    if (!fresh) fsdp->LoadFullOptimizerState(*optimizer, state);
    model->ZeroGrad();
    Train(*model, *optimizer, rank, 5);
    return FullParameters(*fsdp, *model);
  });
}

TEST(ThawTest, TheNextStepsAreThoseOfDdp) {
  for (const int ranks : {2, 3}) {
    for (const bool freeze : {false, true}) {
      for (const bool fresh : {false, true}) {
        const Values wanted = Replicated(ranks, freeze, fresh);
        for (const ShardingStrategy strategy :
             {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp}) {
          const Values values = Sharded(ranks, freeze, fresh, strategy);
          ASSERT_EQ(values.size(), wanted.size());
          for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 1e-6) << i;
        }
      }
    }
    // Each of these is another training.
    EXPECT_NE(Replicated(ranks, false, false), Replicated(ranks, false, true));
    EXPECT_NE(Replicated(ranks, false, false), Replicated(ranks, true, false));
  }
}

// Under a DistributedDataParallel a change is refused, and the group ends with that backward.
TEST(ThawTest, DdpSaysWhatToDo) {
  const auto outcomes = testing_util::RunRanks(1, [](int, Group world) {
    auto model = std::make_shared<Both>();
    autograd::SetRequiresGrad(model->f, false);
    DistributedDataParallel ddp(model, world);
    autograd::SetRequiresGrad(model->f, true);
    autograd::Backward(LossOf(*model, 0, 0));
    return Values();
  });
  EXPECT_EQ(outcomes[0].code, StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(outcomes[0].message,
                                "parameter f was thawed; destroy this DistributedDataParallel, "
                                "make the change, and make a new one then"))
      << outcomes[0].message;
}

}  // namespace
}  // namespace lockstep::strategies
