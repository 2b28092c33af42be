// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of one start make sure that a folder is theirs alone.
//
// Each rank takes the file "rank.<r>", with a random name of its own in it. Rank 0 waits for all of
// them and lists their names in "members", where each rank must find its own and says so in
// "met.<r>"; when all have, rank 0 writes "ready". A file that is taken, or a list with other
// names, is an earlier start's. A start that died while meeting may have left names for rank 0 to
// find, but nobody answers for them, so that nobody gets past the meeting on leftovers.
#ifndef LOCKSTEP_COMM_FILE_STORE_MEETING_H_
#define LOCKSTEP_COMM_FILE_STORE_MEETING_H_

#include <string>

#include "lockstep/base/clock.h"

namespace lockstep::comm {

// What begins the names of a store's files for keys.
inline constexpr char kKeyFilePrefix[] = "key.";

// Throws as FileStore's constructor does.
void MeetInFolder(const std::string& path, int rank, int world_size, Deadline deadline);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_FILE_STORE_MEETING_H_
