// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/model_parallel/model_parallel.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/model_parallel/place_blocks.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A linear layer with tanh and dropout, x -> x of 6 columns; one width for each.
class Block : public nn::UnaryModule {
 public:
  Block(int64_t width, double dropout)
      : in_(RegisterModule("in", std::make_shared<nn::Linear>(6, width))),
        dropout_(RegisterModule("dropout", std::make_shared<nn::Dropout>(dropout))),
        out_(RegisterModule("out", std::make_shared<nn::Linear>(width, 6))) {}
  Tensor Forward(const Tensor& x) override { return x + (*out_)((*dropout_)(Tanh((*in_)(x)))); }

 private:
  std::shared_ptr<nn::Linear> in_;
  std::shared_ptr<nn::Dropout> dropout_;
  std::shared_ptr<nn::Linear> out_;
};

std::shared_ptr<nn::Sequential> MakeNet(double dropout = 0) {
  ManualSeed(3);
  SetIntraOpThreads(1);
  auto net = std::make_shared<nn::Sequential>();
  for (const int64_t width : {5, 9, 7, 11, 3}) net->Emplace<Block>(width, dropout);
  return net;
}

// Embedding, blocks in a list, and a head that is the embedding; a module with a Forward of its
// own.
class TiedModel : public nn::UnaryModule {
 public:
  TiedModel()
      : embedding_(RegisterModule("embedding", std::make_shared<nn::Embedding>(13, 6))),
        blocks_(RegisterModule("blocks", std::make_shared<nn::ModuleList<Block>>())),
        head_(RegisterModule(
            "head", std::make_shared<nn::Linear>(
                        6, 13, nn::LinearOptions{.bias = true, .weight = embedding_->weight}))) {
    for (const int64_t width : {5, 9, 7}) blocks_->Emplace(width, 0.0);
  }
  Tensor Forward(const Tensor& ids) override {
    Tensor x = (*embedding_)(ids);
    for (const auto& block : *blocks_) x = (*block)(x);
    return (*head_)(x);
  }
  const Tensor& weight() const { return embedding_->weight; }
  const std::shared_ptr<nn::Linear>& head() const { return head_; }

 private:
  std::shared_ptr<nn::Embedding> embedding_;
  std::shared_ptr<nn::ModuleList<Block>> blocks_;
  std::shared_ptr<nn::Linear> head_;
};

std::vector<PlacedModule> TiedPlacement() {
  return {{"embedding", Cpu(0)},
          {"blocks.0", Cpu(0)},
          {"blocks.1", Cpu(1)},
          {"blocks.2", Cpu(2)},
          {"head", Cpu(2)}};
}

std::shared_ptr<TiedModel> MakeTied() {
  ManualSeed(5);
  SetIntraOpThreads(1);
  return std::make_shared<TiedModel>();
}

// Rows that tell their step.
Tensor Input(int step) { return Reshape(Arange(7 * 6.0) * 0.05 - 1.0 + 0.1 * step, {7, 6}); }
Tensor Ids(int step) {
  std::vector<int64_t> ids;
  for (int i = 0; i < 10; ++i) ids.push_back((3 * i + step) % 13);
  return FromVector<int64_t>(ids, {2, 5});
}

struct Outcome {
  std::vector<std::vector<float>> losses, gradients, parameters;
  bool operator==(const Outcome&) const = default;
};

// Three steps of AdamW without clipping.
Outcome Train(nn::Module& module, const std::function<Tensor(int step)>& loss_of) {
  Outcome outcome;
  optim::AdamW optimizer(module.NamedParameters(), {.lr = 0.01});
  for (int step = 0; step < 3; ++step) {
    optimizer.ZeroGrad();
    const Tensor loss = loss_of(step);
    autograd::Backward(loss);
    outcome.losses.push_back(loss.ToVector<float>());
    for (const Tensor& parameter : module.Parameters()) {
      EXPECT_EQ(autograd::Grad(parameter).device(), parameter.device());
      outcome.gradients.push_back(autograd::Grad(parameter).ToVector<float>());
    }
    optimizer.Step();
  }
  for (const Tensor& parameter : module.Parameters()) {
    outcome.parameters.push_back(parameter.ToVector<float>());
  }
  for (const auto& [name, tensor] : optimizer.SaveState().tensors) {
    outcome.parameters.push_back(tensor.ToVector<float>());
  }
  return outcome;
}

Tensor NetLoss(nn::Sequential& net, int step) {
  const Tensor y = net(Input(step));
  return Mean(Mul(y, y));
}
Tensor TiedLoss(TiedModel& model, int step) {
  const Tensor logits = model(Ids(step));
  return CrossEntropy(Reshape(logits, {-1, 13}), Reshape(To(Ids(step + 1), logits.device()), {-1}));
}

std::unique_ptr<ModelParallel> Spread(const std::shared_ptr<nn::Sequential>& net, int devices) {
  return std::make_unique<ModelParallel>(
      net, PlaceChildren(*net, PlaceBlocks(std::vector<double>(5, 1), CpuDevices(devices))));
}

TEST(ModelParallel, SequentialIsBitForBitTheOneOnOneDevice) {
  for (const double dropout : {0.0, 0.3}) {
    auto alone = MakeNet(dropout);
    const Outcome expected = Train(*alone, [&](int step) { return NetLoss(*alone, step); });
    for (const int devices : {1, 2, 3, 5}) {
      auto net = MakeNet(dropout);
      const auto parallel = Spread(net, devices);
      EXPECT_EQ(Train(*net, [&](int step) { return NetLoss(*net, step); }), expected) << devices;
      EXPECT_EQ((*parallel)(Input(0)).device(), Cpu(devices - 1));
    }
  }
}

TEST(ModelParallel, ParametersGradientsAndStateAreWhereTheirPartIs) {
  auto net = MakeNet();
  const auto parallel = Spread(net, 3);
  EXPECT_THAT(parallel->devices(), ElementsAre(Cpu(0), Cpu(1), Cpu(2)));
  EXPECT_EQ(parallel->ToString(), "cpu:0: 0, 1; cpu:1: 2, 3; cpu:2: 4");
  optim::AdamW optimizer(net->NamedParameters(), {.lr = 0.01});
  autograd::Backward(NetLoss(*net, 0));
  optimizer.Step();
  const NamedTensors state = optimizer.SaveState().tensors;
  for (size_t i = 0; i < 5; ++i) {
    const Device device = parallel->placement()[i].device;
    for (const auto& [name, parameter] : (*net)[i]->NamedParameters()) {
      EXPECT_EQ(parameter.device(), device);
      EXPECT_EQ(autograd::Grad(parameter).device(), device);
      EXPECT_EQ(state.At(std::to_string(i) + "." + name + ".exp_avg").device(), device);
    }
  }
}

TEST(ModelParallel, EachDeviceHoldsItsOwnPartOnly) {
  const auto bytes = [](MemoryCategory category) {
    std::vector<int64_t> all;
    for (int i = 0; i < 3; ++i) all.push_back(GetMemoryStats(Cpu(i)).current[category]);
    return all;
  };
  const auto parameters_before = bytes(MemoryCategory::kParameter);
  const auto gradients_before = bytes(MemoryCategory::kGradient);
  const auto state_before = bytes(MemoryCategory::kOptimizer);
  auto net = MakeNet();
  const auto parallel = Spread(net, 3);
  optim::AdamW optimizer(net->NamedParameters(), {.lr = 0.01});
  autograd::Backward(NetLoss(*net, 0));
  optimizer.Step();
  std::vector<int64_t> own(3);
  for (size_t i = 0; i < 5; ++i) {
    for (const Tensor& parameter : (*net)[i]->Parameters()) {
      own[static_cast<size_t>(parallel->placement()[i].device.index)] += parameter.bytes();
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(bytes(MemoryCategory::kParameter)[i] - parameters_before[i], own[i]) << i;
    EXPECT_EQ(bytes(MemoryCategory::kGradient)[i] - gradients_before[i], own[i]) << i;
    EXPECT_EQ(bytes(MemoryCategory::kOptimizer)[i] - state_before[i], 2 * own[i]) << i;
  }
}

TEST(ModelParallel, ATiedHeadTakesACopyWhoseGradientGoesBack) {
  auto alone = MakeTied();
  const Outcome expected = Train(*alone, [&](int step) { return TiedLoss(*alone, step); });
  auto model = MakeTied();
  const Tensor weight = model->weight();
  const ModelParallel parallel(model, TiedPlacement());
  EXPECT_EQ(Train(*model, [&](int step) { return TiedLoss(*model, step); }), expected);
  EXPECT_TRUE(model->weight().IsSame(weight));
  EXPECT_TRUE(model->head()->weight.IsSame(weight));
  EXPECT_EQ(weight.device(), Cpu(0));
  EXPECT_EQ(model->head()->bias.device(), Cpu(2));
}

TEST(ModelParallel, TheFirstPlacedPartOwnsWhatIsTied) {
  auto model = MakeTied();
  std::vector<PlacedModule> placement = TiedPlacement();
  std::reverse(placement.begin(), placement.end());
  const ModelParallel parallel(model, placement);
  EXPECT_EQ(model->weight().device(), Cpu(2));
  autograd::Backward(TiedLoss(*model, 0));
  EXPECT_EQ(autograd::Grad(model->weight()).device(), Cpu(2));
}

TEST(ModelParallel, NothingIsRecordedUnderNoGrad) {
  auto net = MakeNet();
  const auto parallel = Spread(net, 3);
  const autograd::NoGradScope no_grad;
  EXPECT_FALSE(autograd::RequiresGrad((*parallel)(Input(0))));
}

TEST(ModelParallel, AutocastBitForBit) {
  const auto loss = [](TiedModel& model, int step) {
    std::optional<amp::Autocast> autocast(*amp::ParseAutocast("bf16"));
    return TiedLoss(model, step);
  };
  auto alone = MakeTied();
  const Outcome expected = Train(*alone, [&](int step) { return loss(*alone, step); });
  auto model = MakeTied();
  const ModelParallel parallel(model, TiedPlacement());
  EXPECT_EQ(Train(*model, [&](int step) { return loss(*model, step); }), expected);
}

TEST(ModelParallel, CheckpointedBlocksAndRegionsOverDevicesBitForBit) {
  auto alone = MakeNet(0.3);
  const Outcome expected = Train(*alone, [&](int step) { return NetLoss(*alone, step); });
  for (const bool before : {false, true}) {
    auto net = MakeNet(0.3);
    const checkpoint::ModulePolicy blocks{.choose = checkpoint::OfType<Block>()};
    if (before) checkpoint::ApplyCheckpointing(*net, blocks);
    const auto parallel = Spread(net, 3);
    if (!before) checkpoint::ApplyCheckpointing(*net, blocks);
    EXPECT_EQ(Train(*net, [&](int step) { return NetLoss(*net, step); }), expected);
  }
  auto net = MakeNet(0.3);
  const auto parallel = Spread(net, 3);
  EXPECT_EQ(Train(*net,
                  [&](int step) {
                    const Tensor x = autograd::SetRequiresGrad(Input(step), true);
                    const Tensor y = checkpoint::Checkpoint(
                        [&](const Tensor& input) { return (*parallel)(input); }, x);
                    return Mean(Mul(y, y));
                  }),
            expected);
  auto tied = MakeTied();
  const Outcome tied_expected = Train(*tied, [&](int step) { return TiedLoss(*tied, step); });
  auto model = MakeTied();
  const ModelParallel tied_parallel(model, TiedPlacement());
  checkpoint::CheckpointModule(model);  // all of it, the copy for the head included
  EXPECT_EQ(Train(*model, [&](int step) { return TiedLoss(*model, step); }), tied_expected);
}

TEST(ModelParallel, GradientsOfGradients) {
  const auto second = [](nn::Sequential& net) {
    const Tensor x = autograd::SetRequiresGrad(Input(0), true);
    const Tensor y = net(x);
    const Tensor first = autograd::Gradients({Sum(Mul(y, y))}, {x}, {.create_graph = true})[0];
    EXPECT_EQ(first.device(), Cpu(0));
    autograd::Backward(Sum(Mul(first, first)));
    std::vector<std::vector<float>> gradients = {autograd::Grad(x).ToVector<float>()};
    for (const Tensor& parameter : net.Parameters()) {
      const Tensor gradient = autograd::Grad(parameter);
      gradients.push_back(gradient.defined() ? gradient.ToVector<float>() : std::vector<float>());
    }
    return gradients;
  };
  auto alone = MakeNet(), net = MakeNet();
  const auto parallel = Spread(net, 3);
  EXPECT_EQ(second(*net), second(*alone));
}

// float32 from float64 sums: not the last bit of what the sums of devices would give.
TEST(ModelParallel, ClipsByTheNormOfAllDevices) {
  auto alone = MakeNet(), net = MakeNet();
  const auto parallel = Spread(net, 5);
  for (nn::Sequential* model : {alone.get(), net.get()}) {
    autograd::Backward(Mul(NetLoss(*model, 0), 100.0));
  }
  const Tensor norm = optim::ClipGradNorm(net->Parameters(), 0.5);
  EXPECT_EQ(norm.dtype(), DType::kFloat32);
  EXPECT_EQ(norm.Item<float>(), optim::ClipGradNorm(alone->Parameters(), 0.5).Item<float>());
  EXPECT_GT(norm.Item<float>(), 0.5f);
  const std::vector<Tensor> expected = alone->Parameters(), actual = net->Parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(autograd::Grad(actual[i]).ToVector<float>(),
              autograd::Grad(expected[i]).ToVector<float>());
  }
}

TEST(ModelParallel, ModulesOnMetaGetTheirBytesWhereTheyArePlaced) {
  auto whole = MakeTied();
  int64_t own = 0;
  for (const auto& [name, parameter] : whole->NamedParameters()) {
    if (name.find("embedding") == 0 || name.find("blocks.0") == 0) own += parameter.bytes();
  }
  ManualSeed(5);
  std::shared_ptr<TiedModel> model;
  {
    const nn::DeferredInitScope scope;
    model = std::make_shared<TiedModel>();
  }
  const int64_t before = GetMemoryStats(Cpu(0)).current[MemoryCategory::kParameter];
  ResetPeakBytes(Cpu(0));
  const ModelParallel parallel(model, TiedPlacement());
  EXPECT_EQ(GetMemoryStats(Cpu(0)).peak[MemoryCategory::kParameter] - before, own);
  const NamedTensors expected = whole->NamedParameters();
  for (const auto& [name, parameter] : model->NamedParameters()) {
    EXPECT_EQ(parameter.ToVector<float>(), expected.At(name).ToVector<float>()) << name;
  }
  EXPECT_EQ(model->weight().device(), Cpu(0));
}

TEST(ModelParallel, StatesAreThoseOfOneDevice) {
  auto alone = MakeNet(), net = MakeNet();
  Train(*alone, [&](int step) { return NetLoss(*alone, step); });
  const auto parallel = Spread(net, 3);
  net->LoadStateDict(alone->StateDict());
  EXPECT_EQ((*parallel)(Input(0)).ToVector<float>(), (*alone)(Input(0)).ToVector<float>());
  EXPECT_EQ(net->Parameters().back().device(), Cpu(2));
  auto other = MakeNet();
  other->LoadStateDict(net->StateDict());
  EXPECT_EQ((*other)(Input(0)).ToVector<float>(), (*alone)(Input(0)).ToVector<float>());
  EXPECT_EQ(other->Parameters().back().device(), Cpu(0));
}

TEST(ModelParallel, AModuleIsAsBeforeWhenItIsGone) {
  auto model = MakeTied();
  {
    const ModelParallel parallel(model, TiedPlacement());
    EXPECT_TRUE(model->head()->has_forward_wrapper());
  }
  EXPECT_FALSE(model->head()->has_forward_wrapper());
  EXPECT_THAT(MessageOf([&] { TiedLoss(*model, 0); }), HasSubstr("operands on cpu:0 and cpu:1"));
  model->To(Cpu());
  EXPECT_EQ(TiedLoss(*model, 0).Item<float>(), TiedLoss(*MakeTied(), 0).Item<float>());
}

TEST(ModelParallel, MovesGradientsThatAreThere) {
  auto net = MakeNet(), alone = MakeNet();
  autograd::Backward(NetLoss(*net, 0));
  autograd::Backward(NetLoss(*alone, 0));
  const auto parallel = Spread(net, 2);
  autograd::Backward(NetLoss(*net, 1));  // adds to it
  autograd::Backward(NetLoss(*alone, 1));
  EXPECT_EQ(autograd::Grad(net->Parameters().back()).device(), Cpu(1));
  EXPECT_EQ(autograd::Grad(net->Parameters().back()).ToVector<float>(),
            autograd::Grad(alone->Parameters().back()).ToVector<float>());
}

TEST(ModelParallel, AFullDeviceLeavesTheModuleWhereItWas) {
  auto net = MakeNet();
  SetCapacityLimit(Cpu(6), 100);
  const std::vector<Device> devices = {Cpu(0), Cpu(5), Cpu(5), Cpu(6), Cpu(6)};
  const Error error = ErrorOf([&] { ModelParallel parallel(net, PlaceChildren(*net, devices)); });
  SetCapacityLimit(Cpu(6), std::nullopt);
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error.message(), HasSubstr("cpu:6"));
  for (const Tensor& parameter : net->Parameters()) EXPECT_EQ(parameter.device(), Cpu(0));
  EXPECT_EQ(NetLoss(*net, 0).device(), Cpu(0));
}

TEST(ModelParallel, AnOptimizersStateDoesNotFollowAndSaysSo) {
  auto net = MakeNet();
  optim::AdamW optimizer(net->NamedParameters(), {.lr = 0.01});
  autograd::Backward(NetLoss(*net, 0));
  optimizer.Step();
  const auto parallel = Spread(net, 2);
  const Error error = ErrorOf([&] { optimizer.Step(); });
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* part : {"cpu:0", "cpu:1", "3.in.weight", "LoadState(SaveState())"}) {
    EXPECT_THAT(error.message(), HasSubstr(part));
  }
  optimizer.LoadState(optimizer.SaveState());
  optimizer.Step();
  EXPECT_EQ(optimizer.SaveState().tensors.At("3.in.weight.exp_avg").device(), Cpu(1));
}

void ExpectRefused(const std::shared_ptr<nn::Module>& module, std::vector<PlacedModule> placement,
                   const std::string& message) {
  const Error error = ErrorOf([&] { ModelParallel parallel(module, placement); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr(message));
}

TEST(ModelParallel, RefusesByName) {
  const auto model = MakeTied();
  ExpectRefused(nullptr, TiedPlacement(), "no module given");
  ExpectRefused(model, {}, "no part is placed");
  std::vector<PlacedModule> placement = TiedPlacement();
  placement[1].name = "blocks.7";
  ExpectRefused(model, placement, "has no part 'blocks.7'");
  placement[1].name = "blocks.1";
  ExpectRefused(model, placement, "'blocks.1' is placed twice, on cpu:0 and on cpu:1");
  placement[1].name = "blocks.1.in";
  ExpectRefused(model, placement, "'blocks.1.in' is inside of part 'blocks.1'");
  placement.erase(placement.begin() + 1);
  ExpectRefused(model, placement, "no part has blocks.0.in.weight, blocks.0.in.bias");
  placement[0].device = kMeta;
  ExpectRefused(model, placement, "nothing is computed on meta");
  for (const Tensor& parameter : model->Parameters()) EXPECT_EQ(parameter.device(), Cpu(0));
  EXPECT_THAT(MessageOf([] { PlaceChildren(*MakeNet(), CpuDevices(3)); }),
              HasSubstr("3 devices for the 5 children of Sequential"));
  checkpoint::CheckpointModule(model->head());
  EXPECT_EQ(ErrorOf([&] { ModelParallel parallel(model, TiedPlacement()); }).code(),
            absl::StatusCode::kAlreadyExists);
  const auto list = std::make_shared<nn::ModuleList<Block>>();
  list->Emplace(3, 0.0);
  ModelParallel parallel(list, {{"", Cpu(1)}});
  EXPECT_THAT(MessageOf([&] { parallel(Input(0)); }), HasSubstr("ModuleList is no UnaryModule"));
}

}  // namespace
}  // namespace lockstep::strategies
