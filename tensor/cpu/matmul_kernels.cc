// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of MatMul and Linear: operands into the form of RunMatMul.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/matmul.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::cpu {
namespace {

// A vector counts as one row (the left operand) or one column (the right one).
struct Matrices {
  MatMulOperand operand;
  Shape batch;
  int64_t rows;
  int64_t cols;
};

Matrices AsMatrices(const Tensor& tensor, bool transpose, bool is_left) {
  const Shape& shape = tensor.shape();
  const Strides& strides = tensor.strides();
  Matrices result;
  result.operand.data = KernelRawData(tensor);
  if (shape.size() == 1) {
    result.rows = is_left ? 1 : shape[0];
    result.cols = is_left ? shape[0] : 1;
    result.operand.row_stride = is_left ? 0 : strides[0];
    result.operand.col_stride = is_left ? strides[0] : 0;
    return result;
  }
  const size_t leading = shape.size() - 2;
  result.batch.assign(shape.begin(), shape.begin() + leading);
  result.operand.batch_strides.assign(strides.begin(), strides.begin() + leading);
  result.rows = shape[leading];
  result.cols = shape[leading + 1];
  result.operand.row_stride = strides[leading];
  result.operand.col_stride = strides[leading + 1];
  if (transpose) {
    std::swap(result.rows, result.cols);
    std::swap(result.operand.row_stride, result.operand.col_stride);
  }
  return result;
}

}  // namespace

void MatMulKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                  const Scalars&, const Attributes& attributes) {
  const auto& options = attributes.As<MatMulAttributes>();
  Matrices a = AsMatrices(inputs[0], options.transpose_a, true);
  Matrices b = AsMatrices(inputs[1], options.transpose_b, false);
  MatMulCall call;
  call.dtype = inputs[0].dtype();
  call.batch = BroadcastShapes(a.batch, b.batch, "MatMul");
  call.m = a.rows;
  call.n = b.cols;
  call.k = a.cols;
  call.a = a.operand;
  call.b = b.operand;
  call.a.batch_strides = BroadcastStrides(a.batch, a.operand.batch_strides, call.batch, "MatMul");
  call.b.batch_strides = BroadcastStrides(b.batch, b.operand.batch_strides, call.batch, "MatMul");
  call.c = KernelRawData(outputs[0]);
  RunMatMul(context, std::move(call));
}

void LinearKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                  const Scalars&, const Attributes&) {
  const Tensor& weight = inputs[1];
  const Tensor& bias = inputs[2];
  Matrices x = AsMatrices(inputs[0], false, true);
  MatMulCall call;
  call.dtype = inputs[0].dtype();
  call.batch = x.batch;
  call.m = x.rows;
  call.n = weight.shape()[0];
  call.k = x.cols;
  call.a = x.operand;
  call.b.data = KernelRawData(weight);
  call.b.batch_strides.assign(x.batch.size(), 0);
  call.b.row_stride = weight.strides()[1];
  call.b.col_stride = weight.strides()[0];
  call.c = KernelRawData(outputs[0]);
  if (bias.defined()) {
    call.bias = KernelRawData(bias);
    if (bias.strides()[0] != 1 && call.n > 1) {
      const int64_t item_size = ItemSize(call.dtype);
      char* packed = static_cast<char*>(context.Workspace(call.n * item_size));
      for (int64_t i = 0; i < call.n; ++i) {
        std::memcpy(packed + i * item_size,
                    static_cast<const char*>(call.bias) + i * bias.strides()[0] * item_size,
                    static_cast<size_t>(item_size));
      }
      call.bias = packed;
    }
  }
  RunMatMul(context, std::move(call));
}

}  // namespace lockstep::cpu
