// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives of one rank: what is pending in each pair of ranks, and the thread that
// completes it.
//
// A Send is posted into the pair's channel by the thread that issued it, if there is room; the
// receiver's thread copies it out, compares the calls, and counts it as taken, which completes the
// Send. Small messages travel in the channel. Of large ones only the address does, and the receiver
// copies them from the sender's memory (PeerMemory::Pull); where that is not possible they travel
// in the channel too, in pieces. No transfer waits for one of another pair, or for a collective.
#ifndef LOCKSTEP_COMM_SHM_TRANSFERS_H_
#define LOCKSTEP_COMM_SHM_TRANSFERS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/shm/member.h"
#include "lockstep/comm/shm/peer_memory.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/wait_board.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm::shm {

// Thread-safe.
class Transfers {
 public:
  // Called once, on any thread: nullopt for success. Not called under a lock.
  using Done = std::function<void(std::optional<Error>)>;

  Transfers(Member* member, PeerMemory* memory, bool may_spin);
  // REQUIRES member.Stopped(). What is pending fails.
  ~Transfers();

  // Told of long waits; outlives this. Null: nobody is. Before the first Start.
  void set_waits(WaitBoard* waits) { waits_ = waits; }

  // Starts a Send or Recv of a row-major tensor.
  void Start(const Signature& signature, Tensor tensor, absl::Duration timeout, Done done);

  // So far.
  int64_t fragments_sent() const { return fragments_sent_.load(std::memory_order_relaxed); }
  int64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }

 private:
  struct Pending {
    Signature signature;
    Tensor tensor;
    absl::Duration timeout;
    Done done;
    int64_t number = 0;  // of its pair and direction
    // Absent: others are before it.
    std::optional<Deadline> deadline;
    int64_t since_ns = 0;  // when it became the oldest
    int64_t bytes_moved = 0;
    // Of a send: all of it is in the channel, which counts `end` when it has been taken.
    bool posted = false;
    bool offered = false;
    uint32_t end = 0;
  };
  // In one direction with one peer.
  struct Lane {
    std::deque<Pending> pending;
    size_t posted = 0;  // sends: the first so many are
    int64_t issued = 0;
    uint32_t count = 0;  // of the channel: slots posted, or taken, by this rank
  };
  using Finished = std::vector<std::pair<Done, std::optional<Error>>>;

  // The functions below return whether anything moved.
  bool PostSends(int peer);
  bool PostFragment(int peer, Lane& lane, Pending& send);
  bool FinishSends(int peer, Finished* finished);
  bool ReceiveFrom(int peer, Finished* finished);
  void TakeFragment(int peer, Pending& receive);

  void Run();
  bool Progress(Finished* finished);
  // Tells of waits that are long, and throws when a peer of what is pending is gone, or late.
  // False: nothing is pending.
  bool CheckPending();
  // Why the lane's oldest transfer has to fail.
  struct Verdict {
    absl::StatusCode code;
    std::string text;
    WaitBoard::Wait wait;
  };
  std::optional<Verdict> CheckLane(int peer, bool sends, Lane& lane);
  static WaitBoard::Wait WaitOf(const Pending& pending);
  static void SetDeadline(Pending& oldest);
  void FailAll(const Error& error, Finished* finished);
  void Sleep(uint32_t seen, bool pending);
  std::string Where(const Pending& pending) const;

  Member& member_;
  PeerMemory& memory_;
  const bool may_spin_;
  WaitBoard* waits_ = nullptr;
  std::atomic<int64_t> fragments_sent_{0};
  std::atomic<int64_t> bytes_received_{0};

  std::mutex mutex_;
  // By peer. Of receives the thread reads and pops the front without holding the lock while it
  // copies: others only append.
  std::vector<Lane> sends_;
  std::vector<Lane> receives_;
  std::thread thread_;  // started with the first transfer
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_TRANSFERS_H_
