// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Row-major views of strided tensors, for kernels that work on whole rows: the tensor itself where
// its elements lie that way already, else a copy in the call's workspace.
//
//   const PackedInput x(context, inputs[0], dim);      // `dim` moved to the end
//   PackedOutput y(context, outputs[0], dim);
//   ... rows of x.data<T>() and y.data<T>() ...
//   y.Finish(context);
#ifndef LOCKSTEP_TENSOR_CPU_PACK_H_
#define LOCKSTEP_TENSOR_CPU_PACK_H_

#include <cstdint>

#include "lockstep/tensor/kernel.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cpu {

class PackedInput {
 public:
  // `last_dim` is the dimension that comes last (its neighbours keep their order); -1: as they are.
  PackedInput(KernelContext& context, const Tensor& tensor, int64_t last_dim = -1);

  const void* raw() const { return data_; }
  template <typename T>
  const T* data() const {
    return static_cast<const T*>(data_);
  }

 private:
  const void* data_;
};

// Memory that is written as a whole and then becomes the tensor's elements.
class PackedOutput {
 public:
  PackedOutput(KernelContext& context, const Tensor& tensor, int64_t last_dim = -1);

  void* raw() const { return data_; }
  template <typename T>
  T* data() const {
    return static_cast<T*>(data_);
  }
  // Copies into the tensor unless the memory is the tensor's own.
  void Finish(const KernelContext& context) const;

 private:
  void* data_;
  Tensor tensor_;
  int64_t last_dim_;
  bool is_copy_;
};

// Both: read, changed and written back.
class PackedInOut {
 public:
  PackedInOut(KernelContext& context, const Tensor& tensor);
  void* raw() const { return data_; }
  void Finish(const KernelContext& context) const;

 private:
  void* data_;
  Tensor tensor_;
  bool is_copy_;
};

// The elements of `tensor` in order, converted to `dtype`, in workspace unless they need no change.
// For small tensors (weights of a norm): runs on one thread.
const void* PackedAs(KernelContext& context, const Tensor& tensor, DType dtype);

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_PACK_H_
