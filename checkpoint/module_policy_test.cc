// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/module_policy.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/recomputing.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::checkpoint {
namespace {

using autograd::Backward;
using autograd::Grad;
using autograd::SavedBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

class Block : public nn::UnaryModule {
 public:
  explicit Block(int64_t width)
      : fc_(RegisterModule("fc", std::make_shared<nn::Linear>(width, width))),
        drop_(RegisterModule("drop", std::make_shared<nn::Dropout>(0.25))) {}
  Tensor Forward(const Tensor& x) override {
    ++runs;
    return x + (*drop_)(Tanh((*fc_)(x)));
  }
  std::string Description() const override { return "Block"; }
  const std::shared_ptr<nn::Linear>& fc() const { return fc_; }
  int runs = 0;

 private:
  std::shared_ptr<nn::Linear> fc_;
  std::shared_ptr<nn::Dropout> drop_;
};

// Two tensors in: wrapped through its own operator().
class Gate : public nn::Module {
 public:
  Gate() { RegisterParameter("scale", &scale, Ones({4})); }
  Tensor Forward(const Tensor& x, const Tensor& y) { return Mul(Mul(x, scale), Exp(y)); }
  Tensor operator()(const Tensor& x, const Tensor& y) {
    return CallWithHooks(
        {x, y}, [this](TensorSpan in) -> TensorList { return {Forward(in[0], in[1])}; })[0];
  }
  Tensor scale;
};

class Net : public nn::UnaryModule {
 public:
  explicit Net(int blocks)
      : list(RegisterModule("h", std::make_shared<nn::ModuleList<Block>>())),
        gate(RegisterModule("gate", std::make_shared<Gate>())),
        head(RegisterModule("head", std::make_shared<nn::Linear>(4, 2))) {
    for (int i = 0; i < blocks; ++i) list->Emplace(4);
  }
  Tensor Forward(const Tensor& x) override {
    Tensor h = x;
    for (const auto& block : *list) h = (*block)(h);
    return (*head)((*gate)(h, x));
  }
  std::shared_ptr<nn::ModuleList<Block>> list;
  std::shared_ptr<Gate> gate;
  std::shared_ptr<nn::Linear> head;
};

Tensor Input() { return FromVector<float>({1, -2, 3, 0.5, 2, 1, -1, 0.25}, {2, 4}); }

std::vector<Floats> Step(Net& net, uint64_t seed) {
  ManualSeed(seed);
  net.ZeroGrad();
  const Tensor loss = Sum(Exp(net(Input()) * 0.1));
  Backward(loss);
  std::vector<Floats> result = {loss.ToVector<float>()};
  for (const Tensor& p : net.Parameters()) result.push_back(Grad(p).ToVector<float>());
  return result;
}

std::shared_ptr<Net> MakeNet(int blocks) {
  ManualSeed(1);
  return std::make_shared<Net>(blocks);
}

TEST(ApplyCheckpointingTest, TheSameResultsAndNames) {
  const auto plain = MakeNet(5);
  const std::vector<Floats> expected = Step(*plain, 9);
  const ModulePolicy policies[] = {
      {.choose = OfType<Block>()},
      {.choose = OfType<Block>(), .every = 2},
      {.choose = OfType<nn::Linear>()},
      {.choose = OfType<Gate>()},
      {.choose = OfType<nn::ModuleList<Block>>(), .every = 7},  // never called: no effect
      {.choose = WithParameterBytes(80, 80)},
      {.choose = [](const std::string& name, nn::Module&) { return name == "h.3"; }}};
  for (const ModulePolicy& policy : policies) {
    const auto net = MakeNet(5);
    ApplyCheckpointing(*net, policy, {.verify_values = true});
    EXPECT_EQ(net->StateDict().Names(), plain->StateDict().Names());
    EXPECT_EQ(Step(*net, 9), expected);
    EXPECT_EQ(Step(*net, 9), expected);
  }
}

TEST(ApplyCheckpointingTest, ChoosesWhatThePolicySays) {
  const auto net = MakeNet(5);
  EXPECT_THAT(ApplyCheckpointing(*net, {.choose = OfType<Block>(), .every = 2}),
              ElementsAre("h.0", "h.2", "h.4"));
  Step(*net, 1);
  std::vector<int> runs;
  for (const auto& block : *net->list) runs.push_back(block->runs);
  EXPECT_THAT(runs, ElementsAre(2, 1, 2, 1, 2));
  RemoveCheckpointing(*net);
  Step(*net, 1);
  EXPECT_EQ((*net->list)[0]->runs, 3);
  EXPECT_THAT(ApplyCheckpointing(*net, {.choose = WithParameterBytes(1, 80)}),
              ElementsAre("h.0", "h.1", "h.2", "h.3", "h.4", "gate", "head"));
  RemoveCheckpointing(*net);
  // Outermost modules only, and each once.
  net->list->Append((*net->list)[1]);
  EXPECT_THAT(ApplyCheckpointing(*net, {.choose = [](const std::string& name,
                                                     nn::Module&) { return name != "h"; }}),
              ElementsAre("h.0", "h.1", "h.2", "h.3", "h.4", "gate", "head"));
}

TEST(ApplyCheckpointingTest, HookOrderAndCounts) {
  const auto net = MakeNet(1);
  const auto& block = (*net->list)[0];
  std::vector<std::string> log;
  const auto note = [&log](const std::string& what) {
    return what + (Recomputing() ? " again" : "");
  };
  block->RegisterForwardPreHook(
      [&](nn::Module&, TensorList&) { log.push_back(note("block before")); });
  block->RegisterForwardHook([&](nn::Module&, TensorSpan, TensorList& out) {
    log.push_back(note("block after"));
    out[0] = out[0] * 2.0;
  });
  block->RegisterBackwardPreHook(
      [&](nn::Module&, TensorList&) { log.push_back(note("block backward before")); });
  block->RegisterBackwardHook(
      [&](nn::Module&, TensorList&, TensorSpan) { log.push_back(note("block backward")); });
  block->fc()->RegisterForwardHook([&](nn::Module&, TensorSpan, TensorList& out) {
    log.push_back(note("fc after"));
    out[0] = out[0] * 0.5;
  });
  block->fc()->RegisterBackwardHook(
      [&](nn::Module&, TensorList&, TensorSpan) { log.push_back(note("fc backward")); });
  const std::vector<Floats> plain = Step(*net, 3);
  const std::vector<std::string> plain_log = log;
  log.clear();
  ApplyCheckpointing(*net, {.choose = OfType<Block>()});
  EXPECT_EQ(Step(*net, 3), plain);
  // The input needs no gradient, so the block's backward hooks run together.
  EXPECT_THAT(log, ElementsAre("block before", "fc after", "block after", "block backward before",
                               "block backward", "fc after again", "fc backward"));
  std::erase(log, "fc after again");
  EXPECT_EQ(log, plain_log);
}

TEST(ApplyCheckpointingTest, TheGraphKeepsTheModule) {
  auto net = MakeNet(2);
  ApplyCheckpointing(*net, {.choose = OfType<Block>()});
  std::weak_ptr<Block> watch = (*net->list)[1];
  const Tensor weight = (*net->list)[1]->fc()->weight;
  Tensor loss = Sum((*net)(Input()));
  net.reset();
  EXPECT_FALSE(watch.expired());
  Backward(loss);
  EXPECT_TRUE(watch.expired());
  EXPECT_TRUE(Grad(weight).defined());
}

TEST(ApplyCheckpointingTest, Refusals) {
  const auto net = MakeNet(2);
  EXPECT_THAT(MessageOf([&] { ApplyCheckpointing(*net, {}); }), HasSubstr("empty choice"));
  EXPECT_THAT(MessageOf([&] {
                ApplyCheckpointing(*net, {OfType<Block>(), 0});
              }),
              HasSubstr("every is 0"));
  const Error none = ErrorOf([&] { ApplyCheckpointing(*net, {OfType<nn::Tanh>()}); });
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("Block"));
  CheckpointModule((*net->list)[1]);
  const Error twice = ErrorOf([&] { ApplyCheckpointing(*net, {OfType<Block>()}); });
  EXPECT_EQ(twice.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(twice.message(), HasSubstr("h.1"));
  EXPECT_FALSE((*net->list)[0]->has_forward_wrapper());
  EXPECT_EQ(ErrorOf([&] { CheckpointModule((*net->list)[1]); }).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(MessageOf([] { CheckpointModule(nullptr); }), HasSubstr("null module"));
  EXPECT_THAT(MessageOf([] { WithParameterBytes(5, 4); }), HasSubstr("5 to 4 bytes"));
  EXPECT_THAT(MessageOf([] { WithParameterBytes(-1, 4); }), HasSubstr("-1 to 4 bytes"));
}

}  // namespace
}  // namespace lockstep::checkpoint
