// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of reductions over ranks, on plain memory.
//
//   const void* sources[] = {rank0, rank1, rank2};
//   ReduceElements(ReduceOp::kAverage, DType::kFloat16, sources, count, destination);
#ifndef LOCKSTEP_COMM_REDUCE_H_
#define LOCKSTEP_COMM_REDUCE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/comm/signature.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::comm {

// destination[i] = (sources[0][i] op sources[1][i]) op ... for i in [0, count).
//
// float16 and bfloat16 are accumulated in float32 and rounded once, to nearest even; an average is
// the sum times float(1 / sources.size()) (float64: in double); a pre-multiplied sum adds the
// elements times float(factor) (float64: in double). Each element is computed by the
// same instructions wherever it stands, so that cutting the range in pieces changes nothing.
// `destination` may be one of the sources. Addresses are aligned to the element.
//
// REQUIRES: at least one source, and CheckReduceOp(op, dtype) passed.
void ReduceElements(ReduceOp op, DType dtype, absl::Span<const void* const> sources, int64_t count,
                    void* destination, double factor = 1);

// As memcpy. From 256 KiB on the bytes go past the caches: what a rank writes for others, or will
// not read soon, would only evict what it works on.
void CopyBytes(void* destination, const void* source, int64_t bytes);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_REDUCE_H_
