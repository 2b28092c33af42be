// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory without a name that processes can share: gone with its last descriptor and mapping,
// whoever is killed, and not bounded by the size of /dev/shm.
#ifndef LOCKSTEP_COMM_SHM_SEGMENT_H_
#define LOCKSTEP_COMM_SHM_SEGMENT_H_

#include <cstdint>

#include "lockstep/comm/socket.h"

namespace lockstep::comm::shm {

// A mapping; unmapped when it goes. Move-only.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // Shared, of a segment. Throws ResourceExhausted.
  static Mapping OfSegment(int fd, int64_t bytes);
  // Of this process alone, zeros. Throws ResourceExhausted.
  static Mapping Private(int64_t bytes);

  char* data() const { return static_cast<char*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  Mapping(void* data, int64_t bytes) : data_(data), bytes_(bytes) {}

  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// A segment of zeros. `reserve` takes the memory now, so that a lack of it is an error here and not
// a fault at first use. Throws ResourceExhausted.
UniqueFd MakeSegment(int64_t bytes, bool reserve);

// The size of somebody else's segment; negative when `fd` is none.
int64_t SegmentBytes(int fd);

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_SEGMENT_H_
