// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Reductions of packed arrays: the inner loops of Sum, Mean, Max, Min, All and Any.
#ifndef LOCKSTEP_TENSOR_CPU_REDUCE_BLOCK_H_
#define LOCKSTEP_TENSOR_CPU_REDUCE_BLOCK_H_

#include <cstdint>

#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {

// kAll and kAny give 1 or 0; NaN counts as not zero. kMax and kMin give NaN when there is one.
enum class ReduceOp { kSum, kMax, kMin, kAll, kAny };

// Elements per call that keep float32 sums accurate: each of at least 4 accumulators (32 with
// vectors of 8 lanes) adds a few hundred of them at most; callers add the results in double.
inline constexpr int64_t kReduceBlock = 2048;

// Over `count` >= 1 elements. Integer sums wrap around.
double ReduceBlock(ReduceOp op, int64_t count, const float* x);
double ReduceBlock(ReduceOp op, int64_t count, const double* x);
int64_t ReduceBlock(ReduceOp op, int64_t count, const int64_t* x);

// Rows taken in one pass by AccumulateRows.
inline constexpr int kRowGroup = 4;

// Element by element: accumulator[j] = accumulator[j] op rows[0][j] op ... for `row_count` <=
// kRowGroup rows of `count` elements; sums add the rows of a group in pairs first.
void AccumulateRows(ReduceOp op, int row_count, int64_t count, const float* const* rows,
                    float* accumulator);
void AccumulateRows(ReduceOp op, int row_count, int64_t count, const bfloat16* const* rows,
                    float* accumulator);
void AccumulateRows(ReduceOp op, int row_count, int64_t count, const double* const* rows,
                    double* accumulator);
void AccumulateRows(ReduceOp op, int row_count, int64_t count, const int64_t* const* rows,
                    int64_t* accumulator);

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_REDUCE_BLOCK_H_
