// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// In which dtypes a backend multiplies matrices faster than in float32, on the machine it runs on:
// what mixed precision is worth there.
#ifndef LOCKSTEP_TENSOR_FAST_CONTRACTIONS_H_
#define LOCKSTEP_TENSOR_FAST_CONTRACTIONS_H_

#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep {

// False also where no backend for such devices is linked. Thread-safe.
bool HasFastContractions(DeviceType type, DType dtype);

// For backends, at registration. The last one counts.
void RegisterFastContractions(DeviceType type, bool (*has_fast)(DType dtype));

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_FAST_CONTRACTIONS_H_
