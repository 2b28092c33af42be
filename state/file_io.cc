// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"

namespace lockstep::state {
namespace {

Error SystemError(absl::string_view what, const std::string& path) {
  const int code = errno;
  const std::string message = absl::StrCat("cannot ", what, " '", path, "': ", std::strerror(code));
  return code == ENOENT ? NotFoundError(message) : FailedPreconditionError(message);
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path)
    : path_(path), temporary_(absl::StrCat(path, ".tmp.", getpid())) {
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw FailedPreconditionError(SystemError("write", temporary_).message());
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::Append(const void* data, int64_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(descriptor_, next, static_cast<size_t>(bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw SystemError("write", temporary_);
    next += written;
    bytes -= written;
  }
}

void AtomicFile::Overwrite(int64_t offset, const void* data, int64_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(descriptor_, next, static_cast<size_t>(bytes), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw SystemError("write", temporary_);
    next += written;
    offset += written;
    bytes -= written;
  }
}

void AtomicFile::Publish() {
  if (fsync(descriptor_) != 0) throw SystemError("make durable", temporary_);
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (close(descriptor) != 0) throw SystemError("close", temporary_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) throw SystemError("replace", path_);
  temporary_.clear();
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  SyncFolder(folder.empty() ? "." : folder);
}

void SyncFolder(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw SystemError("open folder", folder);
  const int result = fsync(descriptor);
  const int code = errno;
  close(descriptor);
  errno = code;
  // Some file systems have no such operation on folders; their renames are durable by themselves.
  if (result != 0 && code != EINVAL) throw SystemError("make durable", folder);
}

namespace {

// Calls `consume(data, bytes)` with the pieces of a file; stops when it returns false.
template <typename Consume>
void ReadPieces(const std::string& path, Consume&& consume) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw SystemError("read", path);
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = read(descriptor, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const Error error = SystemError("read", path);
      close(descriptor);
      throw error;
    }
    if (count == 0 || !consume(buffer, static_cast<size_t>(count))) break;
  }
  close(descriptor);
}

std::string Digits(uint64_t checksum) { return absl::StrFormat("%016x", checksum); }

}  // namespace

bool MayExist(const std::string& path) {
  std::error_code failure;
  return std::filesystem::exists(path, failure) || failure;
}

std::string ReadFile(const std::string& path, int64_t maximum_bytes) {
  std::string content;
  ReadPieces(path, [&](const char* data, size_t bytes) {
    content.append(data, bytes);
    return static_cast<int64_t>(content.size()) <= maximum_bytes;
  });
  if (static_cast<int64_t>(content.size()) > maximum_bytes) {
    throw DataLossError(absl::StrCat("'", path, "' has more than ", maximum_bytes, " bytes"));
  }
  return content;
}

void WriteFile(const std::string& path, absl::string_view text) {
  AtomicFile file(path);
  file.Append(text);
  file.Publish();
}

std::string FileChecksum(const std::string& path) {
  Hasher64 hasher;
  ReadPieces(path, [&](const char* data, size_t bytes) {
    hasher.Update(data, bytes);
    return true;
  });
  return Digits(hasher.Finish());
}

std::string TextChecksum(absl::string_view text) { return Digits(Hash64(text)); }

}  // namespace lockstep::state
