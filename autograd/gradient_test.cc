// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/gradient.h"

#include <string>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/kernel.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd {
namespace {

// A row of another program: 3x, computed by calling MulScalar's kernel.
OpInfo TripleRow(const std::string& name) {
  OpInfo info;
  info.name = name;
  info.inputs = ParseInputs("x");
  info.outputs = {"y"};
  info.differentiable = true;
  info.doc = "3x";
  info.shape_rule = [](const OpCall& call, SpecList& outputs) {
    TensorSpec& spec = outputs.emplace_back();
    spec.shape = call.inputs[0].shape();
    spec.dtype = call.inputs[0].dtype();
  };
  return info;
}

OpId RegisterTriple(const std::string& name) {
  const OpId op = RegisterOp(TripleRow(name));
  RegisterKernel(op, DeviceType::kCpu,
                 [](KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                    const Scalars&, const Attributes& attributes) {
                   FindKernel(OpId::kMulScalar, DeviceType::kCpu)(context, inputs, outputs, {3.0},
                                                                  attributes);
                 });
  return op;
}

absl::StatusCode CodeOf(OpId op, const GradientInfo& info) {
  try {
    RegisterGradient(op, info);
  } catch (const Error& error) {
    return error.code();
  }
  return absl::StatusCode::kOk;
}

TEST(RegisterGradientTest, OpsOfOtherPrograms) {
  const OpId triple = RegisterTriple("Triple");
  const Tensor x = SetRequiresGrad(FromVector<double>({1, 2}, {2}), true);
  try {
    Dispatch1(triple, {x});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(error.message().find("Triple"), std::string::npos);
    EXPECT_NE(error.message().find("RegisterGradient"), std::string::npos);
  }
  const GradientInfo info = {.gradient = [](const GradientContext& c, absl::Span<Tensor> d) {
    d[0] = Mul(c.Gradient(), 3.0);
  }};
  RegisterGradient(triple, info);
  EXPECT_EQ(CodeOf(triple, info), absl::StatusCode::kAlreadyExists);
  const Tensor y = Dispatch1(triple, {x});
  EXPECT_EQ(GradNodeName(y), "Triple");
  Backward(Sum(y));
  EXPECT_EQ(Grad(x).ToVector<double>(), (std::vector<double>{3, 3}));
}

TEST(RegisterGradientTest, AGradientOfTheWrongKindIsAnError) {
  const OpId op = RegisterTriple("WrongTriple");
  RegisterGradient(op, {.gradient = [](const GradientContext&, absl::Span<Tensor> d) {
                     d[0] = Zeros({5}, {.dtype = DType::kFloat64});
                   }});
  const Tensor x = SetRequiresGrad(FromVector<double>({1, 2}, {2}), true);
  try {
    Backward(Sum(Dispatch1(op, {x})));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("WrongTriple"), std::string::npos) << error.what();
    EXPECT_NE(error.message().find("float64[5]"), std::string::npos) << error.what();
    EXPECT_NE(error.message().find("float64[2]"), std::string::npos) << error.what();
  }
}

TEST(RegisterGradientTest, Refusals) {
  EXPECT_EQ(CodeOf(OpId::kAdd, {}), absl::StatusCode::kInvalidArgument);
  const GradientInfo info = {.gradient = [](const GradientContext&, absl::Span<Tensor>) {}};
  EXPECT_EQ(CodeOf(OpId::kEqual, info), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(OpId::kAdd, info), absl::StatusCode::kAlreadyExists);
  OpInfo writer = TripleRow("Writer");
  writer.inputs = ParseInputs("x, y");
  writer.mutates = 0b10;
  EXPECT_EQ(CodeOf(RegisterOp(writer), info), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::autograd
