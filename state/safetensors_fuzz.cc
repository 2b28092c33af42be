// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Entry point for libFuzzer: bytes are a whole safetensors file.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/state/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const lockstep::state::SafetensorsHeader header =
        lockstep::state::ParseSafetensorsHeader(bytes, static_cast<int64_t>(size));
    // What was accepted must lie inside the file, whatever the bytes were.
    for (const auto& entry : header.entries) {
      if (entry.begin_bytes < 0 || entry.begin_bytes > entry.end_bytes ||
          entry.end_bytes > static_cast<int64_t>(size) - header.data_begin_bytes) {
        __builtin_trap();
      }
    }
  } catch (const lockstep::Error&) {
    // Refusing is right; anything else that is thrown is a finding.
  }
  return 0;
}
