// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/device.h"

#include <set>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(DeviceTest, TextConvertsBack) {
  for (const Device device : {Cpu(0), Cpu(7), Cuda(0), Cuda(3), kMeta, kHost}) {
    EXPECT_EQ(ParseDevice(ToString(device)), device) << ToString(device);
  }
  EXPECT_EQ(ToString(Cpu(3)), "cpu:3");
  EXPECT_EQ(ToString(Cuda(5)), "cuda:5");
  EXPECT_EQ(ToString(kMeta), "meta");
  EXPECT_EQ(ToString(kHost), "host");
  EXPECT_EQ(ParseDevice("cpu"), Cpu(0));
  EXPECT_EQ(ParseDevice("cuda"), Cuda(0));
}

TEST(DeviceTest, RefusesOtherText) {
  for (const char* bad : {"", "gpu", "cpu:", "cpu:8", "cpu:-1", "cpu:+1", "cpu: 1", "cpu:01",
                          "cuda:10", "CPU", "meta:0", "host:1", "cpu0"}) {
    try {
      ParseDevice(bad);
      FAIL() << "accepted '" << bad << "'";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(e.message(), testing::HasSubstr("cuda:N"));
    }
  }
}

TEST(DeviceTest, RefusesIndicesOutOfRange) {
  for (const int bad : {-1, 8, 1 << 20}) {
    for (Device (*make)(int) : {Cpu, Cuda}) {
      try {
        make(bad);
        FAIL() << "accepted " << bad;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), absl::StatusCode::kOutOfRange);
        EXPECT_THAT(e.message(), testing::HasSubstr(std::to_string(bad)));
      }
    }
  }
}

TEST(DeviceTest, OrdinalsAreDenseAndDistinct) {
  std::set<int> seen;
  for (int i = 0; i < kMaxDevicesPerType; ++i) {
    seen.insert(Cpu(i).ordinal());
    seen.insert(Cuda(i).ordinal());
  }
  seen.insert(kMeta.ordinal());
  seen.insert(kHost.ordinal());
  EXPECT_EQ(seen.size(), 2u * kMaxDevicesPerType + 2);
  EXPECT_GE(*seen.begin(), 0);
  EXPECT_LT(*seen.rbegin(), kDeviceOrdinalCount);
}

}  // namespace
}  // namespace lockstep
