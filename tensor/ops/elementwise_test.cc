// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/elementwise.h"

#include <cmath>
#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/ops/testing.h"

namespace lockstep {
namespace {

using testing_util::Describe;
using testing_util::ExpectInvalid;
using testing_util::Meta;
using testing_util::Recorder;

constexpr DType kF32 = DType::kFloat32;
constexpr DType kF64 = DType::kFloat64;
constexpr DType kBF16 = DType::kBFloat16;
constexpr DType kF16 = DType::kFloat16;
constexpr DType kI64 = DType::kInt64;
constexpr DType kI32 = DType::kInt32;
constexpr DType kU8 = DType::kUInt8;
constexpr DType kBool = DType::kBool;

using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;
using Unary = std::function<Tensor(const Tensor&)>;

const std::vector<Binary>& PromotingBinaries() {
  static const auto* const kAll =
      new std::vector<Binary>{[](const Tensor& x, const Tensor& y) { return Add(x, y); },
                              [](const Tensor& x, const Tensor& y) { return Mul(x, y); },
                              [](const Tensor& x, const Tensor& y) { return Maximum(x, y); },
                              [](const Tensor& x, const Tensor& y) { return Minimum(x, y); },
                              [](const Tensor& x, const Tensor& y) { return x + y; },
                              [](const Tensor& x, const Tensor& y) { return x * y; }};
  return *kAll;
}

TEST(ElementwiseTest, BinaryOpsPromoteAndBroadcast) {
  for (const Binary& op : PromotingBinaries()) {
    EXPECT_EQ(Describe(op(Meta({3, 1}), Meta({2, 1, 5}))), "float32[2, 3, 5]");
    EXPECT_EQ(Describe(op(Meta({3}, kBF16), Meta({3}, kF16))), "float32[3]");
    EXPECT_EQ(Describe(op(Meta({3}, kI64), Meta({3}, kF16))), "float16[3]");
    EXPECT_EQ(Describe(op(Meta({3}, kU8), Meta({3}, kI32))), "int32[3]");
    EXPECT_EQ(Describe(op(Meta({0}, kBool), Meta({1}, kU8))), "uint8[0]");
    ExpectInvalid("do not broadcast", [&] { op(Meta({3}), Meta({5})); });
    ExpectInvalid("x is undefined; pass a tensor", [&] { op(Tensor(), Meta({5})); });
    ExpectInvalid("y is undefined; pass a tensor", [&] { op(Meta({3}), Tensor()); });
  }
}

// torch.result_type: a zero-dimensional tensor raises the kind, not the width.
TEST(ElementwiseTest, ZeroDimensionalOperandsPromoteByKind) {
  EXPECT_EQ(Describe(Add(Meta({3}), Meta({}, kF64))), "float32[3]");
  EXPECT_EQ(Describe(Add(Meta({}, kI64), Meta({3}, kU8))), "uint8[3]");
  EXPECT_EQ(Describe(Add(Meta({3}, kI32), Meta({}, kF64))), "float64[3]");
  EXPECT_EQ(Describe(Add(Meta({3}, kBool), Meta({}, kU8))), "uint8[3]");
  EXPECT_EQ(Describe(Add(Meta({3}, kBF16), Meta({}, kF16))), "bfloat16[3]");
  EXPECT_EQ(Describe(Add(Meta({}), Meta({}, kF64))), "float64[]");
}

TEST(ElementwiseTest, CastsOnlyWhatDiffers) {
  Recorder recorder;
  Add(Meta({3}), Meta({3}));
  EXPECT_EQ(recorder.Ops(), "Add");
  recorder.Clear();
  Add(Meta({3}), Meta({3}, kI64));
  EXPECT_EQ(recorder.Ops(), "Cast Add");
  recorder.Clear();
  // Add takes floats of different dtypes whose sum is float32; other rows do not, nor other sums.
  EXPECT_EQ(Describe(Add(Meta({3}), Meta({2, 3}, kBF16))), "float32[2, 3]");
  EXPECT_EQ(Describe(Sub(Meta({3}, kF16), Meta({3}))), "float32[3]");
  EXPECT_EQ(Describe(Add(Meta({3}, kBF16), Meta({3}, kF16))), "float32[3]");
  AddInPlace(Meta({3}), Meta({3}, kBF16));
  EXPECT_EQ(recorder.Ops(), "Add Add Add Add!");
  recorder.Clear();
  Mul(Meta({3}), Meta({3}, kBF16));
  Add(Meta({3}, kF64), Meta({3}, kBF16));
  Add(Meta({3}, kBF16), Meta({}));
  EXPECT_EQ(recorder.Ops(), "Cast Mul Cast Add Cast Add");
  recorder.Clear();
  ExpectInvalid("which x cannot hold", [&] { AddInPlace(Meta({3}, kBF16), Meta({3})); });
  Div(Meta({3}, kI64), Meta({3}, kI32));
  EXPECT_EQ(recorder.Ops(), "Cast Cast Div");
}

TEST(ElementwiseTest, AddWithAlpha) {
  Recorder recorder;
  Add(Meta({3}), Meta({3}), 0.5);
  EXPECT_EQ(recorder.calls()[0].scalars[0].AsDouble(), 0.5);
  Sub(Meta({3}), Meta({3}));
  EXPECT_EQ(recorder.calls()[1].scalars[0].AsInt64(), -1);
  EXPECT_EQ(recorder.Ops(), "Add Add");
  Add(Meta({3}, kI64), Meta({3}, kI64), 2);
  Add(Meta({3}, kBool), Meta({3}, kBool), true);
  ExpectInvalid("Add: alpha 0.5 is a floating-point number and the result has dtype int64",
                [] { Add(Meta({3}, kI64), Meta({3}, kI64), 0.5); });
  ExpectInvalid("alpha is a bool", [] { Add(Meta({3}, kI64), Meta({3}, kI64), true); });
  ExpectInvalid("alpha is a bool", [] { Add(Meta({3}), Meta({3}), true); });
  ExpectInvalid("value 300 does not fit dtype uint8",
                [] { Add(Meta({3}, kU8), Meta({3}, kU8), 300); });
  ExpectInvalid("AddInPlace: alpha 0.5", [] { AddInPlace(Meta({3}, kI64), Meta({3}, kI64), 0.5); });
}

TEST(ElementwiseTest, SubtractionRefusesBool) {
  EXPECT_EQ(Describe(Sub(Meta({3}, kU8), Meta({3}, kU8))), "uint8[3]");
  EXPECT_EQ(Describe(Meta({3}, kBool) - Meta({3}, kI32)), "int32[3]");
  ExpectInvalid("Sub: a difference of bool tensors is not defined",
                [] { Sub(Meta({3}, kBool), Meta({3}, kBool)); });
  ExpectInvalid("Sub: a difference", [] { Sub(Meta({3}, kBool), true); });
  ExpectInvalid("Sub: a difference", [] { true - Meta({3}, kBool); });
  ExpectInvalid("SubInPlace: a difference", [] { SubInPlace(Meta({3}, kBool), Meta({3}, kBool)); });
}

TEST(ElementwiseTest, TrueDivision) {
  EXPECT_EQ(Describe(Div(Meta({3}, kI64), Meta({3}, kI32))), "float32[3]");
  EXPECT_EQ(Describe(Div(Meta({3}, kBool), Meta({3}, kBool))), "float32[3]");
  EXPECT_EQ(Describe(Meta({3}, kF64) / Meta({3}, kI32)), "float64[3]");
  EXPECT_EQ(Describe(Div(Meta({3}, kI64), 2)), "float32[3]");
  EXPECT_EQ(Describe(Meta({3}, kBF16) / 2.0), "bfloat16[3]");
  ExpectInvalid("DivInPlace: the result", [] { DivInPlace(Meta({3}, kI64), 2); });
  ExpectInvalid("DivInPlace: the result", [] { DivInPlace(Meta({3}, kI64), Meta({3}, kI64)); });
}

TEST(ElementwiseTest, ScalarsPromoteByKind) {
  EXPECT_EQ(Describe(Add(Meta({3}, kI32), 1)), "int32[3]");
  EXPECT_EQ(Describe(Add(Meta({3}, kI32), 1.5)), "float32[3]");
  EXPECT_EQ(Describe(Add(Meta({3}, kBool), 1)), "int64[3]");
  EXPECT_EQ(Describe(Add(Meta({3}, kBool), true)), "bool[3]");
  EXPECT_EQ(Describe(2.5 * Meta({3}, kBF16)), "bfloat16[3]");
  EXPECT_EQ(Describe(1 - Meta({3}, kF64)), "float64[3]");
  EXPECT_EQ(Describe(1.5 - Meta({3}, kU8)), "float32[3]");
  EXPECT_EQ(Describe(Meta({3}, kU8) - 1), "uint8[3]");
  EXPECT_EQ(Describe(Meta({3}) + 1), "float32[3]");
  EXPECT_EQ(Describe(Meta({3}) * 1), "float32[3]");
  EXPECT_EQ(Describe(1 + Meta({3})), "float32[3]");
  ExpectInvalid("Add: value 300 does not fit dtype uint8", [] { Add(Meta({3}, kU8), 300); });
  ExpectInvalid("Sub: value -1 does not fit dtype uint8", [] { Sub(Meta({3}, kU8), -1); });
  ExpectInvalid("Mul: value 5000000000 does not fit dtype int32",
                [] { Mul(Meta({3}, kI32), int64_t{5000000000}); });
  ExpectInvalid("Add: x is undefined", [] { Add(Tensor(), 1); });
  ExpectInvalid("Sub: x is undefined", [] { Sub(Tensor(), 1); });
  ExpectInvalid("Sub: y is undefined", [] { 1 - Tensor(); });
  ExpectInvalid("Div: x is undefined", [] { Div(Tensor(), 1); });
  ExpectInvalid("Pow: x is undefined", [] { Pow(Tensor(), 1); });
}

TEST(ElementwiseTest, SubtractsScalarsExactly) {
  Recorder recorder;
  Sub(Meta({3}), 0.1);
  EXPECT_EQ(recorder.calls()[0].scalars[0].AsDouble(), -0.1);
  Sub(Meta({3}, kI64), INT64_MIN);
  EXPECT_EQ(recorder.calls()[1].scalars[0].AsInt64(), INT64_MIN);  // -x modulo 2^64
  Sub(Meta({3}, kU8), 200);
  EXPECT_EQ(recorder.calls()[2].scalars[0].AsInt64(), -200);
}

TEST(ElementwiseTest, Powers) {
  EXPECT_EQ(Describe(Pow(Meta({3, 1}), Meta({5}))), "float32[3, 5]");
  EXPECT_EQ(Describe(Pow(Meta({3}, kI32), 2)), "int32[3]");
  EXPECT_EQ(Describe(Pow(Meta({3}, kI32), 0.5)), "float32[3]");
  EXPECT_EQ(Describe(Pow(Meta({3}), -2)), "float32[3]");
  ExpectInvalid("Pow: integers to the negative power -1", [] { Pow(Meta({3}, kI64), -1); });
  ExpectInvalid("Pow: x has dtype bool", [] { Pow(Meta({3}, kBool), Meta({3}, kBool)); });
}

TEST(ElementwiseTest, OneTensor) {
  const std::vector<Unary> floats{Exp,   Log,        Sqrt,
                                  Rsqrt, Reciprocal, Erf,
                                  Tanh,  Sigmoid,    [](const Tensor& x) { return Gelu(x); }};
  for (const Unary& op : floats) {
    EXPECT_EQ(Describe(op(Meta({3, 0}, kF16))), "float16[3, 0]");
    EXPECT_EQ(Describe(op(Meta({3}, kI64))), "float32[3]");
    EXPECT_EQ(Describe(op(Meta({}, kBool))), "float32[]");
    ExpectInvalid("x is undefined", [&] { op(Tensor()); });
  }
  const std::vector<Unary> numbers{Neg, Abs, Sign, Relu, [](const Tensor& x) { return -x; }};
  for (const Unary& op : numbers) {
    EXPECT_EQ(Describe(op(Meta({3}, kU8))), "uint8[3]");
    ExpectInvalid("x is undefined", [&] { op(Tensor()); });
    ExpectInvalid("x has dtype bool", [&] { op(Meta({3}, kBool)); });
  }
  for (const Unary& op : std::vector<Unary>{LogicalNot, IsFinite}) {
    EXPECT_EQ(Describe(op(Meta({3}, kI32))), "bool[3]");
    ExpectInvalid("x is undefined", [&] { op(Tensor()); });
  }
}

TEST(ElementwiseTest, GeluTriangleAndClamp) {
  Recorder recorder;
  Gelu(Meta({3}), GeluKind::kTanh);
  EXPECT_EQ(recorder.calls()[0].attributes, "{kind=1}");
  Triu(Meta({3, 5}, kI32), -2);
  EXPECT_EQ(recorder.calls()[1].attributes, "{diagonal=-2, upper=true}");
  Tril(Meta({2, 3, 5}));
  EXPECT_EQ(recorder.calls()[2].attributes, "{diagonal=0, upper=false}");
  ExpectInvalid("x has shape [3]", [] { Tril(Meta({3})); });
  ExpectInvalid("Triu: x is undefined", [] { Triu(Tensor()); });

  EXPECT_EQ(Describe(Clamp(Meta({3}, kI32), 0, 5)), "int32[3]");
  EXPECT_EQ(Describe(Clamp(Meta({3}, kI32), 0, 5.5)), "float32[3]");
  EXPECT_EQ(Describe(Clamp(Meta({3}), 1, 1)), "float32[3]");
  ExpectInvalid("Clamp: low 2 is not below high 1", [] { Clamp(Meta({3}), 2, 1); });
  ExpectInvalid("Clamp: low nan", [] { Clamp(Meta({3}), std::nan(""), 1); });
  ExpectInvalid("low 9007199254740993",
                [] { Clamp(Meta({3}, kI64), 9007199254740993, 9007199254740992); });
  ExpectInvalid("ClampInPlace: the result", [] { ClampInPlace(Meta({3}, kI32), 0, 5.5); });
  ExpectInvalid("ClampInPlace: x is undefined", [] { ClampInPlace(Tensor(), 0, 1); });
}

TEST(ElementwiseTest, InPlaceFormsReturnTheirTarget) {
  const Tensor x = Meta({3, 5});
  const Tensor y = Meta({5}, kI64);
  Recorder recorder;
  const std::vector<Tensor> results{AddInPlace(x, y),      AddInPlace(x, 1),  SubInPlace(x, y),
                                    MulInPlace(x, y),      MulInPlace(x, 2),  DivInPlace(x, y),
                                    DivInPlace(x, 2),      NegInPlace(x),     ExpInPlace(x),
                                    LogInPlace(x),         SqrtInPlace(x),    TanhInPlace(x),
                                    SigmoidInPlace(x),     ReluInPlace(x),    GeluInPlace(x),
                                    ClampInPlace(x, 0, 1), FillInPlace(x, 3), ZeroInPlace(x)};
  for (const Tensor& result : results) EXPECT_TRUE(result.IsSame(x));
  EXPECT_EQ(recorder.Ops(),
            "Cast Add! AddScalar! Cast Add! Cast Mul! MulScalar! Cast Div! DivScalar! Neg! Exp! "
            "Log! Sqrt! Tanh! Sigmoid! Relu! Gelu! Clamp! Fill! Fill!");
}

TEST(ElementwiseTest, InPlaceFormsKeepShapeAndDType) {
  ExpectInvalid(
      "AddInPlace: the result of float32[3] on meta with float64[3] on meta has dtype "
      "float64, which x cannot hold; cast y with To(y, float32)",
      [] { AddInPlace(Meta({3}), Meta({3}, kF64)); });
  ExpectInvalid("MulInPlace: the result", [] { MulInPlace(Meta({3}, kI64), 1.5); });
  ExpectInvalid("in place: the result is float32[3, 5]", [] {
    AddInPlace(Meta({5}), Meta({3, 1}));
  });
  ExpectInvalid("Exp: x has dtype int64", [] { ExpInPlace(Meta({3}, kI64)); });
  ExpectInvalid("FillInPlace: value 1000 does not fit dtype uint8",
                [] { FillInPlace(Meta({3}, kU8), 1000); });
  const std::vector<Unary> all{NegInPlace,
                               ExpInPlace,
                               LogInPlace,
                               SqrtInPlace,
                               TanhInPlace,
                               SigmoidInPlace,
                               ReluInPlace,
                               ZeroInPlace,
                               [](const Tensor& x) { return GeluInPlace(x); },
                               [](const Tensor& x) { return FillInPlace(x, 1); },
                               [](const Tensor& x) { return AddInPlace(x, Meta({3})); },
                               [](const Tensor& x) { return AddInPlace(x, 1); },
                               [](const Tensor& x) { return SubInPlace(x, Meta({3})); },
                               [](const Tensor& x) { return MulInPlace(x, Meta({3})); },
                               [](const Tensor& x) { return MulInPlace(x, 1); },
                               [](const Tensor& x) { return DivInPlace(x, Meta({3})); },
                               [](const Tensor& x) { return DivInPlace(x, 1); }};
  for (const Unary& op : all) {
    ExpectInvalid("InPlace: x is undefined; pass a tensor", [&] { op(Tensor()); });
  }
  ExpectInvalid("AddInPlace: y is undefined", [] { AddInPlace(Meta({3}), Tensor()); });
}

TEST(ComparisonTest, Tensors) {
  const std::vector<Binary> all{[](const Tensor& x, const Tensor& y) { return Equal(x, y); },
                                [](const Tensor& x, const Tensor& y) { return NotEqual(x, y); },
                                [](const Tensor& x, const Tensor& y) { return Less(x, y); },
                                [](const Tensor& x, const Tensor& y) { return LessEqual(x, y); },
                                [](const Tensor& x, const Tensor& y) { return Greater(x, y); },
                                [](const Tensor& x, const Tensor& y) { return GreaterEqual(x, y); },
                                LogicalAnd,
                                LogicalOr};
  for (const Binary& op : all) {
    EXPECT_EQ(Describe(op(Meta({3, 1}, kI64), Meta({5}))), "bool[3, 5]");
    ExpectInvalid("do not broadcast", [&] { op(Meta({3}), Meta({5})); });
    ExpectInvalid("x is undefined", [&] { op(Tensor(), Meta({5})); });
    ExpectInvalid("y is undefined", [&] { op(Meta({3}), Tensor()); });
  }
  Recorder recorder;
  Less(Meta({3}, kI64), Meta({3}));
  EXPECT_EQ(Describe(recorder.calls()[1].inputs), "float32[3] float32[3]");
  recorder.Clear();
  LogicalAnd(Meta({3}, kI64), Meta({3}));
  EXPECT_EQ(Describe(recorder.calls()[2].inputs), "bool[3] bool[3]");
}

TEST(ComparisonTest, Scalars) {
  Recorder recorder;
  const std::vector<std::function<Tensor(const Tensor&, const Scalar&)>> all{
      [](const Tensor& x, const Scalar& y) { return Equal(x, y); },
      [](const Tensor& x, const Scalar& y) { return NotEqual(x, y); },
      [](const Tensor& x, const Scalar& y) { return Less(x, y); },
      [](const Tensor& x, const Scalar& y) { return LessEqual(x, y); },
      [](const Tensor& x, const Scalar& y) { return Greater(x, y); },
      [](const Tensor& x, const Scalar& y) { return GreaterEqual(x, y); }};
  for (const auto& op : all) {
    EXPECT_EQ(Describe(op(Meta({3, 5}, kBF16), 1.5)), "bool[3, 5]");
    ExpectInvalid("x is undefined", [&] { op(Tensor(), 1); });
  }
  recorder.Clear();
  Less(Meta({3}, kI32), 1.5);
  EXPECT_EQ(recorder.Ops(), "Cast Full Less");
  EXPECT_EQ(Describe(recorder.calls()[2].inputs), "float32[3] float32[]");
  EXPECT_EQ(recorder.calls()[1].attributes, "{shape=[], dtype=float32, device=meta}");
  // 300 is not 44: a number beyond the dtype is compared in int64.
  recorder.Clear();
  Less(Meta({3}, kU8), 300);
  EXPECT_EQ(Describe(recorder.calls()[2].inputs), "int64[3] int64[]");
}

TEST(ComparisonTest, Where) {
  EXPECT_EQ(Describe(Where(Meta({3, 1}, kBool), Meta({5}, kI64), Meta({}))), "float32[3, 5]");
  EXPECT_EQ(Describe(Where(Meta({3, 1}, kBool), Meta({5}, kBF16), -1e9)), "bfloat16[3, 5]");
  EXPECT_EQ(Describe(Where(Meta({3}, kBool), Meta({3}, kI32), 0.5)), "float32[3]");
  ExpectInvalid("condition has dtype int64", [] { Where(Meta({3}, kI64), Meta({3}), 0); });
  ExpectInvalid("Where: condition is undefined", [] { Where(Tensor(), Meta({3}), 0); });
  ExpectInvalid("Where: x is undefined", [] { Where(Meta({3}, kBool), Tensor(), 0); });
  ExpectInvalid("Where: x is undefined", [] { Where(Meta({3}, kBool), Tensor(), Meta({3})); });
  ExpectInvalid("Where: y is undefined", [] { Where(Meta({3}, kBool), Meta({3}), Tensor()); });
  ExpectInvalid("value 300 does not fit", [] { Where(Meta({3}, kBool), Meta({3}, kU8), 300); });
}

TEST(CopyTest, CopiesOnlyWhereNeeded) {
  const Tensor x = Meta({3, 5});
  const Tensor y(
      MakeRef<TensorImpl>(RefPtr<Storage>(), Shape{3, 5}, Strides{1, 3}, 2, kF32, kMeta));
  Recorder recorder;
  EXPECT_TRUE(Contiguous(x).IsSame(x));
  EXPECT_TRUE(To(x, kF32).IsSame(x));
  EXPECT_TRUE(To(x, kMeta).IsSame(x));
  EXPECT_EQ(recorder.Ops(), "");
  EXPECT_EQ(Describe(Contiguous(y)), "float32[3, 5]");
  EXPECT_FALSE(Clone(x).IsSame(x));
  EXPECT_EQ(Describe(To(y, kI64)), "int64[3, 5]");
  EXPECT_EQ(recorder.Ops(), "Clone Clone Cast");
  ExpectInvalid("Clone: x is undefined", [] { Clone(Tensor()); });
  ExpectInvalid("Contiguous: x is undefined", [] { Contiguous(Tensor()); });
  ExpectInvalid("To: x is undefined", [] { To(Tensor(), kF32); });
  ExpectInvalid("To: x is undefined", [] { To(Tensor(), kMeta); });
}

TEST(CopyTest, ToDevice) {
  ExpectInvalid("CopyToDevice: x is on meta and has no elements", [] { To(Meta({3}), Cpu()); });
  Recorder recorder;
  const Tensor here = Empty({3, 5}, {.dtype = kBF16, .device = Cpu(1)});
  const Tensor there = To(here, kMeta, {.non_blocking = true});
  EXPECT_EQ(there.device(), kMeta);
  EXPECT_EQ(Describe(there), "bfloat16[3, 5]");
  EXPECT_EQ(recorder.calls()[0].attributes, "{device=meta, non_blocking=true}");
}

TEST(CopyTest, CopyInto) {
  const Tensor x = Meta({3, 5}, kI64);
  Recorder recorder;
  EXPECT_TRUE(CopyInto(x, Meta({5})).IsSame(x));
  EXPECT_EQ(recorder.Ops(), "CopyInto");
  ExpectInvalid("source: shape [3] does not broadcast to [3, 5]", [&] { CopyInto(x, Meta({3})); });
  ExpectInvalid("CopyInto: destination is undefined", [&] { CopyInto(Tensor(), x); });
  ExpectInvalid("CopyInto: source is undefined", [&] { CopyInto(x, Tensor()); });
  const Tensor expanded(
      MakeRef<TensorImpl>(RefPtr<Storage>(), Shape{3, 5}, Strides{0, 1}, 0, kF32, kMeta));
  ExpectInvalid("several elements share one place", [&] { CopyInto(expanded, Meta({5})); });
  ExpectInvalid("operands on cpu:0 and meta", [&] { CopyInto(Empty({3, 5}), x); });
}

}  // namespace
}  // namespace lockstep
