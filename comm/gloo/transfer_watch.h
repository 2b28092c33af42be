// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tells the wait board of transfers that wait long for their peers, on a thread of its own: who
// waits in Gloo cannot look up in between.
//
//   TransferWatch watch;
//   watch.set_board(&board);
//   {
//     const TransferWatch::Wait wait(watch, signature, number, timeout);
//     ...                               // wait for the peer
//     if (late) text += wait.Diagnose();
//   }
#ifndef LOCKSTEP_COMM_GLOO_TRANSFER_WATCH_H_
#define LOCKSTEP_COMM_GLOO_TRANSFER_WATCH_H_

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/wait_board.h"

namespace lockstep::comm::gloo {

// Thread-safe.
class TransferWatch {
 public:
  TransferWatch() = default;
  // REQUIRES that no Wait exists.
  ~TransferWatch();
  TransferWatch(const TransferWatch&) = delete;
  TransferWatch& operator=(const TransferWatch&) = delete;

  // Before the first Wait; outlives this. Null: nobody is told.
  void set_board(WaitBoard* board) { board_ = board; }

  // One transfer that waits, for as long as this lives.
  class Wait {
   public:
    Wait(TransferWatch& watch, const Signature& signature, int64_t number, absl::Duration timeout);
    // After an exception what is published stays known for a while, as WaitBoard::Clear says.
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

    // As WaitBoard::Diagnose; asks the store.
    std::string Diagnose() const;

   private:
    TransferWatch& watch_;
    const int exceptions_;
    std::list<WaitBoard::Wait>::iterator place_;
  };

 private:
  using Lock = std::unique_lock<std::mutex>;

  // The thread.
  void Run();
  void LookOnce(Lock& lock);
  bool IsDue(const WaitBoard::Wait& wait) const;

  WaitBoard* board_ = nullptr;
  std::mutex board_mutex_;  // of the calls of board_; never taken under the other one

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<WaitBoard::Wait> waits_;
  std::thread thread_;   // from the first wait on
  bool dozing_ = false;  // the thread wants to be woken for a wait
  bool told_ = false;    // the board knows of something
  bool failed_ = false;  // a wait has ended with an exception
  bool stopping_ = false;
};

}  // namespace lockstep::comm::gloo

#endif  // LOCKSTEP_COMM_GLOO_TRANSFER_WATCH_H_
