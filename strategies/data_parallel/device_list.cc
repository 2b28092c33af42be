// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/data_parallel/device_list.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::strategies {

std::vector<Device> CpuDevices(int count) {
  if (count < 1 || count > kMaxDevicesPerType) {
    throw InvalidArgumentError(absl::StrCat("CpuDevices: ", count, " devices; give 1 to ",
                                            kMaxDevicesPerType,
                                            ", for cpu:0 to cpu:", kMaxDevicesPerType - 1));
  }
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back(Cpu(i));
  return devices;
}

void CheckDevices(absl::Span<const Device> devices, absl::string_view call) {
  if (devices.empty()) {
    throw InvalidArgumentError(
        absl::StrCat(call, ": no devices; give them, for example CpuDevices(2)"));
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] == kMeta || devices[i] == kHost) {
      throw InvalidArgumentError(absl::StrCat(call, ": nothing is computed on ",
                                              ToString(devices[i]), "; give cpu:0 to cpu:7"));
    }
    for (size_t k = 0; k < i; ++k) {
      if (devices[i] != devices[k]) continue;
      throw InvalidArgumentError(absl::StrCat(call, ": device ", ToString(devices[i]),
                                              " is given twice, as ", k, " and as ", i,
                                              "; give each device once"));
    }
  }
}

}  // namespace lockstep::strategies
