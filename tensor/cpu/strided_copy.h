// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Copying elements between arrays of any strides: as runs of bytes where both are packed, in tiles
// where the order of dimensions differs, so that both sides are read and written by cache line.
#ifndef LOCKSTEP_TENSOR_CPU_STRIDED_COPY_H_
#define LOCKSTEP_TENSOR_CPU_STRIDED_COPY_H_

#include "lockstep/tensor/cpu/strided_loop.h"
#include "lockstep/tensor/kernel.h"

namespace lockstep::cpu {

// A copy, prepared: plain values, so that it may run later on another thread.
class StridedCopy {
 public:
  // Copies every element of a loop over `sizes`; the arrays have the same dtype and do not overlap.
  // `to` has no stride of 0 in a size above 1.
  StridedCopy(LoopVector sizes, StridedArray to, StridedArray from);

  // Uses the context's threads.
  void Run(const KernelContext& context) const;

 private:
  void CopyRuns(const KernelContext& context) const;
  void CopyTiles(const KernelContext& context, size_t dim) const;

  LoopVector sizes_;
  StridedArray to_;
  StridedArray from_;
};

// `source` broadcast to the shape of `destination`; same dtype.
StridedCopy MakeStridedCopy(const Tensor& destination, const Tensor& source);

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_STRIDED_COPY_H_
