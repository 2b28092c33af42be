// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/control.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lockstep::comm::gloo {
namespace {

// How long a rank that leaves waits for its peers to hear of it, and a rank whose data connection
// has ended for the reason.
constexpr absl::Duration kLinger = absl::Milliseconds(500);
constexpr absl::Duration kPatience = absl::Seconds(1);
// For so long after a meeting the thread leaves the connections to the next one.
constexpr absl::Duration kAttended = absl::Milliseconds(20);

Error Destroyed() { return AbortedError("this communicator is being destroyed"); }

std::string LeftText(int rank) {
  return absl::StrCat("rank ", rank, " has left (it destroyed its communicator)");
}

}  // namespace

Control::Control(std::vector<UniqueFd> links, int rank, int size, std::string group_name)
    : rank_(rank), size_(size), group_name_(std::move(group_name)) {
  const auto ranks = static_cast<size_t>(size);
  links_.resize(ranks);
  left_.resize(ranks);
  arrivals_.resize(ranks);
  for (size_t peer = 0; peer < links.size(); ++peer) {
    links_[peer].socket = std::move(links[peer]);
    if (!links_[peer].socket.valid()) continue;
    const int one = 1;
    setsockopt(links_[peer].socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  }
}

Control::~Control() = default;

void Control::Start() {
  for (UniqueFd* wake : {&wake_, &attendant_wake_}) {
    *wake = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!wake->valid()) throw ResourceExhaustedError(absl::StrCat("eventfd: ", ErrnoText(errno)));
  }
  thread_ = std::thread([this] { Run(); });
}

// ---- Meeting ----

void Control::Meet(const RankCall& call, absl::Duration timeout, std::optional<FaultKind> fault) {
  Lock lock(mutex_);
  ThrowIfInterruptedLocked();
  meetings_.fetch_add(1, std::memory_order_relaxed);
  meeting_ = call.sequence;
  missing_.clear();
  ControlMessage message;
  message.kind = MessageKind::kCall;
  message.sequence = call.sequence;
  message.signature = call.signature;
  message.counts.assign(call.counts.begin(), call.counts.end());
  if (fault.has_value() && *fault != FaultKind::kCorruptPayload) {
    SendStruck(message, *fault);
  } else if (rank_ == 0) {
    Arrive(0, call.sequence, call.signature, message.counts);
  } else {
    Send(0, message);
    CheckLeavers();
  }
  last_call_ = std::move(message);
  AwaitGo(call, timeout, lock);
}

void Control::SendStruck(ControlMessage message, FaultKind fault) {
  if (fault == FaultKind::kDrop) return;
  if (fault == FaultKind::kDuplicate) message = last_call_;
  if (fault == FaultKind::kReorder) ++message.sequence;
  std::string frame = EncodeMessage(message);
  if (fault == FaultKind::kCorruptHeader) frame.back() ^= 1;
  if (rank_ != 0) return SendFrame(0, frame);
  try {
    DecodeMessage(frame, &message);
    Handle(0, message);
  } catch (const Error& error) {
    FailLocked(error.code(), absl::StrCat("rank 0 sent rank 0 ", error.message()));
  }
}

void Control::AwaitInterrupt(Deadline deadline) {
  Lock lock(mutex_);
  const auto interrupted = [&] { return stopping_ || failure_.has_value(); };
  while (!interrupted() && !deadline.Expired()) {
    // In slices: the latest time that there is must not overflow.
    const Deadline slice = std::min(deadline, Deadline::After(kHeartbeat));
    changed_.wait_until(lock, slice.ToTimePoint(), interrupted);
  }
  ThrowIfInterruptedLocked();
}

void Control::AwaitGo(const RankCall& call, absl::Duration timeout, Lock& lock) {
  const int64_t since_ns = MonotonicNanoseconds();
  const Deadline deadline = Deadline::After(timeout);
  const auto current_wait = [&] {
    return WaitBoard::Wait{call.signature, call.counts, call.sequence,
                           since_ns,       timeout,     Missing()};
  };
  std::string diagnosis;
  for (;;) {
    RunInterrupt(lock);
    // In slices, to notice that the wait has become long.
    const Deadline slice = std::min(deadline, Deadline::After(kHeartbeat));
    while (!IsMet(call.sequence) && !slice.Expired()) Attend(slice, lock);
    if (IsMet(call.sequence)) break;
    const bool expired = deadline.Expired();
    if (waits_ != nullptr && (expired || waits_->IsDue(since_ns, timeout))) {
      const WaitBoard::Wait wait = current_wait();
      lock.unlock();  // the store is asked
      if (!wait.missing.empty()) waits_->Tell({wait});
      if (expired) diagnosis = waits_->Diagnose(wait);
      lock.lock();
    }
    if (!expired) continue;
    if (!IsMet(call.sequence)) ReportExpiry(call, timeout, diagnosis);
    RunInterrupt(lock);
    const auto met = [&] { return IsMet(call.sequence); };
    if (changed_.wait_until(lock, Deadline::After(kPatience).ToTimePoint(), met)) break;
    const int zero[] = {0};
    FailLocked(absl::StatusCode::kDeadlineExceeded, MissingText(zero, "answer", call, timeout));
    RunInterrupt(lock);
    break;
  }
  if (go_ < call.sequence || stopping_) ThrowIfInterruptedLocked();
}

void Control::ReportExpiry(const RankCall& call, absl::Duration timeout,
                           absl::string_view diagnosis) {
  if (rank_ == 0) return Expire(0, call.sequence, timeout, diagnosis);
  ControlMessage message;
  message.kind = MessageKind::kExpired;
  message.sequence = call.sequence;
  message.timeout = timeout;
  message.text = std::string(diagnosis);
  Send(0, message);
}

std::vector<int> Control::Missing() const {
  if (rank_ != 0) return missing_;
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    if (!arrivals_[static_cast<size_t>(rank)].came) missing.push_back(rank);
  }
  return missing;
}

void Control::TellMissing() {
  if (rank_ != 0 || arrived_ == 0) return;
  ControlMessage message;
  message.kind = MessageKind::kMissing;
  for (const int rank : Missing()) message.counts.push_back(rank);
  for (int rank = 1; rank < size_; ++rank) {
    const Arrival& arrival = arrivals_[static_cast<size_t>(rank)];
    message.sequence = arrival.sequence;
    if (arrival.came) Send(rank, message);
  }
}

RankCall Control::CallOf(int rank) const {
  const Arrival& arrival = arrivals_[static_cast<size_t>(rank)];
  return {rank, arrival.sequence, arrival.signature, arrival.counts};
}

void Control::Arrive(int rank, int64_t sequence, const Signature& signature,
                     std::vector<int64_t> counts) {
  if (failure_.has_value()) return;
  Arrival& mine = arrivals_[static_cast<size_t>(rank)];
  const size_t expected = !signature.uneven ? 0
                                            : static_cast<size_t>(size_) *
                                                  (signature.op == CollectiveId::kAllToAll ? 2 : 1);
  if (mine.came || counts.size() != expected) {
    return FailLocked(absl::StatusCode::kInternal,
                      absl::StrCat("rank ", rank, " sent a call out of turn"));
  }
  if (sequence != mine.next) {
    return FailLocked(
        absl::StatusCode::kDataLoss,
        absl::StrCat("rank 0 has the header of collective ", sequence, " from rank ", rank, ", ",
                     signature.ToString(counts), ", where collective ", mine.next,
                     " is due: a message was lost, repeated or reordered"));
  }
  mine = {true, sequence + 1, sequence, signature, std::move(counts)};
  ++arrived_;
  // Told without waiting for the rest.
  for (int other = 0; other < size_; ++other) {
    if (other == rank || !arrivals_[static_cast<size_t>(other)].came) continue;
    if (CallsAgree(CallOf(rank), CallOf(other))) continue;
    return FailLocked(absl::StatusCode::kInvalidArgument,
                      DisagreementText(CallOf(rank), CallOf(other)));
  }
  CheckLeavers();
  if (arrived_ < size_ || failure_.has_value()) return;
  for (Arrival& arrival : arrivals_) arrival.came = false;
  arrived_ = 0;
  go_ = sequence;
  ControlMessage go;
  go.kind = MessageKind::kGo;
  go.sequence = sequence;
  SendToAll(go);
  Notify();
}

void Control::Expire(int rank, int64_t sequence, absl::Duration timeout,
                     absl::string_view diagnosis) {
  if (failure_.has_value() || go_ >= sequence) return;
  // Its call was lost on the way: the others miss it.
  if (!arrivals_[static_cast<size_t>(rank)].came) return;
  FailLocked(absl::StatusCode::kDeadlineExceeded,
             absl::StrCat(MissingText(Missing(), "call", CallOf(rank), timeout), diagnosis));
}

void Control::CheckLeavers() {
  if (rank_ != 0) {
    if (left_[0]) FailLocked(absl::StatusCode::kUnavailable, LeftText(0));
    return;
  }
  if (arrived_ == 0) return;
  for (int rank = 0; rank < size_; ++rank) {
    if (!left_[static_cast<size_t>(rank)] || arrivals_[static_cast<size_t>(rank)].came) continue;
    return FailLocked(absl::StatusCode::kUnavailable, LeftText(rank));
  }
}

void Control::MarkLeft(int rank) {
  if (rank < 0 || rank >= size_) return;
  left_[static_cast<size_t>(rank)] = true;
  if (rank_ == 0) {
    ControlMessage message;
    message.kind = MessageKind::kLeft;
    message.rank = rank;
    SendToAll(message, rank);
    CheckLeavers();
  } else if (rank == 0) {
    // Nobody gives the word any more.
    if (meeting_ > go_) CheckLeavers();
  }
  Notify();
}

// ---- Failing ----

void Control::Fail(absl::StatusCode code, absl::string_view text) {
  Lock lock(mutex_);
  FailLocked(code, text);
  RunInterrupt(lock);
}

void Control::FailAndThrow(absl::StatusCode code, absl::string_view text) {
  Fail(code, text);
  ThrowIfInterrupted();
  throw Error(absl::StatusCode::kInternal, text);
}

void Control::FailUnexplained(absl::Span<const int> peers, absl::StatusCode code,
                              absl::string_view text) {
  Lock lock(mutex_);
  const auto leaver = [&] {
    const auto left = [&](int peer) { return left_[static_cast<size_t>(peer)]; };
    return std::find_if(peers.begin(), peers.end(), left);
  };
  attended_ns_ = 0;  // the thread is to read what has come, at once
  Wake(wake_);
  changed_.wait_until(lock, Deadline::After(kPatience).ToTimePoint(),
                      [&] { return stopping_ || failure_.has_value() || leaver() != peers.end(); });
  ThrowIfInterruptedLocked();
  if (leaver() != peers.end()) {
    FailLocked(absl::StatusCode::kUnavailable, LeftText(*leaver()));
  } else {
    FailLocked(code, text);
  }
  RunInterrupt(lock);
  ThrowIfInterruptedLocked();
  throw Error(absl::StatusCode::kInternal, text);
}

void Control::FailLocked(absl::StatusCode code, absl::string_view text, int told_by) {
  if (failure_.has_value()) return;
  failure_ = Error(code, text);
  interrupt_due_ = true;
  Notify();
  ControlMessage message;
  message.kind = MessageKind::kFailed;
  message.code = code;
  message.text = std::string(text);
  SendToAll(message, told_by);
}

bool Control::Failed() const {
  Lock lock(mutex_);
  return failure_.has_value();
}

void Control::ThrowIfFailed() const {
  Lock lock(mutex_);
  if (failure_.has_value()) throw Error(*failure_);
}

bool Control::Interrupted() const {
  Lock lock(mutex_);
  return stopping_ || failure_.has_value();
}

void Control::ThrowIfInterrupted() const {
  Lock lock(mutex_);
  ThrowIfInterruptedLocked();
}

void Control::ThrowIfInterruptedLocked() const {
  // First: peers may have made this rank's own leaving the group's error by now.
  if (stopping_) throw Destroyed();
  if (failure_.has_value()) throw Error(*failure_);
}

void Control::RunInterrupt(Lock& lock) {
  if (!interrupt_due_) return;
  interrupt_due_ = false;
  if (interrupt_ == nullptr) return;
  interrupting_ += 1;
  lock.unlock();
  interrupt_();
  lock.lock();
  interrupting_ -= 1;
  Notify();
}

void Control::Stop() {
  Lock lock(mutex_);
  stopping_ = true;
  interrupt_due_ = true;
  Notify();
  RunInterrupt(lock);
}

void Control::Leave() {
  {
    Lock lock(mutex_);
    ControlMessage message;
    message.kind = MessageKind::kLeft;
    message.rank = rank_;
    SendToAll(message);
    leaving_ = true;
    changed_.wait(lock, [&] { return interrupting_ == 0; });
  }
  Wake(wake_);
  if (thread_.joinable()) thread_.join();
}

// ---- Connections ----

void Control::Send(int peer, const ControlMessage& message) {
  if (links_[static_cast<size_t>(peer)].socket.valid()) SendFrame(peer, EncodeMessage(message));
}

void Control::SendFrame(int peer, absl::string_view frame) {
  Link& link = links_[static_cast<size_t>(peer)];
  if (!link.socket.valid()) return;
  absl::StrAppend(&link.out, frame);
  Flush(link);
  if (!link.out.empty()) Wake(wake_);  // the thread sends the rest
}

void Control::SendToAll(const ControlMessage& message, int except) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != except) Send(peer, message);
  }
}

void Control::Flush(Link& link) {
  if (link.out.empty() || !link.socket.valid()) return;
  size_t sent = 0;
  const IoResult result =
      SendAll(link.socket.get(), link.out, Deadline::After(absl::ZeroDuration()), &sent);
  // What has ended is noticed by reading.
  link.out.erase(0, result == IoResult::kClosed ? link.out.size() : sent);
}

void Control::Wake(const UniqueFd& wake) {
  const uint64_t one = 1;
  if (wake.valid()) (void)!write(wake.get(), &one, sizeof(one));
}

void Control::Notify() {
  changed_.notify_all();
  if (attending_) Wake(attendant_wake_);
}

void Control::Run() {
  Deadline tick = Deadline::After(kHeartbeat);
  for (;;) {
    {
      Lock lock(mutex_);
      if (leaving_) break;
    }
    PollOnce(tick);
    if (!tick.Expired()) continue;
    Lock lock(mutex_);
    Beat();
    RunInterrupt(lock);
    tick = Deadline::After(kHeartbeat);
  }
  // Half-closed and read to the end: a connection that is closed with something unread in it is
  // reset, and might take along what was said last.
  {
    Lock lock(mutex_);
    for (Link& link : links_) {
      if (link.socket.valid() && link.out.empty()) shutdown(link.socket.get(), SHUT_WR);
    }
  }
  const Deadline end = Deadline::After(kLinger);
  for (;;) {
    {
      Lock lock(mutex_);
      const bool open = std::any_of(links_.begin(), links_.end(),
                                    [](const Link& link) { return link.socket.valid(); });
      if (!open || end.Expired()) return;
    }
    PollOnce(end);
  }
}

void Control::PollOnce(Deadline tick) {
  Lock lock(mutex_);
  const bool attended = attending_ || (!leaving_ && MonotonicNanoseconds() - attended_ns_ <
                                                        absl::ToInt64Nanoseconds(kAttended));
  const Deadline until = attended ? std::min(tick, Deadline::After(kAttended)) : tick;
  PollLinks(wake_, attended ? 0 : POLLIN, until, lock);
}

void Control::Attend(Deadline until, Lock& lock) {
  attending_ = true;
  PollLinks(attendant_wake_, POLLIN, until, lock);
}

void Control::PollLinks(const UniqueFd& wake, short wanted, Deadline until, Lock& lock) {
  const bool attends = &wake == &attendant_wake_;
  std::vector<pollfd> entries = {{wake.get(), POLLIN, 0}};
  std::vector<int> peers = {-1};
  for (int peer = 0; peer < size_; ++peer) {
    const Link& link = links_[static_cast<size_t>(peer)];
    const int events = wanted | (link.out.empty() ? 0 : POLLOUT);
    if (!link.socket.valid() || events == 0) continue;
    entries.push_back({link.socket.get(), static_cast<short>(events), 0});
    peers.push_back(peer);
  }
  lock.unlock();
  const int ready = poll(entries.data(), entries.size(), until.RemainingPollMilliseconds());
  lock.lock();
  if (attends) {
    attending_ = false;
    attended_ns_ = MonotonicNanoseconds();
  }
  if (ready <= 0) return;
  if (entries[0].revents != 0) {
    uint64_t count = 0;
    (void)!read(wake.get(), &count, sizeof(count));
  }
  for (size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].revents == 0) continue;
    Flush(links_[static_cast<size_t>(peers[i])]);
    if ((entries[i].revents & ~POLLOUT) != 0) ReadLink(peers[i]);
  }
  RunInterrupt(lock);
}

void Control::ReadLink(int peer) {
  Link& link = links_[static_cast<size_t>(peer)];
  char buffer[16 << 10];
  while (link.socket.valid()) {  // another thread may have found its end
    const ssize_t n = recv(link.socket.get(), buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) return HandleEnd(peer);
    link.heard = link.begun = true;
    link.in.append(buffer, static_cast<size_t>(n));
    try {
      ControlMessage message;
      while (const size_t taken = DecodeMessage(link.in, &message)) {
        link.in.erase(0, taken);
        Handle(peer, message);
      }
    } catch (const Error& error) {
      FailLocked(error.code(),
                 absl::StrCat("rank ", peer, " sent rank ", rank_, " ", error.message()));
      link.socket.reset();
      return;
    }
    if (static_cast<size_t>(n) < sizeof(buffer)) break;
  }
}

void Control::HandleEnd(int peer) {
  links_[static_cast<size_t>(peer)].socket.reset();
  if (left_[static_cast<size_t>(peer)] || leaving_) return;
  FailLocked(absl::StatusCode::kUnavailable,
             absl::StrCat("rank ", peer, " has died (its connection is closed)"));
}

void Control::Handle(int peer, const ControlMessage& message) {
  switch (message.kind) {
    case MessageKind::kCall:
      if (rank_ == 0) Arrive(peer, message.sequence, message.signature, message.counts);
      return;
    case MessageKind::kGo:
      go_ = message.sequence;
      Notify();
      return;
    case MessageKind::kExpired:
      if (rank_ == 0) Expire(peer, message.sequence, message.timeout, message.text);
      return;
    case MessageKind::kMissing:
      if (message.sequence == meeting_) {
        missing_.assign(message.counts.begin(), message.counts.end());
      }
      return;
    case MessageKind::kFailed:
      return FailLocked(message.code, message.text, peer);
    case MessageKind::kLeft:
      return MarkLeft(message.rank);
    case MessageKind::kAlive:
      return;
  }
}

void Control::Beat() {
  TellMissing();
  for (int peer = 0; peer < size_; ++peer) {
    Link& link = links_[static_cast<size_t>(peer)];
    if (!link.socket.valid()) continue;
    // Whoever attends may have been held up with something unread: a last look.
    if (!link.heard && link.missed + 1 >= kMissedHeartbeats) ReadLink(peer);
    // Counted in beats of this rank: one that was itself held up does not blame its peers.
    link.missed = link.heard || !link.begun ? 0 : link.missed + 1;
    link.heard = false;
    if (link.missed >= kMissedHeartbeats && !left_[static_cast<size_t>(peer)]) {
      FailLocked(absl::StatusCode::kUnavailable,
                 absl::StrCat("rank ", peer, " does not answer (no sign of life for ",
                              absl::FormatDuration(kHeartbeat * kMissedHeartbeats),
                              "): it, its host or the network has stopped"));
      link.socket.reset();
      continue;
    }
    ControlMessage alive;
    Send(peer, alive);
  }
}

}  // namespace lockstep::comm::gloo
