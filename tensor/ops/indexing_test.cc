// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/indexing.h"

#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/ops/testing.h"

namespace lockstep {
namespace {

using testing_util::Describe;
using testing_util::ExpectError;
using testing_util::ExpectInvalid;
using testing_util::Meta;
using testing_util::Recorder;

constexpr DType kI64 = DType::kInt64;
constexpr absl::StatusCode kOutOfRange = absl::StatusCode::kOutOfRange;

TEST(IndexingTest, Embedding) {
  EXPECT_EQ(Describe(Embedding(Meta({7, 3}), Meta({2, 5}, DType::kInt32))), "float32[2, 5, 3]");
  ExpectInvalid("indices has dtype float32", [] { Embedding(Meta({7, 3}), Meta({2})); });
  ExpectInvalid("Embedding: weight is undefined", [] { Embedding(Tensor(), Meta({2}, kI64)); });
  ExpectInvalid("Embedding: indices is undefined", [] { Embedding(Meta({7, 3}), Tensor()); });
}

TEST(IndexingTest, GatherAndScatter) {
  const Tensor x = Meta({4, 5}), index = Meta({9, 3}, kI64);
  EXPECT_EQ(Describe(Gather(x, -2, index)), "float32[9, 3]");
  ExpectInvalid("index [9, 3] does not fit x [4, 5]", [&] { Gather(x, 1, index); });
  ExpectError(kOutOfRange, "Gather: dimension 2", [&] { Gather(x, 2, index); });
  ExpectInvalid("Gather: x is undefined", [&] { Gather(Tensor(), 0, index); });
  ExpectInvalid("Gather: index is undefined", [&] { Gather(x, 0, Tensor()); });

  EXPECT_EQ(Describe(ScatterAdd(x, 0, index, Meta({9, 3}))), "float32[4, 5]");
  ExpectInvalid("source has shape [9, 5]", [&] { ScatterAdd(x, 0, index, Meta({9, 5})); });
  ExpectInvalid("ScatterAdd: x is undefined", [&] { ScatterAdd(Tensor(), 0, index, x); });
  ExpectInvalid("ScatterAdd: index is undefined", [&] { ScatterAdd(x, 0, Tensor(), x); });
  ExpectInvalid("ScatterAdd: source is undefined", [&] { ScatterAdd(x, 0, index, Tensor()); });
}

TEST(IndexingTest, IndexSelectAndAdd) {
  const Tensor x = Meta({4, 5}), index = Meta({3}, kI64);
  EXPECT_EQ(Describe(IndexSelect(x, -1, index)), "float32[4, 3]");
  ExpectInvalid("index has shape [4, 5]", [&] { IndexSelect(x, 0, Meta({4, 5}, kI64)); });
  ExpectError(kOutOfRange, "IndexSelect: dimension 2", [&] { IndexSelect(x, 2, index); });
  ExpectInvalid("IndexSelect: x is undefined", [&] { IndexSelect(Tensor(), 0, index); });
  ExpectInvalid("IndexSelect: index is undefined", [&] { IndexSelect(x, 0, Tensor()); });

  EXPECT_EQ(Describe(IndexAdd(x, 0, index, Meta({3, 5}))), "float32[4, 5]");
  ExpectInvalid("source has shape [4, 3]; [3, 5] is needed", [&] {
    IndexAdd(x, 0, index, Meta({4, 3}));
  });
  ExpectInvalid("IndexAdd: x is undefined", [&] { IndexAdd(Tensor(), 0, index, x); });
  ExpectInvalid("IndexAdd: index is undefined", [&] { IndexAdd(x, 0, Tensor(), x); });
  ExpectInvalid("IndexAdd: source is undefined", [&] { IndexAdd(x, 0, index, Tensor()); });
}

TEST(IndexingTest, ConcatPromotes) {
  Recorder recorder;
  const std::vector<Tensor> parts{Meta({2, 3}, DType::kInt32), Meta({2, 1}, DType::kBFloat16),
                                  Meta({2, 0}, DType::kBool)};
  EXPECT_EQ(Describe(Concat(parts, -1)), "bfloat16[2, 4]");
  EXPECT_EQ(recorder.Ops(), "Cast Cast Concat");
  ExpectInvalid("Concat: no tensors are given", [] { Concat({}); });
  ExpectInvalid("Concat: tensors[1] is undefined", [] {
    Concat(std::vector<Tensor>{Meta({2}), Tensor()});
  });
  ExpectInvalid("x[1] has shape [2, 1]", [&] { Concat(parts, 0); });
  ExpectError(kOutOfRange, "Concat: dimension 2", [&] { Concat(parts, 2); });
}

TEST(IndexingTest, Stack) {
  const std::vector<Tensor> rows(4, Meta({2, 3}));
  EXPECT_EQ(Describe(Stack(rows)), "float32[4, 2, 3]");
  EXPECT_EQ(Describe(Stack(rows, -1)), "float32[2, 3, 4]");
  EXPECT_EQ(Describe(Stack(std::vector<Tensor>(2, Meta({})), 0)), "float32[2]");
  ExpectInvalid("Stack: no tensors are given", [] { Stack({}); });
  ExpectInvalid("Stack: tensors[0] is undefined", [] { Stack(std::vector<Tensor>{Tensor()}); });
  ExpectInvalid("Stack: tensors[1] has shape [3] and tensors[0] has [2]", [] {
    Stack(std::vector<Tensor>{Meta({2}), Meta({3})});
  });
  ExpectError(kOutOfRange, "Stack: dimension 3", [&] { Stack(rows, 3); });
}

}  // namespace
}  // namespace lockstep
