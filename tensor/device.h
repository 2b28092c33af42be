// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Devices: where the bytes of a tensor are.
//
//   cpu:0 .. cpu:7  logical: each has its own statistics and optional capacity limit, on any
//                   machine, and moving between two of them copies
//   cuda:N          a GPU
//   meta            shape and dtype without bytes: every op works through its shape rule
//   host            where offloaded tensors wait (pinned under CUDA), with counters of its own
#ifndef LOCKSTEP_TENSOR_DEVICE_H_
#define LOCKSTEP_TENSOR_DEVICE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace lockstep {

enum class DeviceType : uint8_t { kCpu = 0, kCuda = 1, kMeta = 2, kHost = 3 };
inline constexpr int kDeviceTypeCount = 4;
inline constexpr int kMaxDevicesPerType = 8;

struct Device {
  DeviceType type = DeviceType::kCpu;
  int8_t index = 0;

  friend bool operator==(const Device&, const Device&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Device& d) {
    return H::combine(std::move(h), static_cast<int>(d.type), static_cast<int>(d.index));
  }
  // Dense number for tables: type * kMaxDevicesPerType + index.
  int ordinal() const { return static_cast<int>(type) * kMaxDevicesPerType + index; }
};
inline constexpr int kDeviceOrdinalCount = kDeviceTypeCount * kMaxDevicesPerType;

// Throws OutOfRange unless 0 <= index < 8.
Device Cpu(int index = 0);
Device Cuda(int index = 0);
inline constexpr Device kMeta{DeviceType::kMeta, 0};
inline constexpr Device kHost{DeviceType::kHost, 0};

// "cpu:0", "cuda:1", "meta", "host".
std::string ToString(Device device);
// Accepts the above, and "cpu" and "cuda" for index 0. Throws InvalidArgument.
Device ParseDevice(absl::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_DEVICE_H_
