// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Gathering and scattering by index.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu/kernel_testing.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/indexing.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::cpu {
namespace {

// `count` whole numbers in [0, limit), with repeats.
Tensor Indices(const Shape& shape, int64_t limit, DType dtype = DType::kInt64, uint64_t seed = 9) {
  return MakeTensor(Numbers(NumElements(shape), 0, static_cast<double>(limit), seed), shape, dtype);
}

Tensor EmbeddingGradient(const Tensor& grad, const Tensor& indices, int64_t rows) {
  EmbeddingBackwardAttributes attributes;
  attributes.rows = rows;
  return Dispatch1(OpId::kEmbeddingBackward, {grad, indices}, {}, attributes);
}

// Position of a row-major element number.
Shape PositionOf(const Shape& shape, int64_t linear) {
  Shape position(shape.size(), 0);
  for (size_t d = shape.size(); d-- > 0;) {
    position[d] = linear % shape[d];
    linear /= shape[d];
  }
  return position;
}

int64_t LinearOf(const Shape& shape, const Shape& position) {
  int64_t linear = 0;
  for (size_t d = 0; d < shape.size(); ++d) linear = linear * shape[d] + position[d];
  return linear;
}

TEST(IndexingKernels, EmbeddingTakesRows) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    for (const int64_t columns : {1, 3, 17, 100}) {
      const Tensor packed = MakeTensor(Numbers(11 * columns, -1, 1), {11, columns}, dtype);
      for (const Tensor& weight : Layouts(packed)) {
        for (const DType index_dtype : {DType::kInt64, DType::kInt32}) {
          for (const Shape& shape : {Shape{}, Shape{0}, Shape{5}, Shape{3, 4}}) {
            for (const Tensor& indices : Layouts(Indices(shape, 11, index_dtype))) {
              const Tensor y = Embedding(weight, indices);
              const std::vector<int64_t> rows = indices.ToVector<int64_t>();
              const std::vector<uint64_t> bits = Bits(y);
              const std::vector<uint64_t> table = Bits(packed);
              for (size_t i = 0; i < bits.size(); ++i) {
                ASSERT_EQ(bits[i], table[rows[i / columns] * columns + i % columns]);
              }
            }
          }
        }
      }
    }
  }
}

TEST(IndexingKernels, EmbeddingBackwardSumsRows) {
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t columns : {1, 5, 1100}) {
      const Tensor packed = MakeTensor(Numbers(6 * 7 * columns, -1, 1), {6, 7, columns}, dtype);
      const std::vector<double> g = packed.ToVector<double>();
      const Tensor indices = Indices({6, 7}, 9);
      const std::vector<int64_t> rows = indices.ToVector<int64_t>();
      std::vector<double> expected(static_cast<size_t>(10 * columns), 0);
      for (size_t i = 0; i < g.size(); ++i) {
        expected[rows[i / columns] * columns + i % columns] += g[i];
      }
      const double tolerance = RoundingUnit(dtype) + (dtype == DType::kFloat64 ? 1e-14 : 1e-6);
      for (const Tensor& grad : Layouts(packed)) {
        ExpectClose(EmbeddingGradient(grad, indices, 10), expected, tolerance, "EmbeddingBackward",
                    1);
      }
      ExpectSameForThreads("EmbeddingBackward",
                           [&] { return EmbeddingGradient(packed, indices, 10); });
    }
  }
  EXPECT_EQ(EmbeddingGradient(Zeros({0, 3}), Indices({0}, 1), 2).ToVector<double>(),
            std::vector<double>(6, 0));
  EXPECT_EQ(EmbeddingGradient(Zeros({4, 0}), Zeros({4}, {.dtype = DType::kInt64}), 2).numel(), 0);
}

TEST(IndexingKernels, GatherAndScatterAddAlongEveryDim) {
  const Shape x_shape = {4, 6, 5};
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat16, DType::kFloat64, DType::kInt64, DType::kUInt8}) {
    for (int64_t dim = 0; dim < 3; ++dim) {
      Shape shape = {3, 4, 5};
      shape[dim] = 7;
      const Tensor packed = MakeTensor(Numbers(NumElements(x_shape), 0, 9), x_shape, dtype);
      const Tensor source = MakeTensor(Numbers(NumElements(shape), 0, 9, 2), shape, dtype);
      const Tensor index = Indices(shape, x_shape[dim]);
      const std::vector<int64_t> at = index.ToVector<int64_t>();
      const std::vector<double> x_values = packed.ToVector<double>();
      const std::vector<double> source_values = source.ToVector<double>();
      std::vector<double> gathered;
      std::vector<double> scattered = x_values;
      for (int64_t i = 0; i < index.numel(); ++i) {
        Shape position = PositionOf(shape, i);
        position[dim] = at[i];
        gathered.push_back(x_values[LinearOf(x_shape, position)]);
        scattered[LinearOf(x_shape, position)] += source_values[i];
      }
      const double tolerance = RoundingUnit(dtype) + (IsFloatingPoint(dtype) ? 1e-6 : 0);
      const auto xs = Layouts(packed);
      const auto indices = Layouts(index);
      const auto sources = Layouts(source);
      for (size_t layout = 0; layout < 3; ++layout) {
        ExpectClose(Gather(xs[layout], dim, indices[2 - layout]), gathered, 0, "Gather");
        ExpectClose(ScatterAdd(xs[layout], dim, indices[2 - layout], sources[layout]), scattered,
                    tolerance, "ScatterAdd");
        EXPECT_EQ(Bits(xs[layout]), Bits(packed));  // the operand stays
      }
    }
  }
}

TEST(IndexingKernels, IndexSelectAndIndexAddAlongEveryDim) {
  const Shape x_shape = {4, 6, 5};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt32}) {
    for (int64_t dim = 0; dim < 3; ++dim) {
      const Tensor packed = MakeTensor(Numbers(NumElements(x_shape), 0, 9), x_shape, dtype);
      const Tensor index = Indices({7}, x_shape[dim], DType::kInt32);
      const std::vector<int64_t> at = index.ToVector<int64_t>();
      Shape shape = x_shape;
      shape[dim] = 7;
      const Tensor source = MakeTensor(Numbers(NumElements(shape), 0, 9, 2), shape, dtype);
      const std::vector<double> x_values = packed.ToVector<double>();
      const std::vector<double> source_values = source.ToVector<double>();
      std::vector<double> selected;
      std::vector<double> added = x_values;
      for (int64_t i = 0; i < NumElements(shape); ++i) {
        Shape position = PositionOf(shape, i);
        position[dim] = at[position[dim]];
        selected.push_back(x_values[LinearOf(x_shape, position)]);
        added[LinearOf(x_shape, position)] += source_values[i];
      }
      const double tolerance = RoundingUnit(dtype) + (IsFloatingPoint(dtype) ? 1e-6 : 0);
      const auto xs = Layouts(packed);
      const auto sources = Layouts(source);
      for (size_t layout = 0; layout < 3; ++layout) {
        ExpectClose(IndexSelect(xs[layout], dim, index), selected, 0, "IndexSelect");
        ExpectClose(IndexAdd(xs[layout], dim, index, sources[2 - layout]), added, tolerance,
                    "IndexAdd");
      }
    }
  }
}

TEST(IndexingKernels, RepeatedIndicesAddInOrderAtEveryThreadCount) {
  // Numbers whose sum depends on the order.
  const Tensor source = MakeTensor(Numbers(5000 * 7, -1, 1), {5000, 7}, DType::kFloat32);
  const Tensor index = Indices({5000}, 3);
  const Tensor x = Zeros({3, 7});
  std::vector<float> expected(21, 0);
  const std::vector<float> values = source.ToVector<float>();
  for (int64_t i = 0; i < 5000; ++i) {
    const int64_t row = index.Item<int64_t>({i});
    for (int64_t j = 0; j < 7; ++j) expected[row * 7 + j] += values[i * 7 + j];
  }
  EXPECT_EQ(IndexAdd(x, 0, index, source).ToVector<float>(), expected);
  EXPECT_EQ(EmbeddingGradient(source, index, 3).ToVector<float>(), expected);
  const Tensor wide = Clone(Expand(View(index, {5000, 1}), {5000, 7}));
  EXPECT_EQ(ScatterAdd(x, 0, wide, source).ToVector<float>(), expected);
  ExpectSameForThreads("ScatterAdd", [&] { return ScatterAdd(x, 0, wide, source); });
  ExpectSameForThreads("IndexAdd", [&] { return IndexAdd(x, 0, index, source); });
}

TEST(IndexingKernels, ZeroDimensional) {
  const Tensor x = Full({}, 3.0);
  const Tensor index = Zeros({}, {.dtype = DType::kInt64});
  EXPECT_EQ(Gather(x, 0, index).Item<double>(), 3);
  EXPECT_EQ(ScatterAdd(x, 0, index, Full({}, 2.0)).Item<double>(), 5);
}

void ExpectOutOfRange(const std::function<void()>& function, const std::string& text) {
  try {
    function();
    FAIL() << "nothing thrown; expected " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kOutOfRange);
    EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
  }
}

TEST(IndexingKernels, OutOfRangeNamesPositionValueAndRange) {
  const Tensor x = Ones({5, 3});
  const Tensor bad = FromVector<int64_t>({0, 1, 4, 5, 2, -1}, {2, 3});
  const std::string text = "index 5 at position [1, 0] is out of range; it must be in [0, 5)";
  ExpectOutOfRange([&] { Embedding(x, bad); }, "Embedding: " + text);
  ExpectOutOfRange([&] { Gather(x, 0, bad); }, "Gather: " + text);
  ExpectOutOfRange([&] { ScatterAdd(x, 0, bad, Ones({2, 3})); }, "ScatterAdd: " + text);
  ExpectOutOfRange(
      [&] {
        EmbeddingGradient(Ones({2, 3, 1}), bad, 5);
      },
      "EmbeddingBackward: " + text);
  const Tensor negative = FromVector<int32_t>({0, -1}, {2});
  ExpectOutOfRange([&] { IndexSelect(x, 1, negative); },
                   "IndexSelect: index -1 at position [1] is out of range; it must be in [0, 3)");
  ExpectOutOfRange([&] { IndexAdd(x, 1, negative, Ones({5, 2})); }, "IndexAdd: index -1");
  EXPECT_EQ(x.ToVector<double>(), std::vector<double>(15, 1));
}

}  // namespace
}  // namespace lockstep::cpu
