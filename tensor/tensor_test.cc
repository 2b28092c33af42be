// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/tensor.h"

#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

// The transpose of a [rows, columns] tensor, made by hand: this package knows no ops.
Tensor TransposedView(const Tensor& x) {
  return Tensor(MakeRef<TensorImpl>(x.storage(), Shape{x.size(1), x.size(0)},
                                    Strides{x.strides()[1], x.strides()[0]}, x.offset(), x.dtype(),
                                    x.device()));
}

TEST(TensorTest, ReadsBackWhatWasGivenInEveryDType) {
  const std::vector<double> values = {0, 1, 2, 5, 7, 100};
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    Tensor x = FromVector<double>(values, {2, 3}, {.dtype = dtype});
    EXPECT_EQ(x.dtype(), dtype);
    EXPECT_EQ(x.bytes(), 6 * ItemSize(dtype));
    if (dtype == DType::kBool) {
      EXPECT_EQ(x.ToVector<double>(), (std::vector<double>{0, 1, 1, 1, 1, 1}));
    } else {
      EXPECT_EQ(x.ToVector<double>(), values);
      EXPECT_EQ(x.Item<int64_t>({1, -1}), 100);
    }
  }
}

TEST(TensorTest, StridedViewsReadInTheirOwnOrder) {
  Tensor x = FromVector<int32_t>({0, 1, 2, 3, 4, 5}, {2, 3});
  Tensor t = TransposedView(x);
  EXPECT_FALSE(t.is_contiguous());
  EXPECT_EQ(t.ToVector<int>(), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(t.Item<int>({2, 0}), 2);
  EXPECT_TRUE(t.storage() == x.storage());
}

TEST(TensorTest, CopiesAreTheSameTensor) {
  Tensor x = FromVector<float>({1, 2}, {2});
  Tensor y = x;
  EXPECT_TRUE(y.IsSame(x));
  MutableData<float>(y)[0] = 5;
  EXPECT_EQ(x.Item<float>({0}), 5);
  EXPECT_EQ(x.version(), 1);
  y.SetData(FromVector<double>({9, 8, 7}, {3}));
  EXPECT_EQ(x.dtype(), DType::kFloat64);
  EXPECT_EQ(x.ToVector<double>(), (std::vector<double>{9, 8, 7}));
}

TEST(TensorTest, EmptyAndZeroDimensional) {
  EXPECT_EQ(FromVector<float>({}, {0, 3}).ToVector<float>(), std::vector<float>());
  EXPECT_EQ(FromVector<float>({}, {3, 0}).numel(), 0);
  Tensor scalar = FromVector<float>({2.5f}, {});
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.Item<double>(), 2.5);
  EXPECT_EQ(Data<float>(FromVector<float>({}, {0})), nullptr);
}

TEST(TensorTest, GoesToTheCurrentDevice) {
  DeviceScope scope(Cpu(2));
  EXPECT_EQ(Empty({1}).device(), Cpu(2));
  EXPECT_EQ(Empty({1}, {.device = kHost}).device(), kHost);
}

TEST(TensorTest, MetaTensorsHaveNoBytes) {
  Tensor x = Empty({int64_t{1} << 40, 3}, {.device = kMeta});
  EXPECT_EQ(x.numel(), 3 * (int64_t{1} << 40));
  EXPECT_EQ(x.version(), 0);
  EXPECT_EQ(ErrorOf([&] { x.ToVector<float>(); }).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorOf([&] { Data<float>(x); }).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(TensorTest, BadInputIsNamed) {
  Tensor undefined;
  EXPECT_EQ(ErrorOf([&] { undefined.shape(); }).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(undefined.DebugString(), "undefined");
  Tensor x = FromVector<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  EXPECT_EQ(ErrorOf([&] { x.Item<float>(); }).message(),
            "Item: float32[2, 3] on cpu:0 has 6 elements; give the index of one");
  EXPECT_EQ(ErrorOf([&] { x.Item<float>({1}); }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { x.Item<float>({0, 3}); }).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ErrorOf([&] { x.size(2); }).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ErrorOf([&] { Data<double>(x); }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([] {
              FromVector<float>({1, 2}, {3});
            }).message(),
            "FromVector: 2 values for shape [3], which has 3");
  EXPECT_EQ(ErrorOf([] { Empty({2, -1}); }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([] {
              Empty({int64_t{1} << 40, int64_t{1} << 40});
            }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([] { Empty({int64_t{1} << 62}); }).code(), absl::StatusCode::kInvalidArgument);
}

TEST(TensorTest, FromStorageStaysInside) {
  RefPtr<Storage> storage = Storage::Allocate(Cpu(), 24);
  Tensor x = FromStorage(storage, {2, 2}, DType::kFloat32, 2);
  EXPECT_EQ(x.offset(), 2);
  EXPECT_EQ(ErrorOf([&] {
              FromStorage(storage, {2, 2}, DType::kFloat32, 3);
            }).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ErrorOf([&] { FromStorage(storage, {1}, DType::kFloat32, -1); }).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ErrorOf([&] { FromStorage(nullptr, {1}, DType::kFloat32); }).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TensorTest, DoublesSaturateAsIntegers) {
  const double inf = std::numeric_limits<double>::infinity();
  Tensor x = FromVector<double>({-2.9, 1e300, -inf, 3.5}, {4});
  EXPECT_EQ(x.ToVector<int64_t>(), (std::vector<int64_t>{-2, INT64_MAX, INT64_MIN, 3}));
}

}  // namespace
}  // namespace lockstep
