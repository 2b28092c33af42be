// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/cpu/pack.h"

#include <cstdint>

#include "lockstep/tensor/cpu/convert.h"
#include "lockstep/tensor/cpu/strided_copy.h"
#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::cpu {
namespace {

struct Arrays {
  LoopVector sizes;
  StridedArray strided;  // the tensor
  StridedArray packed;   // row-major in the new order
};

Arrays ArraysOf(const Tensor& tensor, int64_t last_dim, void* packed) {
  const int64_t rank = tensor.rank();
  const int64_t item_size = ItemSize(tensor.dtype());
  LoopVector order;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != last_dim) order.push_back(d);
  }
  if (last_dim >= 0 && rank > 0) order.push_back(last_dim);
  Arrays arrays;
  arrays.strided.data = static_cast<char*>(KernelRawData(tensor));
  arrays.packed.data = static_cast<char*>(packed);
  arrays.strided.dtype = arrays.packed.dtype = tensor.dtype();
  arrays.sizes.resize(order.size());
  arrays.strided.strides.resize(order.size());
  arrays.packed.strides.resize(order.size());
  int64_t step = item_size;
  for (int64_t i = static_cast<int64_t>(order.size()) - 1; i >= 0; --i) {
    arrays.sizes[i] = tensor.shape()[order[i]];
    arrays.strided.strides[i] = tensor.strides()[order[i]] * item_size;
    arrays.packed.strides[i] = step;
    step *= arrays.sizes[i];
  }
  return arrays;
}

// Whether the elements are row-major once `last_dim` comes last.
bool IsPacked(const Tensor& tensor, int64_t last_dim) {
  if (last_dim < 0 || last_dim >= tensor.rank() - 1) return tensor.is_contiguous();
  if (tensor.numel() == 0) return true;
  const Arrays arrays = ArraysOf(tensor, last_dim, nullptr);
  for (size_t i = 0; i < arrays.sizes.size(); ++i) {
    if (arrays.sizes[i] != 1 && arrays.strided.strides[i] != arrays.packed.strides[i]) return false;
  }
  return true;
}

void CopyIn(const KernelContext& context, const Tensor& tensor, int64_t last_dim, void* packed) {
  const Arrays arrays = ArraysOf(tensor, last_dim, packed);
  StridedCopy(arrays.sizes, arrays.packed, arrays.strided).Run(context);
}

void CopyOut(const KernelContext& context, const Tensor& tensor, int64_t last_dim, void* packed) {
  const Arrays arrays = ArraysOf(tensor, last_dim, packed);
  StridedCopy(arrays.sizes, arrays.strided, arrays.packed).Run(context);
}

}  // namespace

PackedInput::PackedInput(KernelContext& context, const Tensor& tensor, int64_t last_dim) {
  if (IsPacked(tensor, last_dim)) {
    data_ = KernelRawData(tensor);
    return;
  }
  void* packed = context.Workspace(tensor.bytes());
  CopyIn(context, tensor, last_dim, packed);
  data_ = packed;
}

PackedOutput::PackedOutput(KernelContext& context, const Tensor& tensor, int64_t last_dim)
    : tensor_(tensor), last_dim_(last_dim), is_copy_(!IsPacked(tensor, last_dim)) {
  data_ = is_copy_ ? context.Workspace(tensor.bytes()) : KernelRawData(tensor);
}

void PackedOutput::Finish(const KernelContext& context) const {
  if (is_copy_) CopyOut(context, tensor_, last_dim_, data_);
}

PackedInOut::PackedInOut(KernelContext& context, const Tensor& tensor)
    : tensor_(tensor), is_copy_(!tensor.is_contiguous()) {
  data_ = is_copy_ ? context.Workspace(tensor.bytes()) : KernelRawData(tensor);
  if (is_copy_) CopyIn(context, tensor, -1, data_);
}

void PackedInOut::Finish(const KernelContext& context) const {
  if (is_copy_) CopyOut(context, tensor_, -1, data_);
}

const void* PackedAs(KernelContext& context, const Tensor& tensor, DType dtype) {
  const PackedInput packed(context, tensor);
  if (tensor.dtype() == dtype) return packed.raw();
  void* converted = context.Workspace(tensor.numel() * ItemSize(dtype));
  ConvertElements(tensor.dtype(), dtype, tensor.numel(), packed.raw(), converted);
  return converted;
}

}  // namespace lockstep::cpu
