// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Rules of creation, random, elementwise and broadcasting rows, and of copies.

#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/shape_rules_util.h"

namespace lockstep {
namespace rules {
namespace {

const CreateAttributes& Create(const OpCall& call, SpecList& outputs) {
  const auto& attributes = call.attributes.As<CreateAttributes>();
  NumElements(attributes.shape, OpName(call));
  Emit(call, outputs, attributes.shape, attributes.dtype).device = attributes.device;
  return attributes;
}

// scalars: two parameters of the distribution, seed, stream, offset.
void CreateRandom(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 0, 5);
  const auto& attributes = Create(call, outputs);
  if (!IsFloatingPoint(attributes.dtype)) {
    Refuse(call, "dtype ", DTypeName(attributes.dtype), " is not a floating-point dtype");
  }
}

// The result is in the shape and dtype of input 0.
void LikeInput(const OpCall& call, SpecList& outputs) {
  Emit(call, outputs, call.inputs[0].shape(), call.inputs[0].dtype());
}

void UnaryFloat(const OpCall& call, SpecList& outputs, size_t scalar_count = 0) {
  RequireOperands(call, 1, scalar_count);
  RequireFloat(call, 0);
  LikeInput(call, outputs);
}

void UnaryNumber(const OpCall& call, SpecList& outputs, size_t scalar_count = 0) {
  RequireOperands(call, 1, scalar_count);
  RequireNumber(call, 0);
  LikeInput(call, outputs);
}

void UnaryAny(const OpCall& call, SpecList& outputs, size_t scalar_count = 0) {
  RequireOperands(call, 1, scalar_count);
  LikeInput(call, outputs);
}

void UnaryToBool(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  Emit(call, outputs, call.inputs[0].shape(), DType::kBool);
}

// Two tensors of one shape and floating dtype: the gradient and what was saved.
void BackwardPair(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 2);
  RequireFloat(call, 0);
  RequireSameDType(call, 0, 1);
  RequireSameShape(call, 0, 1);
  LikeInput(call, outputs);
}

void Broadcast(const OpCall& call, SpecList& outputs, DType dtype) {
  const Shape& x = call.inputs[0].shape();
  const Shape& y = call.inputs[1].shape();
  if (SameSizes(x, y)) {
    Emit(call, outputs, x, dtype);
  } else {
    Emit(call, outputs, BroadcastShapes(x, y, OpName(call)), dtype);
  }
}

void Binary(const OpCall& call, SpecList& outputs, size_t scalar_count = 0) {
  RequireOperands(call, 2, scalar_count);
  RequireSameDType(call, 0, 1);
  Broadcast(call, outputs, call.inputs[0].dtype());
}

void BinaryToBool(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 2);
  RequireSameDType(call, 0, 1);
  Broadcast(call, outputs, DType::kBool);
}

}  // namespace

// ---- Creation and random ----

void InferFull(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 0, 1);
  Create(call, outputs);
}

void InferArange(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 0, 2);
  const auto& attributes = Create(call, outputs);
  if (attributes.shape.size() != 1) {
    Refuse(call, "shape ", ToString(attributes.shape), " must have one dimension");
  }
  if (attributes.dtype == DType::kBool) {
    Refuse(call, "dtype bool cannot hold a range; use an integer or floating-point dtype");
  }
}

void InferRandomUniform(const OpCall& call, SpecList& outputs) { CreateRandom(call, outputs); }
void InferRandomNormal(const OpCall& call, SpecList& outputs) { CreateRandom(call, outputs); }
void InferDropout(const OpCall& call, SpecList& outputs) { UnaryFloat(call, outputs, 4); }

// ---- One tensor ----

void InferFill(const OpCall& call, SpecList& outputs) { UnaryAny(call, outputs, 1); }
void InferClone(const OpCall& call, SpecList& outputs) { UnaryAny(call, outputs); }
void InferCast(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  Emit(call, outputs, call.inputs[0].shape(), call.attributes.As<CastAttributes>().dtype);
}
void InferNeg(const OpCall& call, SpecList& outputs) { UnaryNumber(call, outputs); }
void InferAbs(const OpCall& call, SpecList& outputs) { UnaryNumber(call, outputs); }
void InferSign(const OpCall& call, SpecList& outputs) { UnaryNumber(call, outputs); }
void InferExp(const OpCall& call, SpecList& outputs) { UnaryFloat(call, outputs); }
void InferLog(const OpCall& call, SpecList& outputs) { UnaryFloat(call, outputs); }
void InferSqrt(const OpCall& call, SpecList& outputs) { UnaryFloat(call, outputs); }
void InferRsqrt(const OpCall& call, SpecList& outputs) { UnaryFloat(call, outputs); }
void InferReciprocal(const OpCall& call, SpecList& outputs) { UnaryFloat(call, outputs); }
void InferErf(const OpCall& call, SpecList& outputs) { UnaryFloat(call, outputs); }
void InferTanh(const OpCall& call, SpecList& outputs) { UnaryFloat(call, outputs); }
void InferSigmoid(const OpCall& call, SpecList& outputs) { UnaryFloat(call, outputs); }
void InferRelu(const OpCall& call, SpecList& outputs) { UnaryNumber(call, outputs); }
void InferGelu(const OpCall& call, SpecList& outputs) { UnaryFloat(call, outputs); }
void InferClamp(const OpCall& call, SpecList& outputs) { UnaryNumber(call, outputs, 2); }
void InferAddScalar(const OpCall& call, SpecList& outputs) { UnaryAny(call, outputs, 1); }
void InferMulScalar(const OpCall& call, SpecList& outputs) { UnaryAny(call, outputs, 1); }
void InferDivScalar(const OpCall& call, SpecList& outputs) { UnaryFloat(call, outputs, 1); }
void InferPowScalar(const OpCall& call, SpecList& outputs) { UnaryNumber(call, outputs, 1); }
void InferLogicalNot(const OpCall& call, SpecList& outputs) { UnaryToBool(call, outputs); }
void InferIsFinite(const OpCall& call, SpecList& outputs) { UnaryToBool(call, outputs); }

void InferTriangularMask(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  RequireRank(call, 0, 2, INT64_MAX);
  LikeInput(call, outputs);
}

void InferTanhBackward(const OpCall& call, SpecList& outputs) { BackwardPair(call, outputs); }
void InferSigmoidBackward(const OpCall& call, SpecList& outputs) { BackwardPair(call, outputs); }
void InferReluBackward(const OpCall& call, SpecList& outputs) { BackwardPair(call, outputs); }
void InferGeluBackward(const OpCall& call, SpecList& outputs) { BackwardPair(call, outputs); }

// ---- Broadcasting ----

// Floats of different dtypes whose sum is float32 are added as they are: what a residual stream
// under autocast does, in one pass.
void InferAdd(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 2, 1);
  const DType x = call.inputs[0].dtype(), y = call.inputs[1].dtype();
  if (x != y && IsFloatingPoint(x) && IsFloatingPoint(y) && PromoteTypes(x, y) == DType::kFloat32) {
    return Broadcast(call, outputs, DType::kFloat32);
  }
  Binary(call, outputs, 1);
}
void InferMul(const OpCall& call, SpecList& outputs) { Binary(call, outputs); }
void InferDiv(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 2);
  RequireFloat(call, 0);
  Binary(call, outputs);
}
void InferPow(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 2);
  RequireNumber(call, 0);
  Binary(call, outputs);
}
void InferMaximum(const OpCall& call, SpecList& outputs) { Binary(call, outputs); }
void InferMinimum(const OpCall& call, SpecList& outputs) { Binary(call, outputs); }
void InferEqual(const OpCall& call, SpecList& outputs) { BinaryToBool(call, outputs); }
void InferNotEqual(const OpCall& call, SpecList& outputs) { BinaryToBool(call, outputs); }
void InferLess(const OpCall& call, SpecList& outputs) { BinaryToBool(call, outputs); }
void InferLessEqual(const OpCall& call, SpecList& outputs) { BinaryToBool(call, outputs); }
void InferGreater(const OpCall& call, SpecList& outputs) { BinaryToBool(call, outputs); }
void InferGreaterEqual(const OpCall& call, SpecList& outputs) { BinaryToBool(call, outputs); }
void InferLogicalAnd(const OpCall& call, SpecList& outputs) { BinaryToBool(call, outputs); }
void InferLogicalOr(const OpCall& call, SpecList& outputs) { BinaryToBool(call, outputs); }

void InferWhere(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 3);
  RequireBool(call, 0);
  RequireSameDType(call, 1, 2);
  const Shape values =
      BroadcastShapes(call.inputs[1].shape(), call.inputs[2].shape(), OpName(call));
  Emit(call, outputs, BroadcastShapes(call.inputs[0].shape(), values, OpName(call)),
       call.inputs[1].dtype());
}

// ---- Devices ----

void InferCopyToDevice(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 1);
  const Tensor& x = call.inputs[0];
  const Device device = call.attributes.As<DeviceAttributes>().device;
  if (x.device() == kMeta && device != kMeta) {
    Refuse(call, "x is on meta and has no elements to copy to ", ToString(device),
           "; make the tensor there with Empty or FromVector");
  }
  Emit(call, outputs, x.shape(), x.dtype()).device = device;
}

}  // namespace rules
}  // namespace lockstep
