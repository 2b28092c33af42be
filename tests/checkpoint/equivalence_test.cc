// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Training with activation checkpointing is bitwise training without: losses, gradients,
// parameters, buffers and random streams, for each policy, on one and on two ranks.

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/checkpoint/offload.h"
#include "lockstep/checkpoint/op_policy.h"
#include "lockstep/checkpoint/setting.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep {
namespace {

using checkpoint::ModuleChoice;
using checkpoint::OfType;
using strategies::DistributedDataParallel;
using World = std::shared_ptr<comm::Communicator>;

// Like a batch norm: a mean over the batch, and a running one in a buffer.
class Centre : public nn::UnaryModule {
 public:
  explicit Centre(int64_t width) { RegisterBuffer("running", &running, Zeros({width})); }
  Tensor Forward(const Tensor& x) override {
    const Tensor mean = Mean(x, {0});
    if (training() && !checkpoint::Recomputing()) {
      autograd::NoGradScope no_grad;
      CopyInto(running, Add(Mul(running, 0.9), Mul(mean, 0.1)));
    }
    return x - mean;
  }
  Tensor running;
};

class Block : public nn::UnaryModule {
 public:
  explicit Block(int64_t width)
      : fc_(RegisterModule("fc", std::make_shared<nn::Linear>(width, width))),
        centre_(RegisterModule("centre", std::make_shared<Centre>(width))),
        drop_(RegisterModule("drop", std::make_shared<nn::Dropout>(0.2))) {}
  Tensor Forward(const Tensor& x) override { return x + (*drop_)(Tanh((*centre_)((*fc_)(x)))); }

 private:
  std::shared_ptr<nn::Linear> fc_;
  std::shared_ptr<Centre> centre_;
  std::shared_ptr<nn::Dropout> drop_;
};

// A model and its loss on batch `number` of rank `rank`.
struct Task {
  std::shared_ptr<nn::Module> model;
  std::vector<std::shared_ptr<nn::Module>> blocks;
  std::string large;  // the name of layers that a selective policy recomputes
  std::function<Tensor(int number, int rank)> loss;
};

Tensor Rows(int number, int rank, int64_t rows, int64_t width) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * width; ++i) {
    values.push_back(static_cast<float>(std::sin(0.37 * i + 1.3 * number + 2.1 * rank)));
  }
  return FromVector<float>(values, {rows, width});
}

Task MakeMlp() {
  auto model =
      std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {6, 10, 8, 3}, .dropout = 0.25});
  Task task{model, {}, "layers.0", {}};
  for (const auto& [name, layer] : model->children()[0].second->children()) {
    task.blocks.push_back(layer);
  }
  task.loss = [model](int number, int rank) {
    return MseLoss((*model)(Rows(number, rank, 5, 6)), Rows(number + 7, rank, 5, 3));
  };
  return task;
}

Task MakeBlocks() {
  auto model = std::make_shared<nn::Sequential>();
  Task task{model, {}, "1.fc", {}};
  for (int i = 0; i < 3; ++i) task.blocks.push_back(model->Emplace<Block>(6));
  task.loss = [model](int number, int rank) {
    return MseLoss((*model)(Rows(number, rank, 5, 6)), Rows(number + 7, rank, 5, 6));
  };
  return task;
}

Task MakeGpt() {
  models::Gpt2Config config;
  config.layers = 3;
  config.heads = 2;
  config.width = 16;
  config.block = 12;
  config.vocabulary = 11;
  config.dropout = 0.1;
  auto model = std::make_shared<models::Gpt2>(config);
  Task task{model, checkpoint::UnitsOf(model->transformer()->h()), "c_attn", {}};
  task.loss = [model](int number, int rank) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 2 * 12 + 2; ++i) ids.push_back((i * 7 + number * 3 + rank * 5) % 11);
    const Tensor all = FromVector<int64_t>(ids, {2, 13});
    return model->Loss(Clone(Slice(all, 1, 0, 12)), Clone(Slice(all, 1, 1, 13)));
  };
  return task;
}

using Maker = Task (*)();

// One way of training: how the model is prepared, and whether activations are offloaded.
struct Way {
  std::string name;
  std::function<void(Task&)> prepare;
  bool offload = false;
};

std::vector<Way> Ways() {
  const auto every = [](int64_t k, const checkpoint::CheckpointOptions& options) {
    return [k, options](Task& task) {
      for (size_t i = 0; i < task.blocks.size(); i += k) {
        checkpoint::CheckpointModule(task.blocks[i], options);
      }
    };
  };
  const auto setting = [](const std::string& text) {
    return [text](Task& task) {
      checkpoint::ApplyCheckpointSetting(checkpoint::ParseCheckpointSetting(text), task.blocks,
                                         [&] { return task.loss(0, 0); });
    };
  };
  const auto nothing = [](Task&) {};
  return {
      {"block", setting("block")},
      {"selective", setting("selective")},
      {"budget", setting("budget:1GiB")},
      {"second block", every(2, {})},
      {"values verified", every(1, {.verify_values = true})},
      {"to the end", every(1, {.early_stop = false})},
      {"all linear layers",
       [](Task& task) { checkpoint::ApplyCheckpointing(*task.model, {OfType<nn::Linear>()}); }},
      {"all children",
       [](Task& task) {
         checkpoint::ApplyCheckpointing(*task.model,
                                        {[](const std::string&, nn::Module&) { return true; }});
       }},
      {"contractions except some",
       [](Task& task) {
         const auto weights = checkpoint::WeightsOf(*task.model, task.large);
         for (const auto& block : task.blocks) {
           checkpoint::CheckpointModule(block,
                                        {.policy = checkpoint::SaveContractionsExcept(weights)});
         }
       }},
      {"offload", nothing, true},
      {"offload and block", setting("block"), true},
      {"offload and selective", setting("selective"), true},
  };
}

void Append(const Tensor& tensor, std::vector<double>& values) {
  for (const double value : tensor.ToVector<double>()) values.push_back(value);
}

// Three steps of AdamW; every number there is. With `accumulate`, two backwards a step.
std::vector<double> Train(Maker make, const Way* way, const World& world, bool accumulate) {
  const int rank = world != nullptr ? world->rank() : 0;
  ManualSeed(4, rank);
  Task task = make();
  std::optional<DistributedDataParallel> ddp;
  if (world != nullptr) {
    ddp.emplace(task.model, world,
                strategies::DistributedDataParallelOptions{.bucket_cap_bytes = 1024});
  }
  optim::AdamW optimizer(task.model->NamedParameters(), {.lr = 0.01});
  if (way != nullptr) way->prepare(task);
  std::vector<double> values;
  for (int step = 0; step < 3; ++step) {
    optimizer.ZeroGrad();
    const int backwards = accumulate ? 2 : 1;
    for (int micro = 0; micro < backwards; ++micro) {
      std::optional<DistributedDataParallel::NoSync> no_sync;
      if (ddp.has_value() && micro + 1 < backwards) no_sync.emplace(*ddp);
      Tensor loss;
      {
        std::optional<checkpoint::OffloadActivations> offload;
        if (way != nullptr && way->offload) {
          offload.emplace(checkpoint::OffloadOptions{.min_bytes = 64});
        }
        loss = task.loss(step * 2 + micro, rank);
      }
      Append(loss, values);
      autograd::Backward(loss);
    }
    for (const Tensor& parameter : task.model->Parameters()) {
      Append(autograd::Grad(parameter), values);
    }
    optimizer.Step();
    values.push_back(static_cast<double>(ThreadGenerators().dropout.key.offset));
  }
  for (const auto& [name, tensor] : task.model->StateDict()) Append(tensor, values);
  return values;
}

class EquivalenceTest : public testing::TestWithParam<std::pair<const char*, Maker>> {
 protected:
  static Maker maker() { return GetParam().second; }
};

TEST_P(EquivalenceTest, OneRank) {
  for (const bool accumulate : {false, true}) {
    const std::vector<double> plain = Train(maker(), nullptr, nullptr, accumulate);
    for (const Way& way : Ways()) {
      EXPECT_EQ(Train(maker(), &way, nullptr, accumulate), plain) << way.name;
    }
  }
}

// What each rank gets.
std::vector<std::vector<double>> OnRanks(
    int ranks, const std::function<std::vector<double>(const World&)>& body) {
  std::vector<std::vector<double>> results(static_cast<size_t>(ranks));
  comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
    comm::ProcessGroupOptions options = context.group_options();
    options.timeout = absl::Seconds(60);
    results[static_cast<size_t>(context.rank)] = body(comm::InitProcessGroup(options));
  }).ThrowIfFailed();
  return results;
}

TEST_P(EquivalenceTest, OneAndTwoRanksOfDistributedDataParallel) {
  for (const int ranks : {1, 2}) {
    for (const bool accumulate : {false, true}) {
      const auto run = [&](const Way* way) {
        return OnRanks(ranks,
                       [&](const World& world) { return Train(maker(), way, world, accumulate); });
      };
      const auto plain = run(nullptr);
      if (ranks == 2) {
        EXPECT_NE(plain[0], plain[1]);  // other rows, other masks
      }
      for (const Way& way : Ways()) EXPECT_EQ(run(&way), plain) << way.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EquivalenceTest,
                         testing::Values(std::pair("Mlp", &MakeMlp),
                                         std::pair("Blocks", &MakeBlocks),
                                         std::pair("Gpt", &MakeGpt)),
                         [](const auto& info) { return std::string(info.param.first); });

class Scale : public nn::UnaryModule {
 public:
  Scale() { RegisterParameter("w", &w, Full({1}, 3.0)); }
  Tensor Forward(const Tensor& x) override { return Mul(x, w); }
  Tensor w;
};

// D-5: a block reused under checkpointing is reduced once, after its last contribution.
TEST(ReusedBlockTest, OneReductionAndTheRightGradient) {
  OnRanks(2, [](const World& world) -> std::vector<double> {
    auto model = std::make_shared<Scale>();
    DistributedDataParallel ddp(model, world);
    const Tensor x = Full({1}, world->rank() + 1.0);
    for (int iteration = 0; iteration < 2; ++iteration) {
      model->ZeroGrad();
      const auto f = [&](const Tensor& in) {
        return checkpoint::Checkpoint([&](const Tensor& h) { return (*model)(h); }, in);
      };
      autograd::Backward(f(f(x)));
      EXPECT_EQ(autograd::Grad(model->w).Item<double>(), 9.0);
      EXPECT_EQ(ddp.statistics().collectives, 1);
    }
    return {};
  });
}

// The same with the wrapper of a module that is called twice in a forward pass.
TEST(ReusedBlockTest, AWrappedModuleCalledTwice) {
  OnRanks(2, [](const World& world) -> std::vector<double> {
    auto scale = std::make_shared<Scale>();
    auto shared = std::make_shared<nn::Sequential>(
        std::vector<std::shared_ptr<nn::UnaryModule>>{scale, std::make_shared<nn::Tanh>(), scale});
    DistributedDataParallel ddp(shared, world);
    const Tensor x = Full({1}, 0.1 * (world->rank() + 1));
    autograd::Backward((*shared)(x));
    const double plain = autograd::Grad(scale->w).Item<double>();
    checkpoint::ApplyCheckpointing(*shared, {OfType<Scale>()});
    for (int iteration = 0; iteration < 2; ++iteration) {
      shared->ZeroGrad();
      autograd::Backward((*shared)(x));
      EXPECT_EQ(autograd::Grad(scale->w).Item<double>(), plain);
    }
    return {};
  });
}

// K-1 under DistributedDataParallel: the gradient has the mask of the forward pass.
TEST(DropoutTest, MasksAgreeOnEachRank) {
  OnRanks(2, [](const World& world) -> std::vector<double> {
    ManualSeed(9, world->rank());
    auto model = std::make_shared<Scale>();
    model->w.SetData(Ones({1000}));
    DistributedDataParallel ddp(model, world);
    DistributedDataParallel::NoSync no_sync(ddp);
    const Tensor y = checkpoint::Checkpoint(
        [&](const Tensor& in) { return Dropout((*model)(in), 0.5); }, Ones({1000}));
    const uint64_t after = ThreadGenerators().dropout.key.offset;
    autograd::Backward(Sum(y));
    EXPECT_EQ(autograd::Grad(model->w).ToVector<float>(), y.ToVector<float>());
    EXPECT_EQ(ThreadGenerators().dropout.key.offset, after);
    return {};
  });
}

}  // namespace
}  // namespace lockstep
