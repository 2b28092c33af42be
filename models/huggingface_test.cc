// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/models/huggingface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/state/tensor_source.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::models {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Gpt2Config Tiny() { return {.layers = 2, .heads = 2, .width = 6, .block = 5, .vocabulary = 11}; }

TEST(HuggingFace, TransposesAlsoSquareMatrices) {
  ManualSeed(1);
  Gpt2 model(Tiny());
  const NamedTensors state = model.StateDict();
  const NamedTensors theirs = Gpt2ToHuggingFace(state);
  for (const std::string layer : {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}) {
    const std::string name = "transformer.h.1." + layer + ".weight";
    const Tensor ours = state.At(name), other = theirs.At(name);
    EXPECT_EQ(other.shape(), (Shape{ours.size(1), ours.size(0)})) << name;
    EXPECT_TRUE(other.is_contiguous()) << name;
    EXPECT_EQ(other.Item<float>({1, 3}), ours.Item<float>({3, 1})) << name;
  }
  // Neither tables nor norms are.
  EXPECT_EQ(theirs.At("transformer.wpe.weight").shape(), (Shape{5, 6}));
  EXPECT_FALSE(theirs.Contains("lm_head.weight"));
}

TEST(HuggingFace, ThereAndBack) {
  for (const bool prefix : {true, false}) {
    for (const bool tie_head : {true, false}) {
      ManualSeed(1);
      Gpt2Config config = Tiny();
      config.tie_head = tie_head;
      Gpt2 source(config);
      NamedTensors theirs = Gpt2ToHuggingFace(source.StateDict(), {.prefix = prefix});
      EXPECT_EQ(theirs.Contains("wte.weight"), !prefix);
      EXPECT_EQ(theirs.Contains("lm_head.weight"), !tie_head);
      // As in older files.
      const std::string layer = prefix ? "transformer.h.1." : "h.1.";
      theirs.Insert(layer + "attn.bias", Ones({1, 1, 5, 5}));
      theirs.Insert(layer + "attn.masked_bias", FromVector<float>({-1e4f}, Shape{}));
      Gpt2 target(config);
      target.LoadStateDict(Gpt2FromHuggingFace(theirs));
      const NamedTensors expected = source.StateDict(), actual = target.StateDict();
      for (const auto& [name, tensor] : expected) {
        EXPECT_EQ(actual.At(name).ToVector<float>(), tensor.ToVector<float>()) << name;
      }
    }
  }
}

// Every range, of every layout, is what the whole loader has.
TEST(HuggingFace, ASourceReadsRangesOfTheSame) {
  for (const bool prefix : {true, false}) {
    for (const bool tie_head : {true, false}) {
      ManualSeed(1);
      Gpt2Config config = Tiny();
      config.tie_head = tie_head;
      Gpt2 model(config);
      NamedTensors theirs = Gpt2ToHuggingFace(model.StateDict(), {.prefix = prefix});
      theirs.Insert("h.1.attn.masked_bias", FromVector<float>({-1e4f}, Shape{}));
      const NamedTensors wanted = Gpt2FromHuggingFace(theirs);
      const Gpt2HuggingFaceSource source(std::make_shared<state::NamedTensorsSource>(theirs));
      ASSERT_EQ(source.tensors().size(), wanted.size());
      for (const state::TensorDescription& tensor : source.tensors()) {
        const std::vector<float> all = wanted.At(tensor.name).ToVector<float>();
        EXPECT_EQ(tensor.shape, wanted.At(tensor.name).shape()) << tensor.name;
        const auto numel = static_cast<int64_t>(all.size());
        const std::vector<std::pair<int64_t, int64_t>> ranges = {
            {0, numel}, {0, 0}, {1, 2}, {numel / 3, numel - 1}, {numel, numel}};
        for (const auto& [begin, end] : ranges) {
          EXPECT_EQ(source.LoadRange(tensor.name, begin, end).ToVector<float>(),
                    std::vector<float>(all.begin() + begin, all.begin() + end))
              << tensor.name << " [" << begin << ", " << end << ")";
        }
        EXPECT_THROW(source.LoadRange(tensor.name, 0, numel + 1), Error);
      }
      EXPECT_THROW(source.LoadRange("wte", 0, 0), Error);
    }
  }
}

// A matrix that is read in several rounds.
TEST(HuggingFace, ASourceOfLargeMatrices) {
  constexpr int64_t kIn = 300, kOut = 1000;
  std::vector<float> values(kIn * kOut);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const std::string name = "transformer.h.0.attn.c_attn.weight";
  const NamedTensors theirs = {{name, FromVector<float>(values, {kIn, kOut})}};
  const Gpt2HuggingFaceSource source(std::make_shared<state::NamedTensorsSource>(theirs));
  const std::vector<float> all = Gpt2FromHuggingFace(theirs).At(name).ToVector<float>();
  EXPECT_EQ(source.LoadRange(name, 0, kIn * kOut).ToVector<float>(), all);
  EXPECT_EQ(source.LoadRange(name, 70001, 90007).ToVector<float>(),
            std::vector<float>(all.begin() + 70001, all.begin() + 90007));
}

TEST(HuggingFace, WrongFilesAreReported) {
  Gpt2 model(Tiny());
  NamedTensors theirs = Gpt2ToHuggingFace(model.StateDict());
  NamedTensors bad;
  for (const auto& [name, tensor] : theirs) {
    if (name != "transformer.ln_f.bias") bad.Insert(name, tensor);
  }
  bad.Insert("score.weight", Zeros({2, 6}));
  try {
    model.LoadStateDict(Gpt2FromHuggingFace(bad));
    FAIL() << "loaded";
  } catch (const Error& e) {
    EXPECT_THAT(e.message(), HasSubstr("transformer.ln_f.bias"));
    EXPECT_THAT(e.message(), HasSubstr("score.weight"));
    EXPECT_THAT(e.message(), Not(HasSubstr("lm_head")));
  }
  bad.Set("transformer.h.0.mlp.c_fc.weight", Zeros({6}));
  EXPECT_THROW(Gpt2FromHuggingFace(bad), Error);
  EXPECT_THROW(Gpt2HuggingFaceSource(std::make_shared<state::NamedTensorsSource>(bad)), Error);
  theirs.Insert("wte.weight", Zeros({11, 6}));
  EXPECT_THROW(Gpt2FromHuggingFace(theirs), Error);
  EXPECT_THROW(Gpt2HuggingFaceSource(std::make_shared<state::NamedTensorsSource>(theirs)), Error);
}

}  // namespace
}  // namespace lockstep::models
