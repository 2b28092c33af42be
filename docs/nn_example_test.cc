// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of nn.md.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "lockstep/autograd/backward.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/init.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

class Classifier : public nn::UnaryModule {
 public:
  Classifier(int64_t inputs, int64_t hidden, int64_t classes)
      : fc1_(RegisterModule("fc1", std::make_shared<nn::Linear>(inputs, hidden))),
        fc2_(RegisterModule("fc2", std::make_shared<nn::Linear>(hidden, classes))) {}

  Tensor Forward(const Tensor& x) override { return (*fc2_)(Relu((*fc1_)(x))); }

 private:
  std::shared_ptr<nn::Linear> fc1_, fc2_;
};

int64_t CountParameters(const std::string& preset) {
  DeviceScope meta(kMeta);
  return models::Gpt2(models::Gpt2Preset(preset)).ParameterCount();
}

TEST(NnExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/nn.md", "docs/nn_example_test.cc");
}

TEST(NnExample, Classifier) {
  Classifier model(4, 16, 3);
  EXPECT_EQ(model(Ones({5, 4})).shape(), (Shape{5, 3}));

  NamedTensors state = model.StateDict();
  state.Set("fc1.bias", Zeros({16}));
  model.LoadStateDict(state);
  nn::LoadResult result = model.LoadStateDict({{"fc1.bias", Ones({16})}}, {.strict = false});
  EXPECT_EQ(result.missing.size(), 3u);
  EXPECT_EQ(model.StateDict().At("fc1.bias").Item<float>({15}), 1);

  model.To(Cpu(1), DType::kFloat64);
  model.Eval();
  EXPECT_EQ(model.StateDict().At("fc1.bias").device(), Cpu(1));
}

TEST(NnExample, Hooks) {
  nn::Sequential net;
  net.Emplace<nn::Linear>(4, 16);
  net.Emplace<nn::Relu>();
  net.Emplace<nn::Linear>(16, 3);
  const Tensor x = Ones({5, 4});
  int64_t rows = 0;
  float largest = 0;
  nn::HookHandle handle = net.RegisterForwardHook(
      [&](nn::Module&, TensorSpan inputs, TensorList&) { rows += inputs[0].size(0); });
  net.RegisterBackwardHook([&](nn::Module&, TensorList&, TensorSpan grad_outputs) {
    largest = Max(Abs(grad_outputs[0])).Item<float>();
  });
  net(x);
  handle.Remove();
  EXPECT_EQ(rows, 5);
  autograd::Backward(Sum(net(x)));
  EXPECT_EQ(rows, 5);
  EXPECT_EQ(largest, 1);
}

TEST(NnExample, InitialValuesAndTies) {
  ManualSeed(1234);
  nn::Linear layer(16, 3);
  nn::init::XavierUniform(layer.weight);
  nn::init::Zeros(layer.bias);
  EXPECT_EQ(layer.bias.Item<float>({2}), 0);

  nn::Embedding tokens(256, 128);
  nn::Linear head(128, 256, {.bias = false, .weight = tokens.weight});
  EXPECT_TRUE(head.weight.IsSame(tokens.weight));
  EXPECT_EQ(CountParameters("nano"), 809856);
}

TEST(NnExample, BytesLater) {
  ManualSeed(1234);
  std::shared_ptr<models::Gpt2> model;
  {
    nn::DeferredInitScope scope;
    model = std::make_shared<models::Gpt2>(models::Gpt2Preset("nano"));
  }
  Tensor weight = nn::MaterializeTensor(model->Parameters()[0], Cpu(1));
  nn::MaterializeModule(*model, Cpu());
  EXPECT_EQ(weight.ToVector<float>(), model->Parameters()[0].ToVector<float>());
}

}  // namespace
}  // namespace lockstep
