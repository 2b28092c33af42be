// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/contraction.h"

#include "gtest/gtest.h"
#include "lockstep/tensor/ops/testing.h"

namespace lockstep {
namespace {

using testing_util::Describe;
using testing_util::ExpectInvalid;
using testing_util::Meta;
using testing_util::Recorder;

TEST(MatMulTest, Matrices) {
  EXPECT_EQ(Describe(MatMul(Meta({2, 3}), Meta({3, 5}))), "float32[2, 5]");
  EXPECT_EQ(Describe(MatMul(Meta({7, 1, 2, 3}), Meta({4, 3, 5}))), "float32[7, 4, 2, 5]");
  EXPECT_EQ(
      Describe(MatMul(Meta({3, 2}), Meta({5, 3}), {.transpose_a = true, .transpose_b = true})),
      "float32[2, 5]");
  Recorder recorder;
  MatMul(Meta({3, 2}), Meta({3, 5}), {.transpose_a = true});
  EXPECT_EQ(recorder.Ops(), "MatMul");
  EXPECT_EQ(recorder.calls()[0].attributes, "{transpose_a=true, transpose_b=false}");
}

TEST(MatMulTest, Vectors) {
  EXPECT_EQ(Describe(MatMul(Meta({3}), Meta({3}))), "float32[]");
  EXPECT_EQ(Describe(MatMul(Meta({2, 3}), Meta({3}))), "float32[2]");
  EXPECT_EQ(Describe(MatMul(Meta({3}), Meta({3, 5}))), "float32[5]");
  EXPECT_EQ(Describe(MatMul(Meta({7, 2, 3}), Meta({3}))), "float32[7, 2]");
  EXPECT_EQ(Describe(MatMul(Meta({3}), Meta({7, 3, 5}))), "float32[7, 5]");
  EXPECT_EQ(Describe(MatMul(Meta({3}), Meta({7, 5, 3}), {.transpose_b = true})), "float32[7, 5]");
  EXPECT_EQ(Describe(MatMul(Meta({7, 3, 2}), Meta({3}), {.transpose_a = true})), "float32[7, 2]");
}

TEST(MatMulTest, Refuses) {
  ExpectInvalid("MatMul: inner dimensions differ: [2, 3] x [4, 5]", [] {
    MatMul(Meta({2, 3}), Meta({4, 5}));
  });
  ExpectInvalid("MatMul: inner dimensions differ: [3] x [4, 5]", [] {
    MatMul(Meta({3}), Meta({4, 5}));
  });
  ExpectInvalid("MatMul: inner dimensions differ: [2, 3] transposed x [3]", [] {
    MatMul(Meta({2, 3}), Meta({3}), {.transpose_a = true});
  });
  ExpectInvalid("one-dimensional operands cannot be transposed: [3] transposed x [3, 5]", [] {
    MatMul(Meta({3}), Meta({3, 5}), {.transpose_a = true});
  });
  ExpectInvalid("a zero-dimensional operand: [] x [3]", [] { MatMul(Meta({}), Meta({3})); });
  ExpectInvalid("a has dtype float32 and b has float64", [] {
    MatMul(Meta({2, 3}), Meta({3, 5}, DType::kFloat64));
  });
  ExpectInvalid("MatMul: a is undefined", [] { MatMul(Tensor(), Meta({3, 5})); });
  ExpectInvalid("MatMul: b is undefined", [] { MatMul(Meta({3, 5}), Tensor()); });
}

TEST(LinearTest, ShapesAndErrors) {
  EXPECT_EQ(Describe(Linear(Meta({7, 2, 3}), Meta({5, 3}), Meta({5}))), "float32[7, 2, 5]");
  EXPECT_EQ(Describe(Linear(Meta({3}), Meta({5, 3}))), "float32[5]");
  EXPECT_EQ(Describe(Linear(Meta({0, 3}), Meta({5, 3}))), "float32[0, 5]");
  ExpectInvalid("weight is [outputs, inputs]", [] { Linear(Meta({2, 5}), Meta({5, 3})); });
  ExpectInvalid("bias has shape [3]", [] { Linear(Meta({2, 3}), Meta({5, 3}), Meta({3})); });
  ExpectInvalid("Linear: x is undefined", [] { Linear(Tensor(), Meta({5, 3})); });
  ExpectInvalid("Linear: weight is undefined", [] { Linear(Meta({3}), Tensor()); });
}

}  // namespace
}  // namespace lockstep
