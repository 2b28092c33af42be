// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/file_store_record.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm {
namespace {

constexpr absl::string_view kMagic = "LSFS1";
constexpr size_t kHeaderBytes = 5 + 1 + 4 + 4;
constexpr size_t kChecksumBytes = 8;
constexpr size_t kNameDigits = 32;

void AppendNumber(std::string* bytes, uint64_t number, size_t count) {
  for (size_t i = 0; i < count; ++i) bytes->push_back(static_cast<char>(number >> (8 * i)));
}

uint64_t NumberAt(absl::string_view bytes, size_t position, size_t count) {
  uint64_t number = 0;
  for (size_t i = 0; i < count; ++i) {
    number |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[position + i])) << (8 * i);
  }
  return number;
}

}  // namespace

std::string EncodeFileRecord(const FileRecord& record) {
  std::string bytes(kMagic);
  bytes.push_back(record.deleted ? 'd' : 'v');
  AppendNumber(&bytes, record.key.size(), 4);
  AppendNumber(&bytes, record.value.size(), 4);
  absl::StrAppend(&bytes, record.key, record.value);
  AppendNumber(&bytes, Hash64(bytes), kChecksumBytes);
  return bytes;
}

FileRecord ParseFileRecord(absl::string_view bytes) {
  if (bytes.size() < kHeaderBytes + kChecksumBytes || bytes.substr(0, kMagic.size()) != kMagic ||
      (bytes[kMagic.size()] != 'v' && bytes[kMagic.size()] != 'd')) {
    throw DataLossError(
        absl::StrCat("file store: ", bytes.size(), " bytes are no record of a store"));
  }
  const uint64_t key_bytes = NumberAt(bytes, kMagic.size() + 1, 4);
  const uint64_t value_bytes = NumberAt(bytes, kMagic.size() + 5, 4);
  if (key_bytes > static_cast<uint64_t>(kMaxStoreKeyBytes) ||
      value_bytes > static_cast<uint64_t>(kMaxStoreValueBytes) ||
      bytes.size() != kHeaderBytes + key_bytes + value_bytes + kChecksumBytes) {
    throw DataLossError(absl::StrCat("file store: a record of ", bytes.size(), " bytes claims a ",
                                     "key of ", key_bytes, " and a value of ", value_bytes));
  }
  const absl::string_view content = bytes.substr(0, bytes.size() - kChecksumBytes);
  if (Hash64(content) != NumberAt(bytes, content.size(), kChecksumBytes)) {
    throw DataLossError("file store: a record's checksum does not fit its bytes");
  }
  return {.key = std::string(bytes.substr(kHeaderBytes, key_bytes)),
          .value = std::string(bytes.substr(kHeaderBytes + key_bytes, value_bytes)),
          .deleted = bytes[kMagic.size()] == 'd'};
}

std::vector<std::string> ParseMembers(absl::string_view value, int world_size) {
  std::vector<std::string> names = absl::StrSplit(value, '\n');
  const bool right = names.size() == static_cast<size_t>(world_size) &&
                     std::all_of(names.begin(), names.end(), [](const std::string& name) {
                       return name.size() == kNameDigits &&
                              std::all_of(name.begin(), name.end(), absl::ascii_isxdigit);
                     });
  if (!right) {
    throw DataLossError(
        absl::StrCat("file store: the list of members does not name ", world_size, " ranks"));
  }
  return names;
}

}  // namespace lockstep::comm
