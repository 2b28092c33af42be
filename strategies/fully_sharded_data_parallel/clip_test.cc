// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Clipping: one norm over the gradients of all ranks, whatever the strategy.
#include "lockstep/nn/optim/clip.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies {
namespace {

using testing_util::FullGradients;
using testing_util::MakeMlp;
using testing_util::OnRanks;
using testing_util::Rows;
using testing_util::ValuesOf;
using testing_util::Weights;
using Options = FullyShardedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;
using Values = std::vector<double>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor LossOf(models::Mlp& model) {
  const NamedTensors rows = Rows(0, 12);
  return MseLoss(model(rows.At("inputs")), rows.At("targets"));
}

struct Setting {
  std::string name;
  int ranks;
  Options options;
  int replicas = 0;  // above 0: over a mesh
};

std::vector<Setting> Settings() {
  const auto units = [](Options options) {
    options.wrap_policy = WrapByType<nn::Linear>();
    return options;
  };
  using enum ShardingStrategy;
  return {{"one rank", 1, units({})},
          {"full", 2, units({})},
          {"full of 5", 5, units({})},
          {"one unit", 3, {}},
          {"kept", 2, units({.sharding_strategy = kShardGradOp})},
          {"none", 3, units({.sharding_strategy = kNoShard})},
          {"hybrid", 4, units({.sharding_strategy = kHybridShard}), 2},
          {"replicated", 2, units({.sharding_strategy = kHybridShard}), 2},
          {"offload", 2, units({.cpu_offload = true})},
          {"ignored", 2, units({.ignored = {"layers.2"}})}};
}

std::unique_ptr<FullyShardedDataParallel> Shard(const Setting& setting, const Group& world,
                                                std::shared_ptr<nn::Module> module) {
  if (setting.replicas == 0) {
    return std::make_unique<FullyShardedDataParallel>(std::move(module), world, setting.options);
  }
  const comm::DeviceMesh mesh(
      world, {{"replicate", setting.replicas}, {"shard", setting.ranks / setting.replicas}});
  return std::make_unique<FullyShardedDataParallel>(std::move(module), mesh, setting.options);
}

// Frozen, tied and empty parts among them.
std::shared_ptr<models::Mlp> Prepared(int rank) {
  ManualSeed(static_cast<uint64_t>(100 + rank));
  auto model = std::make_shared<models::Mlp>(
      models::MlpConfig{.sizes = {3, 5, 5, 5, 2}, .activation = models::MlpActivation::kTanh});
  std::vector<nn::Linear*> layers;
  for (const auto& [name, module] : model->NamedModules()) {
    if (auto* layer = dynamic_cast<nn::Linear*>(module)) layers.push_back(layer);
  }
  layers.at(2)->weight = layers.at(1)->weight;
  EXPECT_EQ(model->Parameters().size(), 7u);  // of 4 layers
  autograd::SetRequiresGrad(layers.at(1)->bias, false);
  return model;
}

TEST(ClipTest, TheNormIsThatOfTheWhole) {
  for (const NormKind kind : {NormKind::kTwo, NormKind::kInfinity}) {
    for (const double max_norm : {0.05, 1e9}) {
      auto plain = Prepared(0);
      autograd::Backward(LossOf(*plain));
      const double norm =
          optim::ClipGradNorm(plain->Parameters(), max_norm, {.kind = kind}).Item<double>();
      const Values wanted = testing_util::Gradients(*plain);
      for (const Setting& setting : Settings()) {
        SCOPED_TRACE(setting.name);
        const Values values = ValuesOf(setting.ranks, [&](int rank, Group world) {
          auto model = Prepared(rank);
          const auto fsdp = Shard(setting, world, model);
          Values result;
          for (int i = 0; i < 3; ++i) {
            model->ZeroGrad();
            autograd::Backward(LossOf(*model));
            const Tensor of_all = fsdp->ClipGradNorm(max_norm, {.kind = kind});
            EXPECT_EQ(of_all.dtype(), DType::kFloat32);
            result = {of_all.Item<double>()};
          }
          for (const double value : FullGradients(*fsdp, *model)) result.push_back(value);
          return result;
        });
        ASSERT_EQ(values.size(), 1 + wanted.size());
        EXPECT_NEAR(values[0], norm, 1e-6 * norm);
        for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(values[1 + i], wanted[i], 1e-6);
      }
    }
  }
}

// The field's numbers: gradients 3 and 4.
TEST(ClipTest, ThreeAndFour) {
  const std::vector<Setting> settings = {
      {"full", 2, {}},
      {"none", 2, {.sharding_strategy = ShardingStrategy::kNoShard}},
      {"hybrid", 4, {.sharding_strategy = ShardingStrategy::kHybridShard}, 2},
      {"one is ignored", 2, {.ignored = {"a"}}}};
  for (const Setting& setting : settings) {
    SCOPED_TRACE(setting.name);
    const auto clip = [&](NormKind kind) {
      return ValuesOf(setting.ranks, [&](int, Group world) {
        auto model = std::make_shared<Weights>(Values{1, 2});
        const auto fsdp = Shard(setting, world, model);
        autograd::Backward(fsdp->CallMethod(*model, {}, [&](TensorSpan) -> TensorList {
          return {(*model)[0] * 3.0 + (*model)[1] * 4.0};
        })[0]);
        Values result = {fsdp->ClipGradNorm(1, {.kind = kind}).Item<double>()};
        for (const double value : FullGradients(*fsdp, *model)) result.push_back(value);
        return result;
      });
    };
    const Values two = clip(NormKind::kTwo);
    EXPECT_FLOAT_EQ(static_cast<float>(two[0]), 5);
    EXPECT_NEAR(two[1], 0.59999988, 1e-7);
    EXPECT_NEAR(two[2], 0.79999984, 1e-7);
    const Values inf = clip(NormKind::kInfinity);
    EXPECT_EQ(inf[0], 4);
    EXPECT_NEAR(inf[1], 0.75, 1e-6);
  }
}

TEST(ClipTest, WithoutGradients) {
  OnRanks(2, [](int, Group world) {
    auto model = MakeMlp(0);
    FullyShardedDataParallel fsdp(model, world);
    EXPECT_EQ(fsdp.ClipGradNorm(1).Item<float>(), 0);
  });
}

// A value that is not finite on one rank is seen by all, for either kind.
TEST(ClipTest, ValuesThatAreNotFinite) {
  for (const NormKind kind : {NormKind::kTwo, NormKind::kInfinity}) {
    for (const float value : {kInf, kNan}) {
      for (const int culprit : {0, 1}) {
        OnRanks(2, [&](int rank, Group world) {
          auto model = MakeMlp(0);
          // Finite gradients of an ignored layer come after the others.
          FullyShardedDataParallelOptions options;
          options.wrap_policy = WrapByType<nn::Linear>();
          if (culprit == 1) options.ignored = {"layers.4"};
          FullyShardedDataParallel fsdp(model, world, options);
          autograd::Backward(LossOf(*model));
          Values before;
          for (const auto& piece : fsdp.Pieces()) {
            if (rank == culprit && piece.name == "layers.2.weight") {
              FillInPlace(Slice(autograd::Grad(piece.tensor), 0, 1, 2), value);
            }
          }
          before = FullGradients(fsdp, *model);
          ExpectError(absl::StatusCode::kFailedPrecondition, "the norm of the gradients is ",
                      [&] { fsdp.ClipGradNorm(1, {.kind = kind, .error_if_nonfinite = true}); });
          const Values after = FullGradients(fsdp, *model);
          for (size_t i = 0; i < before.size(); ++i) {
            EXPECT_TRUE(before[i] == after[i] || std::isnan(before[i]));
          }
          const float norm = fsdp.ClipGradNorm(1, {.kind = kind}).Item<float>();
          EXPECT_EQ(std::isnan(norm), std::isnan(value));
          EXPECT_FALSE(std::isfinite(norm));
        });
      }
    }
  }
}

TEST(ClipTest, RefusesBadNorms) {
  OnRanks(1, [](int, Group world) {
    FullyShardedDataParallel fsdp(MakeMlp(0), world);
    for (const double wrong : {-1.0, std::nan("")}) {
      ExpectError(absl::StatusCode::kInvalidArgument, "; it is a number that is not negative",
                  [&] { fsdp.ClipGradNorm(wrong); });
    }
  });
}

}  // namespace
}  // namespace lockstep::strategies
