// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Checksums of what ranks tell each other about their calls. Always on: a header that is damaged
// would make a rank read memory that is not there, or wait for a message that never comes.
//
// Every field enters, but the checksum itself; any one that changes changes the result. Field by
// field and not over the bytes, because structs have gaps. About 20 ns.
#ifndef LOCKSTEP_COMM_SHM_HEADER_CHECKSUM_H_
#define LOCKSTEP_COMM_SHM_HEADER_CHECKSUM_H_

#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/comm/shm/control_block.h"

namespace lockstep::comm::shm {

// `counts`: of an uneven collective.
uint64_t HeaderChecksum(const Post& post, absl::Span<const int64_t> counts);
uint64_t HeaderChecksum(const Fragment& fragment);

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_HEADER_CHECKSUM_H_
