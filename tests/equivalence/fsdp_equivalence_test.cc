// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Sharded ranks train as replicated ones do, bit for bit where docs/numerics.md says so, and as one
// rank on all rows within its bounds; MLP of odd sizes, and GPT with tied embeddings. The default
// run has every setting with each other one in turn, the soak run the whole product.
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/layer_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"
#include "lockstep/tests/equivalence/expect_near.h"
#include "lockstep/tests/equivalence/gpt_training.h"
#include "lockstep/tests/equivalence/tasks.h"

namespace lockstep::equivalence {
namespace {

using strategies::BackwardPrefetch;
using strategies::DistributedDataParallel;
using strategies::FullyShardedDataParallel;
using strategies::ShardingStrategy;
using Options = strategies::FullyShardedDataParallelOptions;

constexpr int64_t kRows = 24;
constexpr int kSteps = 3;

struct Scenario {
  Task (*make)() = &GptTask;
  std::optional<ShardingStrategy> strategy =
      std::nullopt;  // nullopt: DistributedDataParallel, or one rank
  bool offload = false;
  bool bf16 = false;
  bool clip = false;
  bool checkpointed = false;
  bool frozen = false;
  bool adam = true;
  int micro_batches = 1;
  BackwardPrefetch prefetch = BackwardPrefetch::kPre;
  bool by_block = true;
};

Options OptionsOf(const Scenario& scenario) {
  Options options;
  options.sharding_strategy = *scenario.strategy;
  options.cpu_offload = scenario.offload;
  options.backward_prefetch = scenario.prefetch;
  options.forward_prefetch = scenario.prefetch != BackwardPrefetch::kNone;
  if (scenario.bf16) {
    options.mixed_precision.param_dtype = DType::kBFloat16;
    options.mixed_precision.reduce_dtype = DType::kFloat32;
    options.mixed_precision.keep_full_precision = [](const std::string&, nn::Module& module) {
      return dynamic_cast<nn::LayerNorm*>(&module) != nullptr;
    };
  }
  if (scenario.by_block) {
    options.wrap_policy =
        strategies::WrapAny({strategies::WrapByType<models::Gpt2Block>(),
                             scenario.make == &MlpTask ? strategies::WrapByType<nn::Linear>()
                                                       : strategies::WrapModules({})});
  }
  return options;
}

// One rank of a run: losses of the steps, and then the parameters.
class TrainingRun {
 public:
  TrainingRun(const Scenario& scenario, std::shared_ptr<comm::Communicator> world)
      : scenario_(scenario), world_(std::move(world)) {
    SetIntraOpThreads(1);
    ManualSeed(static_cast<uint64_t>(1 + (world_ ? world_->rank() : 0)));  // ranks start apart
    task_ = scenario.make();
    if (scenario.frozen) autograd::SetRequiresGrad(task_.model->Parameters()[2], false);
    if (scenario.checkpointed) {
      checkpoint::ApplyCheckpointing(*task_.model, {.choose = [](const std::string& name, auto&) {
        return name.ends_with("h.0") || name.ends_with("h.1") || name.ends_with("layers.1");
      }});
    }
    if (world_ && !scenario.strategy) ddp_.emplace(task_.model, world_);
    if (world_ && scenario.strategy) Shard();
    const NamedTensors parameters = task_.model->NamedParameters();
    if (scenario.adam) {
      optimizer_ = std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 3e-3});
    } else {
      optimizer_ =
          std::make_unique<optim::Sgd>(parameters, optim::SgdOptions{.lr = 0.1, .momentum = 0.9});
    }
  }

  Result Train() {
    Result result(1);
    for (int step = 0; step < kSteps; ++step) result[0].push_back(Step(step));
    NamedTensors state;
    if (fsdp_) state = fsdp_->FullStateDict(/*rank0_only=*/false);
    for (const auto& [name, parameter] : task_.model->NamedParameters()) {
      result.push_back((fsdp_ ? state.At(name) : parameter).ToVector<double>());
    }
    return result;
  }

 private:
  void Shard() {
    const bool hybrid = *scenario_.strategy == ShardingStrategy::kHybridShard ||
                        *scenario_.strategy == ShardingStrategy::kHybridShardGradOp;
    if (!hybrid) {
      fsdp_.emplace(task_.model, world_, OptionsOf(scenario_));
      return;
    }
    const int shard = world_->size() % 2 == 0 ? 2 : 1;
    const comm::DeviceMesh mesh(world_, {{"replicate", world_->size() / shard}, {"shard", shard}});
    fsdp_.emplace(task_.model, mesh, OptionsOf(scenario_));
  }

  std::shared_ptr<void> NoSync(bool last) {
    if (last) return nullptr;
    if (ddp_) return std::make_shared<DistributedDataParallel::NoSync>(*ddp_);
    if (fsdp_) return std::make_shared<FullyShardedDataParallel::NoSync>(*fsdp_);
    return nullptr;
  }

  double Step(int step) {
    optimizer_->ZeroGrad();
    const int64_t ranks = world_ ? world_->size() : 1;
    const int64_t rows = kRows / ranks / scenario_.micro_batches;
    const int64_t first = step * kRows + (world_ ? world_->rank() : 0) * (kRows / ranks);
    const double factor = 1.0 / scenario_.micro_batches;
    double sum = 0;
    for (int i = 0; i < scenario_.micro_batches; ++i) {
      const std::shared_ptr<void> no_sync = NoSync(i + 1 == scenario_.micro_batches);
      const Tensor loss = task_.loss(first + i * rows, rows);
      autograd::Backward(loss * factor);
      sum += loss.Item<double>() * factor;
    }
    if (scenario_.clip) {
      if (fsdp_) {
        fsdp_->ClipGradNorm(0.05);
      } else {
        optim::ClipGradNorm(task_.model->Parameters(), 0.05);
      }
    }
    optimizer_->Step();
    const Tensor mean = FromVector<double>({sum}, {1});
    if (world_) world_->AllReduce(mean, {.op = comm::ReduceOp::kAverage}).Wait();
    return mean.Item<double>();
  }

  const Scenario scenario_;
  const std::shared_ptr<comm::Communicator> world_;
  Task task_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<DistributedDataParallel> ddp_;
  std::optional<FullyShardedDataParallel> fsdp_;
};

Result TrainOnRanks(int ranks, const Scenario& scenario) {
  std::vector<Result> results(static_cast<size_t>(ranks));
  comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
    EXPECT_EQ(context.world_size, ranks);
    comm::ProcessGroupOptions options = context.group_options();
    options.timeout = absl::Seconds(60);
    results[static_cast<size_t>(context.rank)] =
        TrainingRun(scenario, comm::InitProcessGroup(options)).Train();
  }).ThrowIfFailed();
  for (const Result& result : results) EXPECT_EQ(result, results[0]) << "ranks differ";
  return results[0];
}

const std::vector<ShardingStrategy>& Strategies() {
  static const auto* const all = new std::vector<ShardingStrategy>{
      ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp, ShardingStrategy::kNoShard};
  return *all;
}

// A change of one setting; each is bitwise without effect, or has the same effect on
// DistributedDataParallel.
using Change = void (*)(Scenario&);
const std::vector<Change>& Changes() {
  static const auto* const all = new std::vector<Change>{
      [](Scenario& s) { s.offload = true; },
      [](Scenario& s) { s.checkpointed = true; },
      [](Scenario& s) { s.frozen = true; },
      [](Scenario& s) { s.micro_batches = 2; },
      [](Scenario& s) { s.prefetch = BackwardPrefetch::kPost; },
      [](Scenario& s) { s.prefetch = BackwardPrefetch::kNone; },
      [](Scenario& s) { s.by_block = false; },
  };
  return *all;
}

bool IsRefused(const Scenario& scenario) {
  return scenario.offload && scenario.strategy == ShardingStrategy::kNoShard;
}

void ExpectBitwiseReplicated(int ranks, const Scenario& sharded) {
  if (IsRefused(sharded)) return;
  Scenario replicated = sharded;
  replicated.strategy = std::nullopt;
  EXPECT_EQ(TrainOnRanks(ranks, sharded), TrainOnRanks(ranks, replicated));
}

class FsdpEquivalenceTest : public testing::TestWithParam<int> {};

TEST_P(FsdpEquivalenceTest, IsBitwiseReplicatedTraining) {
  const auto& changes = Changes();
  const size_t subsets = size_t{1} << changes.size();
  for (const auto make : {&MlpTask, &GptTask}) {
    for (const ShardingStrategy strategy : Strategies()) {
      for (size_t subset = 0; subset < subsets; ++subset) {
        const int count = __builtin_popcountll(subset);
        // Pairs for one strategy, single ones for the others.
        const int most = IsSoakRun() ? 9 : strategy == ShardingStrategy::kFullShard ? 2 : 1;
        if (count > most) continue;
        Scenario scenario{.make = make, .strategy = strategy};
        for (size_t i = 0; i < changes.size(); ++i) {
          if ((subset >> i) % 2 == 1) changes[i](scenario);
        }
        SCOPED_TRACE(absl::StrCat(make == &MlpTask ? "MLP" : "GPT", ", strategy ",
                                  static_cast<int>(strategy), ", changes ", subset));
        ExpectBitwiseReplicated(GetParam(), scenario);
      }
    }
  }
}

TEST_P(FsdpEquivalenceTest, IsNearOneRankOnAllRows) {
  for (const auto make : {&MlpTask, &GptTask}) {
    Scenario single{.make = make, .adam = false};
    const Result one = TrainingRun(single, nullptr).Train();
    EXPECT_GT(std::abs(one[0][0] - one[0][2]), 5e-5 * one[0][0]) << "the steps do something";
    for (const auto strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kHybridShard,
                                ShardingStrategy::kHybridShardGradOp}) {
      Scenario scenario = single;
      scenario.strategy = strategy;
      for (const bool offload : {false, true}) {
        scenario.offload = offload;
        SCOPED_TRACE(static_cast<int>(strategy));
        ExpectNear(TrainOnRanks(GetParam(), scenario), one, {.of_model = true});
      }
    }
  }
}

TEST_P(FsdpEquivalenceTest, ClipsByTheNormOfAllRanks) {
  for (const auto strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp,
                              ShardingStrategy::kHybridShard, ShardingStrategy::kNoShard}) {
    for (const bool offload : {false, true}) {
      Scenario scenario{.strategy = strategy, .offload = offload, .clip = true, .adam = false};
      if (IsRefused(scenario)) continue;
      Scenario replicated = scenario;
      replicated.strategy = std::nullopt;
      ExpectNear(TrainOnRanks(GetParam(), scenario), TrainOnRanks(GetParam(), replicated),
                 {.of_model = true});
    }
  }
}

TEST_P(FsdpEquivalenceTest, MixedPrecisionIsTheSameForAllStrategiesAndNearFloat32) {
  Scenario scenario{.strategy = ShardingStrategy::kFullShard, .bf16 = true, .adam = false};
  const Result full = TrainOnRanks(GetParam(), scenario);
  Scenario precise = scenario;
  precise.bf16 = false;
  const Result wanted = TrainOnRanks(GetParam(), precise);
  EXPECT_NE(full, wanted);
  // The loss itself is bfloat16.
  ExpectNear(full, wanted, {.loss = 4e-3, .parameter = 1e-3, .of_model = true});
  for (const ShardingStrategy strategy : Strategies()) {
    for (const bool offload : {false, true}) {
      for (const bool checkpointed : {false, true}) {
        Scenario other = scenario;
        other.strategy = strategy;
        other.offload = offload;
        other.checkpointed = checkpointed;
        if (IsRefused(other)) continue;
        EXPECT_EQ(TrainOnRanks(GetParam(), other), full)
            << static_cast<int>(strategy) << offload << checkpointed;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, FsdpEquivalenceTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace lockstep::equivalence
