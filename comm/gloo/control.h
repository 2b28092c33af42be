// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Control: how one rank meets the others before a collective moves data, and how a group fails.
//
//   Control control(std::move(links), rank, size, "world");
//   control.OnInterrupt([&] { exchange.Interrupt(); });
//   control.Start();
//   control.Meet({rank, sequence, signature, counts}, timeout);   // returns when all have called
//   ... move data ...
//
// The connections are a star around rank 0, which compares the calls. A thread of each rank reads
// them and sends a sign of life every 100 ms. Whatever ends a group (ranks that disagree, a rank
// that has died, left or does not answer, a deadline, an error of one rank) goes to rank 0, and
// from there to all.
#ifndef LOCKSTEP_COMM_GLOO_CONTROL_H_
#define LOCKSTEP_COMM_GLOO_CONTROL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/comm/fault_injector.h"
#include "lockstep/comm/gloo/control_message.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/wait_board.h"

namespace lockstep::comm::gloo {

inline constexpr absl::Duration kHeartbeat = absl::Milliseconds(100);
// A rank of which nothing is heard for so many heartbeats in a row is taken for dead: 0.8 to 0.9 s
// after its last sign, so that all ranks know within a second.
inline constexpr int kMissedHeartbeats = 8;

// Thread-safe. Functions that wait throw InvalidArgument (ranks disagree), DeadlineExceeded (naming
// the ranks that are missing), Unavailable (naming a rank that has died or left), Aborted (after
// Stop), or whatever another rank failed with.
class Control {
 public:
  // `links`: by rank, authenticated and non-blocking; on rank 0 one to each other rank, elsewhere
  // one to rank 0.
  Control(std::vector<UniqueFd> links, int rank, int size, std::string group_name);
  // REQUIRES Leave(), if started.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Called when waiting has become useless: once when the group fails, once when this rank stops.
  // On any thread, without locks, and not after Leave() has returned. Set before Start().
  void OnInterrupt(std::function<void()> interrupt) { interrupt_ = std::move(interrupt); }
  // Told of long waits in Meet(), on its thread; outlives them. Null: nobody is.
  void set_waits(WaitBoard* waits) { waits_ = waits; }
  // Starts the thread. Throws ResourceExhausted.
  void Start();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& group_name() const { return group_name_; }

  // Returns when every rank has issued this collective. What a test wants to go wrong with this
  // rank's call, `fault`, is done to it; kCorruptPayload is none of the call's.
  void Meet(const RankCall& call, absl::Duration timeout,
            std::optional<FaultKind> fault = std::nullopt);
  // Throws when the group fails or this rank stops; returns at the deadline.
  void AwaitInterrupt(Deadline deadline);

  // Puts the group into the error state, unless it is in it, and tells the peers. Never blocks.
  void Fail(absl::StatusCode code, absl::string_view text);
  [[noreturn]] void FailAndThrow(absl::StatusCode code, absl::string_view text);
  // Something that `peers` take part in has gone wrong on this rank: most likely one of them is
  // gone, which the control connections may tell a moment later. Fails with what they say, or else
  // with `text`.
  [[noreturn]] void FailUnexplained(absl::Span<const int> peers, absl::StatusCode code,
                                    absl::string_view text);
  bool Failed() const;
  // The group's error, if it has one, or Aborted, if this rank has stopped.
  void ThrowIfFailed() const;
  bool Interrupted() const;
  void ThrowIfInterrupted() const;

  // Ends this rank's waiting with Aborted.
  void Stop();
  // Tells the peers that this rank takes no further part, and ends the thread.
  void Leave();

  // Calls made in Meet() so far.
  int64_t meetings() const { return meetings_.load(std::memory_order_relaxed); }

 private:
  struct Link {
    UniqueFd socket;
    std::string in;
    std::string out;     // what the socket has not taken yet
    bool begun = false;  // heard of at all: ranks start one after another
    bool heard = false;  // since the last beat
    int missed = 0;
  };
  // What a rank has called and the others have not all called yet; on rank 0.
  struct Arrival {
    bool came = false;
    int64_t next = -1;  // the sequence number that is due
    int64_t sequence = 0;
    Signature signature;
    std::vector<int64_t> counts;
  };
  using Lock = std::unique_lock<std::mutex>;
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::min();

  // ---- The thread ----
  void Run();
  void PollOnce(Deadline tick);
  void HandleEnd(int peer);
  void Beat();
  static void Wake(const UniqueFd& wake);

  // ---- Under the lock ----
  // Reads the connections for the thread, on one that waits: nobody has to be woken then.
  void Attend(Deadline until, Lock& lock);
  // Releases the lock while it waits for one of `wake` and the connections.
  void PollLinks(const UniqueFd& wake, short wanted, Deadline until, Lock& lock);
  void ReadLink(int peer);
  void Notify();
  void Handle(int peer, const ControlMessage& message);
  void Arrive(int rank, int64_t sequence, const Signature& signature, std::vector<int64_t> counts);
  void Expire(int rank, int64_t sequence, absl::Duration timeout, absl::string_view diagnosis);
  // Ranks that have not entered what this one has entered, as far as is known here.
  std::vector<int> Missing() const;
  void TellMissing();
  void MarkLeft(int rank);
  // Fails if a rank that has left is awaited.
  void CheckLeavers();
  RankCall CallOf(int rank) const;
  void Send(int peer, const ControlMessage& message);
  void SendFrame(int peer, absl::string_view frame);
  // Hands the call to rank 0, damaged as `fault` says.
  void SendStruck(ControlMessage message, FaultKind fault);
  void SendToAll(const ControlMessage& message, int except = -1);
  void Flush(Link& link);
  void FailLocked(absl::StatusCode code, absl::string_view text, int told_by = -1);
  void ThrowIfInterruptedLocked() const;
  void AwaitGo(const RankCall& call, absl::Duration timeout, Lock& lock);
  void ReportExpiry(const RankCall& call, absl::Duration timeout, absl::string_view diagnosis);
  bool IsMet(int64_t sequence) const {
    return stopping_ || failure_.has_value() || go_ >= sequence;
  }
  // Calls interrupt_ if it is due. Releases the lock for it.
  void RunInterrupt(Lock& lock);

  const int rank_;
  const int size_;
  const std::string group_name_;
  std::function<void()> interrupt_;
  WaitBoard* waits_ = nullptr;
  UniqueFd wake_;            // the thread's
  UniqueFd attendant_wake_;  // of who is in Attend()
  std::thread thread_;
  std::atomic<int64_t> meetings_{0};
  ControlMessage last_call_;  // used by Meet() alone

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Link> links_;  // by rank
  std::vector<bool> left_;   // by rank
  std::vector<Arrival> arrivals_;
  std::vector<int> missing_;  // elsewhere than on rank 0: what it has told last
  int arrived_ = 0;
  int64_t go_ = kNone;       // the last collective that all have entered
  int64_t meeting_ = kNone;  // the one that this rank has entered
  std::optional<Error> failure_;
  bool stopping_ = false;
  bool leaving_ = false;
  bool interrupt_due_ = false;
  int interrupting_ = 0;
  bool attending_ = false;
  int64_t attended_ns_ = 0;  // end of the last Attend()
};

}  // namespace lockstep::comm::gloo

#endif  // LOCKSTEP_COMM_GLOO_CONTROL_H_
