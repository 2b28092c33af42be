// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of checkpoint.md.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/checkpoint/offload.h"
#include "lockstep/checkpoint/op_policy.h"
#include "lockstep/checkpoint/setting.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

models::Gpt2Config SmallConfig() {
  models::Gpt2Config config;
  config.layers = 4;
  config.width = 32;
  config.block = 16;
  config.vocabulary = 19;
  return config;
}

Tensor MakeIds() {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 32; ++i) ids.push_back(i * 3 % 19);
  return FromVector<int64_t>(ids, {2, 16});
}

int64_t EndBytes(models::Gpt2& model, const Tensor& ids) {
  const int64_t before = autograd::SavedBytes();
  const Tensor loss = model.Loss(ids, ids);
  return autograd::SavedBytes() - before;
}

TEST(CheckpointPageTest, Blocks) {
  const models::Gpt2Config config = SmallConfig();
  const Tensor ids = MakeIds();
  models::Gpt2 unchanged(config);
  const int64_t plain = EndBytes(unchanged, ids);
  models::Gpt2 model(config);
  checkpoint::ApplyCheckpointing(model, {checkpoint::OfType<models::Gpt2Block>()});
  EXPECT_LT(EndBytes(model, ids), plain / 4);
  checkpoint::RemoveCheckpointing(model);
  checkpoint::ApplyCheckpointing(
      model, {.choose = [](const std::string& name, nn::Module&) { return name.ends_with(".mlp"); },
              .every = 2});
  EXPECT_LT(EndBytes(model, ids), plain);
  checkpoint::RemoveCheckpointing(model);
  checkpoint::ApplyCheckpointing(model, {checkpoint::OfType<models::Gpt2Block>()},
                                 {.policy = checkpoint::SaveContractions()});
  const int64_t selective = EndBytes(model, ids);
  EXPECT_LT(selective, plain * 7 / 10);
  checkpoint::RemoveCheckpointing(model);
  checkpoint::CheckpointOptions options;
  options.policy = checkpoint::SaveContractionsExcept(checkpoint::WeightsOf(model, "c_attn"));
  checkpoint::ApplyCheckpointing(model, {checkpoint::OfType<models::Gpt2Block>()}, options);
  EXPECT_LT(EndBytes(model, ids), selective);
  checkpoint::RemoveCheckpointing(model);
  options.policy = [](const checkpoint::OpContext& call) {
    const bool dear = call.info().kind == OpKind::kContraction && call.OutputBytes() < 1 << 20;
    return dear ? checkpoint::OpDecision::kMustSave : checkpoint::OpDecision::kPreferRecompute;
  };
  checkpoint::ApplyCheckpointing(model, {checkpoint::OfType<models::Gpt2Block>()}, options);
  EXPECT_EQ(EndBytes(model, ids), selective);
}

class Centre : public nn::UnaryModule {
 public:
  Centre() { RegisterBuffer("running_mean", &running_mean, Zeros({3})); }
  Tensor Forward(const Tensor& x) override {
    const Tensor mean = Mean(x, {0});
    if (training() && !checkpoint::Recomputing()) {
      autograd::NoGradScope no_grad;
      CopyInto(running_mean, Add(Mul(running_mean, 0.9), Mul(mean, 0.1)));
    }
    return x - mean;
  }
  Tensor running_mean;
};

TEST(CheckpointPageTest, Regions) {
  const Tensor x = Add(Reshape(Arange(6.0), {2, 3}), 0.5);
  const Tensor w = autograd::SetRequiresGrad(Ones({3, 3}) * 0.1, true);
  const Tensor gate = Ones({2, 3});
  TensorList out = checkpoint::Checkpoint(
      [&](TensorSpan in) -> TensorList {
        const Tensor h = Tanh(MatMul(in[0], w));
        return {h, Mul(h, in[1])};
      },
      {x, gate});
  autograd::Backward(Sum(Add(out[0], out[1])));
  EXPECT_TRUE(autograd::Grad(w).defined());

  nn::Sequential layers;
  layers.Emplace<nn::Linear>(3, 3);
  layers.Emplace<nn::Tanh>();
  auto centre = layers.Emplace<Centre>();
  layers.Emplace<nn::Linear>(3, 3);
  Tensor y = checkpoint::CheckpointSequential(layers, /*segments=*/2, x);
  const std::vector<float> once = centre->running_mean.ToVector<float>();
  autograd::Backward(Sum(y));
  EXPECT_EQ(centre->running_mean.ToVector<float>(), once);
}

TEST(CheckpointPageTest, Budgets) {
  models::Gpt2 model(SmallConfig()), other(SmallConfig());
  const Tensor ids = MakeIds();
  const checkpoint::UnitList blocks = checkpoint::UnitsOf(model.transformer()->h());
  checkpoint::UnitMeasurement measured =
      checkpoint::MeasureUnits(blocks, [&] { return model.Loss(ids, ids); });
  checkpoint::BudgetPlan plan =
      checkpoint::PlanBudget(measured.costs, 200 << 10, measured.rest_bytes);
  checkpoint::ApplyPlan(blocks, plan);
  std::cout << plan.ToString() << "\n";
  EXPECT_LE(EndBytes(model, ids), 200 << 10);

  checkpoint::CheckpointSetting setting = checkpoint::ParseCheckpointSetting("budget:200KiB");
  std::string done = checkpoint::ApplyCheckpointSetting(
      setting, checkpoint::UnitsOf(other.transformer()->h()), [&] { return other.Loss(ids, ids); });
  EXPECT_NE(done.find("within 0.2 MiB"), std::string::npos) << done;
}

TEST(CheckpointPageTest, Offload) {
  models::Gpt2 model(SmallConfig());
  const Tensor ids = MakeIds();
  const int64_t before = autograd::SavedBytes(Cpu(0));
  Tensor loss;
  {
    checkpoint::OffloadActivations offload({.min_bytes = 1 << 10, .prefetch = 4});
    loss = model.Loss(ids, ids);
  }
  autograd::Backward(loss);
  EXPECT_EQ(autograd::SavedBytes(Cpu(0)), before);
}

TEST(CheckpointPageTest, ThePageShowsWhatRunsHere) {
  docs::ExpectSnippetsCompiled("docs/checkpoint.md", "docs/checkpoint_example_test.cc");
}

}  // namespace
}  // namespace lockstep
