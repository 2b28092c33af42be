// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/creation.h"

#include <cmath>

#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/op_util.h"

namespace lockstep {
namespace {

CreateAttributes MakeAttributes(const Shape& shape, DType dtype, std::optional<Device> device) {
  CreateAttributes attributes;
  attributes.shape = shape;
  attributes.dtype = dtype;
  attributes.device = device.value_or(CurrentDevice());
  return attributes;
}

Tensor MakeFull(const Shape& shape, const Scalar& value, DType dtype, std::optional<Device> device,
                const char* call) {
  NumElements(shape, call);
  ops::RequireFits(value, dtype, call);
  return Dispatch1(OpId::kFull, {}, {value}, MakeAttributes(shape, dtype, device));
}

// Number of elements of a range with integer bounds; steps point from start to end.
int64_t RangeLength(int64_t start, int64_t end, int64_t step) {
  const __int128 distance = static_cast<__int128>(end) - start;
  const __int128 length = (distance + step - (step > 0 ? 1 : -1)) / step;
  if (length > INT64_MAX) ops::Refuse("Arange", "the range has more elements than an int64 counts");
  return static_cast<int64_t>(length);
}

int64_t RangeLength(double start, double end, double step) {
  const double length = std::ceil((end - start) / step);
  if (!(length < 0x1p62)) ops::Refuse("Arange", "the range has more elements than memory can hold");
  return static_cast<int64_t>(length);
}

Tensor Random(OpId op, const char* call, const ShapeArg& shape, double first, double second,
              const RandomOptions& options) {
  const DType dtype = options.tensor.dtype.value_or(DType::kFloat32);
  if (!IsFloatingPoint(dtype)) {
    ops::Refuse(call, "dtype ", DTypeName(dtype),
                " is not a floating-point dtype; make float32 and cast it with To");
  }
  const int64_t count = NumElements(shape.value(), call);
  Generator& generator =
      options.generator != nullptr ? *options.generator : ThreadGenerators().data;
  ops::PendingDraw draw(generator, count);
  Tensor result = Dispatch1(op, {}, {first, second, draw.seed(), draw.stream(), draw.offset()},
                            MakeAttributes(shape.value(), dtype, options.tensor.device));
  draw.Commit();
  return result;
}

}  // namespace

Tensor Full(const ShapeArg& shape, const Scalar& value, const TensorOptions& options) {
  return MakeFull(shape, value, options.dtype.value_or(DefaultDType(value)), options.device,
                  "Full");
}

Tensor Zeros(const ShapeArg& shape, const TensorOptions& options) {
  return MakeFull(shape, 0, options.dtype.value_or(DType::kFloat32), options.device, "Zeros");
}

Tensor Ones(const ShapeArg& shape, const TensorOptions& options) {
  return MakeFull(shape, 1, options.dtype.value_or(DType::kFloat32), options.device, "Ones");
}

Tensor FullLike(const Tensor& tensor, const Scalar& value) {
  ops::RequireDefined(tensor, "FullLike", "tensor");
  return MakeFull(tensor.shape(), value, tensor.dtype(), tensor.device(), "FullLike");
}

Tensor ZerosLike(const Tensor& tensor) {
  ops::RequireDefined(tensor, "ZerosLike", "tensor");
  return MakeFull(tensor.shape(), 0, tensor.dtype(), tensor.device(), "ZerosLike");
}

Tensor OnesLike(const Tensor& tensor) {
  ops::RequireDefined(tensor, "OnesLike", "tensor");
  return MakeFull(tensor.shape(), 1, tensor.dtype(), tensor.device(), "OnesLike");
}

Tensor Arange(const Scalar& end, const TensorOptions& options) {
  return Arange(0, end, 1, options);
}

Tensor Arange(const Scalar& start, const Scalar& end, const Scalar& step,
              const TensorOptions& options) {
  bool integers = true;
  for (const Scalar& value : {start, end, step}) {
    if (value.kind() == Scalar::Kind::kDouble) integers = false;
    if (!std::isfinite(value.AsDouble())) {
      ops::Refuse("Arange", ops::ToString(value), " is not a finite number");
    }
  }
  const auto text = [&] {
    return absl::StrCat("start ", ops::ToString(start), ", end ", ops::ToString(end), ", step ",
                        ops::ToString(step));
  };
  if (step.AsDouble() == 0) ops::Refuse("Arange", "step is 0 (", text(), ")");
  const bool away = integers ? (step.AsInt64() > 0 ? start.AsInt64() > end.AsInt64()
                                                   : start.AsInt64() < end.AsInt64())
                             : (end.AsDouble() - start.AsDouble()) / step.AsDouble() < 0;
  if (away) ops::Refuse("Arange", "step points away from end (", text(), "); change its sign");
  const int64_t length = integers ? RangeLength(start.AsInt64(), end.AsInt64(), step.AsInt64())
                                  : RangeLength(start.AsDouble(), end.AsDouble(), step.AsDouble());

  const DType dtype = options.dtype.value_or(integers ? DType::kInt64 : DType::kFloat32);
  if (dtype == DType::kBool) {
    ops::Refuse("Arange", "dtype bool cannot hold a range; use an integer or floating-point dtype");
  }
  if (length > 0) {
    ops::RequireFits(start, dtype, "Arange");
    const Scalar last =
        integers ? Scalar(start.AsInt64() + (length - 1) * step.AsInt64())
                 : Scalar(start.AsDouble() + static_cast<double>(length - 1) * step.AsDouble());
    ops::RequireFits(last, dtype, "Arange");
  }
  return Dispatch1(OpId::kArange, {}, {start, step},
                   MakeAttributes({length}, dtype, options.device));
}

Tensor RandomUniform(const ShapeArg& shape, double low, double high, const RandomOptions& options) {
  if (!std::isfinite(low) || !std::isfinite(high) || low > high) {
    ops::Refuse("RandomUniform", "the range [", low, ", ", high,
                ") must have finite bounds in ascending order");
  }
  return Random(OpId::kRandomUniform, "RandomUniform", shape, low, high, options);
}

Tensor RandomNormal(const ShapeArg& shape, double mean, double std, const RandomOptions& options) {
  if (!std::isfinite(mean) || !std::isfinite(std) || std < 0) {
    ops::Refuse("RandomNormal", "mean ", mean, " and std ", std,
                " must be finite, and std not negative");
  }
  return Random(OpId::kRandomNormal, "RandomNormal", shape, mean, std, options);
}

}  // namespace lockstep
