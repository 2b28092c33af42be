// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/device.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

Device Checked(DeviceType type, int index, absl::string_view call) {
  if (index < 0 || index >= kMaxDevicesPerType) {
    throw OutOfRangeError(
        absl::StrCat(call, ": device index ", index, " is not in [0, ", kMaxDevicesPerType, ")"));
  }
  return Device{type, static_cast<int8_t>(index)};
}

}  // namespace

Device Cpu(int index) { return Checked(DeviceType::kCpu, index, "Cpu"); }
Device Cuda(int index) { return Checked(DeviceType::kCuda, index, "Cuda"); }

std::string ToString(Device device) {
  switch (device.type) {
    case DeviceType::kCpu:
      return absl::StrCat("cpu:", static_cast<int>(device.index));
    case DeviceType::kCuda:
      return absl::StrCat("cuda:", static_cast<int>(device.index));
    case DeviceType::kMeta:
      return "meta";
    case DeviceType::kHost:
      break;
  }
  return "host";
}

Device ParseDevice(absl::string_view text) {
  if (text == "meta") return kMeta;
  if (text == "host") return kHost;
  absl::string_view rest = text;
  DeviceType type = DeviceType::kCpu;
  if (absl::ConsumePrefix(&rest, "cuda")) {
    type = DeviceType::kCuda;
  } else if (!absl::ConsumePrefix(&rest, "cpu")) {
    rest = "invalid";
  }
  int index = 0;
  const bool valid = rest.empty() ||
                     // One digit only: SimpleAtoi alone would take signs and spaces, too.
                     (rest.size() == 2 && rest[0] == ':' && rest[1] >= '0' && rest[1] <= '9' &&
                      absl::SimpleAtoi(rest.substr(1), &index) && index < kMaxDevicesPerType);
  if (!valid) {
    throw InvalidArgumentError(absl::StrCat("ParseDevice: '", text,
                                            "' is not a device; use cpu:N, cuda:N (N from 0 to ",
                                            kMaxDevicesPerType - 1, "), meta or host"));
  }
  return Checked(type, index, "ParseDevice");
}

}  // namespace lockstep
