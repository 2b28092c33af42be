// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Index operands of kernels.
#ifndef LOCKSTEP_TENSOR_CPU_INDEX_LIST_H_
#define LOCKSTEP_TENSOR_CPU_INDEX_LIST_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "lockstep/tensor/kernel.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cpu {

// The elements of `index` (int64 or int32, any strides) in row-major order, each of them within
// [0, limit). Valid as long as the context. Throws OutOfRange, prefixed by `call`, with the
// position and value of the first one that is not.
const int64_t* CheckedIndices(KernelContext& context, const Tensor& index, int64_t limit,
                              absl::string_view call);

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_INDEX_LIST_H_
