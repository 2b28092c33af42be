// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Kernels: what a backend registers for each op.
#ifndef LOCKSTEP_TENSOR_KERNEL_H_
#define LOCKSTEP_TENSOR_KERNEL_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// Where a kernel runs, and its scratch. Made by dispatch for one call.
class KernelContext {
 public:
  KernelContext(Device device, int stream, int thread_count)
      : device_(device), stream_(stream), thread_count_(thread_count) {}

  Device device() const { return device_; }
  int stream() const { return stream_; }
  int thread_count() const { return thread_count_; }

  // Uninitialised scratch, aligned to 64 bytes, counted as MemoryCategory::kWorkspace, freed after
  // the call. May be called several times; not from inside a parallel region.
  void* Workspace(int64_t bytes);
  template <typename T>
  T* Workspace(int64_t count) {
    return static_cast<T*>(Workspace(count * static_cast<int64_t>(sizeof(T))));
  }

  // base/parallel.h with this call's thread count: chunks of [0, count) whose borders depend on
  // `count` and `chunk` only.
  void ParallelFor(int64_t count, int64_t chunk,
                   absl::FunctionRef<void(int64_t begin, int64_t end)> body) const;

 private:
  Device device_;
  int stream_;
  int thread_count_;
  absl::InlinedVector<RefPtr<Storage>, 2> workspaces_;
};

// Contract: outputs arrive allocated in the specs of the shape rule; the kernel allocates no
// output, returns no alias, and takes scratch from the context only. Inputs have passed the shape
// rule, are on context.device() and ready; they may be strided, empty or zero-dimensional. With
// in-place calls outputs[0] and inputs[0] are the same tensor; no other input overlaps an output.
using Kernel = void (*)(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                        const Scalars& scalars, const Attributes& attributes);

// Throws AlreadyExists when (op, type) has a kernel.
void RegisterKernel(OpId op, DeviceType type, Kernel kernel);
// Null when there is none.
Kernel FindKernel(OpId op, DeviceType type);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_KERNEL_H_
