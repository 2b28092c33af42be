// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// DataParallel on N devices against one device, and against N ranks of DistributedDataParallel: MLP
// and GPT over three steps, with accumulation, autocast, a gradient scaler, checkpointing, dropout,
// uneven batches.

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/amp/training/training_step.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/data_parallel/data_parallel.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor_tree.h"
#include "lockstep/tensor/thread_state.h"
#include "lockstep/tests/equivalence/expect_near.h"

namespace lockstep {
namespace {

using strategies::DataParallel;
using strategies::DistributedDataParallel;
using World = std::shared_ptr<comm::Communicator>;

// A model, its loss on a batch, and batches whose rows tell their number.
struct Task {
  std::shared_ptr<nn::Module> model;
  std::function<Tensor(const TensorTree& batch)> loss;
  std::function<TensorTree(int64_t number, int64_t rows)> batch;
};

using Maker = Task (*)(double dropout);

Tensor Waves(const Shape& shape, double step) {
  const int64_t count = NumElements(shape);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(std::sin(step * static_cast<double>(i))));
  }
  return FromVector<float>(values, shape);
}

Task MakeMlp(double dropout) {
  const auto mlp =
      std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {5, 32, 32, 3}, .dropout = dropout});
  return {mlp,
          [mlp](const TensorTree& in) { return MseLoss((*mlp)(in[0].tensor()), in[1].tensor()); },
          [](int64_t number, int64_t rows) -> TensorTree {
            const double step = 0.3 + 0.1 * static_cast<double>(number);
            return {Waves({rows, 5}, step), Waves({rows, 3}, step + 0.7)};
          }};
}

// The head is tied to the embedding.
Task MakeGpt(double dropout) {
  models::Gpt2Config config;
  config.layers = 2;
  config.heads = 2;
  config.width = 32;
  config.block = 12;
  config.vocabulary = 33;
  config.dropout = dropout;
  const auto gpt = std::make_shared<models::Gpt2>(config);
  return {gpt, [gpt](const TensorTree& in) { return gpt->Loss(in[0].tensor(), in[1].tensor()); },
          [](int64_t number, int64_t rows) -> TensorTree {
            std::vector<int64_t> ids, targets;
            for (int64_t i = 0; i < rows * 12; ++i) {
              ids.push_back((i * i + 5 * number) % 33);
              targets.push_back((7 * i + 3 * number + 1) % 33);
            }
            return {FromVector<int64_t>(ids, {rows, 12}), FromVector<int64_t>(targets, {rows, 12})};
          }};
}

struct Setting {
  int64_t rows = 8;
  int64_t micro_batches = 1;
  double dropout = 0;
  std::string amp = "";
  bool checkpointed = false;
  bool adam = false;

  std::string DebugString() const {
    return absl::StrCat(rows, " rows, ", micro_batches, " micro-batches, dropout ", dropout, ", ",
                        amp.empty() ? "float32" : amp, checkpointed ? ", checkpointed" : "",
                        adam ? ", AdamW" : "");
  }
};

struct Outcome {
  std::vector<double> losses, parameters;
  bool operator==(const Outcome&) const = default;
};

void Checkpoint(nn::Module& model) {
  checkpoint::ApplyCheckpointing(
      model, {.choose = [&model](const std::string&, nn::Module& module) {
        return dynamic_cast<models::Gpt2Block*>(&module) != nullptr ||
               (&module != &model && dynamic_cast<nn::Sequential*>(&module) != nullptr);
      }});
}

// Three steps; `loss` turns a batch into a loss with a history.
template <typename Loss>
Outcome Train(Task& task, const Setting& setting, const World& world, Loss loss) {
  const NamedTensors parameters = task.model->NamedParameters();
  std::unique_ptr<optim::Optimizer> optimizer;
  if (setting.adam) {
    optimizer = std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 0.01});
  } else {
    optimizer = std::make_unique<optim::Sgd>(parameters, optim::SgdOptions{.lr = 0.1});
  }
  const auto autocast = amp::ParseAutocast(setting.amp);
  std::optional<amp::GradScaler> scaler;
  if (autocast && autocast->dtype == DType::kFloat16) {
    scaler.emplace(amp::GradScalerOptions{.init_scale = 256, .group = world});
  }
  amp::TrainingStep step({.optimizers = {{optimizer.get()}},
                          .autocast = autocast,
                          .scaler = scaler ? &*scaler : nullptr,
                          .micro_batches = setting.micro_batches,
                          .group = world});
  Outcome outcome;
  for (int64_t i = 0; i < 3; ++i) {
    outcome.losses.push_back(
        step.Run([&](int64_t micro) { return loss(i * setting.micro_batches + micro); }).loss);
  }
  for (const Tensor& parameter : parameters.Tensors()) {
    const std::vector<double> values = parameter.ToVector<double>();
    outcome.parameters.insert(outcome.parameters.end(), values.begin(), values.end());
  }
  return outcome;
}

Task MakeTask(Maker maker, const Setting& setting, int64_t rank) {
  ManualSeed(4, rank);
  SetIntraOpThreads(1);
  Task task = maker(setting.dropout);
  if (setting.checkpointed) Checkpoint(*task.model);
  return task;
}

Outcome TrainAlone(Maker maker, const Setting& setting) {
  Task task = MakeTask(maker, setting, 0);
  return Train(task, setting, nullptr,
               [&](int64_t number) { return task.loss(task.batch(number, setting.rows)); });
}

Outcome TrainParallel(Maker maker, const Setting& setting, int devices) {
  Task task = MakeTask(maker, setting, 0);
  DataParallel parallel(task.model, {.devices = strategies::CpuDevices(devices)});
  return Train(task, setting, nullptr, [&](int64_t number) {
    return parallel.MeanLoss([&](const TensorTree& in) { return TensorTree(task.loss(in)); },
                             task.batch(number, setting.rows));
  });
}

// Rank 0's.
Outcome TrainDistributed(Maker maker, const Setting& setting, int ranks) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
    comm::ProcessGroupOptions options = context.group_options();
    options.timeout = absl::Seconds(60);
    const World world = comm::InitProcessGroup(options);
    Task task = MakeTask(maker, setting, context.rank);
    const DistributedDataParallel ddp(task.model, world);
    outcomes[static_cast<size_t>(context.rank)] = Train(task, setting, world, [&](int64_t number) {
      const TensorTree batch = task.batch(number, setting.rows);
      const int64_t rows = setting.rows / ranks;
      return task.loss(batch.Map([&](const std::string&, const Tensor& tensor) {
        return Slice(tensor, 0, rows * context.rank, rows * (context.rank + 1));
      }));
    });
  }).ThrowIfFailed();
  return outcomes[0];
}

void ExpectNear(const Outcome& actual, const Outcome& expected,
                const equivalence::Bounds& bounds = {}) {
  equivalence::ExpectNear({actual.losses, actual.parameters},
                          {expected.losses, expected.parameters}, bounds);
}

class DataParallelEquivalence : public testing::TestWithParam<std::pair<const char*, Maker>> {
 protected:
  static Maker maker() { return GetParam().second; }
};

TEST_P(DataParallelEquivalence, OneDeviceBitForBit) {
  for (const Setting& setting :
       {Setting{}, Setting{.dropout = 0.2}, Setting{.micro_batches = 2}, Setting{.amp = "bf16"},
        Setting{.amp = "fp16"}, Setting{.checkpointed = true}}) {
    const Outcome alone = TrainAlone(maker(), setting);
    EXPECT_EQ(TrainParallel(maker(), setting, 1), alone) << setting.DebugString();
    if (setting.dropout > 0) continue;  // other masks
    for (const int devices : {2, 3, 4}) {
      const bool narrow = !setting.amp.empty();
      SCOPED_TRACE(absl::StrCat(setting.DebugString(), ", ", devices));
      ExpectNear(
          TrainParallel(maker(), setting, devices), alone,
          narrow ? equivalence::Bounds{.loss = 1e-3, .parameter = 1e-2} : equivalence::Bounds());
    }
  }
}

TEST_P(DataParallelEquivalence, UnevenBatches) {
  for (const int64_t rows : {7, 3, 1}) {
    const Setting setting{.rows = rows};
    const Outcome alone = TrainAlone(maker(), setting);
    for (const int devices : {1, 2, 3, 4}) {
      SCOPED_TRACE(absl::StrCat(setting.DebugString(), ", ", devices));
      ExpectNear(TrainParallel(maker(), setting, devices), alone);
    }
  }
}

TEST_P(DataParallelEquivalence, CheckpointingBitForBit) {
  for (Setting setting :
       {Setting{.rows = 7, .dropout = 0.2}, Setting{.dropout = 0.2, .amp = "bf16"}}) {
    const Outcome plain = TrainParallel(maker(), setting, 3);
    setting.checkpointed = true;
    EXPECT_EQ(TrainParallel(maker(), setting, 3), plain) << setting.DebugString();
  }
}

// Where the average over ranks is exact: a power of two of them, with equally many rows. (Sums over
// micro-batches associate differently: ranks add their own up first.)
TEST_P(DataParallelEquivalence, RanksBitForBit) {
  for (const Setting& setting : {Setting{}, Setting{.dropout = 0.2, .adam = true},
                                 Setting{.dropout = 0.2, .checkpointed = true}}) {
    for (const int devices : {2, 4}) {
      const Outcome ranks = TrainDistributed(maker(), setting, devices);
      EXPECT_EQ(TrainParallel(maker(), setting, devices).parameters, ranks.parameters)
          << setting.DebugString() << ", " << devices;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DataParallelEquivalence,
                         testing::Values(std::pair("Mlp", &MakeMlp), std::pair("Gpt", &MakeGpt)),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace lockstep
