// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Who holds how many bytes: a line for each rank and device.
#ifndef LOCKSTEP_EXAMPLES_MEMORY_TABLE_H_
#define LOCKSTEP_EXAMPLES_MEMORY_TABLE_H_

#include "lockstep/comm/communicator.h"

namespace lockstep::examples {

// Prints, on rank 0, the peak of each category on the current device and on the host, and the peak
// of everything. Every rank calls it.
void PrintMemory(comm::Communicator& world);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_MEMORY_TABLE_H_
