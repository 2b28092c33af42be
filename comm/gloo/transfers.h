// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives of one rank over Gloo's connections.
//
// Each direction with each peer is a lane: a queue, and a thread that works it off, so that no
// transfer waits for one of another pair, for the other direction, or for a collective. The two
// ends of a transfer first tell each other their calls (control_message.h), compare them, and then
// move the data.
#ifndef LOCKSTEP_COMM_GLOO_TRANSFERS_H_
#define LOCKSTEP_COMM_GLOO_TRANSFERS_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/fault_injector.h"
#include "lockstep/comm/gloo/control.h"
#include "lockstep/comm/gloo/exchange.h"
#include "lockstep/comm/gloo/transfer_watch.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/wait_board.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm::gloo {

// Thread-safe.
class Transfers {
 public:
  // Called once, on any thread: nullopt for success. Not called under a lock.
  using Done = std::function<void(std::optional<Error>)>;

  // `faults`: null but in tests.
  Transfers(Exchange* exchange, Control* control, FaultInjector* faults)
      : exchange_(*exchange), control_(*control), faults_(faults) {}
  // Told of transfers that wait long for their peers; outlives this. Before the first Start.
  void set_waits(WaitBoard* waits) { watch_.set_board(waits); }
  // REQUIRES Stop(), if anything was started.
  ~Transfers() = default;
  // REQUIRES a stopped Control. What is pending fails; returns when it has.
  void Stop();

  // Starts a Send or Recv of a row-major tensor.
  void Start(const Signature& signature, Tensor tensor, absl::Duration timeout, Done done);

  // Ends the waiting of transfers from this rank to itself; for Control::OnInterrupt, with
  // Exchange::Interrupt.
  void Interrupt();

 private:
  struct Pending {
    Signature signature;
    Tensor tensor;
    absl::Duration timeout;
    Done done;
    int64_t number = 0;  // of its pair and direction
    bool sends() const { return signature.op == CollectiveId::kSend; }
  };
  struct Lane {
    std::deque<Pending> pending;
    int64_t issued = 0;
    std::thread thread;
  };
  using Lock = std::unique_lock<std::mutex>;

  // The thread of a lane.
  void Run(Lane& lane);
  void Move(const Pending& transfer);
  // What the peer says it has called.
  std::string SwapHeaders(const Pending& transfer, const std::string& mine, Deadline deadline);
  // The thread of what this rank sends to itself: both lanes.
  void RunSelf(Lane& sends, Lane& receives);
  // False when the one that is there has waited too long, with what is known of why, or waiting has
  // become useless.
  bool AwaitPair(const Lane& sends, const Lane& receives, Lock& lock, std::string* why);
  void MoveToSelf(const Pending& send, const Pending& receive);

  std::string DamagedText(const Pending& mine, absl::string_view what) const;
  std::string LateText(const Pending& mine, absl::string_view verb) const;
  // What is known of why, for behind that.
  std::string WhyLate(const TransferWatch::Wait& wait) const;
  // Of what the peer says it has called. Throws, as the group's error, DataLoss (damaged, out of
  // turn), and as Compare does.
  void CheckHeader(const Pending& mine, absl::string_view header);
  std::optional<FaultKind> FaultAt(const Pending& transfer) const;
  static std::string HeaderOf(const Pending& transfer, std::optional<FaultKind> fault);
  // Of a send whose message was lost or made useless on purpose.
  void AwaitDeadline(const Pending& transfer, Deadline deadline);
  // Throws InvalidArgument, as the group's error, unless the calls fit.
  void Compare(const Pending& mine, const Signature& theirs);
  // Runs `move`: what went wrong, if anything.
  std::optional<Error> Try(const std::function<void()>& move);
  void Finish(Pending transfer, std::optional<Error> error);
  Pending Take(Lane& lane);

  Exchange& exchange_;
  Control& control_;
  FaultInjector* const faults_;
  TransferWatch watch_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, bool>, Lane> lanes_;  // by peer and whether it sends
  bool stopping_ = false;
};

}  // namespace lockstep::comm::gloo

#endif  // LOCKSTEP_COMM_GLOO_TRANSFERS_H_
