// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/models/gpt2_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::models {
namespace {

using ::testing::HasSubstr;

Gpt2Config Five(bool tie_head = true) {
  return {.layers = 5, .heads = 2, .width = 12, .block = 7, .vocabulary = 17, .tie_head = tie_head};
}

Tensor Ids() {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 3 * 7; ++i) ids.push_back(5 * i % 17);
  return FromVector<int64_t>(ids, {3, 7});
}

Tensor RunParts(const std::vector<Gpt2Part>& parts, Tensor x) {
  for (const Gpt2Part& part : parts) x = part.forward(x);
  return x;
}

Tensor SumOfSquares(const Tensor& x) { return Sum(x * x); }

TEST(Gpt2Parts, PartsOneAfterTheOtherAreTheModel) {
  ManualSeed(3);
  Gpt2 model(Five());
  const std::vector<float> expected = model(Ids()).ToVector<float>();
  for (const std::vector<int64_t>& points :
       std::vector<std::vector<int64_t>>{{}, {1}, {4}, {2, 3}, {1, 2, 3, 4}}) {
    const std::vector<Gpt2Part> parts = SplitGpt2(model, points);
    ASSERT_EQ(parts.size(), points.size() + 1);
    EXPECT_EQ(RunParts(parts, Ids()).ToVector<float>(), expected);
  }
}

TEST(Gpt2Parts, EveryParameterIsInOnePartUnderItsName) {
  ManualSeed(3);
  for (const bool tie : {true, false}) {
    Gpt2 model(Five(tie));
    std::vector<std::string> names;
    for (const Gpt2Part& part : SplitGpt2(model, {2, 3})) {
      for (const auto& [path, module] : part.modules) {
        for (const auto& [name, parameter] : module->NamedParameters()) {
          names.push_back(path + "." + name);
        }
      }
    }
    EXPECT_EQ(names, model.StateDict().Names());
  }
}

TEST(Gpt2Parts, ATiedHeadHasAWeightOfItsOwnInAnotherPart) {
  ManualSeed(3);
  Gpt2 model(Five());
  autograd::Backward(SumOfSquares(model(Ids())));
  const Tensor both = Clone(autograd::Grad(model.lm_head()->weight));
  for (const Tensor& parameter : model.Parameters()) autograd::SetGrad(parameter, {});
  const std::vector<Gpt2Part> parts = SplitGpt2(model, {2});
  autograd::Backward(SumOfSquares(RunParts(parts, Ids())));
  const Tensor head = parts[1].modules.back().second->NamedParameters().At("weight");
  EXPECT_NE(head.storage().get(), model.lm_head()->weight.storage().get());
  const Tensor sum = autograd::Grad(model.lm_head()->weight) + autograd::Grad(head);
  EXPECT_LT(Max(Abs(sum - both)).Item<double>(), 1e-4 * Max(Abs(both)).Item<double>());
  // In one part nothing is copied.
  const std::vector<Gpt2Part> whole = SplitGpt2(model, {});
  EXPECT_EQ(whole[0].modules.back().second, model.lm_head());
}

TEST(Gpt2Parts, SplitPointsRiseWithinTheBlocks) {
  Gpt2 model(Five());
  for (const std::vector<int64_t>& points :
       std::vector<std::vector<int64_t>>{{0}, {5}, {2, 2}, {3, 1}, {-1}}) {
    EXPECT_THAT(MessageOf([&] { SplitGpt2(model, points); }),
                HasSubstr("of 5 blocks; they rise within [1, 4]"));
  }
}

}  // namespace
}  // namespace lockstep::models
