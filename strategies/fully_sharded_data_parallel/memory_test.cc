// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Bytes that a rank holds, each rank on a device of its own; modules that are built without bytes.
#include "lockstep/tensor/memory.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

using testing_util::FullParameters;
using testing_util::OnRanks;
using testing_util::ValuesOf;
using Options = FullyShardedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;
using Values = std::vector<double>;

Options Units(Options options = {}) {
  options.wrap_policy = WrapByType<nn::Linear>();
  return options;
}

constexpr int kRanks = 4;
constexpr int64_t kWidth = 256;
constexpr int64_t kLayers = 8;
constexpr int64_t kUnitBytes = (kWidth * kWidth + kWidth) * 4;
constexpr int64_t kShardBytes = kLayers * kUnitBytes / kRanks;
constexpr int64_t kSlack = kUnitBytes / 4;  // activations, rounding

std::shared_ptr<models::Mlp> MakeWide() {
  models::MlpConfig config;
  config.sizes.assign(kLayers + 1, kWidth);
  ManualSeed(5);
  return std::make_shared<models::Mlp>(config);
}

int64_t CurrentBytes() { return GetMemoryStats(CurrentDevice()).current_bytes; }

// The most bytes of gathered parameters and sums of gradients that `body` had at once, beyond what
// there was before.
int64_t PeakOf(const std::function<void()>& body) {
  const auto bytes_of = [](const BytesByCategory& bytes) {
    return bytes[MemoryCategory::kCommunication];
  };
  const int64_t before = bytes_of(GetMemoryStats(CurrentDevice()).current);
  ResetPeakBytes(CurrentDevice());
  body();
  return bytes_of(GetMemoryStats(CurrentDevice()).peak) - before;
}

void OnDevices(const std::function<void(int, Group)>& body) {
  OnRanks(kRanks, [&](int rank, Group world) {
    const DeviceScope device(Cpu(1 + rank));
    body(rank, std::move(world));
  });
}

// ---- Training ----

TEST(MemoryTest, APartEachAndTheUnitsInUse) {
  OnDevices([](int, Group world) {
    const int64_t nothing = CurrentBytes();
    const auto model = MakeWide();
    FullyShardedDataParallel fsdp(model, world, Units({.forward_prefetch = false}));
    EXPECT_LE(CurrentBytes() - nothing, kShardBytes + kSlack);
    const Tensor x = Ones({2, kWidth});
    const int64_t evaluation = PeakOf([&] {
      const autograd::NoGradScope no_grad;
      (*model)(x);
    });
    EXPECT_GE(evaluation, kUnitBytes);
    EXPECT_LE(evaluation, kUnitBytes + kSlack);
    // The parameters of two units, and the sums of two.
    EXPECT_LE(PeakOf([&] { autograd::Backward(Sum((*model)(x))); }), 4 * kUnitBytes + kSlack);
  });
}

TEST(MemoryTest, TheUnitThatIsAskedForAhead) {
  OnDevices([](int, Group world) {
    const auto model = MakeWide();
    FullyShardedDataParallel fsdp(model, world, Units());
    const Tensor x = Ones({2, kWidth});
    for (int i = 0; i < 2; ++i) {
      autograd::Backward(Sum((*model)(x)));
      model->ZeroGrad();
    }
    const int64_t evaluation = PeakOf([&] {
      const autograd::NoGradScope no_grad;
      (*model)(x);
    });
    EXPECT_LE(evaluation, 2 * kUnitBytes + kSlack);
  });
}

// Nothing piles up.
TEST(MemoryTest, StepsLeaveNothingBehind) {
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp}) {
    OnDevices([&](int, Group world) {
      const auto model = MakeWide();
      FullyShardedDataParallel fsdp(model, world, Units({.sharding_strategy = strategy}));
      optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.01, .momentum = 0.9});
      const Tensor x = Ones({2, kWidth});
      int64_t after = 0;
      for (int step = 0; step < 5; ++step) {
        optimizer.ZeroGrad();
        autograd::Backward(Sum((*model)(x)));
        optimizer.Step();
        {
          const autograd::NoGradScope no_grad;
          (*model)(x);
        }
        (*model)(x);  // and no backward
        fsdp.Reshard(*model);
        if (step == 2) after = CurrentBytes();
        if (step > 2) {
          EXPECT_EQ(CurrentBytes(), after) << "step " << step;
        }
      }
    });
  }
}

TEST(MemoryTest, VisitsCostOneUnit) {
  OnDevices([](int rank, Group world) {
    const auto model = MakeWide();
    FullyShardedDataParallel fsdp(model, world, Units());
    for (const bool rank0_only : {true, false}) {
      const int64_t peak = PeakOf(
          [&] { fsdp.VisitFullParameters([](const std::string&, const Tensor&) {}, rank0_only); });
      const bool visits = rank == 0 || !rank0_only;
      EXPECT_LE(peak, (visits ? kUnitBytes : 0) + kUnitBytes / kRanks + kSlack);
    }
    // A state dict lies on the host.
    const int64_t peak = PeakOf([&] {
      const NamedTensors state = fsdp.FullStateDict();
      EXPECT_EQ(state.size(), rank == 0 ? 2u * kLayers : 0u);
    });
    EXPECT_LE(peak, kUnitBytes + kUnitBytes / kRanks + kSlack);
  });
}

TEST(MemoryTest, OffloadLeavesNothingOnTheDevice) {
  OnDevices([](int, Group world) {
    const int64_t nothing = CurrentBytes();
    const auto model = MakeWide();
    FullyShardedDataParallel fsdp(model, world, Units({.cpu_offload = true}));
    EXPECT_EQ(CurrentBytes(), nothing);
    for (const auto& piece : fsdp.Pieces()) EXPECT_EQ(piece.tensor.device(), kHost);
    autograd::Backward(Sum((*model)(Ones({2, kWidth}))));
    for (const auto& piece : fsdp.Pieces()) {
      EXPECT_EQ(autograd::Grad(piece.tensor).device(), kHost);
    }
    model->ZeroGrad();
    // Sums of gradients that are kept for the next ones.
    EXPECT_LE(CurrentBytes() - nothing, 2 * kUnitBytes + kSlack);
  });
}

// ---- Deferred initialisation ----

TEST(DeferredTest, EqualsOrdinaryConstruction) {
  const auto make = [](bool deferred) {
    ManualSeed(11);
    const models::Gpt2Config config = {
        .layers = 2, .heads = 2, .width = 8, .block = 4, .vocabulary = 11};
    if (!deferred) return std::make_shared<models::Gpt2>(config);
    const nn::DeferredInitScope scope;
    return std::make_shared<models::Gpt2>(config);
  };
  const Values wanted = testing_util::AllParameters(*make(false));
  for (const int ranks : {1, 2, 3}) {
    for (const bool sync : {true, false}) {
      for (const ShardingStrategy strategy :
           {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp,
            ShardingStrategy::kNoShard}) {
        EXPECT_EQ(ValuesOf(ranks,
                           [&](int, Group world) {
                             const auto model = make(true);
                             FullyShardedDataParallel fsdp(
                                 model, world,
                                 {.sharding_strategy = strategy,
                                  .wrap_policy = WrapByType<models::Gpt2Block>(),
                                  .sync_module_states = sync});
                             for (const auto& [name, tensor] : model->StateTensors()) {
                               EXPECT_EQ(tensor.device(), Cpu()) << name;
                             }
                             return FullParameters(fsdp, *model);
                           }),
                  wanted);
      }
    }
  }
}

// A rank never has more than its part and one parameter.
TEST(DeferredTest, AModelThatFitsNoRank) {
  for (const bool sync : {true, false}) {
    OnDevices([&](int, Group world) {
      std::shared_ptr<models::Mlp> model;
      {
        const nn::DeferredInitScope scope;
        model = MakeWide();
      }
      const int64_t nothing = CurrentBytes();
      SetCapacityLimit(CurrentDevice(), nothing + kShardBytes + kUnitBytes + kSlack);
      FullyShardedDataParallel fsdp(model, world, Units({.sync_module_states = sync}));
      SetCapacityLimit(CurrentDevice(), std::nullopt);
      EXPECT_LE(CurrentBytes() - nothing, kShardBytes + kSlack);
      autograd::Backward(Sum((*model)(Ones({1, kWidth}))));
      EXPECT_EQ(FullParameters(fsdp, *model), testing_util::AllParameters(*MakeWide()));
    });
  }
}

// What has no recipe is refused by name, before anything changes.
TEST(DeferredTest, RefusesWhatCannotBeMade) {
  OnRanks(1, [](int, Group world) {
    std::shared_ptr<models::Mlp> model;
    {
      const DeviceScope meta(kMeta);
      model = MakeWide();
    }
    ExpectError(absl::StatusCode::kFailedPrecondition, "",
                [&] { FullyShardedDataParallel fsdp(model, world); });
  });
}

}  // namespace
}  // namespace lockstep::strategies
