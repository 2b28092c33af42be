// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Making tensors: constants, ranges, random numbers.
//
// All take the dtype (float32 unless said) and device (the current one) from TensorOptions, return
// row-major tensors, and throw InvalidArgument for negative sizes or unsuitable dtypes.
#ifndef LOCKSTEP_TENSOR_OPS_CREATION_H_
#define LOCKSTEP_TENSOR_OPS_CREATION_H_

#include <initializer_list>

#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// A shape argument: `{2, 3}`, a Shape or a span.
class ShapeArg {
 public:
  ShapeArg(std::initializer_list<int64_t> sizes) : sizes_(sizes.begin(), sizes.end()) {}  // NOLINT
  ShapeArg(const Shape& sizes) : sizes_(sizes) {}                                         // NOLINT
  ShapeArg(ShapeSpan sizes) : sizes_(sizes.begin(), sizes.end()) {}                       // NOLINT
  operator const Shape&() const { return sizes_; }                                        // NOLINT
  const Shape& value() const { return sizes_; }

 private:
  Shape sizes_;
};

// `value` everywhere; the dtype is the scalar's own (float32, int64, bool) unless said.
Tensor Full(const ShapeArg& shape, const Scalar& value, const TensorOptions& options = {});
Tensor Zeros(const ShapeArg& shape, const TensorOptions& options = {});
Tensor Ones(const ShapeArg& shape, const TensorOptions& options = {});
// Same shape, dtype and device as `tensor`.
Tensor FullLike(const Tensor& tensor, const Scalar& value);
Tensor ZerosLike(const Tensor& tensor);
Tensor OnesLike(const Tensor& tensor);

// start, start + step, ... before `end`; [ceil((end - start) / step)]. The dtype is int64 when all
// three are integers, float32 otherwise. Throws InvalidArgument when step is 0 or points away.
Tensor Arange(const Scalar& end, const TensorOptions& options = {});
Tensor Arange(const Scalar& start, const Scalar& end, const Scalar& step = 1,
              const TensorOptions& options = {});

// Random numbers in floating-point dtypes. `generator` null: this thread's data stream.
struct RandomOptions {
  Generator* generator = nullptr;
  TensorOptions tensor = {};
};
// Uniform in [low, high).
Tensor RandomUniform(const ShapeArg& shape, double low = 0, double high = 1,
                     const RandomOptions& options = {});
// Throws InvalidArgument when std < 0.
Tensor RandomNormal(const ShapeArg& shape, double mean = 0, double std = 1,
                    const RandomOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OPS_CREATION_H_
