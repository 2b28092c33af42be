// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// The rule of every row: what it gives for operands that fit, and what it says about others. The
// tensors are on meta: rules see no elements.

#include "lockstep/tensor/shape_rules.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr DType kF32 = DType::kFloat32;
constexpr DType kF64 = DType::kFloat64;
constexpr DType kBF16 = DType::kBFloat16;
constexpr DType kI64 = DType::kInt64;
constexpr DType kI32 = DType::kInt32;
constexpr DType kU8 = DType::kUInt8;
constexpr DType kBool = DType::kBool;

Tensor T(const Shape& shape, DType dtype = kF32) {
  return Empty(shape, {.dtype = dtype, .device = kMeta});
}

// A view with the given strides; nothing is read, so they need not come from a view op.
Tensor Strided(const Shape& shape, const Strides& strides, int64_t offset = 0, DType dtype = kF32) {
  return Tensor(MakeRef<TensorImpl>(RefPtr<Storage>(), shape, strides, offset, dtype, kMeta));
}

std::string Text(const SpecList& specs) {
  return absl::StrJoin(specs, " ", [](std::string* out, const TensorSpec& spec) {
    absl::StrAppend(out, DTypeName(spec.dtype), ToString(spec.shape));
    if (!spec.strides.empty()) absl::StrAppend(out, "/", ToString(spec.strides));
    if (spec.offset != 0) absl::StrAppend(out, "+", spec.offset);
  });
}

ShapeRule RuleOf(OpId op) {
  static constexpr ShapeRule kRules[] = {
#define LOCKSTEP_OP(name, ...) &rules::Infer##name,
#include "lockstep/tensor/op_list.inc"
#undef LOCKSTEP_OP
  };
  return kRules[static_cast<int>(op)];
}

std::set<OpId>& Tested() {
  static auto* tested = new std::set<OpId>;
  return *tested;
}

std::string Infer(OpId op, const std::vector<Tensor>& inputs, const Scalars& scalars = {},
                  const Attributes& attributes = EmptyAttributes()) {
  Tested().insert(op);
  SpecList specs;
  RuleOf(op)({op, inputs, scalars, attributes}, specs);
  return Text(specs);
}

void ExpectRefused(const std::string& message, OpId op, const std::vector<Tensor>& inputs,
                   const Scalars& scalars = {}, const Attributes& attributes = EmptyAttributes()) {
  try {
    const std::string result = Infer(op, inputs, scalars, attributes);
    ADD_FAILURE() << "gave " << result << "; expected an error with: " << message;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), absl::StatusCode::kInvalidArgument) << e.message();
    EXPECT_THAT(e.message(), HasSubstr(message));
    EXPECT_THAT(e.message(), testing::StartsWith(GetOpInfo(op).name + ":"));
  }
}

// Attribute structs have bases and so no aggregate initialisation.
template <typename A>
A With(const std::function<void(A&)>& set) {
  A attributes;
  set(attributes);
  return attributes;
}
CreateAttributes Create(const Shape& shape, DType dtype) {
  return With<CreateAttributes>([&](auto& a) { a.shape = shape, a.dtype = dtype; });
}
ReduceAttributes Dims(const Shape& dims, bool keepdim = false) {
  return With<ReduceAttributes>([&](auto& a) { a.dims = dims, a.keepdim = keepdim; });
}
DimAttributes Along(int64_t dim) {
  return With<DimAttributes>([&](auto& a) { a.dim = dim; });
}
ShapeAttributes As(const Shape& shape) {
  return With<ShapeAttributes>([&](auto& a) { a.shape = shape; });
}
MatMulAttributes Transposed(bool a, bool b) {
  return With<MatMulAttributes>([&](auto& m) { m.transpose_a = a, m.transpose_b = b; });
}
SliceAttributes Range(int64_t dim, int64_t start, int64_t length, int64_t step) {
  return With<SliceAttributes>(
      [&](auto& a) { a.dim = dim, a.start = start, a.length = length, a.step = step; });
}
SliceBackwardAttributes Into(int64_t dim, int64_t start, int64_t step, int64_t size) {
  return With<SliceBackwardAttributes>(
      [&](auto& a) { a.dim = dim, a.start = start, a.step = step, a.size = size; });
}

TEST(ShapeRulesTest, Creation) {
  EXPECT_EQ(Infer(OpId::kFull, {}, {1.5}, Create({3, 5}, kF64)), "float64[3, 5]");
  EXPECT_EQ(Infer(OpId::kFull, {}, {1}, Create({}, kBool)), "bool[]");
  EXPECT_EQ(Infer(OpId::kArange, {}, {0, 1}, Create({0}, kI64)), "int64[0]");
  for (const OpId op : {OpId::kRandomUniform, OpId::kRandomNormal}) {
    EXPECT_EQ(Infer(op, {}, {0, 1, 2, 3, 4}, Create({5}, kBF16)), "bfloat16[5]");
    ExpectRefused("dtype int32 is not a floating-point dtype", op, {}, {0, 1, 2, 3, 4},
                  Create({5}, kI32));
    ExpectRefused("0 scalars given, 5 needed", op, {}, {}, Create({5}, kF32));
  }
  ExpectRefused("negative size -1", OpId::kFull, {}, {1}, Create({3, -1}, kF32));
  ExpectRefused("more bytes than", OpId::kFull, {}, {1}, Create({int64_t{1} << 62}, kF32));
  ExpectRefused("1 inputs given, 0 needed", OpId::kFull, {T({3})}, {1}, Create({3}, kF32));
  ExpectRefused("must have one dimension", OpId::kArange, {}, {0, 1}, Create({2, 2}, kI64));
  ExpectRefused("dtype bool cannot hold a range", OpId::kArange, {}, {0, 1}, Create({2}, kBool));
}

TEST(ShapeRulesTest, CreationAndCopiesSayTheDevice) {
  SpecList specs;
  CreateAttributes create = Create({3}, kF32);
  create.device = Cpu(2);
  const Scalars one = {1};
  rules::InferFull({OpId::kFull, {}, one, create}, specs);
  EXPECT_EQ(specs[0].device, Cpu(2));

  const auto to = With<DeviceAttributes>([](auto& a) { a.device = kMeta; });
  EXPECT_EQ(Infer(OpId::kCopyToDevice, {Strided({2, 3}, {1, 2})}, {}, to), "float32[2, 3]");
  const auto to_cpu = With<DeviceAttributes>([](auto& a) { a.device = Cpu(1); });
  ExpectRefused("x is on meta and has no elements to copy to cpu:1", OpId::kCopyToDevice, {T({3})},
                {}, to_cpu);
}

TEST(ShapeRulesTest, OneTensorOfFloats) {
  for (const OpId op : {OpId::kExp, OpId::kLog, OpId::kSqrt, OpId::kRsqrt, OpId::kReciprocal,
                        OpId::kErf, OpId::kTanh, OpId::kSigmoid, OpId::kGelu}) {
    EXPECT_EQ(Infer(op, {Strided({2, 3}, {1, 2}, 0, kBF16)}), "bfloat16[2, 3]");
    EXPECT_EQ(Infer(op, {T({})}), "float32[]");
    EXPECT_EQ(Infer(op, {T({0, 3}, kF64)}), "float64[0, 3]");
    ExpectRefused("x has dtype int64; it must have a floating-point dtype", op, {T({3}, kI64)});
    ExpectRefused("x is undefined; pass a tensor", op, {Tensor()});
    ExpectRefused("2 inputs given, 1 needed", op, {T({3}), T({3})});
    ExpectRefused("1 scalars given, 0 needed", op, {T({3})}, {1});
  }
  EXPECT_EQ(Infer(OpId::kDivScalar, {T({3})}, {2}), "float32[3]");
  ExpectRefused("floating-point", OpId::kDivScalar, {T({3}, kI32)}, {2});
  EXPECT_EQ(Infer(OpId::kDropout, {T({3})}, {0.5, 1, 2, 3}), "float32[3]");
  ExpectRefused("floating-point", OpId::kDropout, {T({3}, kI32)}, {0.5, 1, 2, 3});
}

TEST(ShapeRulesTest, OneTensorOfNumbers) {
  for (const OpId op : {OpId::kNeg, OpId::kAbs, OpId::kSign, OpId::kRelu}) {
    EXPECT_EQ(Infer(op, {T({3, 5}, kU8)}), "uint8[3, 5]");
    ExpectRefused("x has dtype bool; it must have a number", op, {T({3}, kBool)});
  }
  EXPECT_EQ(Infer(OpId::kClamp, {T({3}, kI32)}, {0, 1}), "int32[3]");
  ExpectRefused("1 scalars given, 2 needed", OpId::kClamp, {T({3})}, {0});
  EXPECT_EQ(Infer(OpId::kPowScalar, {T({3}, kI32)}, {2}), "int32[3]");
  ExpectRefused("bool", OpId::kPowScalar, {T({3}, kBool)}, {2});
}

TEST(ShapeRulesTest, OneTensorOfAnyDType) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    const std::string same = absl::StrCat(DTypeName(dtype), "[3, 1]");
    EXPECT_EQ(Infer(OpId::kClone, {Strided({3, 1}, {2, 7}, 4, dtype)}), same);
    EXPECT_EQ(Infer(OpId::kFill, {T({3, 1}, dtype)}, {1}), same);
    EXPECT_EQ(Infer(OpId::kAddScalar, {T({3, 1}, dtype)}, {1}), same);
    EXPECT_EQ(Infer(OpId::kMulScalar, {T({3, 1}, dtype)}, {1}), same);
    EXPECT_EQ(Infer(OpId::kTriangularMask, {T({3, 1}, dtype)}), same);
    EXPECT_EQ(Infer(OpId::kLogicalNot, {T({3, 1}, dtype)}), "bool[3, 1]");
    EXPECT_EQ(Infer(OpId::kIsFinite, {T({3, 1}, dtype)}), "bool[3, 1]");
    const auto cast = With<CastAttributes>([&](auto& a) { a.dtype = dtype; });
    EXPECT_EQ(Infer(OpId::kCast, {T({3, 1})}, {}, cast), same);
  }
  ExpectRefused("x has shape [3] with 1 dimensions; it must have at least 2", OpId::kTriangularMask,
                {T({3})});
}

TEST(ShapeRulesTest, BackwardPairs) {
  for (const OpId op :
       {OpId::kTanhBackward, OpId::kSigmoidBackward, OpId::kReluBackward, OpId::kGeluBackward}) {
    EXPECT_EQ(Infer(op, {T({3, 5}), Strided({3, 5}, {1, 3})}), "float32[3, 5]");
    ExpectRefused("has shape [5, 3]; [3, 5] is needed, as grad has", op, {T({3, 5}), T({5, 3})});
    ExpectRefused("grad has dtype float32 and ", op, {T({3}), T({3}, kF64)});
    ExpectRefused("floating-point", op, {T({3}, kI64), T({3}, kI64)});
  }
}

TEST(ShapeRulesTest, Broadcasting) {
  const std::vector<OpId> same{OpId::kMul, OpId::kPow, OpId::kMaximum, OpId::kMinimum};
  for (const OpId op : same) {
    EXPECT_EQ(Infer(op, {T({3, 1}, kI32), T({2, 1, 5}, kI32)}), "int32[2, 3, 5]");
  }
  EXPECT_EQ(Infer(OpId::kAdd, {T({}), T({0})}, {1}), "float32[0]");
  EXPECT_EQ(Infer(OpId::kAdd, {T({3}), T({2, 1}, kBF16)}, {1}), "float32[2, 3]");
  EXPECT_EQ(Infer(OpId::kAdd, {T({3}, DType::kFloat16), T({3}, kBF16)}, {1}), "float32[3]");
  ExpectRefused("dtype", OpId::kAdd, {T({3}, kF64), T({3}, kBF16)}, {1});
  ExpectRefused("dtype", OpId::kAdd, {T({3}), T({3}, kI64)}, {1});
  EXPECT_EQ(Infer(OpId::kDiv, {T({3}), T({3})}), "float32[3]");
  ExpectRefused("x has dtype int64; it must have a floating-point", OpId::kDiv,
                {T({3}, kI64), T({3}, kI64)});
  ExpectRefused("bool", OpId::kPow, {T({3}, kBool), T({3}, kBool)});
  ExpectRefused("0 scalars given, 1 needed", OpId::kAdd, {T({3}), T({3})});
  for (const OpId op : {OpId::kEqual, OpId::kNotEqual, OpId::kLess, OpId::kLessEqual,
                        OpId::kGreater, OpId::kGreaterEqual, OpId::kLogicalAnd, OpId::kLogicalOr}) {
    EXPECT_EQ(Infer(op, {T({3, 1}, kU8), T({5}, kU8)}), "bool[3, 5]");
  }
  for (const OpId op : {OpId::kMul, OpId::kEqual, OpId::kLogicalOr}) {
    ExpectRefused("x has dtype float32 and y has float64; they must be the same", op,
                  {T({3}), T({3}, kF64)});
    ExpectRefused("shapes [2, 3] and [3, 2] do not broadcast", op, {T({2, 3}), T({3, 2})});
    ExpectRefused("y is undefined", op, {T({3}), Tensor()});
  }
  const int64_t big = int64_t{1} << 40;
  ExpectRefused("more bytes than", OpId::kMul, {Strided({big, 1}, {0, 0}), Strided({big}, {0})});
}

TEST(ShapeRulesTest, Where) {
  EXPECT_EQ(Infer(OpId::kWhere, {T({3, 1}, kBool), T({5}, kI64), T({}, kI64)}), "int64[3, 5]");
  EXPECT_EQ(Infer(OpId::kWhere, {T({}, kBool), T({2, 1}), T({5})}), "float32[2, 5]");
  ExpectRefused("condition has dtype uint8; it must have dtype bool", OpId::kWhere,
                {T({3}, kU8), T({3}), T({3})});
  ExpectRefused("do not broadcast", OpId::kWhere, {T({2}, kBool), T({3}), T({3})});
  ExpectRefused("x has dtype float32 and y has int64", OpId::kWhere,
                {T({3}, kBool), T({3}), T({3}, kI64)});
}

TEST(ShapeRulesTest, Reductions) {
  EXPECT_EQ(Infer(OpId::kSum, {T({3, 0, 5})}, {}, Dims({1})), "float32[3, 5]");
  EXPECT_EQ(Infer(OpId::kSum, {T({3, 4, 5}, kBF16)}, {}, Dims({0, 2}, true)), "bfloat16[1, 4, 1]");
  EXPECT_EQ(Infer(OpId::kSum, {T({3, 5}, kU8)}, {}, Dims({0, 1})), "int64[]");
  EXPECT_EQ(Infer(OpId::kSum, {T({3}, kBool)}, {}, Dims({0})), "int64[]");
  EXPECT_EQ(Infer(OpId::kSum, {T({})}, {}, Dims({}, true)), "float32[]");
  EXPECT_EQ(Infer(OpId::kMean, {T({0, 5})}, {}, Dims({0})), "float32[5]");
  ExpectRefused("floating-point", OpId::kMean, {T({3}, kI64)}, {}, Dims({0}));
  for (const OpId op : {OpId::kMax, OpId::kMin}) {
    EXPECT_EQ(Infer(op, {T({3, 5}, kI32)}, {}, Dims({1})), "int32[3]");
    EXPECT_EQ(Infer(op, {T({0, 5})}, {}, Dims({1})), "float32[0]");
    ExpectRefused("dimension 0 of x of shape [0, 5] has no elements", op, {T({0, 5})}, {},
                  Dims({0}));
  }
  for (const OpId op : {OpId::kAll, OpId::kAny}) {
    EXPECT_EQ(Infer(op, {T({3, 0})}, {}, Dims({1}, true)), "bool[3, 1]");
  }
  for (const Shape& bad : {Shape{2}, Shape{-1}, Shape{0, 0}, Shape{1, 0}}) {
    ExpectRefused("must ascend from 0 to below 2", OpId::kSum, {T({3, 5})}, {}, Dims(bad));
  }
  for (const OpId op : {OpId::kArgMax, OpId::kArgMin}) {
    const auto dim = [](int64_t d, bool keepdim) {
      return With<ArgReduceAttributes>([&](auto& a) { a.dim = d, a.keepdim = keepdim; });
    };
    EXPECT_EQ(Infer(op, {T({3, 5})}, {}, dim(0, false)), "int64[5]");
    EXPECT_EQ(Infer(op, {T({3, 5}, kU8)}, {}, dim(1, true)), "int64[3, 1]");
    EXPECT_EQ(Infer(op, {T({})}, {}, dim(0, true)), "int64[]");
    ExpectRefused("no elements to choose from", op, {T({3, 0})}, {}, dim(1, false));
    ExpectRefused("dimension 2 is not in [0, 2)", op, {T({3, 5})}, {}, dim(2, false));
    ExpectRefused("bool", op, {T({3}, kBool)}, {}, dim(0, false));
  }
}

TEST(ShapeRulesTest, MatMul) {
  const MatMulAttributes plain = Transposed(false, false);
  EXPECT_EQ(Infer(OpId::kMatMul, {T({2, 3}), T({3, 5})}, {}, plain), "float32[2, 5]");
  EXPECT_EQ(Infer(OpId::kMatMul, {T({3, 2}), T({5, 3})}, {}, Transposed(true, true)),
            "float32[2, 5]");
  EXPECT_EQ(Infer(OpId::kMatMul, {T({7, 1, 2, 3}, kI32), T({4, 3, 5}, kI32)}, {}, plain),
            "int32[7, 4, 2, 5]");
  EXPECT_EQ(Infer(OpId::kMatMul, {T({2, 0}), T({0, 5})}, {}, plain), "float32[2, 5]");
  ExpectRefused("inner dimensions differ: [2, 3] x [4, 5]", OpId::kMatMul, {T({2, 3}), T({4, 5})},
                {}, plain);
  ExpectRefused("inner dimensions differ: [2, 3] transposed x [3, 5]", OpId::kMatMul,
                {T({2, 3}), T({3, 5})}, {}, Transposed(true, false));
  ExpectRefused("leading dimensions: shapes [2] and [3] do not broadcast", OpId::kMatMul,
                {T({2, 4, 4}), T({3, 4, 4})}, {}, plain);
  ExpectRefused("a has shape [3]", OpId::kMatMul, {T({3}), T({3, 5})}, {}, plain);
  ExpectRefused("a has dtype float32 and b has bfloat16", OpId::kMatMul,
                {T({2, 3}), T({3, 5}, kBF16)}, {}, plain);
  for (const DType dtype : {kBool, kU8}) {
    ExpectRefused("a has dtype", OpId::kMatMul, {T({2, 3}, dtype), T({3, 5}, dtype)}, {}, plain);
  }
}

TEST(ShapeRulesTest, Linear) {
  EXPECT_EQ(Infer(OpId::kLinear, {T({2, 4, 3}), T({5, 3}), T({5})}), "float32[2, 4, 5]");
  EXPECT_EQ(Infer(OpId::kLinear, {T({3}), T({5, 3}), Tensor()}), "float32[5]");
  ExpectRefused("x [2, 4] has 4 features and weight [5, 3] takes 3", OpId::kLinear,
                {T({2, 4}), T({5, 3}), Tensor()});
  ExpectRefused("bias has shape [3]; [5] is needed", OpId::kLinear, {T({2, 3}), T({5, 3}), T({3})});
  ExpectRefused("weight has shape [3]", OpId::kLinear, {T({2, 3}), T({3}), Tensor()});
  ExpectRefused("x has shape [] with 0 dimensions", OpId::kLinear, {T({}), T({5, 3}), Tensor()});
  ExpectRefused("weight has dtype float32 and bias has float64", OpId::kLinear,
                {T({2, 3}), T({5, 3}), T({5}, kF64)});
}

TEST(ShapeRulesTest, Softmax) {
  for (const OpId op : {OpId::kSoftmax, OpId::kLogSoftmax}) {
    EXPECT_EQ(Infer(op, {T({3, 5}, kBF16)}, {}, Along(1)), "bfloat16[3, 5]");
    EXPECT_EQ(Infer(op, {T({})}, {}, Along(0)), "float32[]");
    ExpectRefused("dimension 2 is not in [0, 2)", op, {T({3, 5})}, {}, Along(2));
    ExpectRefused("floating-point", op, {T({3}, kI64)}, {}, Along(0));
  }
  for (const OpId op : {OpId::kSoftmaxBackward, OpId::kLogSoftmaxBackward}) {
    EXPECT_EQ(Infer(op, {T({3, 5}), T({3, 5})}, {}, Along(1)), "float32[3, 5]");
    ExpectRefused("y has shape [3, 4]; [3, 5] is needed", op, {T({3, 5}), T({3, 4})}, {}, Along(1));
    ExpectRefused("dimension -1", op, {T({3, 5}), T({3, 5})}, {}, Along(-1));
  }
}

TEST(ShapeRulesTest, LayerNorm) {
  const auto over = [](int64_t rank) {
    return With<LayerNormAttributes>([&](auto& a) { a.normalized_rank = rank; });
  };
  EXPECT_EQ(Infer(OpId::kLayerNorm, {T({2, 3, 5}, kBF16), Tensor(), Tensor()}, {1e-5}, over(1)),
            "bfloat16[2, 3, 5] float32[2, 3] float32[2, 3]");
  EXPECT_EQ(
      Infer(OpId::kLayerNorm, {T({2, 3, 5}, kF64), T({3, 5}, kF64), Tensor()}, {1e-5}, over(2)),
      "float64[2, 3, 5] float64[2] float64[2]");
  EXPECT_EQ(Infer(OpId::kLayerNorm, {T({3}, kBF16), T({3}), T({3})}, {1e-5}, over(1)),
            "bfloat16[3] float32[] float32[]");
  ExpectRefused("normalized_rank 0 is not in [1, 2]", OpId::kLayerNorm,
                {T({3, 5}), Tensor(), Tensor()}, {1e-5}, over(0));
  ExpectRefused("normalized_rank 3 is not in [1, 2]", OpId::kLayerNorm,
                {T({3, 5}), Tensor(), Tensor()}, {1e-5}, over(3));
  ExpectRefused("bias has shape [3]; [5] is needed, the normalised dimensions of x",
                OpId::kLayerNorm, {T({3, 5}), Tensor(), T({3})}, {1e-5}, over(1));
  ExpectRefused("x has dtype float32 and weight has float64", OpId::kLayerNorm,
                {T({3, 5}), T({5}, kF64), Tensor()}, {1e-5}, over(1));
  ExpectRefused("weight has dtype bfloat16 and bias has float32", OpId::kLayerNorm,
                {T({3, 5}, kBF16), T({5}, kBF16), T({5})}, {1e-5}, over(1));

  const Tensor grad = T({2, 3, 5}, kBF16), x = T({2, 3, 5}, kBF16), row = T({2, 3});
  EXPECT_EQ(Infer(OpId::kLayerNormBackward, {grad, x, row, row, T({5})}, {}, over(1)),
            "bfloat16[2, 3, 5] float32[5] float32[5]");
  EXPECT_EQ(Infer(OpId::kLayerNormBackward, {grad, x, row, row, Tensor()}, {}, over(1)),
            "bfloat16[2, 3, 5] bfloat16[5] bfloat16[5]");
  ExpectRefused("mean has dtype bfloat16", OpId::kLayerNormBackward,
                {grad, x, T({2, 3}, kBF16), row, Tensor()}, {}, over(1));
  ExpectRefused("rstd has shape [2]; [2, 3] is needed", OpId::kLayerNormBackward,
                {grad, x, row, T({2}), Tensor()}, {}, over(1));
  ExpectRefused("grad has shape", OpId::kLayerNormBackward,
                {T({2, 3, 4}, kBF16), x, row, row, Tensor()}, {}, over(1));
}

TEST(ShapeRulesTest, CrossEntropy) {
  const auto reduction = [](Reduction r) {
    return With<CrossEntropyAttributes>([&](auto& a) { a.reduction = r; });
  };
  const Tensor logits = T({3, 5}, kBF16), target = T({3}, kI64);
  EXPECT_EQ(Infer(OpId::kCrossEntropy, {logits, target}, {0.0}, reduction(Reduction::kMean)),
            "bfloat16[] float32[3]");
  EXPECT_EQ(Infer(OpId::kCrossEntropy, {T({0, 5}, kF64), T({0}, kI64)}, {0.0},
                  reduction(Reduction::kNone)),
            "float64[0] float64[0]");
  ExpectRefused("target has shape [5]; [3] is needed, one class a row of logits [3, 5]",
                OpId::kCrossEntropy, {logits, T({5}, kI64)}, {0.0}, reduction(Reduction::kMean));
  ExpectRefused("target has dtype int32; it must have dtype int64", OpId::kCrossEntropy,
                {logits, T({3}, kI32)}, {0.0}, reduction(Reduction::kMean));
  ExpectRefused("logits has shape [3]", OpId::kCrossEntropy, {T({3}), target}, {0.0},
                reduction(Reduction::kMean));
  ExpectRefused("floating-point", OpId::kCrossEntropy, {T({3, 5}, kI64), target}, {0.0},
                reduction(Reduction::kMean));

  EXPECT_EQ(Infer(OpId::kCrossEntropyBackward, {T({}, kBF16), logits, target, T({3})}, {0.0},
                  reduction(Reduction::kSum)),
            "bfloat16[3, 5]");
  ExpectRefused("grad has shape []; [3] is needed", OpId::kCrossEntropyBackward,
                {T({}, kBF16), logits, target, T({3})}, {0.0}, reduction(Reduction::kNone));
  ExpectRefused("log_sum_exp has shape [5]; [3] is needed", OpId::kCrossEntropyBackward,
                {T({}, kBF16), logits, target, T({5})}, {0.0}, reduction(Reduction::kSum));
  ExpectRefused("log_sum_exp has dtype", OpId::kCrossEntropyBackward,
                {T({}, kBF16), logits, target, T({3}, kF64)}, {0.0}, reduction(Reduction::kSum));
}

AttentionAttributes Causal(bool causal) {
  return With<AttentionAttributes>([&](auto& a) { a.causal = causal; });
}

TEST(ShapeRulesTest, Attention) {
  const OpId op = OpId::kScaledDotProductAttention;
  const Scalars scalars = {1.0, 0.0, 0, 0, 0};
  const AttentionAttributes free = Causal(false);
  const Tensor q = T({2, 3, 4, 8}, kBF16), k = T({2, 3, 5, 8}, kBF16), v = T({2, 3, 5, 6}, kBF16);
  EXPECT_EQ(Infer(op, {q, k, v, Tensor()}, scalars, Causal(true)),
            "bfloat16[2, 3, 4, 6] float32[2, 3, 4]");
  EXPECT_EQ(Infer(op, {q, k, v, T({4, 5}, kBool)}, scalars, free),
            "bfloat16[2, 3, 4, 6] float32[2, 3, 4]");
  EXPECT_EQ(Infer(op, {q, k, v, T({2, 1, 1, 5}, kBF16)}, scalars, free),
            "bfloat16[2, 3, 4, 6] float32[2, 3, 4]");
  EXPECT_EQ(Infer(op, {T({4, 8}, kF64), T({5, 8}, kF64), T({5, 6}, kF64), Tensor()}, scalars, free),
            "float64[4, 6] float64[4]");
  ExpectRefused("leading dimensions differ: q [2, 3, 4, 8], k [3, 5, 8]", op,
                {q, T({3, 5, 8}, kBF16), v, Tensor()}, scalars, free);
  ExpectRefused("leading dimensions differ", op, {q, k, T({2, 1, 5, 6}, kBF16), Tensor()}, scalars,
                free);
  ExpectRefused("q [2, 3, 4, 8] and k [2, 3, 5, 7] differ in the last dimension", op,
                {q, T({2, 3, 5, 7}, kBF16), v, Tensor()}, scalars, free);
  ExpectRefused("k [2, 3, 5, 8] and v [2, 3, 6, 6] differ in their length", op,
                {q, k, T({2, 3, 6, 6}, kBF16), Tensor()}, scalars, free);
  ExpectRefused("mask: shape [5, 4] does not broadcast to [2, 3, 4, 5]", op,
                {q, k, v, T({5, 4}, kBool)}, scalars, free);
  ExpectRefused("mask has dtype float32; it must have dtype bool, or bfloat16 as q has", op,
                {q, k, v, T({4, 5})}, scalars, free);
  ExpectRefused("a mask is given together with causal", op, {q, k, v, T({4, 5}, kBool)}, scalars,
                Causal(true));
  ExpectRefused("q has dtype bfloat16 and v has float32", op, {q, k, T({2, 3, 5, 6}), Tensor()},
                scalars, free);
  ExpectRefused("q has shape [8]", op, {T({8}), T({8}), T({8}), Tensor()}, scalars, free);
}

TEST(ShapeRulesTest, AttentionKeepsTheOrderOfStrides) {
  const Scalars scalars = {1.0, 0.0, 0, 0, 0};
  // [B, T, H, D] = [2, 4, 3, 8] in memory, seen as [B, H, T, D].
  const Tensor q = Strided({2, 3, 4, 8}, {96, 8, 24, 1});
  const Tensor k = Strided({2, 3, 5, 8}, {120, 8, 24, 1});
  const Tensor v = T({2, 3, 5, 6});
  EXPECT_EQ(Infer(OpId::kScaledDotProductAttention, {q, k, v, Tensor()}, scalars, Causal(false)),
            "float32[2, 3, 4, 6]/[72, 6, 18, 1] float32[2, 3, 4]");
  // Gaps (a slice of fused q, k, v) close, and an expanded or transposed last dimension does not
  // become the outer one.
  const Tensor slice = Strided({2, 3, 4, 8}, {288, 8, 72, 1});
  EXPECT_EQ(
      Infer(OpId::kScaledDotProductAttention, {slice, k, v, Tensor()}, scalars, Causal(false)),
      "float32[2, 3, 4, 6]/[72, 6, 18, 1] float32[2, 3, 4]");
  const Tensor expanded = Strided({2, 3, 4, 8}, {0, 32, 8, 1});
  EXPECT_EQ(
      Infer(OpId::kScaledDotProductAttention, {expanded, k, v, Tensor()}, scalars, Causal(false)),
      "float32[2, 3, 4, 6] float32[2, 3, 4]");
  const Tensor columns = Strided({2, 3, 4, 8}, {96, 32, 1, 4});
  EXPECT_EQ(
      Infer(OpId::kScaledDotProductAttention, {columns, k, v, Tensor()}, scalars, Causal(false)),
      "float32[2, 3, 4, 6] float32[2, 3, 4]");

  const Tensor y = T({2, 3, 4, 6}), lse = T({2, 3, 4});
  EXPECT_EQ(Infer(OpId::kScaledDotProductAttentionBackward, {y, q, k, v, Tensor(), y, lse}, scalars,
                  Causal(false)),
            "float32[2, 3, 4, 8]/[96, 8, 24, 1] float32[2, 3, 5, 8]/[120, 8, 24, 1] "
            "float32[2, 3, 5, 6]");
}

TEST(ShapeRulesTest, AttentionBackwardRefuses) {
  const OpId op = OpId::kScaledDotProductAttentionBackward;
  const Scalars scalars = {1.0, 0.0, 0, 0, 0};
  const Tensor q = T({3, 4, 8}), k = T({3, 5, 8}), v = T({3, 5, 6}), y = T({3, 4, 6});
  const Tensor lse = T({3, 4});
  const AttentionAttributes free = Causal(false);
  ExpectRefused("grad has shape [3, 4, 8]; [3, 4, 6] is needed", op, {q, q, k, v, Tensor(), y, lse},
                scalars, free);
  ExpectRefused("y has dtype float64", op, {y, q, k, v, Tensor(), T({3, 4, 6}, kF64), lse}, scalars,
                free);
  ExpectRefused("log_sum_exp has shape [3, 5]; [3, 4] is needed", op,
                {y, q, k, v, Tensor(), y, T({3, 5})}, scalars, free);
  ExpectRefused("y is undefined", op, {y, q, k, v, Tensor(), Tensor(), lse}, scalars, free);
}

TEST(ShapeRulesTest, Embedding) {
  EXPECT_EQ(Infer(OpId::kEmbedding, {T({7, 3}, kBF16), T({2, 5}, kI64)}), "bfloat16[2, 5, 3]");
  EXPECT_EQ(Infer(OpId::kEmbedding, {T({7, 3}), T({}, kI32)}), "float32[3]");
  ExpectRefused("weight has shape [7]", OpId::kEmbedding, {T({7}), T({2}, kI64)});
  ExpectRefused("indices has dtype float32; it must have int64 or int32", OpId::kEmbedding,
                {T({7, 3}), T({2})});
  const auto rows = [](int64_t n) {
    return With<EmbeddingBackwardAttributes>([&](auto& a) { a.rows = n; });
  };
  EXPECT_EQ(Infer(OpId::kEmbeddingBackward, {T({2, 5, 3}), T({2, 5}, kI64)}, {}, rows(7)),
            "float32[7, 3]");
  ExpectRefused("grad has shape [2, 3]; [2, 5, 3] is needed", OpId::kEmbeddingBackward,
                {T({2, 3}), T({2, 5}, kI64)}, {}, rows(7));
  ExpectRefused("rows is -1", OpId::kEmbeddingBackward, {T({2, 3}), T({2}, kI64)}, {}, rows(-1));
}

TEST(ShapeRulesTest, GatherAndScatter) {
  EXPECT_EQ(Infer(OpId::kGather, {T({4, 5}), T({9, 3}, kI64)}, {}, Along(0)), "float32[9, 3]");
  EXPECT_EQ(Infer(OpId::kGather, {T({}), T({}, kI64)}, {}, Along(0)), "float32[]");
  ExpectRefused("index [9, 6] does not fit x [4, 5]", OpId::kGather, {T({4, 5}), T({9, 6}, kI64)},
                {}, Along(0));
  ExpectRefused("index [9] does not fit x [4, 5]", OpId::kGather, {T({4, 5}), T({9}, kI64)}, {},
                Along(0));
  ExpectRefused("index has dtype uint8", OpId::kGather, {T({4}), T({2}, kU8)}, {}, Along(0));
  EXPECT_EQ(Infer(OpId::kScatterAdd, {T({4, 5}), T({9, 3}, kI64), T({9, 3})}, {}, Along(0)),
            "float32[4, 5]");
  ExpectRefused("source has shape [9, 5]; [9, 3] is needed, as index has", OpId::kScatterAdd,
                {T({4, 5}), T({9, 3}, kI64), T({9, 5})}, {}, Along(0));
  ExpectRefused("x has dtype float32 and source has float64", OpId::kScatterAdd,
                {T({4}), T({2}, kI64), T({2}, kF64)}, {}, Along(0));
}

TEST(ShapeRulesTest, IndexSelectAndAdd) {
  EXPECT_EQ(Infer(OpId::kIndexSelect, {T({4, 5}, kU8), T({3}, kI32)}, {}, Along(1)), "uint8[4, 3]");
  ExpectRefused("index has shape [3, 1]", OpId::kIndexSelect, {T({4, 5}), T({3, 1}, kI64)}, {},
                Along(1));
  ExpectRefused("x has shape []", OpId::kIndexSelect, {T({}), T({1}, kI64)}, {}, Along(0));
  EXPECT_EQ(Infer(OpId::kIndexAdd, {T({4, 5}), T({3}, kI64), T({4, 3})}, {}, Along(1)),
            "float32[4, 5]");
  ExpectRefused("source has shape [3, 5]; [4, 3] is needed, x with one slice for each index",
                OpId::kIndexAdd, {T({4, 5}), T({3}, kI64), T({3, 5})}, {}, Along(1));
}

TEST(ShapeRulesTest, Concat) {
  EXPECT_EQ(Infer(OpId::kConcat, {T({2, 3}), T({0, 3}), T({4, 3})}, {}, Along(0)), "float32[6, 3]");
  EXPECT_EQ(Infer(OpId::kConcat, {T({2}, kBool)}, {}, Along(0)), "bool[2]");
  ExpectRefused("no tensors are given", OpId::kConcat, {}, {}, Along(0));
  ExpectRefused("x[1] has shape [2, 4] and x[0] has [2, 3]; they must be equal but in dimension 0",
                OpId::kConcat, {T({2, 3}), T({2, 4})}, {}, Along(0));
  ExpectRefused("x[2] is undefined", OpId::kConcat, {T({2}), T({2}), Tensor()}, {}, Along(0));
  ExpectRefused("x[0] has dtype float32 and x[1] has int64", OpId::kConcat, {T({2}), T({2}, kI64)},
                {}, Along(0));
  ExpectRefused("x[0] has shape []", OpId::kConcat, {T({}), T({})}, {}, Along(0));
}

TEST(ShapeRulesTest, SliceBackward) {
  EXPECT_EQ(Infer(OpId::kSliceBackward, {T({3, 5})}, {}, Into(0, 1, 2, 6)), "float32[6, 5]");
  EXPECT_EQ(Infer(OpId::kSliceBackward, {T({0})}, {}, Into(0, 4, 1, 4)), "float32[4]");
  for (const auto& bad :
       {Into(0, 2, 2, 6), Into(0, -1, 1, 6), Into(0, 0, 0, 6), Into(0, 0, 1, 2)}) {
    ExpectRefused("do not fit into size", OpId::kSliceBackward, {T({3, 5})}, {}, bad);
  }
}

TEST(ShapeRulesTest, Views) {
  EXPECT_EQ(Infer(OpId::kView, {Strided({2, 3}, {3, 1}, 7)}, {}, As({3, 2})),
            "float32[3, 2]/[2, 1]+7");
  EXPECT_EQ(Infer(OpId::kView, {T({1, 1}, kI32)}, {}, As({})), "int32[]");
  ExpectRefused("cannot be seen as [6] without a copy; use Reshape", OpId::kView,
                {Strided({2, 3}, {1, 2})}, {}, As({6}));
  ExpectRefused("shape [4] does not hold the 6 elements of x [2, 3]", OpId::kView, {T({2, 3})}, {},
                As({4}));
  ExpectRefused("negative size", OpId::kView, {T({2, 3})}, {}, As({-1}));

  const auto order = [](const Shape& dims) {
    return With<PermuteAttributes>([&](auto& a) { a.dims = dims; });
  };
  EXPECT_EQ(Infer(OpId::kPermute, {Strided({2, 3, 5}, {15, 5, 1}, 2)}, {}, order({2, 0, 1})),
            "float32[5, 2, 3]/[1, 15, 5]+2");
  for (const Shape& bad : {Shape{0, 1}, Shape{0, 1, 1}, Shape{0, 1, 3}, Shape{0, 1, -1}}) {
    ExpectRefused("must name each of the 3 dimensions", OpId::kPermute, {T({2, 3, 5})}, {},
                  order(bad));
  }

  EXPECT_EQ(Infer(OpId::kExpand, {Strided({3, 1}, {1, 1}, 4)}, {}, As({2, 3, 5})),
            "float32[2, 3, 5]/[0, 1, 0]+4");
  EXPECT_EQ(Infer(OpId::kExpand, {T({1})}, {}, As({0})), "float32[0]/[0]");
  ExpectRefused("shape [3] does not broadcast to [4]", OpId::kExpand, {T({3})}, {}, As({4}));

  EXPECT_EQ(Infer(OpId::kDetach, {Strided({2, 3}, {1, 2}, 5, kBool)}), "bool[2, 3]/[1, 2]+5");
}

TEST(ShapeRulesTest, SliceAndSplit) {
  const Tensor x = Strided({7, 5}, {5, 1}, 3);
  EXPECT_EQ(Infer(OpId::kSlice, {x}, {}, Range(0, 1, 3, 2)), "float32[3, 5]/[10, 1]+8");
  EXPECT_EQ(Infer(OpId::kSlice, {x}, {}, Range(1, 4, 1, 9)), "float32[7, 1]/[5, 1]+7");
  EXPECT_EQ(Infer(OpId::kSlice, {x}, {}, Range(0, 7, 0, 1)), "float32[0, 5]/[5, 1]+3");
  for (const auto& bad :
       {Range(0, 1, 4, 2), Range(0, -1, 2, 1), Range(0, 0, 8, 1), Range(0, 0, 2, 0),
        Range(0, 8, 0, 1), Range(0, 0, -1, 1), Range(0, 0, INT64_MAX, INT64_MAX)}) {
    ExpectRefused("do not lie within dimension 0 of x [7, 5]", OpId::kSlice, {x}, {}, bad);
  }
  ExpectRefused("dimension 2", OpId::kSlice, {x}, {}, Range(2, 0, 1, 1));
  ExpectRefused("x has shape []", OpId::kSlice, {T({})}, {}, Range(0, 0, 1, 1));

  const auto pieces = [](int64_t dim, const Shape& sizes) {
    return With<SplitAttributes>([&](auto& a) { a.dim = dim, a.sizes = sizes; });
  };
  EXPECT_EQ(Infer(OpId::kSplit, {x}, {}, pieces(0, {3, 0, 4})),
            "float32[3, 5]/[5, 1]+3 float32[0, 5]/[5, 1]+3 float32[4, 5]/[5, 1]+18");
  for (const Shape& bad : {Shape{3, 3}, Shape{8}, Shape{8, -1}, Shape{}}) {
    ExpectRefused("must add up to 7", OpId::kSplit, {x}, {}, pieces(0, bad));
  }
}

TEST(ShapeRulesTest, CopyInto) {
  EXPECT_EQ(Infer(OpId::kCopyInto, {T({3, 5}), T({5}, kI64)}), "");
  ExpectRefused("source: shape [3] does not broadcast to [3, 5]", OpId::kCopyInto,
                {T({3, 5}), T({3})});
  ExpectRefused("destination of shape [3, 5] has strides [0, 1]: several elements share",
                OpId::kCopyInto, {Strided({3, 5}, {0, 1}), T({5})});
}

TEST(ShapeRulesTest, AdamStep) {
  const OpId op = OpId::kAdamStep;
  const Scalars scalars = {1e-3, 0.9, 0.999, 1e-8, 0.0, 1};
  const AdamAttributes plain;
  const auto amsgrad = With<AdamAttributes>([](auto& a) { a.amsgrad = true; });
  const Tensor a = T({3, 5}), b = T({}, kBF16), none;
  EXPECT_EQ(Infer(op, {a, b, a, b, a, T({}), a, b, none, none}, scalars, plain), "");
  EXPECT_EQ(Infer(op, {a, b, a, b, a, T({}), a, b, a, b}, scalars, amsgrad), "");
  EXPECT_EQ(Infer(op, {}, scalars, plain), "");
  ExpectRefused("4 inputs given; 5 lists of one length are needed", op, {a, a, a, a}, scalars,
                plain);
  ExpectRefused("parameters[1] has shape [] and gradients[1] has [3, 5]", op,
                {a, b, a, a, a, b, a, b, none, none}, scalars, plain);
  ExpectRefused("exp_avg_sqs[0] has float64", op, {a, a, a, T({3, 5}, kF64), none}, scalars, plain);
  ExpectRefused("parameters[0] has dtype float32 and exp_avgs[0] has bfloat16", op,
                {a, a, T({3, 5}, kBF16), a, none}, scalars, plain);
  ExpectRefused("parameters[0] has dtype float32 and gradients[0] has bfloat16", op,
                {a, T({3, 5}, kBF16), a, a, none}, scalars, plain);
  ExpectRefused("parameters[0] has dtype int64", op,
                {T({3}, kI64), T({3}, kI64), T({3}, kI64), T({3}, kI64), none}, scalars, plain);
  ExpectRefused("gradients[0] is undefined", op, {a, none, a, a, none}, scalars, plain);
  ExpectRefused("max_exp_avg_sqs[0] is undefined", op, {a, a, a, a, none}, scalars, amsgrad);
  ExpectRefused("max_exp_avg_sqs[0] is given without amsgrad", op, {a, a, a, a, a}, scalars, plain);
  ExpectRefused("max_exp_avg_sqs[0] has []", op, {a, a, a, a, T({})}, scalars, amsgrad);
  ExpectRefused("share one place in memory", op, {Strided({3, 5}, {0, 1}), a, a, a, none}, scalars,
                plain);
  ExpectRefused("1 scalars given, 6 needed", op, {a, a, a, a, none}, {1}, plain);
}

TEST(ShapeRulesTest, RmspropStep) {
  const OpId op = OpId::kRmspropStep;
  const Scalars scalars = {1e-2, 0.99, 1e-8, 0.0, 0.0};
  const RmspropAttributes plain;
  const auto momentum = With<RmspropAttributes>([](auto& a) { a.use_momentum = true; });
  const auto centered = With<RmspropAttributes>([](auto& a) { a.centered = true; });
  const Tensor a = T({3, 5}), b = T({2}, kBF16), none;
  EXPECT_EQ(Infer(op, {a, b, a, b, a, T({2}), none, none, none, none}, scalars, plain), "");
  EXPECT_EQ(Infer(op, {a, b, a, b, a, b, a, b, none, none}, scalars, momentum), "");
  EXPECT_EQ(Infer(op, {a, b, a, b, a, b, none, none, a, b}, scalars, centered), "");
  EXPECT_EQ(Infer(op, {}, scalars, plain), "");
  ExpectRefused("6 inputs given; 5 lists of one length are needed", op, {a, a, a, a, a, a}, scalars,
                plain);
  ExpectRefused("square_avgs[0] is undefined", op, {a, a, none, none, none}, scalars, plain);
  ExpectRefused("momenta[0] is undefined", op, {a, a, a, none, none}, scalars, momentum);
  ExpectRefused("momenta[0] is given without use_momentum", op, {a, a, a, a, none}, scalars, plain);
  ExpectRefused("grad_avgs[0] is undefined", op, {a, a, a, none, none}, scalars, centered);
  ExpectRefused("grad_avgs[0] is given without centered", op, {a, a, a, none, a}, scalars, plain);
  ExpectRefused("square_avgs[0] has [2]", op, {a, a, b, none, none}, scalars, plain);
  ExpectRefused("1 scalars given, 5 needed", op, {a, a, a, none, none}, {1}, plain);
}

TEST(ShapeRulesTest, AdagradStep) {
  const OpId op = OpId::kAdagradStep;
  const Scalars scalars = {1e-2, 0.0, 1e-10, 0.0, 1};
  const AdagradAttributes plain;
  const Tensor a = T({3, 5}), b = T({}, kBF16);
  EXPECT_EQ(Infer(op, {a, b, a, b, a, T({})}, scalars, plain), "");
  EXPECT_EQ(Infer(op, {}, scalars, plain), "");
  ExpectRefused("sums[0] is undefined", op, {a, a, Tensor()}, scalars, plain);
  ExpectRefused("sums[0] has []", op, {a, a, T({})}, scalars, plain);
  ExpectRefused("parameters[0] has dtype int64", op, {T({}, kI64), T({}, kI64), b}, scalars, plain);
}

TEST(ShapeRulesTest, LerpInto) {
  const OpId op = OpId::kLerpInto;
  const Tensor a = T({3, 5}), b = T({}, kBF16);
  EXPECT_EQ(Infer(op, {a, b, a, b}, {0.5}), "");
  EXPECT_EQ(Infer(op, {a, T({}), a, b}, {0.5}), "");
  EXPECT_EQ(Infer(op, {}, {0.5}), "");
  ExpectRefused("3 inputs given; 2 lists of one length are needed", op, {a, a, a}, {0.5});
  ExpectRefused("sources[0] has shape [] and destinations[0] has [3, 5]", op, {a, b}, {0.5});
  ExpectRefused("sources[0] has dtype float32 and destinations[0] has bfloat16", op,
                {T({3}, kBF16), T({3})}, {0.5});
  ExpectRefused("sources[0] has dtype int64", op, {T({3}, kI64), T({3}, kI64)}, {0.5});
  ExpectRefused("share one place in memory", op, {Strided({3, 5}, {0, 1}), a}, {0.5});
}

TEST(ShapeRulesTest, SgdStep) {
  const OpId op = OpId::kSgdStep;
  const Scalars scalars = {1e-3, 0.9, 0.0, 0.0};
  const auto momentum = With<SgdAttributes>([](auto& a) { a.use_momentum = true; });
  const SgdAttributes plain;
  const Tensor a = T({3, 5}), b = T({2});
  EXPECT_EQ(Infer(op, {a, b, a, b, a, b}, scalars, momentum), "");
  EXPECT_EQ(Infer(op, {a, b, a, b, Tensor(), Tensor()}, scalars, plain), "");
  ExpectRefused("momenta[1] is undefined", op, {a, b, a, b, a, Tensor()}, scalars, momentum);
  ExpectRefused("momenta[0] is given without use_momentum", op, {a, b, a, b, a, Tensor()}, scalars,
                plain);
  ExpectRefused("gradients[1] is undefined", op, {a, b, a, Tensor(), Tensor(), Tensor()}, scalars,
                plain);
  ExpectRefused("parameters[0] has shape [3, 5] and momenta[0] has [2]", op, {a, a, b}, scalars,
                momentum);
}

TEST(ShapeRulesTest, Norms) {
  const NormAttributes two;
  EXPECT_EQ(Infer(OpId::kGlobalNorm, {T({3}), T({0}, kBF16)}, {}, two), "float32[]");
  EXPECT_EQ(Infer(OpId::kGlobalNorm, {T({3}), T({}, kF64)}, {}, two), "float64[]");
  EXPECT_EQ(Infer(OpId::kGlobalNorm, {}, {}, two), "float32[]");
  ExpectRefused("x[1] has dtype int64", OpId::kGlobalNorm, {T({3}), T({3}, kI64)}, {}, two);
  EXPECT_EQ(Infer(OpId::kClipByNorm, {T({3}), T({}, kF64), T({})}, {1.0}), "");
  EXPECT_EQ(Infer(OpId::kClipByNorm, {T({})}, {1.0}), "");
  ExpectRefused("norm has shape [1]; [] is needed", OpId::kClipByNorm, {T({3}), T({1})}, {1.0});
  ExpectRefused("norm has dtype bfloat16", OpId::kClipByNorm, {T({3}), T({}, kBF16)}, {1.0});
  ExpectRefused("0 inputs given; 1 lists of one length and 1 more are needed", OpId::kClipByNorm,
                {}, {1.0});
}

TEST(ShapeRulesTest, UnscaleAndCheck) {
  EXPECT_EQ(Infer(OpId::kUnscaleAndCheck, {T({3}), T({0}, kBF16), T({})}, {0.5}), "");
  ExpectRefused("gradients[1] has dtype int64", OpId::kUnscaleAndCheck,
                {T({3}), T({3}, kI64), T({})}, {0.5});
  ExpectRefused("found_inf has dtype float64", OpId::kUnscaleAndCheck, {T({3}), T({}, kF64)},
                {0.5});
  ExpectRefused("found_inf has shape [1]; [] is needed", OpId::kUnscaleAndCheck, {T({3}), T({1})},
                {0.5});
}

// Runs last (tests of a file run in order): no row may be left out above.
TEST(ShapeRulesTest, EveryRowIsTestedHere) {
  for (int i = 0; i < static_cast<int>(OpId::kBuiltinCount); ++i) {
    EXPECT_TRUE(Tested().contains(static_cast<OpId>(i))) << GetOpInfo(static_cast<OpId>(i)).name;
  }
}

}  // namespace
}  // namespace lockstep
