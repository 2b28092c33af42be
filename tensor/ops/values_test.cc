// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Values of the public functions that do more than dispatch one row, through the CPU kernels.

#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/ops/contraction.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/indexing.h"
#include "lockstep/tensor/ops/neural.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/ops/testing.h"
#include "lockstep/tensor/ops/update.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep {
namespace {

using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;

Ints Values(const Tensor& x) { return x.ToVector<int64_t>(); }
Doubles Numbers(const Tensor& x) { return x.ToVector<double>(); }
Tensor Range(const ShapeArg& shape) { return Reshape(Arange(NumElements(shape.value())), shape); }
Tensor Floats(const std::vector<float>& values) {
  return FromVector<float>(values, {static_cast<int64_t>(values.size())});
}

TEST(ValuesTest, MatMulOfVectors) {
  const Tensor m = Range({2, 3}), v = Range({3}), w = Range({2});
  EXPECT_EQ(Values(MatMul(v, v)), (Ints{5}));
  EXPECT_EQ(Values(MatMul(m, v)), (Ints{5, 14}));
  EXPECT_EQ(Values(MatMul(w, m)), (Ints{3, 4, 5}));
  EXPECT_EQ(Values(MatMul(m, w, {.transpose_a = true})), (Ints{3, 4, 5}));
  EXPECT_EQ(Values(MatMul(v, m, {.transpose_b = true})), (Ints{5, 14}));
  EXPECT_EQ(Values(MatMul(v, Range({2, 3, 1}))), (Ints{5, 14}));
}

TEST(ValuesTest, ArithmeticWithScalars) {
  const Tensor x = FromVector<uint8_t>({1, 5, 250}, {3});
  EXPECT_EQ(Values(x + 10), (Ints{11, 15, 4}));  // wraps around
  EXPECT_EQ(Values(x - 5), (Ints{252, 0, 245}));
  EXPECT_EQ(Values(255 - x), (Ints{254, 250, 5}));
  EXPECT_EQ(Values(Sub(x, FromVector<uint8_t>({2, 5, 0}, {3}))), (Ints{255, 0, 250}));
  EXPECT_EQ(Numbers(x / 4), (Doubles{0.25, 1.25, 62.5}));
  EXPECT_EQ(Numbers(1.5 - x), (Doubles{0.5, -3.5, -248.5}));
  EXPECT_EQ(Values(Pow(x, 2)), (Ints{1, 25, 36}));
  EXPECT_EQ(Values(To(x, DType::kBool) + 1), (Ints{2, 2, 2}));
  EXPECT_EQ(Values(Add(Range({3}), Range({3}), -2)), (Ints{0, -1, -2}));
}

TEST(ValuesTest, ComparisonsWithScalarsBeyondTheDType) {
  const Tensor x = FromVector<uint8_t>({1, 44, 255}, {3});
  EXPECT_EQ(Values(Less(x, 300)), (Ints{1, 1, 1}));
  EXPECT_EQ(Values(Equal(x, 300)), (Ints{0, 0, 0}));  // 300 modulo 256 is 44
  EXPECT_EQ(Values(Greater(x, -1)), (Ints{1, 1, 1}));
  EXPECT_EQ(Values(GreaterEqual(x, 43.5)), (Ints{0, 1, 1}));
  EXPECT_EQ(Values(LogicalAnd(Range({2}), Floats({0.5, 0.5}))), (Ints{0, 1}));
  EXPECT_EQ(Values(Where(Less(x, 50), x, 0)), (Ints{1, 44, 0}));
}

TEST(ValuesTest, Views) {
  const Tensor x = Range({2, 3});
  EXPECT_EQ(Values(Reshape(Transpose(x, 0, 1), {6})), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(Values(Slice(x, 1, 0, INT64_MAX, 2)), (Ints{0, 2, 3, 5}));
  EXPECT_EQ(Values(Select(x, 1, -1)), (Ints{2, 5}));
  EXPECT_EQ(Values(Split(x, 2, 1)[1]), (Ints{2, 5}));
  EXPECT_EQ(Values(Chunk(Arange(5), 2)[1]), (Ints{3, 4}));
  EXPECT_EQ(Values(Expand(Select(x, 0, 1), {2, -1})), (Ints{3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(Values(Flatten(Permute(x, {1, 0}))), (Ints{0, 3, 1, 4, 2, 5}));
}

TEST(ValuesTest, WritingThroughViews) {
  const Tensor x = Range({3, 4});
  AddInPlace(Select(x, 1, 2), 100);
  CopyInto(Slice(x, 0, 0, 1), Floats({-1.9f, 2.9f, 3, 4}));  // casts
  EXPECT_EQ(Values(x), (Ints{-1, 2, 3, 4, 4, 5, 106, 7, 8, 9, 110, 11}));
  CopyInto(x, Full({}, 5));  // broadcasts
  EXPECT_EQ(Values(Max(x) - Min(x)), (Ints{0}));
  // Overlapping operands are read before they are written.
  const Tensor y = Arange(5);
  CopyInto(Slice(y, 0, 1), Slice(y, 0, 0, 4));
  EXPECT_EQ(Values(y), (Ints{0, 0, 1, 2, 3}));
  AddInPlace(Slice(y, 0, 1), Slice(y, 0, 0, 4));
  EXPECT_EQ(Values(y), (Ints{0, 0, 1, 3, 5}));
}

TEST(ValuesTest, JoiningAndIndexing) {
  const Tensor a = Range({2, 2}), b = Floats({0.5f, 1.5f});
  EXPECT_EQ(Numbers(Concat(std::vector<Tensor>{a, Unsqueeze(b, 1)}, -1)),
            (Doubles{0, 1, 0.5, 2, 3, 1.5}));
  EXPECT_EQ(Values(Stack(std::vector<Tensor>{Arange(3), Arange(3) + 10}, -1)),
            (Ints{0, 10, 1, 11, 2, 12}));
  const Tensor index = FromVector<int64_t>({1, 0, 1}, {1, 3});
  EXPECT_EQ(Values(Gather(Range({2, 3}), 0, index)), (Ints{3, 1, 5}));
  EXPECT_EQ(Values(ScatterAdd(Range({2, 3}), 0, index, Full({1, 3}, 10))),
            (Ints{0, 11, 2, 13, 4, 15}));
}

TEST(ValuesTest, SumTo) {
  EXPECT_EQ(Values(SumTo(Range({2, 3}), Shape{3})), (Ints{3, 5, 7}));
  EXPECT_EQ(Values(SumTo(Range({2, 3}), Shape{2, 1})), (Ints{3, 12}));
  EXPECT_EQ(Values(SumTo(Range({2, 3}), Shape{})), (Ints{15}));
}

TEST(ValuesTest, Losses) {
  const Tensor x = Floats({1, 2, 4}), target = Floats({1, 1, 1});
  EXPECT_DOUBLE_EQ(MseLoss(x, target, Reduction::kSum).Item<double>(), 10);
  EXPECT_NEAR(MseLoss(x, target).Item<double>(), 10.0 / 3, 1e-6);
  EXPECT_EQ(Numbers(MseLoss(x, target, Reduction::kNone)), (Doubles{0, 1, 9}));
  const double expected = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(4.0)) - 2;
  const Tensor one = Full({}, 1);
  EXPECT_NEAR(CrossEntropy(x, one).Item<double>(), expected, 1e-6);
  const Tensor rows = Reshape(x, {1, 3});
  EXPECT_NEAR(CrossEntropy(rows, Reshape(one, {1}), {.reduction = Reduction::kNone}).Item<double>(),
              expected, 1e-6);
}

TEST(ValuesTest, DropoutOfEverything) {
  EXPECT_EQ(Numbers(Dropout(Floats({1, 2, 3}), 1)), (Doubles{0, 0, 0}));
}

TEST(ValuesTest, SgdWithoutMomentum) {
  const std::vector<Tensor> parameters{Floats({1, 2}), Floats({3})};
  const std::vector<Tensor> gradients{Floats({1, -1}), Floats({2})};
  const int64_t version = parameters[1].version();
  SgdStep(parameters, gradients, {}, {.lr = 0.5});
  EXPECT_EQ(Numbers(parameters[0]), (Doubles{0.5, 2.5}));
  EXPECT_EQ(Numbers(parameters[1]), (Doubles{2}));
  EXPECT_EQ(parameters[1].version(), version + 1);  // of every parameter
  EXPECT_EQ(gradients[0].version(), 0);
  EXPECT_EQ(GlobalNorm({}).Item<float>(), 0);
  ClipByNorm(gradients, GlobalNorm(gradients, NormKind::kInfinity), 1);
  EXPECT_NEAR(gradients[1].Item<float>(), 1, 1e-5);
}

}  // namespace
}  // namespace lockstep
