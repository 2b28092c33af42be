// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The random words of a key, many at a time (tensor/random.h says which word is whose).
#ifndef LOCKSTEP_TENSOR_CPU_RANDOM_WORDS_H_
#define LOCKSTEP_TENSOR_CPU_RANDOM_WORDS_H_

#include <cmath>
#include <cstdint>

#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/random.h"

namespace lockstep::cpu {

// Words begin, ..., begin + count - 1 of a random op with this key. begin >= 0, any count.
void RandomWords(const RandomKey& key, int64_t begin, int64_t count, uint32_t* words);

// Dropout keeps the element of `word` when (word >> 8) >= DropoutThreshold(p): the uniform number
// (word >> 8) * 2^-24 compared with p, exactly, in integers. 0 <= p <= 1.
inline uint32_t DropoutThreshold(double p) { return static_cast<uint32_t>(std::ceil(p * 0x1p24)); }

// The key in scalars[first], scalars[first + 1], scalars[first + 2].
inline RandomKey KeyFromScalars(const Scalars& scalars, size_t first) {
  return {scalars[first].AsUInt64(), scalars[first + 1].AsUInt64(), scalars[first + 2].AsUInt64()};
}

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_RANDOM_WORDS_H_
