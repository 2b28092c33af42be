// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a whole training step costs in memory.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::models {
namespace {

Tensor Tokens(int64_t rows, const Gpt2Config& config) {
  std::vector<int64_t> tokens(static_cast<size_t>(rows * config.block));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int64_t>(i * 7919 % static_cast<size_t>(config.vocabulary));
  }
  return FromVector<int64_t>(tokens, {rows, config.block});
}

// Everything a later step allocates lies in the cache that the first one filled.
TEST(Gpt2StepTest, AStepAfterTheFirstAsksTheSystemForNothing) {
  for (const int64_t rows : {1, 3, 12}) {
    ManualSeed(1);
    const Gpt2Config config = Gpt2Preset("nano");
    Gpt2 model(config);
    optim::AdamW optimizer(model.NamedParameters(), {.lr = 1e-3});
    const Tensor ids = Tokens(rows, config);
    int64_t after_first = 0;
    for (int step = 0; step < 5; ++step) {
      autograd::Backward(model.Loss(ids, ids));
      optimizer.Step();
      optimizer.ZeroGrad();
      const MemoryStats stats = GetMemoryStats(Cpu());
      if (step == 0) after_first = stats.system_allocation_count;
      EXPECT_EQ(stats.system_allocation_count, after_first) << "step " << step << ", rows " << rows;
    }
    EXPECT_GT(after_first, 0);
    EmptyCache(Cpu());
  }
}

}  // namespace
}  // namespace lockstep::models
