// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/update.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/ops/testing.h"

namespace lockstep {
namespace {

using testing_util::Describe;
using testing_util::ExpectInvalid;
using testing_util::Meta;
using testing_util::Recorder;

using List = std::vector<Tensor>;

const List& Two() {
  static const auto* const kTwo = new List{Meta({3, 5}), Meta({})};
  return *kTwo;
}

TEST(AdamStepTest, PassesListsAndScalars) {
  Recorder recorder;
  AdamStep(Two(), Two(), Two(), Two(), {},
           {.lr = 0.1,
            .beta1 = 0.8,
            .beta2 = 0.95,
            .epsilon = 1e-6,
            .weight_decay = 0.02,
            .step = 7,
            .decoupled_decay = true,
            .maximize = true});
  ASSERT_EQ(recorder.Ops(), "AdamStep");
  EXPECT_EQ(recorder.calls()[0].inputs.size(), 10u);
  EXPECT_FALSE(recorder.calls()[0].inputs[8].defined());
  EXPECT_EQ(recorder.calls()[0].attributes, "{decoupled_decay=true, amsgrad=false, maximize=true}");
  std::vector<double> scalars;
  for (const Scalar& scalar : recorder.calls()[0].scalars) scalars.push_back(scalar.AsDouble());
  EXPECT_EQ(scalars, (std::vector<double>{0.1, 0.8, 0.95, 1e-6, 0.02, 7}));
  AdamStep(Two(), Two(), Two(), Two(), Two(), {.amsgrad = true});
  EXPECT_TRUE(recorder.calls()[1].inputs[9].defined());
  EXPECT_EQ(recorder.calls()[1].attributes,
            "{decoupled_decay=false, amsgrad=true, maximize=false}");
  recorder.Clear();
  AdamStep({}, {}, {}, {}, {}, {});
  EXPECT_EQ(recorder.Ops(), "");
}

TEST(AdamStepTest, RefusesListsThatDoNotMatch) {
  const List one{Meta({3, 5})};
  ExpectInvalid("AdamStep: gradients has 1 tensors and parameters has 2",
                [&] { AdamStep(Two(), one, Two(), Two(), {}, {}); });
  ExpectInvalid("exp_avg_sqs has 1 tensors", [&] { AdamStep(Two(), Two(), Two(), one, {}, {}); });
  ExpectInvalid("max_exp_avg_sqs has 0 tensors",
                [&] { AdamStep(Two(), Two(), Two(), Two(), {}, {.amsgrad = true}); });
  ExpectInvalid("2 max_exp_avg_sqs are given, but amsgrad is off; pass an empty list",
                [&] { AdamStep(Two(), Two(), Two(), Two(), Two(), {}); });
  ExpectInvalid("AdamStep: gradients[1] is undefined", [&] {
    AdamStep(Two(), List{Meta({3, 5}), Tensor()}, Two(), Two(), {}, {});
  });
  ExpectInvalid("parameters[1] has shape [] and gradients[1] has [1]", [&] {
    AdamStep(Two(), List{Meta({3, 5}), Meta({1})}, Two(), Two(), {}, {});
  });
  ExpectInvalid("parameters[0] has dtype float32 and exp_avgs[0] has float64", [&] {
    AdamStep(one, one, List{Meta({3, 5}, DType::kFloat64)}, one, {}, {});
  });
  ExpectInvalid("gradients[0] is on cpu:0 and parameters[0] on meta; call once for each device",
                [&] {
                  AdamStep(one, List{Empty({3, 5})}, one, one, {}, {});
                });
  const List half{Meta({3, 5}, DType::kBFloat16)};
  AdamStep(half, half, one, one, {}, {});  // float32 state of a bfloat16 parameter
}

TEST(AdamStepTest, RefusesNumbers) {
  const auto step = [](const AdamStepOptions& options) {
    return [options] { AdamStep(Two(), Two(), Two(), Two(), {}, options); };
  };
  ExpectInvalid("lr -1", step({.lr = -1}));
  ExpectInvalid("lr nan", step({.lr = std::nan("")}));
  ExpectInvalid("beta1 1 is not in [0, 1)", step({.beta1 = 1}));
  ExpectInvalid("beta2 -0.5", step({.beta2 = -0.5}));
  ExpectInvalid("epsilon -1", step({.epsilon = -1}));
  ExpectInvalid("weight_decay -1", step({.weight_decay = -1}));
  ExpectInvalid("step 0 must be at least 1", step({.step = 0}));
}

TEST(RmspropStepTest, ListsAreOptional) {
  Recorder recorder;
  RmspropStep(Two(), Two(), Two(), {}, {}, {.lr = 0.1});
  EXPECT_EQ(recorder.calls()[0].inputs.size(), 10u);
  EXPECT_FALSE(recorder.calls()[0].inputs[6].defined());
  EXPECT_FALSE(recorder.calls()[0].inputs[9].defined());
  RmspropStep(Two(), Two(), Two(), {}, Two(), {.centered = true});
  EXPECT_FALSE(recorder.calls()[1].inputs[6].defined());
  EXPECT_TRUE(recorder.calls()[1].inputs[8].defined());
  EXPECT_EQ(recorder.calls()[1].attributes, "{use_momentum=false, centered=true, maximize=false}");
  RmspropStep(Two(), Two(), Two(), Two(), {}, {.alpha = 1, .momentum = 0.5, .maximize = true});
  EXPECT_TRUE(recorder.calls()[2].inputs[7].defined());
  EXPECT_EQ(recorder.calls()[2].scalars[4].AsDouble(), 0.5);
  RmspropStep({}, {}, {}, {}, {}, {});
  EXPECT_EQ(recorder.calls().size(), 3u);
}

TEST(RmspropStepTest, Refuses) {
  const auto step = [](const RmspropStepOptions& options) {
    return [options] { RmspropStep(Two(), Two(), Two(), {}, {}, options); };
  };
  ExpectInvalid("lr inf", step({.lr = INFINITY}));
  ExpectInvalid("alpha 1.5 is not in [0, 1]", step({.alpha = 1.5}));
  ExpectInvalid("epsilon -1", step({.epsilon = -1}));
  ExpectInvalid("weight_decay -1", step({.weight_decay = -1}));
  ExpectInvalid("momentum -1", step({.momentum = -1}));
  ExpectInvalid("momenta has 0 tensors", step({.momentum = 0.9}));
  ExpectInvalid("grad_avgs has 0 tensors", step({.centered = true}));
  ExpectInvalid("2 grad_avgs are given, but centered is off",
                [] { RmspropStep(Two(), Two(), Two(), {}, Two(), {}); });
  ExpectInvalid("2 momenta are given, but momentum is 0",
                [] { RmspropStep(Two(), Two(), Two(), Two(), {}, {}); });
}

TEST(AdagradStepTest, PassesAndRefuses) {
  Recorder recorder;
  AdagradStep(Two(), Two(), Two(), {.lr_decay = 0.5, .step = 3});
  EXPECT_EQ(recorder.calls()[0].inputs.size(), 6u);
  EXPECT_EQ(recorder.calls()[0].scalars[1].AsDouble(), 0.5);
  EXPECT_EQ(recorder.calls()[0].scalars[4].AsDouble(), 3);
  AdagradStep({}, {}, {}, {});
  EXPECT_EQ(recorder.calls().size(), 1u);
  const auto step = [](const AdagradStepOptions& options) {
    return [options] { AdagradStep(Two(), Two(), Two(), options); };
  };
  ExpectInvalid("lr -1", step({.lr = -1}));
  ExpectInvalid("lr_decay -1", step({.lr_decay = -1}));
  ExpectInvalid("epsilon nan", step({.epsilon = std::nan("")}));
  ExpectInvalid("weight_decay -1", step({.weight_decay = -1}));
  ExpectInvalid("step 0 must be at least 1", step({.step = 0}));
  ExpectInvalid("sums has 0 tensors", [] { AdagradStep(Two(), Two(), {}, {}); });
}

TEST(LerpIntoTest, PassesAndRefuses) {
  Recorder recorder;
  LerpInto(Two(), Two(), 0.25);
  EXPECT_EQ(recorder.calls()[0].inputs.size(), 4u);
  EXPECT_EQ(recorder.calls()[0].scalars[0].AsDouble(), 0.25);
  LerpInto({}, {}, 0.25);
  EXPECT_EQ(recorder.calls().size(), 1u);
  ExpectInvalid("weight 1.5 is not in [0, 1]", [] { LerpInto(Two(), Two(), 1.5); });
  ExpectInvalid("weight nan", [] { LerpInto(Two(), Two(), std::nan("")); });
  ExpectInvalid("sources has 0 tensors", [] { LerpInto(Two(), {}, 0.5); });
}

TEST(SgdStepTest, MomentumIsOptional) {
  Recorder recorder;
  SgdStep(Two(), Two(), {}, {.lr = 0.1});
  EXPECT_EQ(recorder.calls()[0].inputs.size(), 6u);
  EXPECT_FALSE(recorder.calls()[0].inputs[4].defined());
  EXPECT_EQ(recorder.calls()[0].attributes,
            "{use_momentum=false, first_step=false, nesterov=false, maximize=false}");
  SgdStep(Two(), Two(), Two(), {.lr = 0.1, .momentum = 0.9, .nesterov = true, .first_step = true});
  EXPECT_TRUE(recorder.calls()[1].inputs[5].defined());
  EXPECT_EQ(recorder.calls()[1].attributes,
            "{use_momentum=true, first_step=true, nesterov=true, maximize=false}");
  EXPECT_EQ(recorder.calls()[1].scalars[1].AsDouble(), 0.9);
  SgdStep({}, {}, {}, {.momentum = 0.9});
  EXPECT_EQ(recorder.calls().size(), 2u);
}

TEST(SgdStepTest, Refuses) {
  const List one{Meta({3, 5})};
  ExpectInvalid("SgdStep: momenta has 0 tensors and parameters has 2",
                [] { SgdStep(Two(), Two(), {}, {.momentum = 0.9}); });
  ExpectInvalid("2 momenta are given, but momentum is 0", [] { SgdStep(Two(), Two(), Two(), {}); });
  ExpectInvalid("nesterov needs a momentum", [] { SgdStep(Two(), Two(), {}, {.nesterov = true}); });
  ExpectInvalid("nesterov needs", [] {
    SgdStep(Two(), Two(), Two(), {.momentum = 0.9, .dampening = 0.1, .nesterov = true});
  });
  ExpectInvalid("gradients has 1 tensors", [&] { SgdStep(Two(), one, {}, {}); });
  ExpectInvalid("lr -1", [] { SgdStep(Two(), Two(), {}, {.lr = -1}); });
  ExpectInvalid("momentum nan", [] { SgdStep(Two(), Two(), {}, {.momentum = std::nan("")}); });
  ExpectInvalid("dampening inf", [] { SgdStep(Two(), Two(), {}, {.dampening = INFINITY}); });
  ExpectInvalid("weight_decay -1", [] { SgdStep(Two(), Two(), {}, {.weight_decay = -1}); });
  ExpectInvalid("parameters[0] has dtype int64", [] {
    SgdStep(List{Meta({3}, DType::kInt64)}, List{Meta({3}, DType::kInt64)}, {}, {});
  });
}

TEST(NormTest, GlobalNorm) {
  EXPECT_EQ(Describe(GlobalNorm(Two())), "float32[]");
  EXPECT_EQ(Describe(GlobalNorm(List{Meta({3}), Meta({3}, DType::kFloat64)})), "float64[]");
  Recorder recorder;
  GlobalNorm(Two(), NormKind::kInfinity);
  EXPECT_EQ(recorder.calls()[0].attributes, "{infinity=true}");
  ExpectInvalid("GlobalNorm: tensors[1] is undefined", [] {
    GlobalNorm(List{Meta({3}), Tensor()});
  });
  ExpectInvalid("x[0] has dtype int64", [] { GlobalNorm(List{Meta({3}, DType::kInt64)}); });
}

TEST(NormTest, UnscaleAndCheck) {
  Recorder recorder;
  UnscaleAndCheck(Two(), Meta({}), 0.5);
  EXPECT_EQ(recorder.Ops(), "UnscaleAndCheck");
  UnscaleAndCheck({}, Meta({}), 0.5);
  EXPECT_EQ(recorder.Ops(), "UnscaleAndCheck");
  ExpectInvalid("UnscaleAndCheck: found_inf is undefined",
                [] { UnscaleAndCheck(Two(), Tensor(), 1); });
  ExpectInvalid("found_inf has shape [1]", [] { UnscaleAndCheck(Two(), Meta({1}), 1); });
  ExpectInvalid("inverse_scale inf", [] { UnscaleAndCheck(Two(), Meta({}), INFINITY); });
  ExpectInvalid("gradients[0] is undefined", [] { UnscaleAndCheck(List{Tensor()}, Meta({}), 1); });
}

TEST(NormTest, ClipByNorm) {
  Recorder recorder;
  ClipByNorm(Two(), Meta({}), 0.5);
  EXPECT_EQ(recorder.calls()[0].inputs.size(), 3u);
  EXPECT_EQ(recorder.calls()[0].scalars[0].AsDouble(), 0.5);
  ClipByNorm({}, Meta({}), 0.5);
  EXPECT_EQ(recorder.Ops(), "ClipByNorm");
  ExpectInvalid("ClipByNorm: norm is undefined", [] { ClipByNorm(Two(), Tensor(), 1); });
  ExpectInvalid("norm has shape [1]", [] { ClipByNorm(Two(), Meta({1}), 1); });
  ExpectInvalid("max_norm -1", [] { ClipByNorm(Two(), Meta({}), -1); });
  ExpectInvalid("max_norm nan", [] { ClipByNorm(Two(), Meta({}), std::nan("")); });
  ExpectInvalid("gradients[0] is undefined", [] { ClipByNorm(List{Tensor()}, Meta({}), 1); });
}

}  // namespace
}  // namespace lockstep
