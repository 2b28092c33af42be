// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Peer memory for ranks that are processes: segments are mapped, private memory is read through the
// kernel (process_vm_readv) where that is allowed.
//
// A segment's descriptor is sent to the peers over their sockets when it is first used in a
// collective, before the rank posts; the post says how many messages have been sent, so that a peer
// knows how many to take.
#ifndef LOCKSTEP_COMM_SHM_PROCESS_MEMORY_H_
#define LOCKSTEP_COMM_SHM_PROCESS_MEMORY_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/comm/shm/member.h"
#include "lockstep/comm/shm/peer_memory.h"
#include "lockstep/comm/shm/segment.h"
#include "lockstep/comm/socket.h"

namespace lockstep::comm::shm {

// A socket to each peer. It ends when the peer does.
class PeerLinks final : public Liveness {
 public:
  struct Link {
    UniqueFd socket;  // invalid for this rank itself
    pid_t pid = -1;
  };
  explicit PeerLinks(std::vector<Link> links) : links_(std::move(links)) {}

  bool IsGone(int rank) override;
  int socket(int rank) const { return links_[static_cast<size_t>(rank)].socket.get(); }
  pid_t pid(int rank) const { return links_[static_cast<size_t>(rank)].pid; }
  int size() const { return static_cast<int>(links_.size()); }

 private:
  std::vector<Link> links_;
};

class ProcessMemory final : public PeerMemory {
 public:
  ProcessMemory(std::shared_ptr<PeerLinks> links, int rank);
  ~ProcessMemory() override;

  // Set once, after the ranks have agreed.
  void set_can_read(bool can_read) { can_read_ = can_read; }

  RefPtr<Storage> Allocate(int64_t bytes, MemoryCategory category) override;
  void Share(const Collective& collective, Post* post, Deadline deadline) override;
  void Resolve(int peer, const Post& post, Deadline deadline) override;
  bool IsMapped(const BufferDescriptor& descriptor) const override {
    return descriptor.segment != 0;
  }
  char* Map(int peer, const BufferDescriptor& descriptor) override;
  bool CanRead() const override { return can_read_; }
  void Read(int peer, uint64_t address, void* to, int64_t bytes) override;
  bool CanPull() const override { return can_read_; }
  uint64_t Offer(int peer, uint32_t slot, const Tensor& tensor) override;
  void Withdraw(int /*peer*/, uint32_t /*slot*/) override {}
  void Pull(int peer, uint32_t slot, uint64_t address, void* to, int64_t bytes) override;
  void Release() override {}

 private:
  class Registry;
  struct Message;
  struct Peer {
    std::map<uint64_t, Mapping> segments;
    uint64_t messages_received = 0;
  };

  BufferDescriptor Describe(const Tensor& tensor, Deadline deadline);
  void SendToAll(const Message& message, int descriptor, Deadline deadline);
  void ReceiveOne(int peer, Deadline deadline);

  std::shared_ptr<PeerLinks> links_;
  int rank_;
  bool can_read_ = false;
  std::shared_ptr<Registry> registry_;  // storages may outlive this object
  std::vector<Peer> peers_;
  uint64_t messages_sent_ = 0;
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_PROCESS_MEMORY_H_
