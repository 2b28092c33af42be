// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Copies: Clone, Cast, CopyInto, between devices, Concat, SliceBackward.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/cpu/kernel_testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/indexing.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr DType kAllDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                                DType::kInt64,   DType::kInt32,    DType::kUInt8,   DType::kBool};

const Shape kShapes[] = {{},        {0},           {1},         {17},          {3, 5},
                         {100, 70}, {2, 3, 5},     {4, 33, 40}, {2, 3, 4, 64}, {2, 0, 3},
                         {1000, 1}, {2, 65, 3, 31}};

TEST(CopyKernels, CloneIsRowMajorWithTheSameBits) {
  for (const DType dtype : kAllDTypes) {
    for (const Shape& shape : kShapes) {
      const Tensor packed = MakeTensor(Numbers(NumElements(shape), 0, 200), shape, dtype);
      for (const Tensor& x : Layouts(packed)) {
        const Tensor y = Clone(x);
        EXPECT_TRUE(y.is_contiguous());
        EXPECT_FALSE(y.IsSame(x));
        EXPECT_EQ(Bits(y), Bits(packed)) << x.DebugString();
      }
    }
  }
}

TEST(CopyKernels, CloneOfPermutedAndExpandedViews) {
  const Tensor x = MakeTensor(Numbers(2 * 33 * 4 * 40, 0, 200), {2, 33, 4, 40}, DType::kFloat32);
  for (const Shape& dims :
       {Shape{0, 2, 1, 3}, Shape{0, 2, 3, 1}, Shape{3, 2, 1, 0}, Shape{1, 0, 3, 2}}) {
    const Tensor view = Permute(x, dims);
    EXPECT_EQ(Bits(Clone(view)), Bits(view));
    ExpectSameForThreads("Clone", [&] { return Clone(view); });
  }
  const Tensor wide = Expand(MakeTensor({1, 2, 3}, {3, 1}, DType::kFloat32), {2, 3, 50});
  EXPECT_EQ(Bits(Clone(wide)), Bits(wide));
  EXPECT_EQ(Bits(Clone(Transpose(wide, 1, 2))), Bits(Transpose(wide, 1, 2)));
}

TEST(CopyKernels, CastBetweenAllDTypes) {
  const std::vector<double> values = Numbers(1003, 0, 120);
  for (const DType from : kAllDTypes) {
    const Tensor packed = MakeTensor(values, {17, 59}, from);
    for (const DType to : kAllDTypes) {
      const std::vector<double> source = packed.ToVector<double>();
      std::vector<double> expected;
      for (const double v : source) {
        expected.push_back(to == DType::kBool    ? static_cast<double>(v != 0)
                           : IsFloatingPoint(to) ? v
                                                 : std::trunc(v));
      }
      for (const Tensor& x : Layouts(packed)) {
        const Tensor y = To(x, to);
        EXPECT_EQ(y.dtype(), to);
        ExpectClose(y, expected, RoundingUnit(to), "Cast");
      }
    }
  }
}

TEST(CopyKernels, CastRoundsToNearestEvenOnce) {
  // Half way between neighbours, a little more, and a little less.
  const std::vector<double> values = {1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-20,
                                      1 + 0x1p-8 - 0x1p-20, -1 - 0x1p-8};
  EXPECT_EQ(To(MakeTensor(values, {5}, DType::kFloat32), DType::kBFloat16).ToVector<double>(),
            (std::vector<double>{1, 1 + 0x1p-6, 1 + 0x1p-7, 1, -1}));
  const std::vector<double> halves = {1 + 0x1p-11, 1 + 3 * 0x1p-11, 65519,
                                      65520,       0x1p-25,         0x1.8p-25};
  EXPECT_EQ(To(MakeTensor(halves, {6}, DType::kFloat32), DType::kFloat16).ToVector<double>(),
            (std::vector<double>{1, 1 + 0x1p-9, 65504, kInfinity, 0, 0x1p-24}));
}

TEST(CopyKernels, CastOfSpecialValues) {
  const Tensor x = MakeTensor({kNaN, kInfinity, -kInfinity, -0.0, 3e9, -1.9}, {6}, DType::kFloat32);
  for (const DType dtype : kFloatDTypes) {
    const std::vector<double> y = To(To(x, dtype), DType::kFloat32).ToVector<double>();
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], kInfinity);
    EXPECT_EQ(y[2], -kInfinity);
    EXPECT_TRUE(std::signbit(y[3]));
  }
  EXPECT_EQ(To(x, DType::kInt64).ToVector<int64_t>(),
            (std::vector<int64_t>{0, INT64_MAX, INT64_MIN, 0, 3000000000, -1}));
  EXPECT_EQ(To(x, DType::kInt32).ToVector<int64_t>(),
            (std::vector<int64_t>{0, INT32_MAX, INT32_MIN, 0, INT32_MAX, -1}));
  EXPECT_EQ(To(x, DType::kBool).ToVector<bool>(),
            (std::vector<bool>{true, true, true, false, true, true}));
  EXPECT_EQ(To(FromVector<int64_t>({256, -1}, {2}), DType::kUInt8).ToVector<int64_t>(),
            (std::vector<int64_t>{0, 255}));
}

TEST(CopyKernels, CopyIntoBroadcastsAndCasts) {
  for (const DType to : {DType::kFloat32, DType::kBFloat16, DType::kInt64}) {
    for (const DType from : {DType::kFloat32, DType::kBFloat16, DType::kInt64}) {
      const Tensor source = MakeTensor(Numbers(70, 0, 100), {70}, from);
      for (const Tensor& destination : Layouts(MakeTensor(Numbers(350, 0, 1), {5, 70}, to))) {
        CopyInto(destination, source);
        std::vector<double> expected;
        for (int64_t i = 0; i < 350; ++i) {
          const double v = source.Item<double>({i % 70});
          expected.push_back(IsFloatingPoint(to) ? v : std::trunc(v));
        }
        ExpectClose(destination, expected, RoundingUnit(to), "CopyInto");
      }
    }
  }
  // Elements between those of the view stay.
  const Tensor x = MakeTensor({0, 1, 2, 3, 4, 5}, {6}, DType::kFloat32);
  CopyInto(Slice(x, 0, 1, 6, 2), MakeTensor({7}, {}, DType::kFloat32));
  EXPECT_EQ(x.ToVector<double>(), (std::vector<double>{0, 7, 2, 7, 4, 7}));
  // Operands that overlap give what reading everything first gives.
  CopyInto(Slice(x, 0, 1), Slice(x, 0, 0, 5));
  EXPECT_EQ(x.ToVector<double>(), (std::vector<double>{0, 0, 7, 2, 7, 4}));
}

TEST(CopyKernels, BetweenDevices) {
  const Tensor packed = MakeTensor(Numbers(40 * 70, 0, 100), {40, 70}, DType::kBFloat16);
  for (const Tensor& x : Layouts(packed)) {
    for (const Device device : {Cpu(1), kHost}) {
      for (const bool non_blocking : {false, true}) {
        const Tensor there = To(x, device, {.non_blocking = non_blocking});
        EXPECT_EQ(there.device(), device);
        EXPECT_TRUE(there.is_contiguous());
        const Tensor back = To(there, Cpu(0), {.non_blocking = non_blocking});
        EXPECT_EQ(Bits(back), Bits(packed));
      }
    }
  }
  EXPECT_EQ(To(Zeros({0, 3}), Cpu(2), {.non_blocking = true}).numel(), 0);
}

TEST(CopyKernels, NonBlockingCopiesHoldTheirOperands) {
  Tensor there;
  {
    const Tensor x = MakeTensor(Numbers(1'000'000, 0, 1), {1'000'000}, DType::kFloat32);
    there = To(x, Cpu(3), {.non_blocking = true});
  }
  // The source's memory may be reused only after the copy.
  const Tensor other = Full({1'000'000}, 5.0);
  EXPECT_EQ(Bits(there), Bits(MakeTensor(Numbers(1'000'000, 0, 1), {1'000'000}, DType::kFloat32)));
  // A result that nobody reads.
  To(other, Cpu(3), {.non_blocking = true});
  // The result is an operand at once.
  const Tensor sum = Add(To(other, Cpu(4), {.non_blocking = true}), 1.0);
  EXPECT_EQ(sum.device(), Cpu(4));
  EXPECT_EQ(sum.Item<double>({999'999}), 6);
}

TEST(CopyKernels, ConcatAlongEveryDim) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kBool}) {
    for (int64_t dim = 0; dim < 3; ++dim) {
      Shape shapes[3] = {{2, 3, 5}, {2, 3, 5}, {2, 3, 5}};
      shapes[1][dim] = 0;
      shapes[2][dim] = 4;
      std::vector<std::vector<Tensor>> layouts;
      for (uint64_t i = 0; i < 3; ++i) {
        layouts.push_back(
            Layouts(MakeTensor(Numbers(NumElements(shapes[i]), 0, 50, i), shapes[i], dtype)));
      }
      for (size_t layout = 0; layout < 3; ++layout) {
        const Tensor a = layouts[0][layout];
        const Tensor b = layouts[1][layout];
        const Tensor c = layouts[2][layout];
        const Tensor y = Concat(std::vector<Tensor>{a, b, c}, dim);
        const int64_t size = a.size(dim);
        EXPECT_EQ(Bits(Slice(y, dim, 0, size)), Bits(a));
        EXPECT_EQ(Bits(Slice(y, dim, size)), Bits(c));
      }
    }
  }
}

TEST(CopyKernels, SliceBackwardPutsTheGradientIntoZeros) {
  SliceBackwardAttributes attributes;
  attributes.dim = 1;
  attributes.start = 2;
  attributes.step = 3;
  attributes.size = 11;
  const Tensor packed = MakeTensor(Numbers(2 * 3 * 70, 1, 2), {2, 3, 70}, DType::kFloat32);
  for (const Tensor& grad : Layouts(packed)) {
    const Tensor dx = Dispatch1(OpId::kSliceBackward, {grad}, {}, attributes);
    EXPECT_EQ(dx.shape(), (Shape{2, 11, 70}));
    for (int64_t j = 0; j < 11; ++j) {
      const Tensor slice = Slice(dx, 1, j, j + 1);
      if (j == 2 || j == 5 || j == 8) {
        EXPECT_EQ(Bits(slice), Bits(Slice(grad, 1, (j - 2) / 3, (j - 2) / 3 + 1))) << j;
      } else {
        EXPECT_EQ(Bits(slice), std::vector<uint64_t>(140, 0)) << j;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::cpu
