// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The devices of a DataParallel and of the functions it is made of.
#ifndef LOCKSTEP_STRATEGIES_DATA_PARALLEL_DEVICE_LIST_H_
#define LOCKSTEP_STRATEGIES_DATA_PARALLEL_DEVICE_LIST_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/tensor/device.h"

namespace lockstep::strategies {

// cpu:0 .. cpu:count-1. Throws InvalidArgument unless 1 <= count <= 8.
std::vector<Device> CpuDevices(int count);

// Throws InvalidArgument, prefixed by `call`, for an empty list, a device that repeats, and meta
// and host, where nothing is computed.
void CheckDevices(absl::Span<const Device> devices, absl::string_view call);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DATA_PARALLEL_DEVICE_LIST_H_
