// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// One CPU kernel for every row of op_list.inc that is not a view: `void <Name>Kernel(...)` with the
// signature and contract of lockstep::Kernel (tensor/kernel.h). A row without a kernel does not
// link. Kernels are reached through dispatch; register_kernels.cc puts them into its table.
//
// All are deterministic: results depend on the operands only, never on the thread count, on an
// element's position or alignment, or (for elementwise ops) on strides. float16 and bfloat16 are
// computed in float32 and rounded once. Integers wrap around.
#ifndef LOCKSTEP_TENSOR_CPU_KERNELS_H_
#define LOCKSTEP_TENSOR_CPU_KERNELS_H_

#include "absl/types/span.h"
#include "lockstep/tensor/attributes.h"
#include "lockstep/tensor/kernel.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cpu {

#define LOCKSTEP_CPU_KERNEL(name)                                                          \
  void name##Kernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs, \
                    const Scalars& scalars, const Attributes& attributes);

// One declaration a row, chosen by the row's kind.
#define LOCKSTEP_CPU_KERNEL_Creation(name) LOCKSTEP_CPU_KERNEL(name)
#define LOCKSTEP_CPU_KERNEL_Random(name) LOCKSTEP_CPU_KERNEL(name)
#define LOCKSTEP_CPU_KERNEL_Elementwise(name) LOCKSTEP_CPU_KERNEL(name)
#define LOCKSTEP_CPU_KERNEL_Broadcasting(name) LOCKSTEP_CPU_KERNEL(name)
#define LOCKSTEP_CPU_KERNEL_Reduction(name) LOCKSTEP_CPU_KERNEL(name)
#define LOCKSTEP_CPU_KERNEL_Contraction(name) LOCKSTEP_CPU_KERNEL(name)
#define LOCKSTEP_CPU_KERNEL_Normalization(name) LOCKSTEP_CPU_KERNEL(name)
#define LOCKSTEP_CPU_KERNEL_Indexing(name) LOCKSTEP_CPU_KERNEL(name)
#define LOCKSTEP_CPU_KERNEL_Copy(name) LOCKSTEP_CPU_KERNEL(name)
#define LOCKSTEP_CPU_KERNEL_Update(name) LOCKSTEP_CPU_KERNEL(name)
#define LOCKSTEP_CPU_KERNEL_View(name)

#define LOCKSTEP_OP(name, inputs, outputs, kind, ...) LOCKSTEP_CPU_KERNEL_##kind(name)
#include "lockstep/tensor/op_list.inc"
#undef LOCKSTEP_OP

#undef LOCKSTEP_CPU_KERNEL_Creation
#undef LOCKSTEP_CPU_KERNEL_Random
#undef LOCKSTEP_CPU_KERNEL_Elementwise
#undef LOCKSTEP_CPU_KERNEL_Broadcasting
#undef LOCKSTEP_CPU_KERNEL_Reduction
#undef LOCKSTEP_CPU_KERNEL_Contraction
#undef LOCKSTEP_CPU_KERNEL_Normalization
#undef LOCKSTEP_CPU_KERNEL_Indexing
#undef LOCKSTEP_CPU_KERNEL_Copy
#undef LOCKSTEP_CPU_KERNEL_Update
#undef LOCKSTEP_CPU_KERNEL_View
#undef LOCKSTEP_CPU_KERNEL

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_KERNELS_H_
