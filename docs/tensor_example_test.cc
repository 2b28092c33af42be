// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of tensor.md.

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

TEST(TensorExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/tensor.md", "docs/tensor_example_test.cc");
}

TEST(TensorExample, FirstSteps) {
  Tensor x = FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor y = MatMul(x, Transpose(x, 0, 1)) + 1.0;
  float corner = y.Item<float>({0, 0});            // 1 + 4 + 9 + 1
  std::vector<double> all = y.ToVector<double>();  // row-major, converted
  std::string text = y.DebugString();              // "float32[2, 2] on cpu:0"
  EXPECT_EQ(corner, 15);
  EXPECT_EQ(all, (std::vector<double>{15, 33, 33, 78}));
  EXPECT_EQ(text, "float32[2, 2] on cpu:0");
}

TEST(TensorExample, Creation) {
  Tensor zeros = Zeros({2, 3});
  Tensor half = Full({2, 3}, 0.5, {.dtype = DType::kBFloat16});
  Tensor steps = Arange(0, 10, 2);  // int64: 0 2 4 6 8
  Tensor same = OnesLike(half);     // bfloat16[2, 3]
  Tensor there = Zeros({3}, {.device = Cpu(1)});
  EXPECT_EQ(zeros.dtype(), DType::kFloat32);
  EXPECT_EQ(steps.ToVector<int64_t>(), (std::vector<int64_t>{0, 2, 4, 6, 8}));
  EXPECT_EQ(same.DebugString(), "bfloat16[2, 3] on cpu:0");
  EXPECT_EQ(there.device(), Cpu(1));
}

TEST(TensorExample, Promotion) {
  Tensor i = Ones({3}, {.dtype = DType::kInt64});
  Tensor f = Ones({3}, {.dtype = DType::kFloat16});
  EXPECT_EQ((i + f).dtype(), DType::kFloat16);  // a float beats any integer
  EXPECT_EQ((i + 1).dtype(), DType::kInt64);    // scalars count by kind only
  EXPECT_EQ((i + 0.5).dtype(), DType::kFloat32);
  EXPECT_EQ(Div(i, i).dtype(), DType::kFloat32);  // division is true division
  EXPECT_EQ(To(i, DType::kFloat64).dtype(), DType::kFloat64);
}

TEST(TensorExample, ViewsAndInPlace) {
  Tensor table = Reshape(Arange(12), {3, 4});
  Tensor column = Select(table, 1, 0);  // 0 4 8
  Tensor tail = Slice(table, /*dim=*/0, /*start=*/-1);
  FillInPlace(column, 7);  // writes into table
  EXPECT_EQ(table.ToVector<int64_t>(),
            (std::vector<int64_t>{7, 1, 2, 3, 7, 5, 6, 7, 7, 9, 10, 11}));
  EXPECT_EQ(tail.Item<int64_t>({0, 0}), 7);

  Tensor own = Clone(column);  // its own elements
  AddInPlace(own, 1);
  EXPECT_EQ(column.ToVector<int64_t>(), (std::vector<int64_t>{7, 7, 7}));

  EXPECT_THROW(View(Transpose(table, 0, 1), {12}), Error);
  EXPECT_EQ(Reshape(Transpose(table, 0, 1), {12}).Item<int64_t>({1}), 7);
}

TEST(TensorExample, Errors) {
  std::string message;
  try {
    MatMul(Zeros({2, 3}), Zeros({4, 5}));
  } catch (const Error& e) {
    message = e.message();  // "MatMul: inner dimensions differ: [2, 3] x [4, 5]"
    EXPECT_EQ(e.code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(message, "MatMul: inner dimensions differ: [2, 3] x [4, 5]");
}

TEST(TensorExample, Devices) {
  Tensor x = Ones({256, 256});
  Tensor moved = To(x, Cpu(1));
  Tensor back = To(moved, Cpu(0), {.non_blocking = true});  // uses of it wait for the copy
  EXPECT_EQ(back.Item<float>({255, 255}), 1);

  {
    DeviceScope scope(Cpu(1));
    EXPECT_EQ(Zeros({3}).device(), Cpu(1));
  }

  Tensor plan = Zeros({1 << 20, 1 << 20}, {.device = kMeta});  // no bytes
  EXPECT_EQ(MatMul(plan, plan).shape(), (Shape{1 << 20, 1 << 20}));
}

TEST(TensorExample, Memory) {
  ResetPeakBytes(Cpu(2));
  const int64_t before = GetMemoryStats(Cpu(2)).current_bytes;
  {
    DeviceScope device(Cpu(2));
    CategoryScope category(MemoryCategory::kData);
    Tensor batch = Zeros({1024, 256});
    MemoryStats stats = GetMemoryStats(Cpu(2));
    EXPECT_EQ(stats.current_bytes - before, 1024 * 256 * 4);
    EXPECT_EQ(stats.current[MemoryCategory::kData], 1024 * 256 * 4);
  }
  EXPECT_EQ(GetMemoryStats(Cpu(2)).current_bytes, before);
  EXPECT_GE(GetMemoryStats(Cpu(2)).peak_bytes, 1024 * 256 * 4);

  SetCapacityLimit(Cpu(2), 1 << 20);
  try {
    Zeros({1 << 20}, {.device = Cpu(2)});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), absl::StatusCode::kResourceExhausted);
  }
  SetCapacityLimit(Cpu(2), std::nullopt);
}

TEST(TensorExample, Threads) {
  ManualSeed(7);
  SetIntraOpThreads(1);  // threads of one op, for this thread
  Device seen;
  DeviceScope scope(Cpu(3));
  std::thread worker([&seen, state = CurrentThreadState()] {
    ScopedThreadState inherit(state);  // device, seeds, layers, threads
    seen = CurrentDevice();
  });
  worker.join();
  EXPECT_EQ(seen, Cpu(3));
  SetIntraOpThreads(0);  // as many as this process may use
}

TEST(TensorExample, RandomNumbers) {
  ManualSeed(1234);
  Tensor first = RandomNormal({3, 5});
  ManualSeed(1234);
  Tensor again = RandomNormal({3, 5});
  EXPECT_TRUE(All(Equal(first, again)).Item<bool>());

  Generator own{{.seed = 1234, .stream = 42, .offset = 0}};
  Tensor noise = RandomUniform({5}, -1, 1, {.generator = &own});
  EXPECT_EQ(own.key.offset, 8u);               // 5 rounded up to 4
  Tensor dropped = Dropout(Ones({100}), 0.5);  // this thread's dropout stream
  EXPECT_LT(Max(noise).Item<float>(), 1);
  EXPECT_EQ(Max(dropped).Item<float>(), 2);
}

}  // namespace
}  // namespace lockstep
