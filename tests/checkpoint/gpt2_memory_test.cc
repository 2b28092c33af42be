// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What GPT-2's graph holds under each kind of checkpointing, as a formula. A unit is
// rows x width x 4 bytes, the size of the residual stream.

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/checkpoint/op_policy.h"
#include "lockstep/checkpoint/setting.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep {
namespace {

using autograd::SavedBytes;

constexpr int64_t kBatch = 3, kLength = 10, kWidth = 48, kHeads = 4, kVocabulary = 17;
constexpr int64_t kRows = kBatch * kLength;
constexpr int64_t kUnit = kRows * kWidth * 4;

models::Gpt2Config Config(int64_t layers, double dropout) {
  models::Gpt2Config config;
  config.layers = layers;
  config.heads = kHeads;
  config.width = kWidth;
  config.block = kLength;
  config.vocabulary = kVocabulary;
  config.dropout = dropout;
  return config;
}

Tensor Ids() {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kRows; ++i) ids.push_back(i * 5 % kVocabulary);
  return FromVector<int64_t>(ids, {kBatch, kLength});
}

struct Bytes {
  int64_t end = 0;
  int64_t peak = 0;
};

Bytes Measure(models::Gpt2& model) {
  const Tensor ids = Ids();
  const int64_t before = SavedBytes(Cpu(0));
  autograd::ResetPeakSavedBytes(Cpu(0));
  const Tensor loss = model.Loss(ids, ids);
  const int64_t end = SavedBytes(Cpu(0)) - before;
  autograd::Backward(loss);
  EXPECT_EQ(SavedBytes(Cpu(0)), before);
  return {end, autograd::PeakSavedBytes(Cpu(0)) - before};
}

// Per row: ids of two embeddings (one of them of a single sequence), the last norm's input, result
// and statistics, logits, targets and the log-sum-exp of the loss.
constexpr int64_t kTail = kRows * 8 + kLength * 8                 // ids, positions
                          + 2 * kUnit + kRows * 2 * 4             // ln_f
                          + kRows * kVocabulary * 4 + kRows * 4;  // loss
// Norm statistics and the attention's log-sum-exp of one block.
constexpr int64_t kSmall = kRows * 4 * 4 + kRows * kHeads * 4;

TEST(Gpt2MemoryTest, EachBlockHoldsItsInput) {
  for (const double dropout : {0.0, 0.1}) {
    for (int64_t layers = 2; layers <= 12; layers += 2) {
      models::Gpt2 model(Config(layers, dropout));
      const Bytes plain = Measure(model);
      EXPECT_EQ(plain.end, layers * (16 * kUnit + kSmall) + kTail) << layers;
      EXPECT_EQ(plain.peak, plain.end);
      checkpoint::ApplyCheckpointing(model, {checkpoint::OfType<models::Gpt2Block>()});
      const Bytes block = Measure(model);
      EXPECT_EQ(block.end, layers * kUnit + kTail) << layers;
      // The last block's units more, when the tail is gone but for the ids.
      EXPECT_LE(block.peak, layers * kUnit + 16 * kUnit + kSmall + kRows * 16) << layers;
      EXPECT_GE(block.peak, layers * kUnit + 15 * kUnit) << layers;
    }
  }
}

TEST(Gpt2MemoryTest, SelectivePolicies) {
  constexpr int64_t kStatistics = kRows * kHeads * 4;  // of the attention, which is saved
  for (int64_t layers = 2; layers <= 8; layers += 3) {
    models::Gpt2 model(Config(layers, 0.1));
    const auto measure = [&](const checkpoint::OpPolicy& policy) {
      checkpoint::ApplyCheckpointing(model, {checkpoint::OfType<models::Gpt2Block>()},
                                     {.policy = policy});
      const Bytes bytes = Measure(model);
      checkpoint::RemoveCheckpointing(model);
      return bytes.end;
    };
    // The input, and the results of c_attn (3), attention, attn.c_proj and c_fc (4); that of the
    // last c_proj is of no use.
    EXPECT_EQ(measure(checkpoint::SaveContractions()), layers * (10 * kUnit + kStatistics) + kTail);
    EXPECT_EQ(measure(checkpoint::SaveContractionsExcept(checkpoint::WeightsOf(model, "c_attn"))),
              layers * (7 * kUnit + kStatistics) + kTail);
  }
}

TEST(Gpt2MemoryTest, ABudgetHolds) {
  models::Gpt2 model(Config(6, 0.1));
  const Tensor ids = Ids();
  const auto blocks = checkpoint::UnitsOf(model.transformer()->h());
  for (const int64_t units : {24, 40, 60, 90}) {
    const int64_t limit = units * kUnit + kTail;
    const std::string done =
        checkpoint::ApplyCheckpointSetting({checkpoint::CheckpointSetting::Kind::kBudget, limit},
                                           blocks, [&] { return model.Loss(ids, ids); });
    const Bytes bytes = Measure(model);
    EXPECT_LE(bytes.peak, limit) << done;
    EXPECT_GT(bytes.peak, limit / 2) << done;
    checkpoint::RemoveCheckpointing(model);
  }
}

}  // namespace
}  // namespace lockstep
