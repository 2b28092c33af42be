// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/peer_access.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(PeerAccessTest, CpuDevicesAndTheHostShareMemory) {
  for (const Device from : {Cpu(0), Cpu(7), kHost}) {
    for (const Device to : {Cpu(0), Cpu(7), kHost}) {
      EXPECT_TRUE(CanAccessPeer(from, to)) << ToString(from) << " " << ToString(to);
      EnablePeerAccess(from, to);
      EnablePeerAccess(from, to);
    }
  }
}

TEST(PeerAccessTest, MetaIsRefused) {
  for (const auto& [from, to] : {std::pair(kMeta, Cpu(0)), std::pair(Cpu(0), kMeta)}) {
    const Error error = ErrorOf([&] { CanAccessPeer(from, to); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("CanAccessPeer: meta has no memory"));
    EXPECT_THAT(MessageOf([&] { EnablePeerAccess(from, to); }), HasSubstr("EnablePeerAccess"));
  }
}

// Devices in a ring: each reaches the next one.
class Ring final : public PeerAccess {
 public:
  bool CanAccess(int from, int to) override { return (from + 1) % 3 == to; }
  void Enable(int from, int to) override { enabled.insert({from, to}); }
  std::set<std::pair<int, int>> enabled;
};

// One test, because a type has its backend for ever.
TEST(PeerAccessTest, ABackendAnswersForItsDevices) {
  for (const auto& [from, to] : {std::pair(Cuda(1), Cpu(0)), std::pair(Cpu(0), Cuda(1)),
                                 std::pair(Cuda(1), Cuda(1)), std::pair(Cuda(1), Cuda(2))}) {
    const Error error = ErrorOf([&] { CanAccessPeer(from, to); });
    EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(error.message(), HasSubstr("cuda:1: link the backend of that device "
                                           "(//tensor/cuda)"));
  }
  static Ring ring;
  RegisterPeerAccess(DeviceType::kCuda, &ring);
  EXPECT_TRUE(CanAccessPeer(Cuda(0), Cuda(1)));
  EXPECT_FALSE(CanAccessPeer(Cuda(1), Cuda(0)));
  EXPECT_TRUE(CanAccessPeer(Cuda(1), Cuda(1)));
  EXPECT_FALSE(CanAccessPeer(Cuda(1), Cpu(0)));
  EXPECT_FALSE(CanAccessPeer(kHost, Cuda(0)));
  EnablePeerAccess(Cuda(2), Cuda(0));
  EnablePeerAccess(Cuda(1), Cuda(1));
  EXPECT_EQ(ring.enabled, (std::set<std::pair<int, int>>{{2, 0}}));
  const Error error = ErrorOf([] { EnablePeerAccess(Cuda(1), Cuda(0)); });
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("cuda:1 does not reach the memory of cuda:0"));
  EXPECT_EQ(ErrorOf([] { RegisterPeerAccess(DeviceType::kCuda, &ring); }).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorOf([] { RegisterPeerAccess(DeviceType::kCpu, &ring); }).code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lockstep
