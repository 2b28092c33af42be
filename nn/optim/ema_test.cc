// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/optim/ema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::optim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One weight, one floating-point buffer and a counter.
class Model : public nn::Module {
 public:
  explicit Model(DType dtype = DType::kFloat64) {
    RegisterParameter("weight", &weight, Zeros({2}, {dtype}));
    RegisterBuffer("mean", &mean, Zeros({1}, {dtype}));
    RegisterBuffer("count", &count, FromVector<int64_t>({0}, {}));
  }
  void Set(double value) {
    const Tensor detached = Detach(weight);
    FillInPlace(detached, value);
    FillInPlace(mean, 10 * value);
    FillInPlace(count, static_cast<int64_t>(value));
  }
  Tensor weight, mean, count;
};

TEST(Ema, CopiesFirstAndAveragesThen) {
  Model model;
  Ema ema(model, {.decay = 0.75});
  EXPECT_THAT(ema.Averages().Names(), ElementsAre("weight"));
  model.Set(4);
  ema.Update();
  EXPECT_THAT(ema.Averages().At("weight").ToVector<double>(), ElementsAre(4, 4));
  model.Set(8);
  ema.Update();
  EXPECT_THAT(ema.Averages().At("weight").ToVector<double>(), ElementsAre(5, 5));
  model.Set(1);
  ema.Update();
  EXPECT_THAT(ema.Averages().At("weight").ToVector<double>(), ElementsAre(4, 4));
  EXPECT_EQ(ema.updates(), 3);
}

TEST(Ema, BeginsAfterSomeUpdates) {
  Model model;
  Ema ema(model, {.decay = 0.5, .update_after = 2});
  for (const double value : {2.0, 4.0, 6.0}) {
    model.Set(value);
    ema.Update();
    EXPECT_EQ(ema.Averages().At("weight").ToVector<double>()[1], value);
  }
  model.Set(8);
  ema.Update();
  EXPECT_EQ(ema.Averages().At("weight").ToVector<double>()[1], 7);
}

TEST(Ema, Buffers) {
  Model model;
  Ema ema(model, {.decay = 0.5, .use_buffers = true});
  EXPECT_THAT(ema.Averages().Names(), ElementsAre("weight", "mean", "count"));
  for (const double value : {2.0, 4.0}) {
    model.Set(value);
    ema.Update();
  }
  EXPECT_EQ(ema.Averages().At("mean").Item<double>(), 30);
  EXPECT_EQ(ema.Averages().At("count").Item<int64_t>(), 4);
  Ema::Scope averages(ema);
  EXPECT_EQ(model.mean.Item<double>(), 30);
}

TEST(Ema, AScopeSwapsInAndBack) {
  Model model;
  Ema ema(model, {.decay = 0.5});
  for (const double value : {1.0, 2.0}) {
    model.Set(value);
    ema.Update();
  }
  const Tensor before = model.weight;
  {
    Ema::Scope averages(ema);
    EXPECT_THAT(model.weight.ToVector<double>(), ElementsAre(1.5, 1.5));
    EXPECT_EQ(model.mean.Item<double>(), 20);  // Buffers stay.
    EXPECT_THAT(MessageOf([&] { ema.Update(); }),
                HasSubstr("Ema::Update: the averages are in the"));
    EXPECT_THAT(MessageOf([&] { Ema::Scope second(ema); }), HasSubstr("Ema::Scope"));
    EXPECT_THAT(MessageOf([&] { ema.LoadState(ema.SaveState()); }), HasSubstr("Ema::LoadState"));
  }
  EXPECT_TRUE(model.weight.IsSame(before));
  EXPECT_TRUE(autograd::RequiresGrad(model.weight));
  EXPECT_THAT(model.weight.ToVector<double>(), ElementsAre(2, 2));
  ema.Update();
}

TEST(Ema, SixteenBitWeightsHaveFloat32Averages) {
  Model model(DType::kBFloat16);
  Ema ema(model, {.decay = 0.999});
  model.Set(1);
  ema.Update();
  model.Set(1.0078125);  // One unit in the last place of 1.
  for (int i = 0; i < 100; ++i) ema.Update();
  EXPECT_EQ(ema.Averages().At("weight").dtype(), DType::kFloat32);
  EXPECT_NEAR(ema.Averages().At("weight").ToVector<double>()[0], 1 + 0.0078125 * 0.0952, 1e-5);
  Ema::Scope averages(ema);
  EXPECT_EQ(model.weight.dtype(), DType::kBFloat16);
}

TEST(Ema, ResumesExactly) {
  nn::Linear model(3, 5);
  Ema whole(model, {.decay = 0.9}), resumed(model, {.decay = 0.9});
  Sgd optimizer(model.NamedParameters(), {.lr = 0.1});
  for (int step = 0; step < 6; ++step) {
    for (const Tensor& parameter : model.Parameters()) {
      autograd::SetGrad(parameter, RandomNormal(parameter.shape()));
    }
    optimizer.Step();
    whole.Update();
    if (step == 2) resumed.LoadState(whole.SaveState());
    if (step > 2) resumed.Update();
  }
  EXPECT_EQ(resumed.updates(), 6);
  for (const auto& [name, average] : whole.Averages()) {
    EXPECT_EQ(average.ToVector<float>(), resumed.Averages().At(name).ToVector<float>()) << name;
    EXPECT_NE(average.storage(), resumed.Averages().At(name).storage());
  }
}

TEST(Ema, ListsWhatDoesNotFitAndChangesNothing) {
  Model model;
  Ema ema(model, {.use_buffers = true});
  OptimizerState bad;
  bad.tensors = {{"weight.average", Zeros({3})},
                 {"mean.average", FromVector<int64_t>({1}, {1})},
                 {"bias.average", Zeros({1})},
                 {"weight", Zeros({2})}};
  bad.numbers["updates"] = -1;
  const std::string message = MessageOf([&] { ema.LoadState(bad); });
  EXPECT_THAT(message, HasSubstr("weight.average has shape [3] and the weight [2]"));
  EXPECT_THAT(message, HasSubstr("mean.average is int64 and the weight float64"));
  EXPECT_THAT(message, HasSubstr("count.average is missing"));
  EXPECT_THAT(message, HasSubstr("bias.average is unknown here"));
  EXPECT_THAT(message, HasSubstr("weight is unknown here"));
  EXPECT_THAT(message, HasSubstr("the numbers are not one \"updates\""));
  EXPECT_EQ(ema.updates(), 0);
}

TEST(Ema, RefusesBadOptions) {
  Model model;
  EXPECT_THAT(MessageOf([&] { Ema ema(model, {.decay = 1.5}); }),
              HasSubstr("Ema: decay is 1.5; it is within [0, 1]"));
  EXPECT_THAT(MessageOf([&] { Ema ema(model, {.update_after = -1}); }),
              HasSubstr("update_after is -1"));
  EXPECT_THAT(MessageOf([&] { Ema ema{nn::Module()}; }), HasSubstr("no parameters to average"));
}

}  // namespace
}  // namespace lockstep::optim
