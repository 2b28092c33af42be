// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/models/gpt2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::models {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Lt;

Gpt2Config Tiny() { return {.layers = 2, .heads = 2, .width = 12, .block = 7, .vocabulary = 17}; }

TEST(Gpt2, NamesAreHuggingFaces) {
  Gpt2Config config = Tiny();
  config.layers = 1;
  Gpt2 model(config);
  EXPECT_THAT(model.StateDict().Names(),
              ElementsAre("transformer.wte.weight", "transformer.wpe.weight",
                          "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
                          "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.bias",
                          "transformer.h.0.attn.c_proj.weight", "transformer.h.0.attn.c_proj.bias",
                          "transformer.h.0.ln_2.weight", "transformer.h.0.ln_2.bias",
                          "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_fc.bias",
                          "transformer.h.0.mlp.c_proj.weight", "transformer.h.0.mlp.c_proj.bias",
                          "transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"));
  EXPECT_FALSE(model.NamedParameters().Contains("lm_head.weight"));
  config.tie_head = false;
  EXPECT_TRUE(Gpt2(config).NamedParameters().Contains("lm_head.weight"));
}

TEST(Gpt2, PresetsHaveTheirSizes) {
  // Parameters of the peers' models of these names.
  DeviceScope meta(kMeta);
  EXPECT_EQ(Gpt2(Gpt2Preset("nano")).ParameterCount(), 809856);
  EXPECT_EQ(Gpt2(Gpt2Preset("mini")).ParameterCount(), 10770816);
  EXPECT_NEAR(static_cast<double>(Gpt2(Gpt2Preset("small")).ParameterCount()), 123.9e6, 0.1e6);
  EXPECT_THROW(Gpt2Preset("huge"), Error);
}

TEST(Gpt2, InitialValues) {
  ManualSeed(1);
  Gpt2Config config = Tiny();
  config.width = 64;
  config.vocabulary = 200;
  config.layers = 8;
  const auto std_of = [](const Gpt2& model, absl::string_view name) {
    const Tensor t = model.NamedParameters().At(name);
    return std::sqrt(Mean(t * t).Item<double>());
  };
  Gpt2 model(config);
  EXPECT_NEAR(std_of(model, "transformer.wte.weight"), 0.02, 0.001);
  EXPECT_NEAR(std_of(model, "transformer.h.3.attn.c_attn.weight"), 0.02, 0.001);
  EXPECT_NEAR(std_of(model, "transformer.h.3.attn.c_proj.weight"), 0.005, 0.0005);
  EXPECT_NEAR(std_of(model, "transformer.h.3.mlp.c_proj.weight"), 0.005, 0.0005);
  EXPECT_EQ(std_of(model, "transformer.h.3.mlp.c_proj.bias"), 0);
  EXPECT_EQ(std_of(model, "transformer.ln_f.weight"), 1);
  config.scale_residual_init = false;
  EXPECT_NEAR(std_of(Gpt2(config), "transformer.h.3.mlp.c_proj.weight"), 0.02, 0.001);
  // An untrained model knows nothing: ln(vocabulary).
  const Tensor ids = FromVector<int64_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor targets = FromVector<int64_t>({7, 8, 9, 10, 11, 12}, {2, 3});
  EXPECT_NEAR(model.Loss(ids, targets).Item<double>(), std::log(200.0), 0.2);
}

TEST(Gpt2, TiedHeadGetsBothGradients) {
  ManualSeed(1);
  Gpt2 model(Tiny());
  const Tensor ids = FromVector<int64_t>({3, 4, 5}, {1, 3});
  autograd::Backward(model.Loss(ids, ids));
  const Tensor gradient = autograd::Grad(model.transformer()->wte()->weight);
  // Token 9 occurs nowhere: only the head's part reaches it.
  EXPECT_GT(Max(Abs(Select(gradient, 0, 9))).Item<float>(), 0);
  for (const auto& [name, parameter] : model.NamedParameters()) {
    EXPECT_TRUE(autograd::Grad(parameter).defined()) << name;
  }
}

TEST(Gpt2, IgnoresMarkedTargets) {
  ManualSeed(1);
  Gpt2 model(Tiny());
  const Tensor ids = FromVector<int64_t>({3, 4, 5}, {1, 3});
  const double first = model.Loss(ids, FromVector<int64_t>({4, -100, -100}, {1, 3})).Item<double>();
  const double alone =
      model.Loss(Slice(ids, 1, 0, 1), FromVector<int64_t>({4}, {1, 1})).Item<double>();
  EXPECT_NEAR(first, alone, 1e-6);
}

TEST(Gpt2, RefusesBadInput) {
  Gpt2 model(Tiny());
  EXPECT_THROW(model(FromVector<int64_t>({1, 2}, {2})), Error);
  EXPECT_THROW(model(FromVector<int64_t>(std::vector<int64_t>(8), {1, 8})), Error);
  EXPECT_THROW(model(FromVector<int64_t>({17}, {1, 1})), Error);
  const Tensor ids = FromVector<int64_t>({1, 2}, {1, 2});
  EXPECT_THROW(model.Loss(ids, FromVector<int64_t>({1, 2}, {2, 1})), Error);
  for (auto change : std::vector<void (*)(Gpt2Config&)>{
           [](Gpt2Config& c) { c.layers = 0; }, [](Gpt2Config& c) { c.heads = 5; },
           [](Gpt2Config& c) { c.width = -12; }, [](Gpt2Config& c) { c.block = 0; },
           [](Gpt2Config& c) { c.vocabulary = 0; }, [](Gpt2Config& c) { c.dropout = 1.5; },
           [](Gpt2Config& c) { c.init_std = -1; },
           [](Gpt2Config& c) { c.layer_norm_epsilon = NAN; }}) {
    Gpt2Config config = Tiny();
    change(config);
    EXPECT_THROW(Gpt2{config}, Error);
  }
}

// Learns 0, 1, 2, 3, 0, 1, ...
class Gpt2Generate : public testing::Test {
 protected:
  Gpt2Generate() : model_(Tiny()) {
    ManualSeed(1);
    model_.LoadStateDict(Gpt2(Tiny()).StateDict());
    std::vector<int64_t> text(2 * 8);
    for (size_t i = 0; i < text.size(); ++i) {
      text[i] = static_cast<int64_t>((i / 8 + i % 8) % 4);
    }
    const Tensor rows = FromVector<int64_t>(text, {2, 8});
    optim::AdamW optimizer(model_.NamedParameters(), {.lr = 0.02});
    for (int step = 0; step < 60; ++step) {
      optimizer.ZeroGrad();
      const Tensor loss = model_.Loss(Slice(rows, 1, 0, 7), Slice(rows, 1, 1, 8));
      autograd::Backward(loss);
      optimizer.Step();
      loss_ = loss.Item<double>();
    }
  }
  Gpt2 model_;
  double loss_ = 0;
};

TEST_F(Gpt2Generate, ContinuesWhatWasLearnt) {
  EXPECT_LT(loss_, 0.1);
  // Longer than a block: the window slides.
  EXPECT_THAT(model_.Generate({0, 1, 2}, 9, {.temperature = 0}),
              ElementsAre(3, 0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_TRUE(model_.training());
}

TEST_F(Gpt2Generate, SamplesReproducibly) {
  Generator a{{9, kDataStream, 0}}, b{{9, kDataStream, 0}};
  const auto x = model_.Generate({0}, 20, {.temperature = 5, .generator = &a});
  EXPECT_EQ(x, model_.Generate({0}, 20, {.temperature = 5, .generator = &b}));
  EXPECT_NE(x, model_.Generate({0}, 20, {.temperature = 5, .generator = &a}));
  EXPECT_THAT(x, Each(Lt(17)));
  EXPECT_THAT(x, Each(Ge(0)));
  // Hot, but only among the likeliest: as good as greedy.
  EXPECT_THAT(model_.Generate({0, 1, 2}, 5, {.temperature = 5, .top_k = 1}),
              ElementsAre(3, 0, 1, 2, 3));
  const auto two = model_.Generate({0}, 60, {.temperature = 1000, .top_k = 2});
  EXPECT_GT(std::set<int64_t>(two.begin(), two.end()).size(), 2u);
  EXPECT_TRUE(model_.Generate({0}, 0).empty());
}

TEST_F(Gpt2Generate, RefusesBadInput) {
  EXPECT_THROW(model_.Generate({}, 3), Error);
  EXPECT_THROW(model_.Generate({0}, -1), Error);
  EXPECT_THROW(model_.Generate({0, 17}, 3), Error);
  EXPECT_THROW(model_.Generate({-1}, 3), Error);
  EXPECT_THROW(model_.Generate({0}, 3, {.temperature = -1}), Error);
  EXPECT_THROW(model_.Generate({0}, 3, {.top_k = -1}), Error);
}

}  // namespace
}  // namespace lockstep::models
