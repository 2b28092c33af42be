// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Entry point for libFuzzer: bytes are a file in a rendezvous folder.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/file_store_record.h"

namespace {

using lockstep::comm::EncodeFileRecord;
using lockstep::comm::FileRecord;
using lockstep::comm::ParseFileRecord;

void ParseMembers(absl::string_view bytes, int world_size) {
  try {
    const std::vector<std::string> names = lockstep::comm::ParseMembers(bytes, world_size);
    if (names.size() != static_cast<size_t>(world_size)) __builtin_trap();
  } catch (const lockstep::Error&) {
    // Refusing is right; anything else that is thrown is a finding.
  }
}

// What was accepted is exactly what the writer would have written.
void ParseRecord(absl::string_view bytes) {
  try {
    if (EncodeFileRecord(ParseFileRecord(bytes)) != bytes) __builtin_trap();
  } catch (const lockstep::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  ParseRecord(bytes);
  ParseMembers(bytes, 1 + static_cast<int>(size / 33));
  // The checksum keeps a fuzzer out: let it also choose the contents of a record that is right.
  const size_t key_bytes = size < 256 ? size / 2 : 128;
  const std::string record = EncodeFileRecord({.key = std::string(bytes.substr(0, key_bytes)),
                                               .value = std::string(bytes.substr(key_bytes)),
                                               .deleted = size % 2 == 1});
  const FileRecord parsed = ParseFileRecord(record);
  if (parsed.key != bytes.substr(0, key_bytes) || parsed.value != bytes.substr(key_bytes)) {
    __builtin_trap();
  }
  return 0;
}
