// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What collectives must give, for tests: data that depend on rank and position, small whole
// numbers, so that sums and products over five ranks are exact in every dtype; and their reductions
// in double, rounded once.
#ifndef LOCKSTEP_COMM_SERIAL_REFERENCE_H_
#define LOCKSTEP_COMM_SERIAL_REFERENCE_H_

#include <cstdint>

#include "lockstep/comm/signature.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::comm {

// Element i of rank's data.
double Value(DType dtype, int rank, int64_t i);

double RoundTo(DType dtype, double value);

// Element i of the reduction over ranks 0 .. size - 1. `factor`: of kPreMultipliedSum.
double Reduced(ReduceOp op, DType dtype, int size, int64_t i, double factor = 1);

// Whether CheckReduceOp accepts it.
bool IsDefined(ReduceOp op, DType dtype);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_SERIAL_REFERENCE_H_
