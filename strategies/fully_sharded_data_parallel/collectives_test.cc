// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which collectives sharded training issues, in which order, with which tags and sizes.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies {
namespace {

using testing_util::CallsSince;
using testing_util::FullParameters;
using testing_util::LossOf;
using testing_util::MakeMlp;
using testing_util::OnRanks;
using testing_util::Rows;
using testing_util::SizedCallsSince;
using testing_util::ValuesOf;
using Options = FullyShardedDataParallelOptions;
using Calls = std::vector<std::string>;
using Group = std::shared_ptr<comm::Communicator>;

Calls operator+(Calls a, const Calls& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Units layers.0, layers.2 and layers.4 have the tags 1, 2 and 3; the root has no parameters.
Options ByLinear(Options options = {}) {
  options.wrap_policy = WrapByType<nn::Linear>();
  return options;
}

struct Trainer {
  Trainer(int rank, const Group& group, const Options& options)
      : rank(rank), world(group), model(MakeMlp(rank)), fsdp(model, world, options) {}

  void Step(int64_t number, bool synchronizes = true) {
    std::optional<FullyShardedDataParallel::NoSync> no_sync;
    if (!synchronizes) no_sync.emplace(fsdp);
    autograd::Backward(LossOf(*model, rank, world->size(), number));
    if (!synchronizes) return;
    optimizer.Step();
    optimizer.ZeroGrad();
  }
  // What a step issues.
  Calls CallsOfStep(int64_t number, bool synchronizes = true) {
    const int64_t first = world->sequence();
    Step(number, synchronizes);
    return CallsSince(*world, first);
  }

  int rank;
  Group world;
  std::shared_ptr<models::Mlp> model;
  FullyShardedDataParallel fsdp;
  optim::Sgd optimizer{model->NamedParameters(), {.lr = 0.1, .momentum = 0.9}};
};

// The same on every rank, and in each of three steps.
void ExpectCalls(const Options& options, const Calls& wanted, int ranks = 2) {
  OnRanks(ranks, [&](int rank, Group world) {
    Trainer trainer(rank, world, options);
    for (int64_t step = 0; step < 3; ++step) {
      EXPECT_EQ(trainer.CallsOfStep(step), wanted) << "step " << step;
    }
  });
}

const Calls kGathers = {"AllGather 1", "AllGather 2", "AllGather 3"};
const Calls kReductions = {"ReduceScatter 3", "ReduceScatter 2", "ReduceScatter 1", "AllReduce"};
// The next unit is asked for before this one's gradients are reduced.
const Calls kOverlapped = {"AllGather 3",     "AllGather 2",     "ReduceScatter 3", "AllGather 1",
                           "ReduceScatter 2", "ReduceScatter 1", "AllReduce"};

TEST(CollectivesTest, FullShard) {
  ExpectCalls(ByLinear(), kGathers + kOverlapped);
  ExpectCalls(ByLinear(), kGathers + kOverlapped, 3);
  ExpectCalls(ByLinear({.cpu_offload = true}), kGathers + kOverlapped);
  ExpectCalls(ByLinear({.backward_prefetch = BackwardPrefetch::kPost}), kGathers + kOverlapped);
  ExpectCalls(ByLinear({.backward_prefetch = BackwardPrefetch::kNone}),
              kGathers + Calls{"AllGather 3", "ReduceScatter 3", "AllGather 2", "ReduceScatter 2",
                               "AllGather 1", "ReduceScatter 1", "AllReduce"});
}

TEST(CollectivesTest, WhatStaysIsNotGatheredTwice) {
  ExpectCalls(ByLinear({.sharding_strategy = ShardingStrategy::kShardGradOp}),
              kGathers + kReductions);
  ExpectCalls(ByLinear({.reshard_after_forward = false}), kGathers + kReductions);
  ExpectCalls(ByLinear({.sharding_strategy = ShardingStrategy::kNoShard}),
              {"AllReduce 3", "AllReduce 2", "AllReduce 1", "AllReduce"});
  // The root keeps its parameters: backward begins with it.
  ExpectCalls({}, {"AllGather 1", "ReduceScatter 1", "AllReduce"});
  // One rank communicates nothing but what it says to itself.
  ExpectCalls(ByLinear(), {"AllReduce"}, 1);
}

TEST(CollectivesTest, AUnitMayHaveItsOwnWay) {
  Options options;
  options.wrap_policy = WrapIf([](const std::string& name, nn::Module& module) {
    std::optional<UnitOptions> unit;
    if (dynamic_cast<nn::Linear*>(&module) != nullptr) unit.emplace();
    if (name == "layers.2") unit = UnitOptions{.reshard_after_forward = false};
    return unit;
  });
  ExpectCalls(options, kGathers + Calls{"AllGather 3", "ReduceScatter 3", "AllGather 1",
                                        "ReduceScatter 2", "ReduceScatter 1", "AllReduce"});
}

TEST(CollectivesTest, AccumulationReducesNothing) {
  OnRanks(2, [&](int rank, Group world) {
    Trainer full(rank, world, ByLinear());
    Trainer kept(rank, world, ByLinear({.sharding_strategy = ShardingStrategy::kShardGradOp}));
    for (int64_t round = 0; round < 3; ++round) {
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(full.CallsOfStep(round, false),
                  kGathers + (Calls{"AllGather 3", "AllGather 2", "AllGather 1"}));
      }
      EXPECT_EQ(full.CallsOfStep(round), kGathers + kOverlapped);
      // Parameters stay until something may change them.
      EXPECT_EQ(kept.CallsOfStep(round, false), kGathers);
      EXPECT_EQ(kept.CallsOfStep(round, false), Calls());
      EXPECT_EQ(kept.CallsOfStep(round), kReductions);
    }
  });
}

// A rank's part of the flat parameters: 21 + 7 elements are 32 + 16, and so on.
TEST(CollectivesTest, SizesAndStatistics) {
  OnRanks(2, [&](int rank, Group world) {
    Trainer trainer(rank, world, ByLinear({.backward_prefetch = BackwardPrefetch::kNone}));
    trainer.Step(0);
    trainer.fsdp.ResetStatistics();
    const int64_t first = world->sequence();
    trainer.Step(1);
    EXPECT_EQ(SizedCallsSince(*world, first),
              (Calls{"AllGather 1 x 32", "AllGather 2 x 32", "AllGather 3 x 16", "AllGather 3 x 16",
                     "ReduceScatter 3 x 16", "AllGather 2 x 32", "ReduceScatter 2 x 32",
                     "AllGather 1 x 32", "ReduceScatter 1 x 32", "AllReduce x 6"}));
    const ShardingTotals totals = trainer.fsdp.statistics();
    EXPECT_EQ(totals.gathers, 6);
    EXPECT_EQ(totals.gathered_bytes, 2 * (64 + 64 + 32) * 4);
    EXPECT_EQ(totals.reductions, 3);
    EXPECT_EQ(totals.reduced_bytes, (64 + 64 + 32) * 4);
    EXPECT_GT(totals.gather_seconds, 0);
    EXPECT_GE(totals.exposed_gather_seconds, 0);
  });
}

// Forward asks for the next unit while one computes, from the second iteration on.
TEST(CollectivesTest, ForwardPrefetch) {
  for (const bool prefetch : {true, false}) {
    OnRanks(2, [&](int rank, Group world) {
      Trainer trainer(rank, world, ByLinear({.forward_prefetch = prefetch}));
      std::vector<int64_t> issued;  // when a unit computes
      int64_t first = 0;
      std::vector<nn::HookHandle> hooks;
      for (const auto& [name, module] : trainer.model->NamedModules()) {
        if (dynamic_cast<nn::Linear*>(module) == nullptr) continue;
        module->RegisterForwardPreHook(
            [&](nn::Module&, TensorList&) { issued.push_back(world->sequence() - first); });
      }
      for (int64_t step = 0; step < 3; ++step) {
        issued.clear();
        first = world->sequence();
        trainer.Step(step);
        const bool ahead = prefetch && step > 0;
        EXPECT_EQ(issued,
                  ahead ? (std::vector<int64_t>{2, 3, 3}) : (std::vector<int64_t>{1, 2, 3}));
      }
      EXPECT_EQ(trainer.fsdp.execution_order(), (Calls{"", "layers.0", "layers.2", "layers.4"}));
    });
  }
}

// Five layers, each a unit: what is asked for beside the unit in use, each time that one begins.
struct Ahead {
  std::vector<int64_t> forward;
  std::vector<int64_t> backward;
  int64_t peak_in_flight = 0;
};

Ahead GathersAhead(const Group& world, const Options& options) {
  ManualSeed(3);
  auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {3, 7, 5, 4, 6, 2}});
  FullyShardedDataParallel fsdp(model, world, options);
  Ahead ahead;
  int64_t issued_before = 0;
  int64_t begun = 0;
  const auto count = [&](std::vector<int64_t>& counts) {
    ++begun;
    counts.push_back(fsdp.statistics().gathers - issued_before - begun);
  };
  std::vector<nn::HookHandle> hooks;
  for (const auto& [name, module] : model->NamedModules()) {
    if (dynamic_cast<nn::Linear*>(module) == nullptr) continue;
    hooks.push_back(
        module->RegisterForwardPreHook([&](nn::Module&, TensorList&) { count(ahead.forward); }));
    hooks.push_back(module->RegisterForwardHook([&](nn::Module&, TensorSpan, TensorList& outputs) {
      autograd::RegisterHook(outputs[0], [&](const Tensor&) {
        count(ahead.backward);
        return Tensor();
      });
    }));
  }
  for (int step = 0; step < 3; ++step) {
    ahead = {};
    fsdp.ResetStatistics();
    begun = 0;
    const Tensor loss = Sum((*model)(Rows(step, 3).At("inputs")));
    // What forward has gathered ahead of backward would count as issued.
    issued_before = fsdp.statistics().gathers;
    begun = 0;
    autograd::Backward(loss);
    ahead.peak_in_flight = fsdp.statistics().peak_gathers_in_flight;
    issued_before = 0;
  }
  for (nn::HookHandle& hook : hooks) hook.Remove();
  return ahead;
}

// One ahead where it is asked for, none otherwise; the last unit has none after it.
TEST(CollectivesTest, GathersInFlight) {
  using Counts = std::vector<int64_t>;
  const Counts one = {1, 1, 1, 1, 0}, none = {0, 0, 0, 0, 0};
  for (const int ranks : {2, 3}) {
    OnRanks(ranks, [&](int, Group world) {
      for (const int limit : {1, 2, 7}) {
        for (const bool forward : {true, false}) {
          for (const BackwardPrefetch backward :
               {BackwardPrefetch::kPre, BackwardPrefetch::kPost, BackwardPrefetch::kNone}) {
            const Ahead ahead = GathersAhead(world, ByLinear({.backward_prefetch = backward,
                                                              .forward_prefetch = forward,
                                                              .max_gathers_in_flight = limit}));
            EXPECT_EQ(ahead.forward, forward ? one : none);
            EXPECT_EQ(ahead.backward, backward == BackwardPrefetch::kPre ? one : none);
            EXPECT_EQ(ahead.peak_in_flight, 1);
          }
        }
      }
    });
  }
}

// Units that a rank's graph leaves out are gathered one after the other, without anything to
// compute between: the one whose turn it is and the next, and never more at once than the limit.
TEST(CollectivesTest, GathersInFlightOfUnitsThatAreLeftOut) {
  OnRanks(2, [&](int, Group world) {
    for (const int limit : {1, 2, 3}) {
      ManualSeed(3);
      models::MlpConfig config;
      config.sizes.assign(9, 4);
      auto model = std::make_shared<models::Mlp>(config);
      FullyShardedDataParallel fsdp(model, world, ByLinear({.max_gathers_in_flight = limit}));
      std::vector<nn::Linear*> layers;
      for (const auto& [name, module] : model->NamedModules()) {
        if (auto* linear = dynamic_cast<nn::Linear*>(module)) layers.push_back(linear);
      }
      for (int step = 0; step < 3; ++step) {
        // All are called; the loss leads to the first and the last.
        const Tensor first = (*layers[0])(Ones({2, 4}));
        Tensor x = first;
        for (size_t i = 1; i + 1 < layers.size(); ++i) x = (*layers[i])(x);
        const Tensor last = (*layers.back())(Detach(x));
        fsdp.ResetStatistics();
        autograd::Backward(Sum(first) + Sum(last));
        EXPECT_EQ(fsdp.statistics().gathers, 8);
        EXPECT_EQ(fsdp.statistics().peak_gathers_in_flight, limit == 1 ? 1 : 2) << "step " << step;
        model->ZeroGrad();
      }
    }
  });
}

TEST(CollectivesTest, OverlapChangesNoNumber) {
  std::vector<double> wanted;
  for (const BackwardPrefetch backward :
       {BackwardPrefetch::kPre, BackwardPrefetch::kPost, BackwardPrefetch::kNone}) {
    for (const bool forward : {true, false}) {
      for (const int in_flight : {1, 2, 7}) {
        const Options options = ByLinear({.backward_prefetch = backward,
                                          .forward_prefetch = forward,
                                          .max_gathers_in_flight = in_flight});
        const std::vector<double> values = ValuesOf(2, [&](int rank, Group world) {
          Trainer trainer(rank, world, options);
          for (int64_t step = 0; step < 3; ++step) trainer.Step(step);
          return FullParameters(trainer.fsdp, *trainer.model);
        });
        if (wanted.empty()) wanted = values;
        EXPECT_EQ(values, wanted);
      }
    }
  }
}

// Evaluation leaves parameters sharded and the order of training as it was.
TEST(CollectivesTest, Evaluation) {
  OnRanks(2, [&](int rank, Group world) {
    Trainer trainer(rank, world, ByLinear());
    for (int64_t step = 0; step < 2; ++step) trainer.Step(step);
    const Calls order = trainer.fsdp.execution_order();
    const Tensor one = Rows(0, 1).At("inputs");
    for (int i = 0; i < 2; ++i) {
      const autograd::NoGradScope no_grad;
      const int64_t first = world->sequence();
      const Tensor all = (*trainer.model)(Rows(0, 5).At("inputs"));
      EXPECT_EQ(CallsSince(*world, first), kGathers);
      // A batch of one, and of none.
      EXPECT_EQ((*trainer.model)(one).ToVector<float>(), Slice(all, 0, 0, 1).ToVector<float>());
      EXPECT_EQ((*trainer.model)(Slice(one, 0, 0, 0)).numel(), 0);
    }
    // A part of the model, in another order than in training.
    {
      const autograd::NoGradScope no_grad;
      for (const auto& [name, module] : trainer.model->NamedModules()) {
        if (name == "layers.0") (*dynamic_cast<nn::Linear*>(module))(one);
      }
    }
    {
      const autograd::InferenceScope inference;
      const int64_t first = world->sequence();
      (*trainer.model)(one);
      EXPECT_EQ(CallsSince(*world, first), kGathers);
    }
    for (const Tensor& parameter : trainer.model->Parameters()) {
      EXPECT_EQ(parameter.rank(), 1);
    }
    EXPECT_EQ(trainer.fsdp.execution_order(), order);
    EXPECT_EQ(trainer.CallsOfStep(2), kGathers + kOverlapped);
    // Recorded, and dropped without a backward.
    const int64_t first = world->sequence();
    (*trainer.model)(one);
    EXPECT_EQ(CallsSince(*world, first), kGathers);
    EXPECT_EQ(trainer.CallsOfStep(3), kGathers + kOverlapped);
  });
}

// What stays after forward is gathered among two neighbours of the four.
TEST(CollectivesTest, ReshardRanks) {
  const auto train = [](const Options& options, bool looks) {
    return ValuesOf(4, [&](int rank, Group world) {
      Trainer trainer(rank, world, options);
      for (int64_t step = 0; step < 3; ++step) {
        const int64_t first = world->sequence();
        const Group near = trainer.fsdp.groups().reshard;
        const int64_t first_near = looks ? near->sequence() : 0;
        trainer.Step(step);
        if (!looks) continue;
        EXPECT_EQ(CallsSince(*world, first), kGathers + kReductions);
        EXPECT_EQ(CallsSince(*near, first_near),
                  (Calls{"AllGather 3", "AllGather 2", "AllGather 1"}));
        EXPECT_EQ(near->size(), 2);
      }
      return FullParameters(trainer.fsdp, *trainer.model);
    });
  };
  const std::vector<double> wanted = train(ByLinear(), false);
  EXPECT_EQ(train(ByLinear({.reshard_ranks = 2}), true), wanted);
}

// Of 2 x 2 ranks, two share and two have the same part. The sum associates otherwise than among
// four, so that it is bounded and not the same.
TEST(CollectivesTest, Hybrid) {
  const std::vector<double> wanted = ValuesOf(4, [](int rank, Group world) {
    auto model = MakeMlp(rank);
    DistributedDataParallel ddp(model, world);
    optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1, .momentum = 0.9});
    for (int64_t step = 0; step < 3; ++step) {
      autograd::Backward(LossOf(*model, rank, 4, step));
      optimizer.Step();
      optimizer.ZeroGrad();
    }
    return testing_util::AllParameters(*model);
  });
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kHybridShard, ShardingStrategy::kHybridShardGradOp}) {
    const std::vector<double> values = ValuesOf(4, [&](int rank, Group world) {
      const comm::DeviceMesh mesh(world, {{"replicate", 2}, {"shard", 2}});
      auto model = MakeMlp(rank);
      FullyShardedDataParallel fsdp(model, mesh, ByLinear({.sharding_strategy = strategy}));
      optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1, .momentum = 0.9});
      for (int64_t step = 0; step < 3; ++step) {
        const Group shard = mesh.Group("shard"), replicate = mesh.Group("replicate");
        const std::vector<int64_t> first = {world->sequence(), shard->sequence(),
                                            replicate->sequence()};
        autograd::Backward(LossOf(*model, rank, 4, step));
        EXPECT_EQ(CallsSince(*world, first[0]), Calls{"AllReduce"});
        const Calls sharing =
            strategy == ShardingStrategy::kHybridShard ? kOverlapped : kReductions;
        EXPECT_EQ(CallsSince(*shard, first[1]),
                  kGathers + Calls(sharing.begin(), sharing.end() - 1));
        EXPECT_EQ(CallsSince(*replicate, first[2]),
                  (Calls{"AllReduce 3", "AllReduce 2", "AllReduce 1"}));
        optimizer.Step();
        optimizer.ZeroGrad();
      }
      return FullParameters(fsdp, *model);
    });
    ASSERT_EQ(values.size(), wanted.size());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 1e-6);
  }
}

// The field's faults: initial values that reach one group only, and sizes of one that switch the
// averaging off.
TEST(CollectivesTest, EveryShapeOfMesh) {
  for (const auto& [replicas, parts] : std::vector<std::pair<int, int>>{{1, 4}, {2, 2}, {4, 1}}) {
    const std::vector<double> values = ValuesOf(4, [&](int rank, Group world) {
      const comm::DeviceMesh mesh(world, {{"replicate", replicas}, {"shard", parts}});
      auto model =
          std::make_shared<testing_util::Weights>(std::vector<double>{10.0 + rank, 20.0 + rank});
      FullyShardedDataParallel fsdp(model, mesh,
                                    {.sharding_strategy = ShardingStrategy::kHybridShard});
      std::vector<double> result = FullParameters(fsdp, *model);
      for (int step = 0; step < 3; ++step) {
        model->ZeroGrad();
        const Tensor y = fsdp.CallMethod(*model, {}, [&](TensorSpan) -> TensorList {
          return {(*model)[0] * (rank + 1.0) + (*model)[1]};
        })[0];
        autograd::Backward(y);
      }
      for (const double value : testing_util::FullGradients(fsdp, *model)) result.push_back(value);
      return result;
    });
    EXPECT_EQ(values, (std::vector<double>{10, 20, 2.5, 1}));
  }
}

// Gathers ahead of their use, and gives back.
TEST(CollectivesTest, UnshardAndReshard) {
  OnRanks(2, [&](int rank, Group world) {
    Trainer trainer(rank, world, ByLinear());
    trainer.Step(0);
    nn::Module* first_layer = nullptr;
    for (const auto& [name, module] : trainer.model->NamedModules()) {
      if (name == "layers.0") first_layer = module;
    }
    const autograd::NoGradScope no_grad;
    const Tensor x = Rows(0, 2).At("inputs");
    int64_t first = world->sequence();
    trainer.fsdp.Unshard(*first_layer);
    trainer.fsdp.Unshard(*first_layer);  // is there
    for (int i = 0; i < 2; ++i) (*trainer.model)(x);
    EXPECT_EQ(CallsSince(*world, first), kGathers + (Calls{"AllGather 2", "AllGather 3"}));
    trainer.fsdp.Reshard(*first_layer);
    trainer.fsdp.Reshard(*first_layer);
    first = world->sequence();
    (*trainer.model)(x);
    EXPECT_EQ(CallsSince(*world, first), kGathers);
    // A step changes the parameters: what was gathered before is stale.
    trainer.fsdp.Unshard(*first_layer);
    FillInPlace(trainer.model->Parameters()[0], 0.5);
    first = world->sequence();
    (*trainer.model)(x);
    EXPECT_EQ(CallsSince(*world, first), kGathers);
  });
}

// Units that are called one by one, without the root.
TEST(CollectivesTest, WithoutTheRoot) {
  OnRanks(2, [&](int rank, Group world) {
    Trainer trainer(rank, world, ByLinear());
    std::vector<nn::Linear*> layers;
    for (const auto& [name, module] : trainer.model->NamedModules()) {
      if (auto* linear = dynamic_cast<nn::Linear*>(module)) layers.push_back(linear);
    }
    for (int step = 0; step < 4; ++step) {
      const int64_t first = world->sequence();
      Tensor x = Rows(step, 3).At("inputs");
      for (nn::Linear* layer : layers) x = Tanh((*layer)(x));
      autograd::Backward(Sum(x));
      EXPECT_EQ(CallsSince(*world, first), kGathers + kOverlapped) << "step " << step;
      EXPECT_EQ(trainer.fsdp.execution_order(), (Calls{"layers.0", "layers.2", "layers.4"}));
      trainer.model->ZeroGrad();
    }
  });
}

}  // namespace
}  // namespace lockstep::strategies
