// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/neural.h"

#include <cmath>

#include "gtest/gtest.h"
#include "lockstep/tensor/ops/testing.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

using testing_util::Describe;
using testing_util::ExpectError;
using testing_util::ExpectInvalid;
using testing_util::Meta;
using testing_util::Recorder;

constexpr DType kI64 = DType::kInt64;

TEST(SoftmaxTest, ShapesAndErrors) {
  for (const auto& op : {Softmax, LogSoftmax}) {
    EXPECT_EQ(Describe(op(Meta({3, 5}), -1)), "float32[3, 5]");
    EXPECT_EQ(Describe(op(Meta({}), 0)), "float32[]");
    ExpectError(absl::StatusCode::kOutOfRange, "dimension 2", [&] { op(Meta({3, 5}), 2); });
    ExpectInvalid("floating-point", [&] { op(Meta({3}, kI64), 0); });
    ExpectInvalid("x is undefined", [&] { op(Tensor(), 0); });
  }
}

TEST(LayerNormTest, ShapesAndErrors) {
  Recorder recorder;
  EXPECT_EQ(Describe(LayerNorm(Meta({2, 3, 5}), Meta({5}), Meta({5}))), "float32[2, 3, 5]");
  EXPECT_EQ(recorder.calls()[0].scalars[0].AsDouble(), 1e-5);
  EXPECT_EQ(Describe(LayerNorm(Meta({2, 3, 5}), {}, {}, 1e-6, 2)), "float32[2, 3, 5]");
  ExpectInvalid("LayerNorm: x is undefined", [] { LayerNorm(Tensor()); });
  ExpectInvalid("LayerNorm: epsilon -1", [] { LayerNorm(Meta({3}), {}, {}, -1); });
  ExpectInvalid("LayerNorm: epsilon nan", [] { LayerNorm(Meta({3}), {}, {}, std::nan("")); });
  ExpectInvalid("normalized_rank 2 is not in [1, 1]",
                [] { LayerNorm(Meta({3}), {}, {}, 1e-5, 2); });
  ExpectInvalid("weight has shape [4]", [] { LayerNorm(Meta({3}), Meta({4})); });
}

TEST(DropoutTest, DrawsOnlyWhenItDrops) {
  ManualSeed(9, /*data_parallel_rank=*/3);
  const Tensor x = Meta({3, 3});
  Recorder recorder;
  EXPECT_TRUE(Dropout(x, 0).IsSame(x));
  EXPECT_TRUE(Dropout(x, 0.5, {.training = false}).IsSame(x));
  EXPECT_EQ(recorder.Ops(), "");
  EXPECT_EQ(Describe(Dropout(x, 1)), "float32[3, 3]");
  EXPECT_EQ(Describe(Dropout(x, 0.25)), "float32[3, 3]");
  const Scalars& scalars = recorder.calls()[1].scalars;
  EXPECT_EQ(scalars[0].AsDouble(), 0.25);
  EXPECT_EQ(scalars[1].AsUInt64(), 9u);
  EXPECT_EQ(scalars[2].AsUInt64(), kDropoutStreamBase + 3);
  EXPECT_EQ(scalars[3].AsUInt64(), 12u);
  EXPECT_EQ(ThreadGenerators().dropout.key.offset, 24u);
  Generator own{{1, 2, 0}};
  Dropout(x, 0.5, {.generator = &own});
  EXPECT_EQ(own.key.offset, 12u);
  EXPECT_EQ(ThreadGenerators().dropout.key.offset, 24u);
}

TEST(DropoutTest, Refuses) {
  Generator own{{1, 2, 0}};
  const DropoutOptions options{.training = true, .generator = &own};
  ExpectInvalid("Dropout: probability 1.5 is not in [0, 1]",
                [&] { Dropout(Meta({3}), 1.5, options); });
  ExpectInvalid("probability nan", [&] { Dropout(Meta({3}), std::nan(""), options); });
  ExpectInvalid("probability -0.1", [&] { Dropout(Meta({3}), -0.1, {.training = false}); });
  ExpectInvalid("floating-point", [&] { Dropout(Meta({3}, kI64), 0.5, options); });
  ExpectInvalid("Dropout: x is undefined", [&] { Dropout(Tensor(), 0.5, options); });
  EXPECT_EQ(own.key.offset, 0u);
}

TEST(CrossEntropyTest, ShapesAndErrors) {
  const Tensor logits = Meta({3, 5}), target = Meta({3}, kI64);
  EXPECT_EQ(Describe(CrossEntropy(logits, target)), "float32[]");
  EXPECT_EQ(Describe(CrossEntropy(logits, target, {.reduction = Reduction::kNone})), "float32[3]");
  EXPECT_EQ(Describe(CrossEntropy(Meta({5}), Meta({}, kI64))), "float32[]");
  EXPECT_EQ(Describe(CrossEntropy(Meta({5}), Meta({}, kI64), {.reduction = Reduction::kNone})),
            "float32[]");
  Recorder recorder;
  CrossEntropy(logits, target,
               {.reduction = Reduction::kSum, .ignore_index = 7, .label_smoothing = 0.1});
  EXPECT_EQ(recorder.calls()[0].attributes, "{reduction=2, ignore_index=7}");
  EXPECT_EQ(recorder.calls()[0].scalars[0].AsDouble(), 0.1);
  ExpectInvalid("label_smoothing 1.5 is not in [0, 1]",
                [&] { CrossEntropy(logits, target, {.label_smoothing = 1.5}); });
  ExpectInvalid("target has shape [5]", [&] { CrossEntropy(logits, Meta({5}, kI64)); });
  ExpectInvalid("logits has shape [5]", [&] { CrossEntropy(Meta({5}), target); });
  ExpectInvalid("target has dtype float32", [&] { CrossEntropy(logits, Meta({3})); });
  ExpectInvalid("CrossEntropy: logits is undefined", [&] { CrossEntropy(Tensor(), target); });
  ExpectInvalid("CrossEntropy: target is undefined", [&] { CrossEntropy(logits, Tensor()); });
}

TEST(MseLossTest, ShapesAndErrors) {
  EXPECT_EQ(Describe(MseLoss(Meta({3, 5}), Meta({3, 5}))), "float32[]");
  EXPECT_EQ(Describe(MseLoss(Meta({3}), Meta({3}, kI64), Reduction::kNone)), "float32[3]");
  Recorder recorder;
  MseLoss(Meta({3}), Meta({3}), Reduction::kSum);
  EXPECT_EQ(recorder.Ops(), "Add Mul Sum");
  ExpectInvalid("MseLoss: x has shape [3] and target has [3, 1]", [] {
    MseLoss(Meta({3}), Meta({3, 1}));
  });
  ExpectInvalid("MseLoss: x has dtype int64", [] { MseLoss(Meta({3}, kI64), Meta({3}, kI64)); });
  ExpectInvalid("MseLoss: x is undefined", [] { MseLoss(Tensor(), Meta({3})); });
  ExpectInvalid("MseLoss: target is undefined", [] { MseLoss(Meta({3}), Tensor()); });
}

TEST(AttentionTest, ScaleAndDropoutKey) {
  const Tensor q = Meta({2, 3, 4, 16}), k = Meta({2, 3, 5, 16}), v = Meta({2, 3, 5, 6});
  ManualSeed(4);
  Recorder recorder;
  EXPECT_EQ(Describe(ScaledDotProductAttention(q, k, v)), "float32[2, 3, 4, 6]");
  EXPECT_EQ(recorder.calls()[0].scalars[0].AsDouble(), 0.25);
  EXPECT_EQ(recorder.calls()[0].scalars[1].AsDouble(), 0);
  EXPECT_EQ(ThreadGenerators().dropout.key.offset, 0u);
  ScaledDotProductAttention(q, k, v, {.dropout_p = 0.5, .scale = 2.0});
  EXPECT_EQ(recorder.calls()[1].scalars[0].AsDouble(), 2);
  EXPECT_EQ(recorder.calls()[1].scalars[1].AsDouble(), 0.5);
  EXPECT_EQ(recorder.calls()[1].scalars[2].AsUInt64(), 4u);
  EXPECT_EQ(ThreadGenerators().dropout.key.offset, 2u * 3 * 4 * 5);
  ScaledDotProductAttention(q, k, v, {.causal = true});
  EXPECT_EQ(recorder.calls()[2].attributes, "{causal=true}");
  EXPECT_EQ(Describe(ScaledDotProductAttention(Meta({4, 0}), Meta({5, 0}), Meta({5, 6}))),
            "float32[4, 6]");
}

TEST(AttentionTest, KeepsTheLayoutOfPermutedOperands) {
  const Tensor q = Transpose(Meta({2, 4, 3, 8}), 1, 2);
  const Tensor y = ScaledDotProductAttention(q, q, q);
  EXPECT_EQ(Describe(y), "float32[2, 3, 4, 8]/[96, 8, 24, 1]");
  EXPECT_TRUE(Transpose(y, 1, 2).is_contiguous());
}

TEST(AttentionTest, Refuses) {
  const Tensor q = Meta({3, 4, 8});
  Generator own{{1, 2, 0}};
  ExpectInvalid("dropout_p 1 is not in [0, 1)",
                [&] { ScaledDotProductAttention(q, q, q, {.dropout_p = 1}); });
  ExpectInvalid("scale inf", [&] { ScaledDotProductAttention(q, q, q, {.scale = INFINITY}); });
  ExpectInvalid("a mask is given together with causal", [&] {
    ScaledDotProductAttention(q, q, q, {.mask = Meta({4, 4}), .causal = true});
  });
  ExpectInvalid("leading dimensions differ", [&] {
    ScaledDotProductAttention(q, Meta({2, 4, 8}), q, {.dropout_p = 0.5, .generator = &own});
  });
  EXPECT_EQ(own.key.offset, 0u);
  ExpectInvalid("must have at least 2 dimensions",
                [&] { ScaledDotProductAttention(Meta({8}), q, q); });
  ExpectInvalid("ScaledDotProductAttention: q is undefined",
                [&] { ScaledDotProductAttention(Tensor(), q, q); });
  ExpectInvalid("k is undefined", [&] { ScaledDotProductAttention(q, Tensor(), q); });
  ExpectInvalid("v is undefined", [&] { ScaledDotProductAttention(q, q, Tensor()); });
}

}  // namespace
}  // namespace lockstep
