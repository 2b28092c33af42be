// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How a rank reaches the buffers of its peers.
#ifndef LOCKSTEP_COMM_SHM_PEER_MEMORY_H_
#define LOCKSTEP_COMM_SHM_PEER_MEMORY_H_

#include <cstdint>
#include <memory>

#include "lockstep/base/clock.h"
#include "lockstep/base/ref_counted.h"
#include "lockstep/comm/collective.h"
#include "lockstep/comm/shm/control_block.h"
#include "lockstep/tensor/storage.h"

namespace lockstep::comm::shm {

// Used by the communication thread, but for Allocate and what is said to serve transfers.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;

  virtual RefPtr<Storage> Allocate(int64_t bytes, MemoryCategory category) = 0;

  // Before this rank posts: fills the post's descriptors and makes the buffers reachable. The
  // tensors are row-major.
  virtual void Share(const Collective& collective, Post* post, Deadline deadline) = 0;

  // After all have posted: gets ready to reach the buffers of `peer`.
  virtual void Resolve(int peer, const Post& post, Deadline deadline) = 0;

  // Whether every rank can map the buffer that `descriptor` of any rank describes. A pure function
  // of the descriptor, so that all ranks decide alike.
  virtual bool IsMapped(const BufferDescriptor& descriptor) const = 0;
  // The address here of a mapped buffer of a resolved peer.
  virtual char* Map(int peer, const BufferDescriptor& descriptor) = 0;

  // Whether Read() works between all ranks: the same on all of them.
  virtual bool CanRead() const = 0;
  // Copies from private memory of `peer`. Throws Unavailable when the peer, or its buffer, is gone.
  virtual void Read(int peer, uint64_t address, void* to, int64_t bytes) = 0;

  // Transfers: by the thread of transfers, and (Offer, Withdraw) by those that send.
  // Whether a receiver can copy from its peers' private memory: the same on all ranks.
  virtual bool CanPull() const = 0;
  // Opens `tensor`, row-major, to `peer` until Withdraw; returns its address for Pull().
  virtual uint64_t Offer(int peer, uint32_t slot, const Tensor& tensor) = 0;
  virtual void Withdraw(int peer, uint32_t slot) = 0;
  // Copies what `peer` has offered. Throws Unavailable when the peer, or its offer, is gone.
  virtual void Pull(int peer, uint32_t slot, uint64_t address, void* to, int64_t bytes) = 0;

  // At the end of a collective, successful or not.
  virtual void Release() = 0;
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_PEER_MEMORY_H_
