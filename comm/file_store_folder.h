// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a FileStore asks of the file system (file_store.h has the reasons).
#ifndef LOCKSTEP_COMM_FILE_STORE_FOLDER_H_
#define LOCKSTEP_COMM_FILE_STORE_FOLDER_H_

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/comm/socket.h"

namespace lockstep::comm {

// One look at a folder: names are resolved in the folder as it was opened. All throw Unavailable
// with the path and the system's reason.
class StoreFolder {
 public:
  // The folder must exist.
  explicit StoreFolder(const std::string& path);

  struct stat Info() const;
  std::vector<std::string> Names() const;
  bool Exists(const std::string& name) const;
  // Nothing when there is no such file. Throws DataLoss beyond `maximum_bytes`.
  std::optional<std::string> Read(const std::string& name, int64_t maximum_bytes) const;
  // Makes a file of that name, whole or not at all. False when the name is taken. Throws
  // ResourceExhausted (no space), Unimplemented (no hard links).
  bool Publish(const std::string& name, absl::string_view bytes) const;
  // Gives a file's space back, and keeps its name. A failure only costs the space.
  void Empty(const std::string& name) const;

  // What Publish calls a file that it is still writing.
  static constexpr char kTemporaryPrefix[] = "tmp.";

 private:
  void WriteNew(const std::string& name, absl::string_view bytes) const;
  [[noreturn]] void Fail(absl::string_view what, const std::string& name, int error) const;

  std::string path_;
  UniqueFd folder_;
};

// Makes the folder unless it exists. Throws NotFound (the one around it does not).
void MakeStoreFolder(const std::string& path);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_FILE_STORE_FOLDER_H_
