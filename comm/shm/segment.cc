// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::comm::shm {
namespace {

[[noreturn]] void ThrowNoMemory(const char* call, int64_t bytes, int error) {
  throw ResourceExhaustedError(
      absl::StrCat("shared memory: ", call, " of ", bytes, " bytes failed: ", ErrnoText(error)));
}

void* Map(int64_t bytes, int flags, int fd) {
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (data == MAP_FAILED) ThrowNoMemory("mmap", bytes, errno);
  return data;
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

Mapping Mapping::OfSegment(int fd, int64_t bytes) {
  return Mapping(Map(bytes, MAP_SHARED, fd), bytes);
}

Mapping Mapping::Private(int64_t bytes) {
  return Mapping(Map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1), bytes);
}

UniqueFd MakeSegment(int64_t bytes, bool reserve) {
  UniqueFd fd(memfd_create("lockstep", MFD_CLOEXEC));
  if (!fd.valid()) ThrowNoMemory("memfd_create", bytes, errno);
  if (ftruncate(fd.get(), bytes) != 0) ThrowNoMemory("ftruncate", bytes, errno);
  while (reserve && fallocate(fd.get(), 0, 0, bytes) != 0) {
    if (errno != EINTR) ThrowNoMemory("fallocate", bytes, errno);
  }
  return fd;
}

int64_t SegmentBytes(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 ? static_cast<int64_t>(status.st_size) : -1;
}

}  // namespace lockstep::comm::shm
