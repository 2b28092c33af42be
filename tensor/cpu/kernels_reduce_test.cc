// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Reductions against double references over all subsets of dimensions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/cpu/kernel_testing.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Values of x grouped by output element, in row-major order of the kept dimensions.
std::vector<std::vector<double>> Groups(const Tensor& x, const Shape& dims) {
  const Shape& shape = x.shape();
  const std::vector<double> values = x.ToVector<double>();
  std::vector<bool> reduced(shape.size(), dims.empty());
  for (const int64_t dim : dims) reduced[dim] = true;
  int64_t outputs = 1;
  for (size_t d = 0; d < shape.size(); ++d) outputs *= reduced[d] ? 1 : shape[d];
  std::vector<std::vector<double>> groups(static_cast<size_t>(outputs));
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i);
    int64_t at = 0;
    int64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      if (!reduced[d]) {
        at += rest % shape[d] * stride;
        stride *= shape[d];
      }
      rest /= shape[d];
    }
    groups[at].push_back(values[i]);
  }
  return groups;
}

std::vector<double> Sums(const std::vector<std::vector<double>>& groups, bool mean) {
  std::vector<double> result;
  for (const auto& group : groups) {
    double sum = 0;
    for (const double v : group) sum += v;
    result.push_back(mean ? sum / static_cast<double>(group.size()) : sum);
  }
  return result;
}

std::vector<double> Extremes(const std::vector<std::vector<double>>& groups, bool largest) {
  std::vector<double> result;
  for (const auto& group : groups) {
    double best = group[0];
    for (const double v : group) {
      if (std::isnan(v) || (!std::isnan(best) && (largest ? v > best : v < best))) best = v;
    }
    result.push_back(best);
  }
  return result;
}

std::vector<double> Counts(const std::vector<std::vector<double>>& groups, bool all) {
  std::vector<double> result;
  for (const auto& group : groups) {
    const auto non_zero =
        std::count_if(group.begin(), group.end(), [](double v) { return v != 0; });
    result.push_back(all ? non_zero == static_cast<int64_t>(group.size()) : non_zero > 0);
  }
  return result;
}

const Shape kShapes[] = {{},           {0},       {1},       {3},       {17},       {1000},
                         {70000},      {3, 5},    {5, 1},    {300, 17}, {2, 3, 5},  {7, 4, 33},
                         {2, 3, 4, 5}, {3, 0, 5}, {5, 1100}, {1300, 5}, {2, 300, 9}};

std::vector<Shape> DimSubsets(size_t rank) {
  std::vector<Shape> result;
  for (size_t mask = 1; mask < (size_t{1} << rank); ++mask) {
    Shape dims;
    for (size_t d = 0; d < rank; ++d) {
      if ((mask >> d & 1) != 0) dims.push_back(static_cast<int64_t>(d));
    }
    result.push_back(dims);
  }
  if (rank == 0) result.emplace_back();
  return result;
}

TEST(ReduceKernels, SumAndMeanOfEveryShapeDTypeAndLayout) {
  for (const DType dtype : kFloatDTypes) {
    for (const Shape& shape : kShapes) {
      const Tensor packed = MakeTensor(Numbers(NumElements(shape), -1, 2), shape, dtype);
      for (const Shape& dims : DimSubsets(shape.size())) {
        for (const Tensor& x : Layouts(packed)) {
          const auto groups = Groups(x, dims);
          // Relative to sums, which are a third of the sums of magnitudes or more.
          const double tolerance =
              RoundingUnit(dtype) + (dtype == DType::kFloat64 ? 1e-13 : 32 * 0x1p-24);
          ExpectClose(Sum(x, dims), Sums(groups, false), tolerance, "Sum " + ToString(dims), 10);
          ExpectClose(Mean(x, dims), Sums(groups, true), tolerance, "Mean " + ToString(dims), 1);
        }
      }
    }
  }
}

TEST(ReduceKernels, LargeFloatSumsAreAccurate) {
  // One float32 accumulator would end near 2^24 here.
  const int64_t count = 20'000'000;
  const Tensor ones = Ones({count});
  EXPECT_EQ(Sum(ones).Item<double>(), count);
  EXPECT_EQ(Mean(ones).Item<double>(), 1);
  EXPECT_EQ(Sum(View(ones, {count / 2, 2}), {0}).ToVector<double>(),
            std::vector<double>(2, count / 2));
  EXPECT_EQ(Sum(View(ones, {count / 5, 5}), {0}).ToVector<double>(),
            std::vector<double>(5, count / 5));
}

TEST(ReduceKernels, ExtremesAndLogic) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kInt64,
                            DType::kInt32, DType::kUInt8, DType::kBool}) {
    for (const Shape& shape : kShapes) {
      const Tensor packed = MakeTensor(Numbers(NumElements(shape), 0, 2.5), shape, dtype);
      for (const Shape& dims : DimSubsets(shape.size())) {
        for (const Tensor& x : Layouts(packed)) {
          const auto groups = Groups(x, dims);
          ExpectClose(All(x, dims), Counts(groups, true), 0, "All");
          ExpectClose(Any(x, dims), Counts(groups, false), 0, "Any");
          if (std::any_of(groups.begin(), groups.end(), [](auto& g) { return g.empty(); }))
            continue;
          ExpectClose(Max(x, dims), Extremes(groups, true), 0, "Max");
          ExpectClose(Min(x, dims), Extremes(groups, false), 0, "Min");
        }
      }
    }
  }
}

TEST(ReduceKernels, IntegerSumsGiveInt64) {
  for (const DType dtype : {DType::kInt64, DType::kInt32, DType::kUInt8, DType::kBool}) {
    for (const Shape& shape : kShapes) {
      const Tensor x = MakeTensor(Numbers(NumElements(shape), 0, 200), shape, dtype);
      for (const Shape& dims : DimSubsets(shape.size())) {
        const Tensor y = Sum(x, dims);
        EXPECT_EQ(y.dtype(), DType::kInt64);
        ExpectClose(y, Sums(Groups(x, dims), false), 0, "Sum");
      }
    }
  }
  EXPECT_EQ(Sum(FromVector<int64_t>({INT64_MAX, 1}, {2})).Item<int64_t>(), INT64_MIN);
}

TEST(ReduceKernels, EmptyAndSpecialValues) {
  EXPECT_EQ(Sum(Zeros({0, 3}), {0}).ToVector<double>(), std::vector<double>(3, 0));
  EXPECT_TRUE(std::isnan(Mean(Zeros({0})).Item<double>()));
  EXPECT_TRUE(All(Zeros({0})).Item<bool>());
  EXPECT_FALSE(Any(Zeros({0})).Item<bool>());
  EXPECT_EQ(Sum(Zeros({3, 0}), {0}).numel(), 0);
  for (const int64_t size : {1, 7, 8, 9, 33, 2500}) {
    for (const int64_t at : {int64_t{0}, size / 2, size - 1}) {
      std::vector<double> values = Numbers(size, -5, -1);
      values[at] = kNaN;
      const Tensor x = MakeTensor(values, {size, 1}, DType::kFloat32);
      for (const Tensor& y : {Max(x), Min(x), Max(Transpose(x, 0, 1)), Sum(x)}) {
        EXPECT_TRUE(std::isnan(y.Item<double>())) << size << " " << at;
      }
      const Tensor wide = Expand(x, {size, 6});
      for (const double v : Max(wide, {0}).ToVector<double>()) EXPECT_TRUE(std::isnan(v));
      for (const double v : Min(Clone(wide), {0}).ToVector<double>()) EXPECT_TRUE(std::isnan(v));
      EXPECT_EQ(ArgMax(x, 0).Item<int64_t>(), at);
      EXPECT_EQ(ArgMin(x, 0).Item<int64_t>(), at);
    }
  }
  const Tensor infinite = MakeTensor({-kInfinity, -kInfinity}, {2}, DType::kFloat32);
  EXPECT_EQ(Max(infinite).Item<double>(), -kInfinity);
  EXPECT_EQ(ArgMax(infinite, 0).Item<int64_t>(), 0);
}

TEST(ReduceKernels, ArgMaxTakesTheFirstOfEqualOnes) {
  for (const DType dtype :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kInt64, DType::kUInt8}) {
    for (const Shape& shape : {Shape{1}, Shape{17}, Shape{5, 9}, Shape{2, 5000}, Shape{3, 4, 5}}) {
      const Tensor packed = MakeTensor(Numbers(NumElements(shape), 0, 6), shape, dtype);
      for (const Tensor& x : Layouts(packed)) {
        for (int64_t dim = 0; dim < x.rank(); ++dim) {
          std::vector<double> first_largest;
          std::vector<double> first_smallest;
          for (const auto& group : Groups(x, {dim})) {
            first_largest.push_back(std::max_element(group.begin(), group.end()) - group.begin());
            first_smallest.push_back(std::min_element(group.begin(), group.end()) - group.begin());
          }
          ExpectClose(ArgMax(x, dim), first_largest, 0, "ArgMax");
          ExpectClose(ArgMin(x, dim), first_smallest, 0, "ArgMin");
        }
      }
    }
  }
  EXPECT_EQ(ArgMax(Ones({}), 0).Item<int64_t>(), 0);
}

TEST(ReduceKernels, ThreadsDoNotChangeResults) {
  const Tensor x = MakeTensor(Numbers(1003 * 301, -1, 1), {1003, 301}, DType::kFloat32);
  for (const Tensor& layout : Layouts(x)) {
    for (const Shape& dims : {Shape{0}, Shape{1}, Shape{0, 1}}) {
      ExpectSameForThreads("Sum", [&] { return Sum(layout, dims); });
      ExpectSameForThreads("Max", [&] { return Max(layout, dims); });
    }
    ExpectSameForThreads("ArgMax", [&] { return ArgMax(layout, 0); });
  }
}

}  // namespace
}  // namespace lockstep::cpu
