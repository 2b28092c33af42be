// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// GPT-2 spread over devices against GPT-2 on one, bit for bit: three steps of AdamW with clipping,
// accumulation, autocast, a gradient scaler, checkpointing, dropout; and under
// DistributedDataParallel, against ranks with a device each and against one rank. Ranks are
// threads.

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/amp/training/training_step.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/checkpoint/offload.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/examples/gpt2_stages.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/model_parallel/model_parallel.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"
#include "lockstep/tests/equivalence/expect_near.h"

namespace lockstep {
namespace {

using strategies::DistributedDataParallel;
using strategies::ModelParallel;
using World = std::shared_ptr<comm::Communicator>;

constexpr int64_t kVocabulary = 33;
constexpr int64_t kBlock = 12;
constexpr int64_t kLayers = 5;
constexpr int64_t kRows = 12;

struct Setting {
  std::string name;
  bool tie_head = true;
  double dropout = 0;
  std::string amp = {};
  int64_t micro_batches = 1;
  bool checkpointed = false;
  bool offloaded = false;
  std::optional<double> clip_norm = 0.2;
  bool sgd = false;
  strategies::DistributedDataParallelOptions ddp = {};
  bool fp16_hook = false;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) { return out << setting.name; }

struct Outcome {
  std::vector<double> losses, parameters;
  std::vector<int64_t> sample;
  bool operator==(const Outcome&) const = default;
};

// Rows [first, first + count) of data that has no end.
std::pair<Tensor, Tensor> Batch(int64_t first, int64_t count) {
  std::vector<int64_t> ids, targets;
  for (int64_t row = first; row < first + count; ++row) {
    for (int64_t i = 0; i < kBlock; ++i) {
      ids.push_back((row * row + 5 * i) % kVocabulary);
      targets.push_back((row * row + 5 * i + 5) % kVocabulary);
    }
  }
  return {FromVector<int64_t>(ids, {count, kBlock}), FromVector<int64_t>(targets, {count, kBlock})};
}

// One rank of `world`, or alone, with its model over `stages` devices.
class Run {
 public:
  Run(const Setting& setting, int stages, World world)
      : setting_(setting), world_(std::move(world)) {
    ManualSeed(4, world_ ? world_->rank() : 0);
    SetIntraOpThreads(1);
    model_ = std::make_shared<models::Gpt2>(models::Gpt2Config{.layers = kLayers,
                                                               .heads = 2,
                                                               .width = 16,
                                                               .block = kBlock,
                                                               .vocabulary = kVocabulary,
                                                               .dropout = setting.dropout,
                                                               .tie_head = setting.tie_head});
    if (setting.checkpointed) {
      checkpoint::ApplyCheckpointing(*model_, {.choose = checkpoint::OfType<models::Gpt2Block>()});
    }
    if (stages > 1) {
      parts_.emplace(model_, examples::PlaceGpt2(*model_, strategies::CpuDevices(stages)));
    }
    if (!world_) return;
    auto options = setting.ddp;
    if (setting.fp16_hook) {
      options.communication_hook = std::make_shared<strategies::CompressionHook>(DType::kFloat16);
    }
    ddp_.emplace(model_, world_, options);
  }

  Outcome Train() {
    const NamedTensors parameters = model_->NamedParameters();
    std::unique_ptr<optim::Optimizer> optimizer;
    if (setting_.sgd) {
      optimizer = std::make_unique<optim::Sgd>(parameters, optim::SgdOptions{.lr = 0.1});
    } else {
      optimizer = std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 0.01});
    }
    const auto autocast = amp::ParseAutocast(setting_.amp);
    std::optional<amp::GradScaler> scaler;
    if (autocast && autocast->dtype == DType::kFloat16) {
      scaler.emplace(amp::GradScalerOptions{.init_scale = 256, .group = world_});
    }
    amp::TrainingStepOptions options{.optimizers = {{optimizer.get()}},
                                     .autocast = autocast,
                                     .scaler = scaler ? &*scaler : nullptr,
                                     .clip_norm = setting_.clip_norm,
                                     .micro_batches = setting_.micro_batches,
                                     .group = world_};
    if (ddp_) {
      options.no_sync = [this] { return std::make_shared<DistributedDataParallel::NoSync>(*ddp_); };
    }
    amp::TrainingStep step(options);
    Outcome outcome;
    for (int64_t i = 0; i < 3; ++i) {
      outcome.losses.push_back(step.Run([&](int64_t micro) { return Loss(i, micro); }).loss);
    }
    for (const Tensor& parameter : parameters.Tensors()) {
      const std::vector<double> values = parameter.ToVector<double>();
      outcome.parameters.insert(outcome.parameters.end(), values.begin(), values.end());
    }
    const std::vector<int64_t> prompt = {1, 6, 11};
    outcome.sample = model_->Generate(prompt, 5, {.temperature = 0});
    model_->Eval();
    const autograd::NoGradScope no_grad;
    outcome.losses.push_back(Loss(99, 0).Item<double>());
    return outcome;
  }

 private:
  Tensor Loss(int64_t step, int64_t micro) const {
    const int64_t ranks = world_ ? world_->size() : 1, rank = world_ ? world_->rank() : 0;
    const int64_t mine = kRows / ranks, count = mine / setting_.micro_batches;
    const auto [ids, targets] = Batch(step * kRows + rank * mine + micro * count, count);
    std::optional<checkpoint::OffloadActivations> offload;
    if (setting_.offloaded) offload.emplace();
    return model_->Loss(ids, targets);
  }

  const Setting setting_;
  const World world_;
  std::shared_ptr<models::Gpt2> model_;
  std::optional<ModelParallel> parts_;
  std::optional<DistributedDataParallel> ddp_;
};

Outcome TrainAlone(const Setting& setting, int stages) {
  return Run(setting, stages, nullptr).Train();
}

// Rank 0's.
Outcome TrainDistributed(const Setting& setting, int stages, int ranks) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
    comm::ProcessGroupOptions options = context.group_options();
    options.timeout = absl::Seconds(60);
    outcomes[static_cast<size_t>(context.rank)] =
        Run(setting, stages, comm::InitProcessGroup(options)).Train();
  }).ThrowIfFailed();
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.parameters, outcomes[0].parameters);
  return outcomes[0];
}

class ModelParallelEquivalence : public testing::TestWithParam<Setting> {};

TEST_P(ModelParallelEquivalence, OneDeviceBitForBit) {
  const Outcome alone = TrainAlone(GetParam(), 1);
  for (const int stages : {2, 3, 5}) EXPECT_EQ(TrainAlone(GetParam(), stages), alone) << stages;
}

INSTANTIATE_TEST_SUITE_P(
    Settings, ModelParallelEquivalence,
    testing::Values(
        Setting{.name = "Tied"}, Setting{.name = "Untied", .tie_head = false},
        Setting{.name = "Dropout", .dropout = 0.2},
        Setting{.name = "Accumulation", .micro_batches = 3},
        Setting{.name = "Bfloat16", .amp = "bf16"},
        // A tied head: one device adds both gradients of the one 16-bit copy in 16 bits.
        Setting{.name = "PureBfloat16", .tie_head = false, .amp = "pure_bf16"},
        Setting{.name = "Float16WithScaler", .amp = "fp16", .micro_batches = 2},
        Setting{.name = "Checkpointed", .dropout = 0.2, .checkpointed = true},
        Setting{.name = "CheckpointedBfloat16", .amp = "bf16", .checkpointed = true},
        Setting{.name = "Offloaded", .offloaded = true}),
    [](const auto& info) { return info.param.name; });

class RanksOfDevices : public testing::TestWithParam<Setting> {};

TEST_P(RanksOfDevices, AsRanksWithOneDeviceAndAsOneRank) {
  const Setting& setting = GetParam();
  const Outcome alone = TrainAlone(setting, 1);
  for (const auto& [ranks, stages] : {std::pair(2, 2), std::pair(3, 5)}) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks of ", stages));
    const Outcome spread = TrainDistributed(setting, stages, ranks);
    EXPECT_EQ(spread, TrainDistributed(setting, 1, ranks));
    if (setting.fp16_hook) continue;
    // The last loss is of a rank's own rows.
    const auto of_steps = [](const Outcome& outcome) {
      return std::vector<double>(outcome.losses.begin(), outcome.losses.end() - 1);
    };
    equivalence::ExpectNear({of_steps(spread), spread.parameters},
                            {of_steps(alone), alone.parameters}, {});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, RanksOfDevices,
    testing::Values(Setting{.name = "Plain", .sgd = true},
                    Setting{.name = "SmallBuckets",
                            .sgd = true,
                            .ddp = {.bucket_cap_bytes = 4096, .first_bucket_bytes = 1024}},
                    Setting{.name = "StaticViews",
                            .sgd = true,
                            .ddp = {.static_graph = true, .gradient_as_bucket_view = true}},
                    Setting{
                        .name = "FindUnused", .sgd = true, .ddp = {.find_unused_parameters = true}},
                    Setting{.name = "AccumulationCheckpointed",
                            .micro_batches = 2,
                            .checkpointed = true,
                            .sgd = true},
                    Setting{.name = "Float16Hook", .sgd = true, .fp16_hook = true}),
    [](const auto& info) { return info.param.name; });

// Parameters, gradients and moments of a device are those of its own part.
TEST(ModelParallelMemory, EachDeviceHoldsItsOwnLayers) {
  constexpr int kStages = 3;
  const auto current = [](MemoryCategory category) {
    std::vector<int64_t> bytes;
    for (int i = 0; i < kStages; ++i) bytes.push_back(GetMemoryStats(Cpu(i)).current[category]);
    return bytes;
  };
  ManualSeed(1);
  auto model = std::make_shared<models::Gpt2>(
      models::Gpt2Config{.layers = 7, .heads = 2, .width = 32, .block = kBlock});
  const std::vector<strategies::PlacedModule> placement =
      examples::PlaceGpt2(*model, strategies::CpuDevices(kStages));
  std::vector<int64_t> own(kStages);
  for (const auto& [name, parameter] : model->NamedParameters()) {
    for (const strategies::PlacedModule& part : placement) {
      if (name.starts_with(part.name + ".")) own[part.device.index] += parameter.bytes();
    }
  }
  const std::vector<int64_t> before = current(MemoryCategory::kParameter);
  const ModelParallel parts(model, placement);
  for (int i = 0; i < kStages; ++i) ResetPeakBytes(Cpu(i));
  optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
  amp::TrainingStep step({.optimizers = {{&optimizer}}, .clip_norm = 1.0});
  const auto [ids, targets] = Batch(0, 4);
  for (int i = 0; i < 3; ++i) step.Run([&](int64_t) { return model->Loss(ids, targets); });
  int64_t all = 0;
  for (int i = 0; i < kStages; ++i) {
    // The first held all of them before.
    const int64_t held = i == 0 ? current(MemoryCategory::kParameter)[0]
                                : current(MemoryCategory::kParameter)[i] - before[i];
    const MemoryStats stats = GetMemoryStats(Cpu(i));
    EXPECT_NEAR(held, own[i], 0.01 * own[i]) << i;
    EXPECT_NEAR(stats.peak[MemoryCategory::kGradient], own[i], 0.01 * own[i]) << i;
    EXPECT_NEAR(stats.peak[MemoryCategory::kOptimizer], 2 * own[i], 0.01 * own[i]) << i;
    EXPECT_GT(stats.peak[MemoryCategory::kActivation], 0) << i;
    all += own[i];
  }
  int64_t whole = 0;
  for (const Tensor& parameter : model->Parameters()) whole += parameter.bytes();
  EXPECT_EQ(all, whole);
}

}  // namespace
}  // namespace lockstep
