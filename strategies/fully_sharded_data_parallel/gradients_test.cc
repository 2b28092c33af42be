// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Gradients of sharded modules against those of one module on one rank, where graphs are not the
// ordinary chain: frozen, unused and shared parts, several forwards and backwards.
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies {
namespace {

using testing_util::CallsSince;
using testing_util::FullGradients;
using testing_util::OnRanks;
using testing_util::Rows;
using testing_util::ValuesOf;
using Options = FullyShardedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;
using Values = std::vector<double>;

// Which of its parts the result depends on. All are called in any case.
struct Parts {
  bool left = true;
  bool right = true;
  bool trunk = true;   // whether gradients pass into it
  bool twice = false;  // the trunk's inner layer
};

// 3 -> trunk (5) -> left and right (2), times a scale of the root's own. `spare` is called and
// never used.
class Net : public nn::Module {
 public:
  Net() {
    RegisterParameter("scale", &scale, Full({2}, 1.5));
    RegisterModule("trunk", trunk);
    RegisterModule("inner", inner);
    RegisterModule("left", left);
    RegisterModule("right", right);
    RegisterModule("spare", spare);
  }

  Tensor operator()(const Tensor& x, const Parts& parts) {
    return CallWithHooks({x}, [this, parts](TensorSpan in) -> TensorList {
      Tensor h = Tanh((*trunk)(in[0]));
      h = Tanh((*inner)(h));
      if (parts.twice) h = Tanh((*inner)(h));
      if (!parts.trunk) h = Detach(h);
      (*spare)(h);
      const Tensor l = (*left)(h), r = (*right)(h);
      Tensor y = Slice(h, 1, 0, 2);
      if (parts.left) y = y + l;
      if (parts.right) y = y + r * r;
      return {y * scale};
    })[0];
  }

  Tensor scale;
  std::shared_ptr<nn::Linear> trunk = std::make_shared<nn::Linear>(3, 5);
  std::shared_ptr<nn::Linear> inner = std::make_shared<nn::Linear>(5, 5);
  std::shared_ptr<nn::Linear> left = std::make_shared<nn::Linear>(5, 2);
  std::shared_ptr<nn::Linear> right = std::make_shared<nn::Linear>(5, 2);
  std::shared_ptr<nn::Linear> spare = std::make_shared<nn::Linear>(5, 2);
};

std::shared_ptr<Net> MakeNet() {
  ManualSeed(7);
  return std::make_shared<Net>();
}

Tensor LossOf(Net& net, int rank, int64_t batch, const Parts& parts = {}) {
  const NamedTensors rows = Rows(10 * batch + 3 * rank, 3);
  return MseLoss(net(rows.At("inputs"), parts), rows.At("targets"));
}

using Prepare = std::function<void(Net&)>;
using Pass = std::function<void(Net&, int rank)>;

// What one rank gets that does the work of all.
Values Wanted(int ranks, const Prepare& prepare, const Pass& pass) {
  const auto net = MakeNet();
  prepare(*net);
  Values sum;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto one = MakeNet();
    prepare(*one);
    pass(*one, rank);
    for (size_t i = 0; i < net->Parameters().size(); ++i) {
      const Tensor gradient = autograd::Grad(one->Parameters()[i]);
      if (!gradient.defined()) continue;
      const Tensor parameter = net->Parameters()[i];
      const Tensor before = autograd::Grad(parameter);
      const Tensor share = gradient * (1.0 / ranks);
      autograd::SetGrad(parameter, before.defined() ? before + share : share);
    }
  }
  return testing_util::Gradients(*net);
}

bool IsHybrid(const Options& options) {
  return options.sharding_strategy == ShardingStrategy::kHybridShard ||
         options.sharding_strategy == ShardingStrategy::kHybridShardGradOp;
}

// Hybrids have two replicas, or as many as ranks where those are odd.
template <typename Module>
std::unique_ptr<FullyShardedDataParallel> Shard(const std::shared_ptr<Module>& module,
                                                const Group& world, const Options& options) {
  if (!IsHybrid(options)) return std::make_unique<FullyShardedDataParallel>(module, world, options);
  const int replicas = world->size() % 2 == 0 ? 2 : world->size();
  const comm::DeviceMesh mesh(world,
                              {{"replicate", replicas}, {"shard", world->size() / replicas}});
  return std::make_unique<FullyShardedDataParallel>(module, mesh, options);
}

Values Sharded(int rank, const Group& world, const Options& options, const Prepare& prepare,
               const Pass& pass) {
  const auto net = MakeNet();
  prepare(*net);
  const auto fsdp = Shard(net, world, options);
  Values values;
  // The second and third time, orders are known.
  for (int i = 0; i < 3; ++i) {
    net->ZeroGrad();
    pass(*net, rank);
    const Values gradients = FullGradients(*fsdp, *net);
    if (i > 0) {
      EXPECT_EQ(gradients, values) << "pass " << i;
    }
    values = gradients;
    for (const Tensor& parameter : net->Parameters()) EXPECT_EQ(parameter.rank(), 1);
  }
  return values;
}

void ExpectNear(const Values& values, const Values& wanted) {
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], wanted[i], 1e-6) << "element " << i;
  }
}

Options Units(Options options) {
  options.wrap_policy = WrapByType<nn::Linear>();
  return options;
}

// Every setting that changes when units are gathered.
std::vector<Options> Settings() {
  std::vector<Options> settings = {Options()};
  for (const BackwardPrefetch prefetch :
       {BackwardPrefetch::kPre, BackwardPrefetch::kPost, BackwardPrefetch::kNone}) {
    settings.push_back(Units({.backward_prefetch = prefetch}));
  }
  settings.push_back(Units({.sharding_strategy = ShardingStrategy::kShardGradOp}));
  settings.push_back(Units({.sharding_strategy = ShardingStrategy::kNoShard}));
  settings.push_back(Units({.cpu_offload = true}));
  settings.push_back(Units({.forward_prefetch = false, .max_gathers_in_flight = 1}));
  return settings;
}

// Those of groups of ranks, on four: two replicas of two shards.
std::vector<Options> HybridSettings() {
  std::vector<Options> settings = {{.sharding_strategy = ShardingStrategy::kHybridShard}};
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kHybridShard, ShardingStrategy::kHybridShardGradOp}) {
    for (const bool offload : {false, true}) {
      settings.push_back(Units({.sharding_strategy = strategy, .cpu_offload = offload}));
    }
  }
  settings.push_back(Units({.sharding_strategy = ShardingStrategy::kHybridShard,
                            .backward_prefetch = BackwardPrefetch::kNone}));
  return settings;
}

std::string NameOf(const Options& options) {
  return absl::StrCat("strategy ", static_cast<int>(options.sharding_strategy), ", prefetch ",
                      static_cast<int>(options.backward_prefetch),
                      options.cpu_offload ? ", offloaded" : "",
                      options.wrap_policy ? "" : ", one unit");
}

void ExpectAsUnsharded(const Pass& pass, const Prepare& prepare, int ranks,
                       const std::vector<Options>& settings) {
  const Values wanted = Wanted(ranks, prepare, pass);
  for (const Options& options : settings) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", NameOf(options)));
    ExpectNear(
        ValuesOf(ranks, [&](int rank,
                            Group world) { return Sharded(rank, world, options, prepare, pass); }),
        wanted);
  }
}

void ExpectAsUnsharded(
    const Pass& pass, const Prepare& prepare = [](Net&) {}, int ranks = 2) {
  ExpectAsUnsharded(pass, prepare, ranks, Settings());
  ExpectAsUnsharded(pass, prepare, 4, HybridSettings());
}

TEST(GradientsTest, AllParts) {
  ExpectAsUnsharded([](Net& net, int rank) { autograd::Backward(LossOf(net, rank, 0)); });
}

// ---- What a backward leaves out ----

// A unit that one rank's loss does not reach gets the others' average.
TEST(GradientsTest, UnitsThatOneRankDoesNotReach) {
  for (const bool first : {true, false}) {
    ExpectAsUnsharded([&](Net& net, int rank) {
      autograd::Backward(LossOf(net, rank, 0, {.left = (rank == 0) == first}));
    });
    ExpectAsUnsharded([&](Net& net, int rank) {
      autograd::Backward(LossOf(net, rank, 0, {.right = (rank == 0) == first}));
    });
    ExpectAsUnsharded([&](Net& net, int rank) {
      autograd::Backward(
          LossOf(net, rank, 0, {.left = (rank == 0) == first, .right = (rank == 1) == first}));
    });
    ExpectAsUnsharded([&](Net& net, int rank) {
      autograd::Backward(LossOf(net, rank, 0, {.trunk = (rank == 0) == first}));
    });
    ExpectAsUnsharded(
        [&](Net& net, int rank) {
          const bool all = (rank == 0) == first;
          autograd::Backward(LossOf(net, rank, 0, {.left = all, .right = all, .trunk = rank != 1}));
        },
        [](Net&) {}, 3);
  }
}

// PyTorch's rule: globally unused parameters keep their gradient as it is.
TEST(GradientsTest, GloballyUnusedKeepTheirs) {
  OnRanks(2, [](int rank, Group world) {
    const auto net = MakeNet();
    FullyShardedDataParallel fsdp(net, world, Units({}));
    std::vector<FullyShardedDataParallel::Piece> spare;
    for (const auto& piece : fsdp.Pieces()) {
      if (piece.name.starts_with("spare")) spare.push_back(piece);
    }
    ASSERT_EQ(spare.size(), 2u);
    for (int i = 0; i < 3; ++i) {
      autograd::Backward(LossOf(*net, rank, i));
      for (const auto& piece : spare) EXPECT_FALSE(autograd::Grad(piece.tensor).defined());
    }
    const Tensor kept = Full(spare[0].tensor.shape(), 3.5);
    autograd::SetGrad(spare[0].tensor, kept);
    autograd::Backward(LossOf(*net, rank, 0));
    EXPECT_TRUE(autograd::Grad(spare[0].tensor).IsSame(kept));
    EXPECT_EQ(kept.ToVector<float>(), std::vector<float>(static_cast<size_t>(kept.numel()), 3.5f));
  });
}

// The field's report: rank 0's loss is twice the sum of A, rank 1's ignores it.
TEST(GradientsTest, AParameterOfOneRankOnly) {
  EXPECT_EQ(ValuesOf(2,
                     [](int rank, Group world) {
                       auto model = std::make_shared<testing_util::Weights>(Values{1, 2});
                       FullyShardedDataParallel fsdp(model, world);
                       const Tensor y = fsdp.CallMethod(*model, {}, [&](TensorSpan) -> TensorList {
                         if (rank == 0) return {(*model)[0] * 2.0};
                         return {(*model)[1] * 4.0};
                       })[0];
                       autograd::Backward(y);
                       return FullGradients(fsdp, *model);
                     }),
            (Values{1, 2}));
}

// ---- Frozen ----

TEST(GradientsTest, FrozenParts) {
  const Pass pass = [](Net& net, int rank) { autograd::Backward(LossOf(net, rank, 0)); };
  for (const auto part : {&Net::trunk, &Net::inner, &Net::left}) {
    ExpectAsUnsharded(pass, [&](Net& net) { (net.*part)->SetRequiresGrad(false); });
    // A unit of both kinds.
    ExpectAsUnsharded(pass,
                      [&](Net& net) { autograd::SetRequiresGrad((net.*part)->weight, false); });
    ExpectAsUnsharded(pass, [&](Net& net) { autograd::SetRequiresGrad((net.*part)->bias, false); });
  }
  ExpectAsUnsharded(pass, [](Net& net) {
    net.SetRequiresGrad(false);
    autograd::SetRequiresGrad(net.trunk->bias, true);
  });
  ExpectAsUnsharded(pass, [](Net& net) {
    net.SetRequiresGrad(false);
    autograd::SetRequiresGrad(net.scale, true);
  });
  ExpectAsUnsharded(
      [](Net& net, int rank) {
        autograd::Backward(LossOf(net, rank, 0, {.left = rank == 0, .twice = true}));
      },
      [](Net& net) {
        net.left->SetRequiresGrad(false);
        autograd::SetRequiresGrad(net.inner->weight, false);
      });
}

// What is frozen costs no reduction.
TEST(GradientsTest, FrozenUnitsAreNotReduced) {
  OnRanks(2, [](int rank, Group world) {
    const auto net = MakeNet();
    net->SetRequiresGrad(false);
    net->left->SetRequiresGrad(true);
    FullyShardedDataParallel fsdp(net, world, Units({}));
    for (int i = 0; i < 3; ++i) {
      net->ZeroGrad();
      fsdp.ResetStatistics();
      autograd::Backward(LossOf(*net, rank, i));
      EXPECT_EQ(fsdp.statistics().reductions, 1);
      EXPECT_EQ(fsdp.statistics().reduced_bytes, 32 * 4);
      for (const auto& piece : fsdp.Pieces()) {
        EXPECT_EQ(autograd::Grad(piece.tensor).defined(), piece.name.starts_with("left"));
      }
    }
  });
}

// ---- Several uses ----

TEST(GradientsTest, AUnitThatIsUsedTwice) {
  ExpectAsUnsharded(
      [](Net& net, int rank) { autograd::Backward(LossOf(net, rank, 0, {.twice = true})); });
}

TEST(GradientsTest, TwoForwardsBeforeOneBackward) {
  ExpectAsUnsharded([](Net& net, int rank) {
    const Tensor a = LossOf(net, rank, 0), b = LossOf(net, rank, 1, {.twice = true});
    autograd::Backward(a + b * 0.5);
  });
}

// The field's fault: loss1.backward(); loss2.backward() after both forwards.
TEST(GradientsTest, TwoForwardsThenTwoBackwards) {
  ExpectAsUnsharded([](Net& net, int rank) {
    const Tensor a = LossOf(net, rank, 0), b = LossOf(net, rank, 1);
    autograd::Backward(a);
    autograd::Backward(b);
  });
  ExpectAsUnsharded([](Net& net, int rank) {
    const Tensor a = LossOf(net, rank, 0), b = LossOf(net, rank, 1, {.left = false});
    autograd::Backward(b);
    autograd::Backward(a);
  });
}

TEST(GradientsTest, ASecondBackwardOverOneGraph) {
  ExpectAsUnsharded([](Net& net, int rank) {
    const Tensor loss = LossOf(net, rank, 0, {.right = rank == 0});
    autograd::Backward(loss, {.retain_graph = true});
    autograd::Backward(loss, {.retain_graph = true});
    autograd::Backward(loss);
  });
}

// Units called by themselves, and parts of the graph with a backward of their own.
TEST(GradientsTest, LossesOfParts) {
  std::vector<Options> settings = Settings();
  settings.erase(settings.begin());  // where the root is the only unit
  ExpectAsUnsharded(
      [](Net& net, int rank) {
        const Tensor x = Rows(rank, 2).At("inputs");
        const Tensor middle = Tanh((*net.trunk)(x));
        const Tensor y = net(x, {});
        autograd::Backward(Sum((*net.left)(middle)), {.retain_graph = true});
        autograd::Backward(Sum(y));
      },
      [](Net&) {}, 2, settings);
}

// Gradients of inputs pass through, and add nothing to parameters.
TEST(GradientsTest, GradientsOfInputs) {
  for (const Options& options : Settings()) {
    OnRanks(2, [&](int rank, Group world) {
      const auto net = MakeNet();
      const auto plain = MakeNet();
      FullyShardedDataParallel fsdp(net, world, options);
      for (int i = 0; i < 3; ++i) {
        const Tensor x = autograd::SetRequiresGrad(Rows(rank + i, 2).At("inputs"), true);
        const auto gradient_of = [&](Net& of) {
          return autograd::Gradients({Sum(of(x, {.twice = true}))}, {x})[0].ToVector<float>();
        };
        EXPECT_EQ(gradient_of(*net), gradient_of(*plain));
        for (const auto& piece : fsdp.Pieces()) {
          EXPECT_FALSE(autograd::Grad(piece.tensor).defined());
        }
        const Tensor loss = Sum(net->operator()(x, {}));
        autograd::Backward(loss);
        EXPECT_TRUE(autograd::Grad(x).defined());
        net->ZeroGrad();
      }
    });
  }
}

// ---- Accumulation ----

// The gradients after each of three rounds of three backwards, of which the last reaches a part
// that none before has, and does not reach another.
Values Accumulated(int rank, const Group& world, const Options& options, bool no_sync) {
  const auto net = MakeNet();
  const auto fsdp = Shard(net, world, options);
  Values values;
  for (int round = 0; round < 3; ++round) {
    net->ZeroGrad();
    for (int i = 0; i < 3; ++i) {
      std::optional<FullyShardedDataParallel::NoSync> scope;
      if (no_sync && i < 2) scope.emplace(*fsdp);
      autograd::Backward(LossOf(*net, rank, i, {.left = i < 2, .right = i == 2}));
      if (!scope) continue;
      for (const auto& piece : fsdp->Pieces()) {
        EXPECT_FALSE(autograd::Grad(piece.tensor).defined());
      }
    }
    const Values of_round = FullGradients(*fsdp, *net);
    values.insert(values.end(), of_round.begin(), of_round.end());
  }
  return values;
}

// Backwards add up, reduced each (sharded sums) or together (NoSync): with every strategy, on the
// host too, and in every round.
TEST(GradientsTest, Accumulation) {
  const auto expect = [](int ranks, const std::vector<Options>& settings) {
    const Values round = Wanted(
        ranks, [](Net&) {},
        [](Net& net, int rank) {
          for (int i = 0; i < 3; ++i) {
            autograd::Backward(LossOf(net, rank, i, {.left = i < 2, .right = i == 2}));
          }
        });
    Values wanted;
    for (int i = 0; i < 3; ++i) wanted.insert(wanted.end(), round.begin(), round.end());
    for (const Options& options : settings) {
      for (const bool no_sync : {false, true}) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", NameOf(options), no_sync ? ", NoSync" : ""));
        ExpectNear(ValuesOf(ranks,
                            [&](int rank, Group world) {
                              return Accumulated(rank, world, options, no_sync);
                            }),
                   wanted);
      }
    }
  };
  expect(2, Settings());
  expect(2, HybridSettings());
  expect(3, HybridSettings());
  expect(4, HybridSettings());
}

// The parameters in bfloat16 and the sums in float32: 1 + 2^-9 is no bfloat16.
TEST(GradientsTest, AccumulationKeepsTheReduceDtype) {
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kHybridShard}) {
    for (const bool offload : {false, true}) {
      for (const bool no_sync : {false, true}) {
        Options options{.sharding_strategy = strategy, .cpu_offload = offload};
        options.mixed_precision.param_dtype = DType::kBFloat16;
        options.mixed_precision.reduce_dtype = DType::kFloat32;
        SCOPED_TRACE(absl::StrCat(NameOf(options), no_sync ? ", NoSync" : ""));
        EXPECT_EQ(ValuesOf(2,
                           [&](int, Group world) {
                             auto model = std::make_shared<testing_util::Weights>(Values{1, 2});
                             const auto fsdp = Shard(model, world, options);
                             Values values;
                             for (int round = 0; round < 3; ++round) {
                               model->ZeroGrad();
                               for (const double slope : {1.0, 0x1p-9}) {
                                 std::optional<FullyShardedDataParallel::NoSync> scope;
                                 if (no_sync && slope == 1) scope.emplace(*fsdp);
                                 autograd::Backward(
                                     fsdp->CallMethod(*model, {}, [&](TensorSpan) -> TensorList {
                                       return {(*model)[0] * slope};
                                     })[0]);
                               }
                               values.push_back(FullGradients(*fsdp, *model)[0]);
                             }
                             return values;
                           }),
                  (Values{1 + 0x1p-9, 1 + 0x1p-9, 1 + 0x1p-9}));
      }
    }
  }
}

TEST(GradientsTest, WhatNoSyncAddedUpCanBeDropped) {
  OnRanks(2, [](int rank, Group world) {
    const auto net = MakeNet();
    FullyShardedDataParallel fsdp(net, world, Units({}));
    autograd::Backward(LossOf(*net, rank, 0));
    const Values wanted = FullGradients(fsdp, *net);
    for (int i = 0; i < 2; ++i) {
      net->ZeroGrad();
      {
        FullyShardedDataParallel::NoSync no_sync(fsdp);
        autograd::Backward(LossOf(*net, rank, 5));
      }
      fsdp.DropAccumulated();
      autograd::Backward(LossOf(*net, rank, 0));
      EXPECT_EQ(FullGradients(fsdp, *net), wanted);
    }
  });
}

// ---- Division ----

TEST(GradientsTest, DividesByWhatIsAskedFor) {
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp, ShardingStrategy::kNoShard,
        ShardingStrategy::kHybridShard, ShardingStrategy::kHybridShardGradOp}) {
    for (const int ranks : {1, 3, 4}) {
      for (const double divisor : {1.0, 3.0, 8.0}) {
        const Values values = ValuesOf(ranks, [&](int rank, Group world) {
          auto model = std::make_shared<testing_util::Weights>(Values{1, 2});
          const auto fsdp = Shard(
              model, world, {.sharding_strategy = strategy, .gradient_divide_factor = divisor});
          Values result;
          for (int i = 0; i < 3; ++i) {
            model->ZeroGrad();
            autograd::Backward(fsdp->CallMethod(*model, {}, [&](TensorSpan) -> TensorList {
              return {(*model)[0] * (rank + 1.0) - (*model)[1]};
            })[0]);
            result = FullGradients(*fsdp, *model);
          }
          return result;
        });
        const double sum = ranks * (ranks + 1) / 2;
        EXPECT_FLOAT_EQ(static_cast<float>(values[0]), static_cast<float>(sum / divisor));
        EXPECT_FLOAT_EQ(static_cast<float>(values[1]), static_cast<float>(-ranks / divisor));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::strategies
