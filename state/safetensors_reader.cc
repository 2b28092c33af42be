// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/safetensors_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::state {

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path) {
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    const int code = errno;
    const std::string message = absl::StrCat("cannot open '", path, "': ", std::strerror(code));
    throw code == ENOENT ? NotFoundError(message) : FailedPreconditionError(message);
  }
  try {
    ReadHeader();
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

SafetensorsReader::~SafetensorsReader() { close(descriptor_); }

void SafetensorsReader::ReadHeader() {
  struct stat info;
  if (fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
    throw FailedPreconditionError(absl::StrCat("cannot read '", path_, "': not a file"));
  }
  const int64_t file_bytes = info.st_size;
  // The length says how much more is needed; the parser says what is wrong with it.
  std::string prefix(static_cast<size_t>(std::min<int64_t>(file_bytes, 8)), '\0');
  Read(0, prefix.data(), static_cast<int64_t>(prefix.size()));
  uint64_t length = 0;
  for (size_t i = prefix.size(); i-- > 0;) length = length << 8 | static_cast<uint8_t>(prefix[i]);
  if (length <= static_cast<uint64_t>(std::min(kMaximumHeaderBytes, file_bytes))) {
    const auto header_bytes = std::min<int64_t>(file_bytes, 8 + static_cast<int64_t>(length));
    prefix.resize(static_cast<size_t>(header_bytes));
    Read(0, prefix.data(), header_bytes);
  }
  try {
    header_ = ParseSafetensorsHeader(prefix, file_bytes);
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat("'", path_, "'"));
  }
  for (size_t i = 0; i < header_.entries.size(); ++i) index_[header_.entries[i].name] = i;
}

void SafetensorsReader::Read(int64_t offset, void* to, int64_t bytes) const {
  char* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t count = pread(descriptor_, next, static_cast<size_t>(bytes), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw FailedPreconditionError(
          absl::StrCat("cannot read '", path_, "': ", std::strerror(errno)));
    }
    if (count == 0) {
      throw DataLossError(absl::StrCat("'", path_, "' ends at byte ", offset, ", ", bytes,
                                       " bytes too early: it was cut short while it was open"));
    }
    next += count;
    offset += count;
    bytes -= count;
  }
}

const SafetensorsHeader::Entry& SafetensorsReader::At(absl::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    throw NotFoundError(absl::StrCat("'", path_, "' has no tensor '", name, "'; it has ",
                                     header_.entries.size(), " others"));
  }
  return header_.entries[found->second];
}

Tensor SafetensorsReader::Load(absl::string_view name) const {
  const SafetensorsHeader::Entry& entry = At(name);
  const Tensor tensor = Empty(entry.shape, {.dtype = entry.dtype});
  if (tensor.bytes() > 0) {
    Read(header_.data_begin_bytes + entry.begin_bytes, MutableRawData(tensor), tensor.bytes());
  }
  return tensor;
}

Tensor SafetensorsReader::LoadRange(absl::string_view name, int64_t begin, int64_t end) const {
  const SafetensorsHeader::Entry& entry = At(name);
  const int64_t item = ItemSize(entry.dtype);
  const int64_t numel = (entry.end_bytes - entry.begin_bytes) / item;
  if (begin < 0 || begin > end || end > numel) {
    throw OutOfRangeError(absl::StrCat("SafetensorsReader::LoadRange: elements [", begin, ", ", end,
                                       ") of '", name, "', which has ", numel));
  }
  const Tensor tensor = Empty({end - begin}, {.dtype = entry.dtype});
  if (tensor.bytes() > 0) {
    Read(header_.data_begin_bytes + entry.begin_bytes + begin * item, MutableRawData(tensor),
         tensor.bytes());
  }
  return tensor;
}

}  // namespace lockstep::state
