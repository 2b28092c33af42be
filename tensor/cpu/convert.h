// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Conversion of packed elements between dtypes: the arithmetic of Cast, and how kernels read
// float16, bfloat16 and small integers.
//
// To float16 and bfloat16: from the float32 value, to nearest even, NaN stays NaN. Floating point
// to integers: toward zero; NaN gives 0, values beyond int64 (or int32) saturate, and uint8 takes
// the low bits. Between integers: the low bits. To bool: whether the value differs from 0.
#ifndef LOCKSTEP_TENSOR_CPU_CONVERT_H_
#define LOCKSTEP_TENSOR_CPU_CONVERT_H_

#include <cstdint>

#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {

// Converts `count` elements. `in` and `out` must not overlap.
void ConvertElements(DType from, DType to, int64_t count, const void* in, void* out);

// The pairs that training in low precision runs on every element.
void BFloat16ToFloat(const bfloat16* in, int64_t count, float* out);
void FloatToBFloat16(const float* in, int64_t count, bfloat16* out);
void Float16ToFloat(const float16* in, int64_t count, float* out);
void FloatToFloat16(const float* in, int64_t count, float16* out);

// The same row by row: `rows` rows of `cols` neighbours, `in_stride` and `out_stride` elements
// apart.
struct RowLayout {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t in_stride = 0;
  int64_t out_stride = 0;
};
void BFloat16ToFloat(const bfloat16* in, const RowLayout& layout, float* out);
void FloatToBFloat16(const float* in, const RowLayout& layout, bfloat16* out);
void Float16ToFloat(const float16* in, const RowLayout& layout, float* out);
void FloatToFloat16(const float* in, const RowLayout& layout, float16* out);

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_CONVERT_H_
