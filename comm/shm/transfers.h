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

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/fault_injector.h"
#include "lockstep/comm/shm/member.h"
#include "lockstep/comm/shm/peer_memory.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/wait_board.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm::shm {

// A thread that waits for a transfer moves data itself meanwhile (Attend), so that no other thread
// has to be woken for it.
//
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

  // Moves what can be moved, on this thread, until `complete` says so. May call the transfers'
  // Done.
  void Attend(absl::FunctionRef<bool()> complete);

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
  // The next slot may have been that of a send whose data is taken but which is not finished yet:
  // when it is, it must not withdraw what is then offered there.
  void WithdrawEarlier(int peer, Lane& lane);
  // Fills the slot with the next piece; counts nothing.
  void FillFragment(int peer, uint32_t slot, Pending& send, Fragment* fragment);
  // Does to a message, before it is counted as posted, what a test wants. False: it never arrives.
  bool ApplyFault(FaultKind fault, const Channel& channel, Lane& lane, Pending& send,
                  Fragment* fragment);
  void CheckFragment(int peer, const Fragment& fragment, const Pending& receive);
  [[noreturn]] void FailDamaged(absl::string_view what, const Pending& receive);
  static bool IsTaken(const Pending& send, const Channel& channel);
  bool FinishSends(int peer, Finished* finished);
  bool ReceiveFrom(int peer, Finished* finished);
  void TakeFragment(int peer, Pending& receive);

  void Run();
  struct Outcome {
    bool moved = false;
    bool pending = false;
  };
  // One look at everything, or at what comes from one peer. Under `driving_`.
  Outcome Look(std::optional<int> only_from, Finished* finished);
  bool Progress(Finished* finished);
  // Calls what has finished. Wakes attendants: it may be what they wait for.
  void Report(Finished finished, uint32_t attendants_here);
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
  // Until the bell has rung since `seen`, or some time has passed. `kind`: of sleeper.
  void Sleep(uint32_t seen, bool pending, uint32_t kind);
  RankCell& cell() const { return member_.control().rank(member_.rank()); }
  std::string Where(const Pending& pending) const;

  Member& member_;
  PeerMemory& memory_;
  const bool may_spin_;
  WaitBoard* waits_ = nullptr;
  std::atomic<int64_t> fragments_sent_{0};
  std::atomic<int64_t> bytes_received_{0};

  // Held by the thread that moves data; taken before mutex_. Whoever has been rung for waits for
  // it: the one that holds it may be looking at one peer only.
  std::mutex driving_;
  std::mutex mutex_;
  // By peer. Of receives whoever drives reads and pops the front without holding mutex_ while it
  // copies: others only append.
  std::vector<Lane> sends_;
  std::vector<Lane> receives_;
  std::thread thread_;  // started with the first transfer
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_TRANSFERS_H_
