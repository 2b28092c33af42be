// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/member.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/comm/shm/futex.h"
#include "lockstep/comm/shm/header_checksum.h"

namespace lockstep::comm::shm {
namespace {

constexpr int64_t kSpinNanoseconds = 20 * 1000;
// How often a sleeping rank looks whether its peers are alive: a death is noticed after so long.
constexpr absl::Duration kSleepSlice = absl::Milliseconds(20);

}  // namespace

Member::Member(ControlBlock control, int rank, std::string group_name, Liveness* liveness,
               bool may_spin)
    : control_(control),
      rank_(rank),
      group_name_(std::move(group_name)),
      liveness_(liveness),
      may_spin_(may_spin) {}

void Member::Begin(int64_t sequence, const Signature& signature, absl::Duration timeout,
                   absl::Span<const int64_t> counts) {
  if (Failed()) ThrowFailure();
  // One that is leaving gives up what is pending without meeting its peers, so it may be two
  // collectives ahead of them: it must not overwrite a post that they still have to compare.
  if (stopping_.load(std::memory_order_acquire)) {
    throw AbortedError("this communicator is being destroyed");
  }
  sequence_ = sequence;
  signature_ = signature;
  my_counts_ = counts;
  timeout_ = timeout;
  deadline_ = Deadline::After(timeout);
  since_ns_ = MonotonicNanoseconds();
  slot_ = static_cast<int>(sequence & 1);
  Post& post = my_post();
  post.sequence = sequence;
  post.signature = signature;
  post.input = {};
  post.output = {};
  post.inlined = false;
  post.messages_sent = 0;
  std::copy(counts.begin(), counts.end(), control_.counts(rank_, slot_));
}

absl::Span<const int64_t> Member::counts(int peer) const {
  const Signature& signature = post(peer).signature;
  if (!signature.uneven) return {};
  const int64_t count = int64_t{size()} * (signature.op == CollectiveId::kAllToAll ? 2 : 1);
  return {control_.counts(peer, slot_), static_cast<size_t>(count)};
}

void Member::PublishPost(std::optional<FaultKind> fault) {
  posting_ = true;
  compared_.assign(static_cast<size_t>(size()), false);
  if (SealPost(fault)) {
    Signal();
  } else {
    ++step_;
  }
}

void Member::AwaitPosts(std::optional<FaultKind> fault) {
  const uint32_t step = step_;
  for (int peer = 0; peer < size(); ++peer) {
    // A disagreement between those who have come is reported without waiting for the rest.
    AwaitStep(peer, step, [&] { CompareArrivedPosts(step); });
  }
  CompareArrivedPosts(step);
  // What is in shared memory is now wrong for this rank too.
  if (fault.has_value() && fault != FaultKind::kCorruptPayload) AwaitFailure();
  posting_ = false;
}

std::optional<FaultKind> Member::FaultAt(int peer, int64_t number) const {
  // Of a group of one nothing travels.
  if (faults_ == nullptr || number < 0 || size() == 1) return std::nullopt;
  return faults_->At({group_name_, rank_, peer, number});
}

bool Member::SealPost(std::optional<FaultKind> fault) {
  Post& post = my_post();
  if (fault == FaultKind::kDuplicate) {
    post = control_.rank(rank_).posts[slot_ ^ 1];
    std::copy_n(control_.counts(rank_, slot_ ^ 1), 2 * size(), control_.counts(rank_, slot_));
    return true;
  }
  if (fault == FaultKind::kReorder) ++post.sequence;
  post.has_sums = verifies_payload_;
  post.checksum = HeaderChecksum(post, counts(rank_));
  if (fault == FaultKind::kCorruptHeader) post.signature.count ^= 16;
  return fault != FaultKind::kDrop;
}

void Member::Signal() {
  RankCell& cell = control_.rank(rank_);
  ++step_;
  steps_told_.fetch_add(1, std::memory_order_relaxed);
  // Sequentially consistent, as is the sleeper's count and look at the word: one of the two sees
  // the other.
  cell.progress.store(step_, std::memory_order_seq_cst);
  if (cell.sleepers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(cell.progress);
}

void Member::AwaitAll() {
  for (int peer = 0; peer < size(); ++peer) Await(peer);
}

void Member::Await(int peer) {
  AwaitStep(peer, step_, [] {});
}

bool Member::Reached(int peer, uint32_t step) const {
  const uint32_t progress = control_.rank(peer).progress.load(std::memory_order_acquire);
  return static_cast<int32_t>(progress - step) >= 0;
}

void Member::AwaitStep(int peer, uint32_t step, absl::FunctionRef<void()> while_waiting) {
  if (Reached(peer, step)) return;
  if (may_spin_) {
    const int64_t end = MonotonicNanoseconds() + kSpinNanoseconds;
    do {
      for (int i = 0; i < 32; ++i) {
        if (Reached(peer, step)) return;
        SpinPause();
      }
    } while (MonotonicNanoseconds() < end);
  }
  while (!Reached(peer, step)) {
    while_waiting();
    CheckPeers(step);
    Sleep(peer, step);
  }
}

void Member::Sleep(int peer, uint32_t step) {
  RankCell& cell = control_.rank(peer);
  cell.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t progress = cell.progress.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(progress - step) < 0 && !Failed()) {
    FutexWait(cell.progress, progress, std::min(kSleepSlice, deadline_.Remaining()));
  }
  cell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void Member::CheckPeers(uint32_t step) {
  // First: peers may have made this rank's own leaving the group's error by now.
  if (stopping_.load(std::memory_order_acquire)) {
    throw AbortedError("this communicator is being destroyed");
  }
  if (Failed()) ThrowFailure();
  std::vector<int> missing;
  for (int peer = 0; peer < size(); ++peer) {
    if (Reached(peer, step)) continue;
    const std::string gone = GoneText(peer);
    // It may have come, and only then gone.
    if (!gone.empty() && !Reached(peer, step)) FailAndThrow(absl::StatusCode::kUnavailable, gone);
    missing.push_back(peer);
  }
  if (missing.empty()) return;
  const bool expired = deadline_.Expired();
  if (waits_ != nullptr && (expired || waits_->IsDue(since_ns_, timeout_))) {
    waits_->Tell({CurrentWait(missing)});
  }
  if (!expired) return;
  // Others may have come, or told of an error, while the store was asked.
  const std::string diagnosis = waits_ == nullptr ? "" : waits_->Diagnose(CurrentWait(missing));
  FailAndThrow(
      absl::StatusCode::kDeadlineExceeded,
      absl::StrCat(MissingText(missing, posting_ ? "call" : "finish", CallOf(rank_), timeout_),
                   diagnosis));
}

WaitBoard::Wait Member::CurrentWait(std::vector<int> missing) const {
  return {.signature = signature_,
          .counts = my_counts_,
          .number = sequence_,
          .since_ns = since_ns_,
          .timeout = timeout_,
          .missing = std::move(missing)};
}

std::string Member::GoneText(int peer) {
  if (control_.rank(peer).left.load(std::memory_order_acquire) != 0) {
    return absl::StrCat("rank ", peer, " has left (it destroyed its communicator)");
  }
  if (liveness_ != nullptr && peer != rank_ && liveness_->IsGone(peer)) {
    return absl::StrCat("rank ", peer, " has died (its connection is closed)");
  }
  return "";
}

void Member::FailUnreachable(absl::string_view text) {
  // The kernel takes a process's memory away before it closes its sockets.
  const Deadline patience = Deadline::After(absl::Milliseconds(500));
  do {
    if (Failed()) ThrowFailure();
    for (int peer = 0; peer < size(); ++peer) {
      const std::string gone = GoneText(peer);
      if (!gone.empty()) FailAndThrow(absl::StatusCode::kUnavailable, gone);
    }
    absl::SleepFor(absl::Milliseconds(1));
  } while (!patience.Expired());
  FailAndThrow(absl::StatusCode::kUnavailable, std::string(text));
}

void Member::CompareArrivedPosts(uint32_t step) {
  for (int peer = 0; peer < size(); ++peer) {
    const auto index = static_cast<size_t>(peer);
    if (compared_[index] || peer == rank_ || !Reached(peer, step)) continue;
    CheckHeader(peer);
    if (!Agree(rank_, peer)) FailDisagreeing(rank_, peer);
    compared_[index] = true;
    if (!signature_.uneven || signature_.op != CollectiveId::kAllToAll) continue;
    // Others may fit this rank and not each other.
    for (int other = 0; other < size(); ++other) {
      if (compared_[static_cast<size_t>(other)] && !Agree(other, peer)) {
        FailDisagreeing(other, peer);
      }
    }
  }
}

void Member::CheckHeader(int peer) {
  const Post& theirs = post(peer);
  if (theirs.checksum != HeaderChecksum(theirs, counts(peer))) FailDamaged(peer, "header");
  if (theirs.sequence != sequence_) {
    FailAndThrow(absl::StatusCode::kDataLoss,
                 absl::StrCat("rank ", rank_, " has the header of collective ", theirs.sequence,
                              " from rank ", peer, ", ", CallOf(peer).ToString(),
                              ", where collective ", sequence_, ", ", CallOf(rank_).ToString(),
                              ", is due: a message was lost, repeated or reordered"));
  }
  if (theirs.has_sums != verifies_payload_) {
    FailAndThrow(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("verify_payload is ", verifies_payload_ ? "on" : "off", " on rank ",
                              rank_, " and ", theirs.has_sums ? "on" : "off", " on rank ", peer,
                              ": give all ranks the same options"));
  }
}

void Member::AwaitFailure() {
  while (!Failed() && !deadline_.Expired()) absl::SleepFor(absl::Milliseconds(1));
  FailAndThrow(absl::StatusCode::kDeadlineExceeded, "nobody has seen the fault that was injected");
}

void Member::FailDamaged(int peer, absl::string_view what) {
  FailAndThrow(absl::StatusCode::kDataLoss, DamagedText(what, peer, CallOf(rank_)));
}

bool Member::Agree(int a, int b) const { return CallsAgree(CallOf(a), CallOf(b)); }

RankCall Member::CallOf(int peer) const {
  if (peer == rank_) return {rank_, sequence_, signature_, my_counts_};
  return {peer, post(peer).sequence, post(peer).signature, counts(peer)};
}

void Member::FailDisagreeing(int a, int b) {
  FailAndThrow(absl::StatusCode::kInvalidArgument, DisagreementText(CallOf(a), CallOf(b)));
}

void Member::FailAndThrow(absl::StatusCode code, const std::string& text) {
  Fail(code, text);
  ThrowFailure();  // the group's first error, which may be another rank's
}

void Member::Fail(absl::StatusCode code, absl::string_view text) {
  ErrorCell& error = control_.error();
  uint32_t none = ErrorCell::kNone;
  if (!error.state.compare_exchange_strong(none, ErrorCell::kWriting)) return;
  error.code = static_cast<int32_t>(code);
  const size_t length = std::min(text.size(), sizeof(error.text) - 1);
  std::memcpy(error.text, text.data(), length);
  error.text[length] = '\0';
  error.state.store(ErrorCell::kWritten, std::memory_order_release);
  WakeEverybody();
}

void Member::ThrowFailure() const {
  ErrorCell& error = control_.error();
  const Deadline patience = Deadline::After(absl::Seconds(1));
  while (error.state.load(std::memory_order_acquire) != ErrorCell::kWritten) {
    if (patience.Expired()) throw UnavailableError("a rank died while it reported an error");
    absl::SleepFor(absl::Microseconds(50));
  }
  throw Error(static_cast<absl::StatusCode>(error.code), error.text);
}

void Member::Leave() {
  control_.rank(rank_).left.store(1, std::memory_order_release);
  WakeEverybody();
}

void Member::Ring(int peer) {
  RankCell& cell = control_.rank(peer);
  cell.bell.fetch_add(1, std::memory_order_seq_cst);
  if (cell.attendants.load(std::memory_order_seq_cst) != 0) {
    if (cell.attendant_sleepers.load(std::memory_order_seq_cst) != 0) {
      FutexWakeAll(cell.bell, kBellAttendant);
    }
  } else if (cell.bell_sleepers.load(std::memory_order_seq_cst) != 0) {
    FutexWakeAll(cell.bell, kBellOwner);
  }
}

void Member::WakeEverybody() {
  for (int r = 0; r < size(); ++r) {
    FutexWakeAll(control_.rank(r).progress);
    Ring(r);
  }
}

}  // namespace lockstep::comm::shm
