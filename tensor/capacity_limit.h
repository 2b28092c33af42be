// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The limit that SetCapacityLimit (memory.h) has given to a device: for what can tell in advance
// that something will not fit.
//
//   SetCapacityLimit(Cpu(1), 64 << 20);
//   CapacityLimit(Cpu(1));  // 67108864
#ifndef LOCKSTEP_TENSOR_CAPACITY_LIMIT_H_
#define LOCKSTEP_TENSOR_CAPACITY_LIMIT_H_

#include <cstdint>
#include <optional>

#include "lockstep/tensor/device.h"

namespace lockstep {

// In bytes; absent where there is none. Thread-safe.
std::optional<int64_t> CapacityLimit(Device device);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_CAPACITY_LIMIT_H_
