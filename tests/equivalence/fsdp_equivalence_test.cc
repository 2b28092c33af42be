// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Sharded ranks train as replicated ones do, bit for bit where docs/numerics.md says so, and as one
// rank on all rows within its bounds; an MLP of odd sizes, one with a layer that is used twice, and
// GPT with tied embeddings. The default run has every strategy with each pair of settings, the soak
// run every set of them.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
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

bool IsHybrid(const Scenario& scenario) {
  return scenario.strategy == ShardingStrategy::kHybridShard ||
         scenario.strategy == ShardingStrategy::kHybridShardGradOp;
}

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
                             scenario.make == &GptTask ? strategies::WrapModules({})
                                                       : strategies::WrapByType<nn::Linear>()});
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
        return name.ends_with("h.0") || name.ends_with("h.1") || name.ends_with("layers.1") ||
               name.ends_with("middle");
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
    if (!IsHybrid(scenario_)) {
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
      ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp, ShardingStrategy::kNoShard,
      ShardingStrategy::kHybridShard, ShardingStrategy::kHybridShardGradOp};
  return *all;
}

struct Change {
  const char* name;
  void (*apply)(Scenario&);
};
const std::vector<Change>& Changes() {
  static const auto* const all = new std::vector<Change>{
      {"offload", [](Scenario& s) { s.offload = true; }},
      {"checkpointed", [](Scenario& s) { s.checkpointed = true; }},
      {"frozen", [](Scenario& s) { s.frozen = true; }},
      {"accumulated", [](Scenario& s) { s.micro_batches = 2; }},
      {"clipped", [](Scenario& s) { s.clip = true; }},
      {"bf16", [](Scenario& s) { s.bf16 = true; }},
      {"one unit", [](Scenario& s) { s.by_block = false; }},
      // Either of the two.
      {"prefetch post", [](Scenario& s) { s.prefetch = BackwardPrefetch::kPost; }},
      {"no prefetch", [](Scenario& s) { s.prefetch = BackwardPrefetch::kNone; }},
  };
  return *all;
}

// Sets of changes, as bits: all of them, or those of at most two.
std::vector<size_t> SetsOfChanges() {
  const size_t count = Changes().size();
  const size_t both_prefetches = size_t{3} << (count - 2);
  std::vector<size_t> sets;
  for (size_t set = 0; set < size_t{1} << count; ++set) {
    if ((set & both_prefetches) == both_prefetches) continue;
    if (IsSoakRun() || __builtin_popcountll(set) <= 2) sets.push_back(set);
  }
  return sets;
}

bool IsRefused(const Scenario& scenario) {
  return scenario.offload && scenario.strategy == ShardingStrategy::kNoShard;
}

// Sums over ranks, and of squares for a norm, have another order then.
bool IsExact(const Scenario& scenario) { return !scenario.clip && !IsHybrid(scenario); }

// Training on a number of ranks that a scenario is compared with, made once: replicated, or in
// bfloat16, which DistributedDataParallel does not have, fully sharded. Of all settings it has only
// those that are to change numbers.
class References {
 public:
  explicit References(int ranks) : ranks_(ranks) {}

  const Result& Of(const Scenario& scenario) {
    const Key key{scenario.make,   scenario.bf16, scenario.clip,
                  scenario.frozen, scenario.adam, scenario.micro_batches};
    const auto found = results_.find(key);
    if (found != results_.end()) return found->second;
    Scenario reference{.make = scenario.make,
                       .bf16 = scenario.bf16,
                       .clip = scenario.clip,
                       .frozen = scenario.frozen,
                       .adam = scenario.adam,
                       .micro_batches = scenario.micro_batches};
    if (scenario.bf16) reference.strategy = ShardingStrategy::kFullShard;
    const Result result = TrainOnRanks(ranks_, reference);
    if (scenario.clip) {
      Scenario whole = scenario;
      whole.clip = false;
      EXPECT_NE(result, Of(whole)) << "the bound is above all norms";
    }
    if (scenario.bf16) {
      Scenario precise = scenario;
      precise.bf16 = false;
      const Result& wanted = Of(precise);
      EXPECT_NE(result, wanted);
      ExpectNear(
          result, wanted,
          {.loss = 4e-3, .parameter = 1e-3, .of_model = true});  // the loss itself is bfloat16
    }
    return results_.emplace(key, result).first->second;
  }

 private:
  using Key = std::tuple<Task (*)(), bool, bool, bool, bool, int>;

  const int ranks_;
  std::map<Key, Result> results_;
};

class FsdpEquivalenceTest : public testing::TestWithParam<int> {};

TEST_P(FsdpEquivalenceTest, IsReplicatedTraining) {
  References references(GetParam());
  int64_t compared = 0;
  for (const auto make : {&MlpTask, &TwiceTask, &GptTask}) {
    for (const ShardingStrategy strategy : Strategies()) {
      for (const size_t set : SetsOfChanges()) {
        Scenario scenario{.make = make, .strategy = strategy};
        std::string trace = absl::StrCat(make == &GptTask   ? "GPT"
                                         : make == &MlpTask ? "MLP"
                                                            : "used twice",
                                         ", strategy ", static_cast<int>(strategy));
        for (size_t i = 0; i < Changes().size(); ++i) {
          if ((set >> i) % 2 == 0) continue;
          Changes()[i].apply(scenario);
          absl::StrAppend(&trace, ", ", Changes()[i].name);
        }
        if (IsRefused(scenario)) continue;
        // AdamW divides small gradients by their own size: errors of rounding would be large.
        scenario.adam = IsExact(scenario) && !scenario.bf16;
        SCOPED_TRACE(trace);
        const Result result = TrainOnRanks(GetParam(), scenario);
        const Result& wanted = references.Of(scenario);
        if (IsExact(scenario)) {
          EXPECT_TRUE(result == wanted) << "not bit for bit";
        } else if (scenario.bf16) {
          ExpectNear(result, wanted, {.loss = 4e-3, .parameter = 1e-3, .of_model = true});
        } else {
          ExpectNear(result, wanted, {.of_model = true});
        }
        ++compared;
        if (HasFailure()) return;
      }
    }
  }
  std::printf("%d ranks: %lld settings compared\n", GetParam(), static_cast<long long>(compared));
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

INSTANTIATE_TEST_SUITE_P(Ranks, FsdpEquivalenceTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace lockstep::equivalence
