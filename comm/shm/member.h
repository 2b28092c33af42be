// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Member: how one rank meets the others in the control block, and how a group fails.
//
//   member.Begin(sequence, signature, timeout);
//   member.my_post().input = ...;
//   member.MeetPosts();          // publish mine, await and compare everybody's
//   ... read peers' data ...
//   member.Signal();             // I am done reading
//   member.AwaitAll();           // so is everybody
//
// All ranks take the same steps, since steps follow from what they have agreed on.
#ifndef LOCKSTEP_COMM_SHM_MEMBER_H_
#define LOCKSTEP_COMM_SHM_MEMBER_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/comm/shm/control_block.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/wait_board.h"

namespace lockstep::comm::shm {

// Tells whether a peer still exists.
class Liveness {
 public:
  virtual ~Liveness() = default;
  virtual bool IsGone(int rank) = 0;
};

// Used by the communication thread, but for Fail, FailUnreachable, Failed, ThrowFailure, Stop,
// Stopped, Ring and GoneText, which any thread may call. Waiting throws DeadlineExceeded (naming
// the ranks that are missing), Unavailable (naming a rank that died or left), Aborted (after Stop),
// InvalidArgument (ranks disagree), or whatever another rank failed with; all but Stop put the
// group into the error state.
class Member {
 public:
  // `liveness` may be null: peers then only leave in order.
  Member(ControlBlock control, int rank, std::string group_name, Liveness* liveness, bool may_spin);

  // Told of long waits; outlives the waiting. Null: nobody is.
  void set_waits(WaitBoard* waits) { waits_ = waits; }

  int rank() const { return rank_; }
  int size() const { return control_.size(); }
  const std::string& group_name() const { return group_name_; }
  const ControlBlock& control() const { return control_; }

  // Starts a collective. The deadline runs from here.
  // `counts`: of an uneven one.
  void Begin(int64_t sequence, const Signature& signature, absl::Duration timeout,
             absl::Span<const int64_t> counts = {});

  // This collective's post and inline data of this rank and, after MeetPosts(), of the others.
  Post& my_post() { return control_.rank(rank_).posts[slot_]; }
  char* my_inline() { return control_.rank(rank_).inline_data[slot_]; }
  const Post& post(int peer) const { return control_.rank(peer).posts[slot_]; }
  const char* inline_data(int peer) const { return control_.rank(peer).inline_data[slot_]; }
  // Of an uneven collective: W counts, or 2 W for AllToAll.
  absl::Span<const int64_t> counts(int peer) const;

  void MeetPosts();
  // One step forward.
  void Signal();
  // Until every rank has (until `peer` has) come as far as this one.
  void AwaitAll();
  void Await(int peer);

  // A peer's memory could not be reached, for the reason in `text`: most likely the peer is gone,
  // which its connection may tell a moment later. Fails with the peer's name if so, else with
  // `text`.
  [[noreturn]] void FailUnreachable(absl::string_view text);

  // Puts the group into the error state, unless it is in it, and wakes everybody.
  void Fail(absl::StatusCode code, absl::string_view text);
  bool Failed() const { return control_.error().state.load(std::memory_order_acquire) != 0; }
  // REQUIRES Failed().
  [[noreturn]] void ThrowFailure() const;
  // Ends this rank's waiting with Aborted.
  void Stop() { stopping_.store(true, std::memory_order_release); }
  bool Stopped() const { return stopping_.load(std::memory_order_acquire); }
  // Tells the peers that this rank takes no further part.
  void Leave();
  // Wakes the transfers of `peer`.
  void Ring(int peer);
  // "rank 2 has died (...)", "rank 2 has left (...)", or "".
  std::string GoneText(int peer);

  Deadline deadline() const { return deadline_; }
  // Calls of Signal() and MeetPosts() so far. Any thread.
  int64_t steps() const { return steps_told_.load(std::memory_order_relaxed); }

 private:
  // What the collective waits for.
  WaitBoard::Wait CurrentWait(std::vector<int> missing) const;
  bool Reached(int peer, uint32_t step) const;
  void AwaitStep(int peer, uint32_t step, absl::FunctionRef<void()> while_waiting);
  void Sleep(int peer, uint32_t step);
  void CheckPeers(uint32_t step);
  void CompareArrivedPosts(uint32_t step);
  // Whether the calls of two ranks that have come fit each other.
  bool Agree(int a, int b) const;
  RankCall CallOf(int peer) const;
  [[noreturn]] void FailDisagreeing(int a, int b);
  [[noreturn]] void FailAndThrow(absl::StatusCode code, const std::string& text);
  void WakeEverybody();

  ControlBlock control_;
  int rank_;
  std::string group_name_;
  Liveness* liveness_;
  bool may_spin_;
  std::atomic<bool> stopping_{false};

  uint32_t step_ = 0;
  std::atomic<int64_t> steps_told_{0};
  int slot_ = 0;
  bool posting_ = false;  // whether peers are awaited to call or to finish
  int64_t sequence_ = 0;
  Signature signature_;
  absl::Duration timeout_;
  Deadline deadline_;
  int64_t since_ns_ = 0;
  WaitBoard* waits_ = nullptr;
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_MEMBER_H_
