// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the memory of this machine can do, for benchmarks of what is bound by it.
#ifndef LOCKSTEP_COMM_MEMORY_BANDWIDTH_H_
#define LOCKSTEP_COMM_MEMORY_BANDWIDTH_H_

namespace lockstep::comm {

// Bytes a second, read and written ones alike, of all processors together.
struct MemoryBandwidth {
  int threads = 0;
  double copy = 0;  // memcpy: a read and a write an element
  double sum = 0;   // z = x + y: two reads and a write, "B"
};

// On arrays of 64 MiB, which no cache holds. Takes 1 s, and 192 MiB a processor.
MemoryBandwidth MeasureMemoryBandwidth();

// Prints it in a line, with B/4. At two ranks an AllReduce of N bytes moves 4 N (each rank reads
// both halves' inputs and writes both outputs of its half), so that B/4 bounds the bus bandwidth of
// sizes beyond the caches.
void PrintMemoryBandwidth(const MemoryBandwidth& bandwidth);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_MEMORY_BANDWIDTH_H_
