// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Files that are there whole or not at all.
#ifndef LOCKSTEP_STATE_FILE_IO_H_
#define LOCKSTEP_STATE_FILE_IO_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lockstep::state {

// A file being written under a temporary name beside `path`. Unless Publish() is reached, the
// temporary file is removed and `path` stays as it was. All throw FailedPrecondition with the path
// and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Append(const void* data, int64_t bytes);
  void Append(absl::string_view text) { Append(text.data(), static_cast<int64_t>(text.size())); }
  // Writes over `bytes` bytes that were appended before, from `offset` on.
  void Overwrite(int64_t offset, const void* data, int64_t bytes);
  // Makes the bytes durable and gives the file its name, replacing what had it.
  void Publish();

 private:
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

// Makes the names in `folder` durable.
void SyncFolder(const std::string& folder);

// False where a path is known to lead to nothing. What cannot be looked at, for want of permission
// say, may be there: reading it says why it cannot be.
bool MayExist(const std::string& path);

// The whole file. Throws NotFound, FailedPrecondition, or DataLoss beyond `maximum_bytes`.
std::string ReadFile(const std::string& path, int64_t maximum_bytes);

// Writes `text` as an AtomicFile.
void WriteFile(const std::string& path, absl::string_view text);

// XXH64, as 16 hexadecimal digits: of the file's bytes, read piece by piece, and of a text. The
// first throws as ReadFile does.
std::string FileChecksum(const std::string& path);
std::string TextChecksum(absl::string_view text);

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_FILE_IO_H_
