// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Peer memory for ranks that are threads of one process: every address is everybody's.
#ifndef LOCKSTEP_COMM_SHM_THREAD_MEMORY_H_
#define LOCKSTEP_COMM_SHM_THREAD_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "lockstep/comm/shm/peer_memory.h"
#include "lockstep/comm/shm/segment.h"

namespace lockstep::comm::shm {

// What the threads of a group share.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size);

  const ControlBlock& control() const { return control_; }

  // The storages that a rank has open to the others. A peer takes references before it reads: when
  // a collective fails here, a slower peer may still be reading there.
  struct Buffers {
    RefPtr<Storage> input;
    RefPtr<Storage> output;
  };
  void Publish(int rank, Buffers buffers);
  Buffers Take(int rank);

  // The same for transfers: what `from` offers to `to` in a slot of their channel. Null: nothing.
  void Offer(int from, int to, uint32_t slot, RefPtr<Storage> storage);
  RefPtr<Storage> TakeOffer(int from, int to, uint32_t slot);

 private:
  struct Slot {
    std::mutex mutex;
    Buffers buffers;
  };

  Mapping memory_;
  ControlBlock control_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::mutex offers_mutex_;
  std::map<std::tuple<int, int, uint32_t>, RefPtr<Storage>> offers_;
};

class ThreadMemory final : public PeerMemory {
 public:
  // `staged`: pretends that buffers cannot be reached, so that data goes through the control block.
  ThreadMemory(std::shared_ptr<ThreadGroup> group, int rank, bool staged)
      : group_(std::move(group)), rank_(rank), staged_(staged) {}

  RefPtr<Storage> Allocate(int64_t bytes, MemoryCategory category) override;
  void Share(const Collective& collective, Post* post, Deadline deadline) override;
  void Resolve(int peer, const Post& post, Deadline deadline) override;
  bool IsMapped(const BufferDescriptor& descriptor) const override;
  char* Map(int peer, const BufferDescriptor& descriptor) override;
  bool CanRead() const override { return false; }
  void Read(int peer, uint64_t address, void* to, int64_t bytes) override;
  bool CanPull() const override { return !staged_; }
  uint64_t Offer(int peer, uint32_t slot, const Tensor& tensor) override;
  void Withdraw(int peer, uint32_t slot) override;
  void Pull(int peer, uint32_t slot, uint64_t address, void* to, int64_t bytes) override;
  void Release() override;

 private:
  std::shared_ptr<ThreadGroup> group_;
  int rank_;
  bool staged_;
  std::vector<ThreadGroup::Buffers> taken_;  // by peer, of the collective that runs
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_THREAD_MEMORY_H_
