// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a tensor. Visible to backends, comm, state, data and checkpoint only; everything
// else goes through ops, so that layers, streams and versions see every access.
#ifndef LOCKSTEP_TENSOR_TENSOR_DATA_H_
#define LOCKSTEP_TENSOR_TENSOR_DATA_H_

#include "lockstep/tensor/tensor.h"

namespace lockstep {

namespace internal {
// Address of element `offset`; null for an empty storage. Checks T against the dtype.
void* CheckedData(const Tensor& tensor, DType dtype);
}  // namespace internal

// First element (index 0, ..., 0). Waits for pending copies. Throws InvalidArgument when T is not
// the dtype, FailedPrecondition on meta.
template <typename T>
const T* Data(const Tensor& tensor) {
  return static_cast<const T*>(internal::CheckedData(tensor, kDTypeOf<T>));
}
// The same for writing: bumps the version, so that gradients notice.
template <typename T>
T* MutableData(const Tensor& tensor) {
  tensor.storage()->BumpVersion();
  return static_cast<T*>(internal::CheckedData(tensor, kDTypeOf<T>));
}
const void* RawData(const Tensor& tensor);
void* MutableRawData(const Tensor& tensor);

// For kernels only: dispatch has waited, checked, and bumps the version itself.
inline void* KernelRawData(const Tensor& tensor) {
  const TensorImpl& impl = tensor.impl();
  return static_cast<char*>(impl.storage->data()) + impl.offset * ItemSize(impl.dtype);
}
template <typename T>
T* KernelData(const Tensor& tensor) {
  return static_cast<T*>(KernelRawData(tensor));
}

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_TENSOR_DATA_H_
