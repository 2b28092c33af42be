// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/transfers.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/hash.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/comm/shm/futex.h"
#include "lockstep/comm/shm/header_checksum.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm::shm {
namespace {

constexpr int64_t kSpinNanoseconds = 20 * 1000;
// How often the thread looks for peers that are gone or late, with something pending and without.
// A send is posted without waking it: so its deadline may be noticed by the second number late.
constexpr absl::Duration kSleepSlice = absl::Milliseconds(20);
constexpr absl::Duration kIdleSlice = absl::Milliseconds(200);

Error Destroyed() { return AbortedError("this communicator is being destroyed"); }

}  // namespace

Transfers::Transfers(Member* member, PeerMemory* memory, bool may_spin)
    : member_(*member), memory_(*memory), may_spin_(may_spin) {
  sends_.resize(static_cast<size_t>(member_.size()));
  receives_.resize(static_cast<size_t>(member_.size()));
}

Transfers::~Transfers() {
  member_.Ring(member_.rank());
  if (thread_.joinable()) thread_.join();
}

std::string Transfers::Where(const Pending& pending) const {
  const bool sends = pending.signature.op == CollectiveId::kSend;
  return absl::StrCat(pending.signature.ToString(), ": rank ", member_.rank(), " of group \"",
                      member_.group_name(), "\", message ", pending.number,
                      sends ? " to that rank" : " from that rank");
}

void Transfers::Start(const Signature& signature, Tensor tensor, absl::Duration timeout,
                      Done done) {
  const bool sends = signature.op == CollectiveId::kSend;
  const int64_t bytes = tensor.bytes();
  bool posted = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
    Lane& lane = (sends ? sends_ : receives_)[static_cast<size_t>(signature.peer)];
    Pending pending;
    pending.signature = signature;
    pending.tensor = std::move(tensor);
    pending.timeout = timeout;
    pending.done = std::move(done);
    pending.number = lane.issued++;
    lane.pending.push_back(std::move(pending));
    if (sends && !member_.Failed() && !member_.Stopped()) posted = PostSends(signature.peer);
  }
  if (posted) return;
  // A small message may be here already. If it is not, its sender will ring. To wake the thread for
  // it would take longer than to look.
  if (!sends && bytes <= kFragmentBytes) {
    Finished finished;
    std::unique_lock<std::mutex> driving(driving_, std::try_to_lock);
    if (driving.owns_lock()) {
      Look(signature.peer, &finished);
      driving.unlock();
      return Report(std::move(finished), 0);
    }
  }
  member_.Ring(member_.rank());
}

// ---- Sending, under the lock ----

bool Transfers::PostSends(int peer) {
  Lane& lane = sends_[static_cast<size_t>(peer)];
  bool moved = false;
  while (lane.posted < lane.pending.size()) {
    Pending& send = lane.pending[lane.posted];
    if (lane.posted == 0) SetDeadline(send);
    if (!PostFragment(peer, lane, send)) break;
    moved = true;
    if (send.posted) ++lane.posted;
  }
  if (moved) member_.Ring(peer);
  return moved;
}

bool Transfers::PostFragment(int peer, Lane& lane, Pending& send) {
  Channel& channel = member_.control().channel(member_.rank(), peer);
  if (lane.count - channel.taken.load(std::memory_order_acquire) == kChannelSlots) return false;
  WithdrawEarlier(peer, lane);
  const bool is_first = send.bytes_moved == 0;
  Fragment& fragment = channel.slots[lane.count % kChannelSlots];
  FillFragment(peer, lane.count % kChannelSlots, send, &fragment);
  send.posted = send.bytes_moved == send.tensor.bytes();
  send.end = lane.count + 1;
  const std::optional<FaultKind> fault =
      is_first ? member_.FaultAt(peer, send.number) : std::nullopt;
  if (fault.has_value() && !ApplyFault(*fault, channel, lane, send, &fragment)) return true;
  ++lane.count;
  fragments_sent_.fetch_add(1, std::memory_order_relaxed);
  channel.posted.store(lane.count, std::memory_order_release);
  return true;
}

void Transfers::WithdrawEarlier(int peer, Lane& lane) {
  for (size_t i = 0; i < lane.posted; ++i) {
    Pending& earlier = lane.pending[i];
    if (!earlier.offered || earlier.end + kChannelSlots != lane.count + 1) continue;
    memory_.Withdraw(peer, lane.count % kChannelSlots);
    earlier.offered = false;
  }
}

void Transfers::FillFragment(int peer, uint32_t slot, Pending& send, Fragment* fragment) {
  const int64_t bytes = send.tensor.bytes();
  const char* from = static_cast<const char*>(KernelRawData(send.tensor)) + send.bytes_moved;
  fragment->number = send.number;
  fragment->begin = send.bytes_moved;
  fragment->signature = send.signature;
  fragment->pulled = bytes > kFragmentBytes && memory_.CanPull();
  fragment->address = 0;
  if (fragment->pulled) {
    fragment->address = memory_.Offer(peer, slot, send.tensor);
    fragment->bytes = bytes;
    send.offered = true;
  } else {
    fragment->bytes = std::min(kFragmentBytes, bytes - send.bytes_moved);
    if (fragment->bytes > 0) {
      std::memcpy(fragment->data, from, static_cast<size_t>(fragment->bytes));
    }
  }
  send.bytes_moved += fragment->bytes;
  fragment->has_sum = member_.verifies_payload();
  fragment->sum =
      fragment->has_sum ? Hash64(from, static_cast<size_t>(fragment->bytes)) : uint64_t{0};
  fragment->checksum = HeaderChecksum(*fragment);
}

bool Transfers::ApplyFault(FaultKind fault, const Channel& channel, Lane& lane, Pending& send,
                           Fragment* fragment) {
  switch (fault) {
    case FaultKind::kDrop:
      send.posted = true;  // as far as the sender knows
      return false;
    case FaultKind::kDuplicate: {
      const uint32_t used = lane.count - channel.taken.load(std::memory_order_acquire);
      if (used + 2 > kChannelSlots) return true;
      Channel& mine = member_.control().channel(member_.rank(), send.signature.peer);
      mine.slots[(lane.count + 1) % kChannelSlots] = *fragment;
      ++lane.count;  // and once more by the caller
      return true;
    }
    case FaultKind::kReorder:
      ++fragment->number;
      fragment->checksum = HeaderChecksum(*fragment);
      return true;
    case FaultKind::kCorruptHeader:
      fragment->signature.count ^= 16;
      return true;
    case FaultKind::kCorruptPayload:
      if (fragment->bytes > 0) {
        char* data =
            fragment->pulled ? static_cast<char*>(KernelRawData(send.tensor)) : fragment->data;
        *data ^= 1;
      }
      return true;
    case FaultKind::kDelay:
    case FaultKind::kKill:
      break;  // carried out already
  }
  return true;
}

// Whether the peer has taken all of a send that has been posted, and perhaps of later ones too.
bool Transfers::IsTaken(const Pending& send, const Channel& channel) {
  return static_cast<int32_t>(channel.taken.load(std::memory_order_acquire) - send.end) >= 0;
}

bool Transfers::FinishSends(int peer, Finished* finished) {
  Lane& lane = sends_[static_cast<size_t>(peer)];
  if (lane.posted == 0) return false;  // the channel's memory may never have been used
  const Channel& channel = member_.control().channel(member_.rank(), peer);
  bool moved = false;
  while (lane.posted > 0 && IsTaken(lane.pending.front(), channel)) {
    Pending& send = lane.pending.front();
    if (send.offered) memory_.Withdraw(peer, (send.end - 1) % kChannelSlots);
    finished->emplace_back(std::move(send.done), std::nullopt);
    lane.pending.pop_front();
    --lane.posted;
    moved = true;
  }
  return moved;
}

// ---- Receiving, by the thread that drives ----

bool Transfers::ReceiveFrom(int peer, Finished* finished) {
  Lane& lane = receives_[static_cast<size_t>(peer)];
  Channel& channel = member_.control().channel(peer, member_.rank());
  bool moved = false;
  for (;;) {
    Pending* receive = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!lane.pending.empty()) receive = &lane.pending.front();
    }
    if (receive == nullptr) return moved;
    SetDeadline(*receive);
    if (channel.posted.load(std::memory_order_acquire) == lane.count) return moved;
    TakeFragment(peer, *receive);
    // A sender that has given up fails the group before its caller touches the memory again.
    if (member_.Failed()) member_.ThrowFailure();
    channel.taken.store(++lane.count, std::memory_order_release);
    member_.Ring(peer);
    moved = true;
    if (receive->bytes_moved < receive->tensor.bytes()) continue;
    finished->emplace_back(std::move(receive->done), std::nullopt);
    std::lock_guard<std::mutex> lock(mutex_);
    lane.pending.pop_front();
  }
}

void Transfers::TakeFragment(int peer, Pending& receive) {
  const uint32_t slot = receives_[static_cast<size_t>(peer)].count % kChannelSlots;
  const Fragment& fragment = member_.control().channel(peer, member_.rank()).slots[slot];
  CheckFragment(peer, fragment, receive);
  if (receive.tensor.bytes() == 0) return;
  char* to = static_cast<char*>(KernelRawData(receive.tensor)) + receive.bytes_moved;
  if (fragment.pulled) {
    try {
      memory_.Pull(peer, slot, fragment.address, to, fragment.bytes);
    } catch (const Error& error) {
      member_.FailUnreachable(error.message());
    }
  } else {
    std::memcpy(to, fragment.data, static_cast<size_t>(fragment.bytes));
  }
  if (fragment.has_sum && Hash64(to, static_cast<size_t>(fragment.bytes)) != fragment.sum) {
    FailDamaged("data", receive);
  }
  receive.bytes_moved += fragment.bytes;
  bytes_received_.fetch_add(fragment.bytes, std::memory_order_relaxed);
}

void Transfers::CheckFragment(int peer, const Fragment& fragment, const Pending& receive) {
  if (fragment.checksum != HeaderChecksum(fragment)) FailDamaged("header", receive);
  if (fragment.number != receive.number || fragment.begin != receive.bytes_moved) {
    member_.Fail(absl::StatusCode::kDataLoss,
                 OutOfTurnTransferText(fragment.number, fragment.signature, receive.number,
                                       member_.rank(), receive.signature));
    member_.ThrowFailure();
  }
  if (!TransferFits(fragment.signature, receive.signature)) {
    member_.Fail(absl::StatusCode::kInvalidArgument,
                 TransferDisagreementText(receive.number, peer, fragment.signature, member_.rank(),
                                          receive.signature));
    member_.ThrowFailure();
  }
}

void Transfers::FailDamaged(absl::string_view what, const Pending& receive) {
  member_.Fail(absl::StatusCode::kDataLoss,
               DamagedTransferText(what, receive.number, member_.rank(), receive.signature));
  member_.ThrowFailure();
}

// ---- Who drives ----

void Transfers::Run() {
  for (;;) {
    const uint32_t seen = cell().bell.load(std::memory_order_seq_cst);
    const bool stopped = member_.Stopped();
    Finished finished;
    std::unique_lock<std::mutex> driving(driving_);
    const Outcome outcome = Look(std::nullopt, &finished);
    driving.unlock();
    Report(std::move(finished), 0);
    if (stopped) return;
    if (!outcome.moved) Sleep(seen, outcome.pending, kBellOwner);
  }
}

void Transfers::Attend(absl::FunctionRef<bool()> complete) {
  RankCell& bell = cell();
  bell.attendants.fetch_add(1, std::memory_order_seq_cst);
  uint32_t seen = 0;
  do {
    seen = bell.bell.load(std::memory_order_seq_cst);
    Finished finished;
    std::unique_lock<std::mutex> driving(driving_);
    const Outcome outcome = Look(std::nullopt, &finished);
    driving.unlock();
    Report(std::move(finished), 1);
    if (!outcome.moved && !complete()) Sleep(seen, /*pending=*/true, kBellAttendant);
  } while (!complete());
  bell.attendants.fetch_sub(1, std::memory_order_seq_cst);
  // Those who rang since have not woken the thread.
  if (bell.bell.load(std::memory_order_seq_cst) != seen) FutexWakeAll(bell.bell, kBellOwner);
}

void Transfers::Report(Finished finished, uint32_t attendants_here) {
  if (finished.empty()) return;
  for (auto& [done, error] : finished) done(std::move(error));
  if (cell().attendants.load(std::memory_order_seq_cst) > attendants_here) {
    member_.Ring(member_.rank());
  }
}

Transfers::Outcome Transfers::Look(std::optional<int> only_from, Finished* finished) {
  Outcome outcome = {.moved = false, .pending = true};
  try {
    outcome.moved = only_from.has_value() ? ReceiveFrom(*only_from, finished) : Progress(finished);
    if (member_.Stopped()) throw Destroyed();
    if (member_.Failed()) member_.ThrowFailure();
    if (!outcome.moved && !only_from.has_value()) outcome.pending = CheckPending();
  } catch (const Error& error) {
    if (error.code() != absl::StatusCode::kAborted) {
      member_.Fail(error.code(), absl::StrCat("rank ", member_.rank(), ": ", error.message()));
    }
    // Peers may have made this rank's own leaving the group's error by now.
    FailAll(member_.Stopped() ? Destroyed() : error, finished);
    outcome.pending = false;
  } catch (const std::exception& error) {
    member_.Fail(absl::StatusCode::kInternal,
                 absl::StrCat("rank ", member_.rank(), ": ", error.what()));
    FailAll(InternalError(error.what()), finished);
    outcome.pending = false;
  }
  if (waits_ != nullptr && member_.Failed()) waits_->Clear(/*failed=*/true);
  return outcome;
}

bool Transfers::Progress(Finished* finished) {
  bool moved = false;
  for (int peer = 0; peer < member_.size(); ++peer) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (FinishSends(peer, finished)) moved = true;
      if (PostSends(peer)) moved = true;
    }
    if (ReceiveFrom(peer, finished)) moved = true;
  }
  return moved;
}

bool Transfers::CheckPending() {
  bool pending = false;
  std::optional<Verdict> verdict;
  std::vector<WaitBoard::Wait> long_waits;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (int peer = 0; peer < member_.size() && !verdict.has_value(); ++peer) {
      for (const bool sends : {true, false}) {
        Lane& lane = (sends ? sends_ : receives_)[static_cast<size_t>(peer)];
        if (lane.pending.empty()) continue;
        pending = true;
        if (!verdict.has_value()) verdict = CheckLane(peer, sends, lane);
        const Pending& oldest = lane.pending.front();
        if (waits_ != nullptr && waits_->IsDue(oldest.since_ns, oldest.timeout)) {
          long_waits.push_back(WaitOf(oldest));
        }
      }
    }
  }
  if (waits_ != nullptr) waits_->Tell(long_waits);
  if (!verdict.has_value()) return pending;
  const bool late = verdict->code == absl::StatusCode::kDeadlineExceeded;
  if (late && waits_ != nullptr) verdict->text += waits_->Diagnose(verdict->wait);
  member_.Fail(verdict->code, verdict->text);
  member_.ThrowFailure();
}

void Transfers::SetDeadline(Pending& oldest) {
  if (oldest.deadline.has_value()) return;
  oldest.deadline = Deadline::After(oldest.timeout);
  oldest.since_ns = MonotonicNanoseconds();
}

WaitBoard::Wait Transfers::WaitOf(const Pending& pending) {
  return {.signature = pending.signature,
          .counts = {},
          .number = pending.number,
          .since_ns = pending.since_ns,
          .timeout = pending.timeout,
          .missing = {pending.signature.peer}};
}

std::optional<Transfers::Verdict> Transfers::CheckLane(int peer, bool sends, Lane& lane) {
  Pending& oldest = lane.pending.front();
  SetDeadline(oldest);
  const std::string gone = member_.GoneText(peer);
  const bool late = oldest.deadline->Expired();
  if (gone.empty() && !late) return std::nullopt;
  // It may have come, and only then gone: the next round sees what it has left.
  const Channel& channel = sends ? member_.control().channel(member_.rank(), peer)
                                 : member_.control().channel(peer, member_.rank());
  const bool came = sends ? oldest.posted && IsTaken(oldest, channel)
                          : channel.posted.load(std::memory_order_acquire) != lane.count;
  if (came) {
    member_.Ring(member_.rank());
    return std::nullopt;
  }
  if (!gone.empty()) return Verdict{absl::StatusCode::kUnavailable, gone, {}};
  const bool begun = !sends && oldest.bytes_moved > 0;
  return Verdict{absl::StatusCode::kDeadlineExceeded,
                 MissingTransferText(oldest.number, member_.rank(), oldest.signature,
                                     begun ? "finish" : "call", oldest.timeout),
                 WaitOf(oldest)};
}

void Transfers::FailAll(const Error& error, Finished* finished) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (int peer = 0; peer < member_.size(); ++peer) {
    for (std::vector<Lane>* lanes : {&sends_, &receives_}) {
      Lane& lane = (*lanes)[static_cast<size_t>(peer)];
      for (Pending& pending : lane.pending) {
        if (pending.offered) memory_.Withdraw(peer, (pending.end - 1) % kChannelSlots);
        finished->emplace_back(std::move(pending.done), error.WithContext(Where(pending)));
      }
      lane.pending.clear();
      lane.posted = 0;
    }
  }
}

void Transfers::Sleep(uint32_t seen, bool pending, uint32_t kind) {
  RankCell& mine = cell();
  const bool attends = kind == kBellAttendant;
  if (may_spin_ && pending && (attends || mine.attendants.load() == 0)) {
    const int64_t end = MonotonicNanoseconds() + kSpinNanoseconds;
    do {
      for (int i = 0; i < 32; ++i) {
        if (mine.bell.load(std::memory_order_acquire) != seen) return;
        SpinPause();
      }
    } while (MonotonicNanoseconds() < end);
  }
  std::atomic<uint32_t>& sleepers = attends ? mine.attendant_sleepers : mine.bell_sleepers;
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (mine.bell.load(std::memory_order_seq_cst) == seen) {
    FutexWait(mine.bell, seen, pending ? kSleepSlice : kIdleSlice, kind);
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace lockstep::comm::shm
