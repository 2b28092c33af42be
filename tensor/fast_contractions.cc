// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/fast_contractions.h"

#include <array>
#include <atomic>

namespace lockstep {
namespace {

using Table = std::array<std::atomic<bool (*)(DType)>, kDeviceTypeCount>;

Table& Backends() {
  static constinit Table table{};
  return table;
}

}  // namespace

bool HasFastContractions(DeviceType type, DType dtype) {
  bool (*const has_fast)(DType) =
      Backends()[static_cast<int>(type)].load(std::memory_order_acquire);
  return has_fast != nullptr && has_fast(dtype);
}

void RegisterFastContractions(DeviceType type, bool (*has_fast)(DType dtype)) {
  Backends()[static_cast<int>(type)].store(has_fast, std::memory_order_release);
}

}  // namespace lockstep
