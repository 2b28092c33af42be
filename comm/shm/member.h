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
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/comm/fault_injector.h"
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

// Used by one thread at a time, but for Fail, FailUnreachable, Failed, ThrowFailure, Stop,
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
  // Before the first meeting; the same on all ranks, or the first meeting fails.
  void set_verifies_payload(bool verifies) { verifies_payload_ = verifies; }
  bool verifies_payload() const { return verifies_payload_; }
  // Outlives this; may be null.
  void set_faults(FaultInjector* faults) { faults_ = faults; }
  bool injects_faults() const { return faults_ != nullptr; }
  // What a test wants to go wrong with this rank's message `number`, to `peer` or as a collective.
  std::optional<FaultKind> FaultAt(int peer, int64_t number) const;

  int rank() const { return rank_; }
  int size() const { return control_.size(); }
  const std::string& group_name() const { return group_name_; }
  const ControlBlock& control() const { return control_; }

  // Starts a collective. The deadline runs from here.
  // `counts`: of an uneven one; they outlive the collective.
  void Begin(int64_t sequence, const Signature& signature, absl::Duration timeout,
             absl::Span<const int64_t> counts = {});

  // This collective's post and inline data of this rank and, after MeetPosts(), of the others.
  Post& my_post() { return control_.rank(rank_).posts[slot_]; }
  char* my_inline() { return control_.rank(rank_).inline_data[slot_]; }
  const Post& post(int peer) const { return control_.rank(peer).posts[slot_]; }
  const char* inline_data(int peer) const { return control_.rank(peer).inline_data[slot_]; }
  // Of an uneven collective: W counts, or 2 W for AllToAll.
  absl::Span<const int64_t> counts(int peer) const;

  // Publishes this rank's post, which `fault` keeps from the peers or changes. Peers need nothing
  // further from a rank whose input is in it.
  void PublishPost(std::optional<FaultKind> fault = std::nullopt);
  // Until every rank has published its own.
  void AwaitPosts(std::optional<FaultKind> fault = std::nullopt);
  void MeetPosts() {
    PublishPost();
    AwaitPosts();
  }
  // One step forward.
  void Signal();
  // Until every rank has (until `peer` has) come as far as this one.
  void AwaitAll();
  void Await(int peer);

  int64_t sequence() const { return sequence_; }
  // 0 or 1, of this collective: what has two slots.
  int slot() const { return slot_; }

  // What this rank has read of `peer` ("data") does not fit its checksum.
  [[noreturn]] void FailDamaged(int peer, absl::string_view what);

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
  // Makes the post ready to be read. False: a fault says that it never is.
  bool SealPost(std::optional<FaultKind> fault);
  void CompareArrivedPosts(uint32_t step);
  // Waits until a peer has seen what is wrong with this rank's post.
  [[noreturn]] void AwaitFailure();
  // Whether the post is whole, and of this collective.
  void CheckHeader(int peer);
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
  std::vector<bool> compared_;  // by peer: its post of this collective is all right
  bool posting_ = false;        // whether peers are awaited to call or to finish
  int64_t sequence_ = 0;
  Signature signature_;
  absl::Span<const int64_t> my_counts_;
  absl::Duration timeout_;
  Deadline deadline_;
  int64_t since_ns_ = 0;
  WaitBoard* waits_ = nullptr;
  FaultInjector* faults_ = nullptr;
  bool verifies_payload_ = false;
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_MEMBER_H_
