// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Who holds how many bytes: a line for each rank and device.
#ifndef LOCKSTEP_EXAMPLES_MEMORY_TABLE_H_
#define LOCKSTEP_EXAMPLES_MEMORY_TABLE_H_

#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/tensor/device.h"

namespace lockstep::examples {

// Prints, on rank 0, the peak of each category on each of `devices` and on the host, and the peak
// of everything. Every rank calls it, with the same devices.
void PrintMemory(comm::Communicator& world, std::vector<Device> devices);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_MEMORY_TABLE_H_
