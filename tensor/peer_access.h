// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Peer access: whether a device reads and writes another one's memory by itself, so that a move
// between the two needs no detour through the host.
//
//   if (CanAccessPeer(Cuda(0), Cuda(1))) EnablePeerAccess(Cuda(0), Cuda(1));
//
// Logical CPU devices and the host share their memory: every one reaches every other, without
// being enabled. Moves (To) work without peer access too, by way of the host.
#ifndef LOCKSTEP_TENSOR_PEER_ACCESS_H_
#define LOCKSTEP_TENSOR_PEER_ACCESS_H_

#include "lockstep/tensor/device.h"

namespace lockstep {

// Whether `from` reaches the memory of `to`; a device reaches its own. Not the same in both
// directions everywhere. Throws InvalidArgument for meta, which has no memory, and Unimplemented
// for a device whose backend is not linked. As torch.cuda.can_device_access_peer and
// cudaDeviceCanAccessPeer.
bool CanAccessPeer(Device from, Device to);

// Lets `from` reach the memory of `to` from now on, in this process. Enabling it again changes
// nothing. Throws FailedPrecondition where CanAccessPeer() is false, and as it does. As
// cudaDeviceEnablePeerAccess.
void EnablePeerAccess(Device from, Device to);

// What a backend says of the devices of its type.
class PeerAccess {
 public:
  virtual ~PeerAccess() = default;
  // Indices of two different devices.
  virtual bool CanAccess(int from, int to) = 0;
  // REQUIRES: CanAccess(from, to). May be called again. Thread-safe.
  virtual void Enable(int from, int to) = 0;
};

// Makes `access` (kept for ever) answer for devices of `type`. Throws FailedPrecondition when the
// type has one; the CPU's and the host's needs none.
void RegisterPeerAccess(DeviceType type, PeerAccess* access);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_PEER_ACCESS_H_
