// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Models built without bytes and given them later are those of ordinary construction.

#include "lockstep/nn/deferred_init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/gpt2.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::models {
namespace {

using Make = std::function<std::shared_ptr<nn::Module>()>;

std::shared_ptr<nn::Module> Deferred(const Make& make) {
  nn::DeferredInitScope scope;
  return make();
}

// One parameter at a time from the last to the first, then all in place.
void ExpectAsOrdinary(const Make& make) {
  ManualSeed(41);
  const std::shared_ptr<nn::Module> ordinary = make();
  const RandomStreams after = ThreadGenerators();
  ManualSeed(41);
  const std::shared_ptr<nn::Module> deferred = Deferred(make);
  EXPECT_EQ(ThreadGenerators().parameters.key, after.parameters.key);
  EXPECT_EQ(ThreadGenerators().data.key, after.data.key);
  EXPECT_EQ(ThreadGenerators().dropout.key, after.dropout.key);

  const std::vector<Tensor> expected = ordinary->Parameters();
  const std::vector<Tensor> meta = deferred->Parameters();
  ASSERT_EQ(meta.size(), expected.size());
  for (size_t i = meta.size(); i-- > 0;) {
    const Tensor made = nn::MaterializeTensor(meta[i], Cpu(1));
    EXPECT_EQ(made.ToVector<float>(), expected[i].ToVector<float>()) << i;
  }
  nn::MaterializeModule(*deferred, Cpu());
  const NamedTensors state = deferred->StateDict(), expected_state = ordinary->StateDict();
  ASSERT_EQ(state.size(), expected_state.size());
  for (const auto& [name, tensor] : expected_state) {
    EXPECT_EQ(state.At(name).DebugString(), tensor.DebugString()) << name;
    EXPECT_EQ(state.At(name).ToVector<float>(), tensor.ToVector<float>()) << name;
  }
}

TEST(DeferredModels, Gpt2) {
  for (const bool tie : {false, true}) {
    Gpt2Config config = Gpt2Preset("nano");
    config.tie_head = tie;
    ExpectAsOrdinary([&] { return std::make_shared<Gpt2>(config); });
  }
}

TEST(DeferredModels, Mlp) {
  ExpectAsOrdinary([] { return std::make_shared<Mlp>(MlpConfig{.sizes = {5, 17, 11, 3}}); });
}

TEST(DeferredModels, Gpt2RunsOnMetaAndThenAsTheOrdinaryOne) {
  const Gpt2Config config = Gpt2Preset("nano");
  ManualSeed(3);
  Gpt2 ordinary(config);
  ManualSeed(3);
  std::shared_ptr<Gpt2> deferred;
  {
    nn::DeferredInitScope scope;
    deferred = std::make_shared<Gpt2>(config);
  }
  ordinary.Eval();
  deferred->Eval();
  const Tensor ids = Reshape(Arange(10), {2, 5});
  EXPECT_EQ((*deferred)(To(ids, kMeta)).DebugString(), "float32[2, 5, 65] on meta");
  nn::MaterializeModule(*deferred, Cpu());
  EXPECT_EQ((*deferred)(ids).ToVector<float>(), ordinary(ids).ToVector<float>());
}

// One parameter at a time takes no more than the largest, whatever the model.
TEST(DeferredModels, PeakIsTheLargestParameter) {
  ResetPeakBytes(Cpu(2));
  const std::shared_ptr<nn::Module> model =
      Deferred([] { return std::make_shared<Gpt2>(Gpt2Preset("nano")); });
  int64_t largest = 0, all = 0;
  for (const Tensor& parameter : model->Parameters()) {
    nn::MaterializeTensor(parameter, Cpu(2));
    largest = std::max(largest, parameter.bytes());
    all += parameter.bytes();
  }
  EXPECT_EQ(GetMemoryStats(Cpu(2)).peak_bytes, largest);
  EXPECT_LT(largest, all / 8);
}

}  // namespace
}  // namespace lockstep::models
