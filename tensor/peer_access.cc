// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/peer_access.h"

#include <array>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Devices of one memory: nothing has to be asked or done.
class SharedMemory final : public PeerAccess {
 public:
  bool CanAccess(int, int) override { return true; }
  void Enable(int, int) override {}
};

std::atomic<PeerAccess*>& SlotOf(DeviceType type) {
  static SharedMemory* const shared = new SharedMemory;
  static auto* slots =
      new std::array<std::atomic<PeerAccess*>, kDeviceTypeCount>{shared, nullptr, nullptr, shared};
  return (*slots)[static_cast<int>(type)];
}

PeerAccess& AccessOf(Device device, absl::string_view call) {
  if (device == kMeta) {
    throw InvalidArgumentError(absl::StrCat(call,
                                            ": meta has no memory to reach or to reach from; "
                                            "give cpu:N, cuda:N or host"));
  }
  PeerAccess* const access = SlotOf(device.type).load(std::memory_order_acquire);
  if (access == nullptr) {
    throw UnimplementedError(absl::StrCat(call, ": nothing is known of ", ToString(device),
                                          ": link the backend of that device (//tensor/cuda)"));
  }
  return *access;
}

struct Pair {
  bool reaches = false;
  PeerAccess* backend = nullptr;  // null where there is nothing to enable
};

Pair Look(Device from, Device to, absl::string_view call) {
  PeerAccess& access = AccessOf(from, call);
  if (&access != &AccessOf(to, call)) return {};
  if (from == to || from.type != to.type) return {.reaches = true};
  return {access.CanAccess(from.index, to.index), &access};
}

}  // namespace

bool CanAccessPeer(Device from, Device to) { return Look(from, to, "CanAccessPeer").reaches; }

void EnablePeerAccess(Device from, Device to) {
  const Pair pair = Look(from, to, "EnablePeerAccess");
  if (!pair.reaches) {
    throw FailedPreconditionError(absl::StrCat("EnablePeerAccess: ", ToString(from),
                                               " does not reach the memory of ", ToString(to),
                                               "; moves between them go through the host"));
  }
  if (pair.backend != nullptr) pair.backend->Enable(from.index, to.index);
}

void RegisterPeerAccess(DeviceType type, PeerAccess* access) {
  PeerAccess* expected = nullptr;
  if (!SlotOf(type).compare_exchange_strong(expected, access)) {
    throw FailedPreconditionError(absl::StrCat("RegisterPeerAccess: devices like ",
                                               ToString(Device{type, 0}), " have one already"));
  }
}

}  // namespace lockstep
