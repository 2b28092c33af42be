// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The content of one file of a FileStore: a key with its value, or the note that it was deleted,
// and a checksum of both, so that a file the file system damaged or cut is not taken for a value.
//
//   magic "LSFS1", 'v' (a value) or 'd' (deleted), key bytes and value bytes as four bytes each,
//   lowest first, key, value, XXH64 of all that as eight bytes, lowest first
#ifndef LOCKSTEP_COMM_FILE_STORE_RECORD_H_
#define LOCKSTEP_COMM_FILE_STORE_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::comm {

struct FileRecord {
  std::string key;
  std::string value = {};
  bool deleted = false;
};

// What the largest key and value take.
inline constexpr int64_t kMaxFileRecordBytes = (1 << 20) + (1 << 10) + 64;

std::string EncodeFileRecord(const FileRecord& record);
// Throws DataLoss, saying what is wrong, unless the bytes are exactly one record.
FileRecord ParseFileRecord(absl::string_view bytes);

// The value of the file in which rank 0 lists whom it has met: one name a line, by rank. Throws
// DataLoss unless there are `world_size` names of 32 hexadecimal digits.
std::vector<std::string> ParseMembers(absl::string_view value, int world_size);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_FILE_STORE_RECORD_H_
