// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/transfers.h"

#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/comm/gloo/control_message.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm::gloo {
namespace {

// Of the sender's call and the data, and of the receiver's call. Collectives have lower ones.
constexpr uint64_t kSenderSlot = uint64_t{1} << 63;
constexpr uint64_t kReceiverSlot = kSenderSlot + 1;

}  // namespace

void Transfers::Stop() {
  {
    Lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (auto& [key, lane] : lanes_) {
    if (lane.thread.joinable()) lane.thread.join();
  }
}

void Transfers::Start(const Signature& signature, Tensor tensor, absl::Duration timeout,
                      Done done) {
  Pending pending;
  pending.signature = signature;
  pending.tensor = std::move(tensor);
  pending.timeout = timeout;
  pending.done = std::move(done);
  const bool to_self = signature.peer == control_.rank();
  Lock lock(mutex_);
  Lane& lane = lanes_[{signature.peer, pending.sends()}];
  pending.number = lane.issued++;
  lane.pending.push_back(std::move(pending));
  changed_.notify_all();
  if (to_self) {
    Lane& sends = lanes_[{signature.peer, true}];
    Lane& receives = lanes_[{signature.peer, false}];
    if (receives.thread.joinable()) return;
    receives.thread = std::thread([this, &sends, &receives] { RunSelf(sends, receives); });
  } else if (!lane.thread.joinable()) {
    lane.thread = std::thread([this, &lane] { Run(lane); });
  }
}

void Transfers::Interrupt() {
  Lock lock(mutex_);
  changed_.notify_all();
}

std::optional<Error> Transfers::Try(const std::function<void()>& move) {
  try {
    control_.ThrowIfInterrupted();
    move();
    return std::nullopt;
  } catch (const Error& error) {
    if (error.code() != absl::StatusCode::kAborted) {
      control_.Fail(error.code(), absl::StrCat("rank ", control_.rank(), ": ", error.message()));
    }
    return error;
  } catch (const std::exception& error) {
    control_.Fail(absl::StatusCode::kInternal,
                  absl::StrCat("rank ", control_.rank(), ": ", error.what()));
    return Error(absl::StatusCode::kInternal, error.what());
  }
}

void Transfers::Finish(Pending transfer, std::optional<Error> error) {
  if (error.has_value()) {
    error = error->WithContext(
        absl::StrCat(transfer.signature.ToString(), ": rank ", control_.rank(), " of group \"",
                     control_.group_name(), "\", message ", transfer.number,
                     transfer.sends() ? " to that rank" : " from that rank"));
  }
  transfer.done(std::move(error));
}

Transfers::Pending Transfers::Take(Lane& lane) {
  Pending transfer = std::move(lane.pending.front());
  lane.pending.pop_front();
  return transfer;
}

void Transfers::Compare(const Pending& mine, const Signature& theirs) {
  const int me = control_.rank();
  const int peer = mine.signature.peer;
  const bool sends = mine.sends();
  const Signature& send = sends ? mine.signature : theirs;
  const Signature& receive = sends ? theirs : mine.signature;
  if (TransferFits(send, receive)) return;
  control_.FailAndThrow(
      absl::StatusCode::kInvalidArgument,
      TransferDisagreementText(mine.number, sends ? me : peer, send, sends ? peer : me, receive));
}

// ---- Between ranks ----

void Transfers::Run(Lane& lane) {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !lane.pending.empty(); });
    if (lane.pending.empty()) return;
    Pending transfer = Take(lane);
    lock.unlock();
    std::optional<Error> error = Try([&] { Move(transfer); });
    Finish(std::move(transfer), std::move(error));
    lock.lock();
  }
}

void Transfers::Move(const Pending& transfer) {
  const Deadline deadline = Deadline::After(transfer.timeout);
  const std::optional<FaultKind> fault = FaultAt(transfer);
  if (fault == FaultKind::kDrop) return AwaitDeadline(transfer, deadline);
  CheckHeader(transfer, SwapHeaders(transfer, HeaderOf(transfer, fault), deadline));
  // What was wrong with the header is for the peer to tell.
  if (fault.has_value() && fault != FaultKind::kCorruptPayload) {
    return AwaitDeadline(transfer, deadline);
  }
  if (fault.has_value()) exchange_.CorruptNext();
  Pieces data(&exchange_, kSenderSlot, deadline, [&](int, Pieces::Trouble trouble) {
    if (trouble == Pieces::Trouble::kDamaged) return DamagedText(transfer, "data");
    return LateText(transfer, "finish");
  });
  void* const memory = KernelRawData(transfer.tensor);
  if (transfer.sends()) {
    data.Send(transfer.signature.peer, memory, transfer.tensor.bytes());
  } else {
    data.Receive(transfer.signature.peer, memory, transfer.tensor.bytes());
  }
  data.AwaitAll();
}

std::string Transfers::SwapHeaders(const Pending& transfer, const std::string& mine,
                                   Deadline deadline) {
  const TransferWatch::Wait wait(watch_, transfer.signature, transfer.number, transfer.timeout);
  const auto describe = [&](int, Pieces::Trouble) {
    return absl::StrCat(LateText(transfer, "call"), WhyLate(wait));
  };
  const int peer = transfer.signature.peer;
  const bool sends = transfer.sends();
  std::string theirs(kSignatureFrame, '\0');
  // Both ends tell before they listen.
  Pieces out(&exchange_, sends ? kSenderSlot : kReceiverSlot, deadline, describe, false);
  Pieces in(&exchange_, sends ? kReceiverSlot : kSenderSlot, deadline, describe, false);
  in.Receive(peer, theirs.data(), static_cast<int64_t>(theirs.size()));
  out.Send(peer, mine.data(), static_cast<int64_t>(mine.size()));
  out.Start();
  in.AwaitAll();
  out.AwaitAll();
  return theirs;
}

std::string Transfers::LateText(const Pending& mine, absl::string_view verb) const {
  return MissingTransferText(mine.number, control_.rank(), mine.signature, verb, mine.timeout);
}

std::string Transfers::WhyLate(const TransferWatch::Wait& wait) const {
  return control_.Interrupted() ? "" : wait.Diagnose();  // of several that are late one is told of
}

std::string Transfers::DamagedText(const Pending& mine, absl::string_view what) const {
  return DamagedTransferText(what, mine.number, control_.rank(), mine.signature);
}

void Transfers::CheckHeader(const Pending& mine, absl::string_view header) {
  int64_t number = 0;
  Signature theirs;
  try {
    theirs = DecodeSignature(header, &number);
  } catch (const Error& error) {
    control_.FailAndThrow(error.code(), DamagedText(mine, "header"));
  }
  if (number != mine.number) {
    control_.FailAndThrow(
        absl::StatusCode::kDataLoss,
        OutOfTurnTransferText(number, theirs, mine.number, control_.rank(), mine.signature));
  }
  Compare(mine, theirs);
}

// ---- Faults, for tests ----

std::optional<FaultKind> Transfers::FaultAt(const Pending& transfer) const {
  if (faults_ == nullptr || !transfer.sends()) return std::nullopt;
  return faults_->At(
      {control_.group_name(), control_.rank(), transfer.signature.peer, transfer.number});
}

std::string Transfers::HeaderOf(const Pending& transfer, std::optional<FaultKind> fault) {
  int64_t number = transfer.number;
  if (fault == FaultKind::kDuplicate) --number;
  if (fault == FaultKind::kReorder) ++number;
  std::string header = EncodeSignature(transfer.signature, number);
  if (fault == FaultKind::kCorruptHeader) header[header.size() / 2] ^= 1;
  return header;
}

void Transfers::AwaitDeadline(const Pending& transfer, Deadline deadline) {
  control_.AwaitInterrupt(deadline);
  control_.FailAndThrow(absl::StatusCode::kDeadlineExceeded, LateText(transfer, "call"));
}

// ---- To itself ----

void Transfers::RunSelf(Lane& sends, Lane& receives) {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock,
                  [&] { return stopping_ || !sends.pending.empty() || !receives.pending.empty(); });
    if (sends.pending.empty() && receives.pending.empty()) return;
    std::string why;
    if (AwaitPair(sends, receives, lock, &why)) {
      Pending send = Take(sends);
      Pending receive = Take(receives);
      lock.unlock();
      const std::optional<Error> error = Try([&] { MoveToSelf(send, receive); });
      Finish(std::move(send), error);
      Finish(std::move(receive), error);
    } else {
      Pending late = Take(receives.pending.empty() ? sends : receives);
      lock.unlock();
      std::optional<Error> error = Try([&] {
        control_.FailAndThrow(absl::StatusCode::kDeadlineExceeded,
                              absl::StrCat(LateText(late, "call"), why));
      });
      Finish(std::move(late), std::move(error));
    }
    lock.lock();
  }
}

bool Transfers::AwaitPair(const Lane& sends, const Lane& receives, Lock& lock, std::string* why) {
  const auto complete = [&] { return !sends.pending.empty() && !receives.pending.empty(); };
  if (complete()) return true;
  const Pending& first = (receives.pending.empty() ? sends : receives).pending.front();
  const Deadline deadline = Deadline::After(first.timeout);
  const TransferWatch::Wait wait(watch_, first.signature, first.number, first.timeout);
  while (!complete()) {
    // The interrupt takes the lock, so that none falls between this look and the wait.
    if (control_.Interrupted()) return false;
    if (deadline.Expired()) {
      lock.unlock();  // the store is asked
      *why = WhyLate(wait);
      lock.lock();
      return complete();
    }
    if (deadline.IsInfinite()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, deadline.ToTimePoint());
    }
  }
  return true;
}

void Transfers::MoveToSelf(const Pending& send, const Pending& receive) {
  Compare(send, receive.signature);
  if (send.tensor.bytes() == 0) return;
  std::memmove(KernelRawData(receive.tensor), KernelRawData(send.tensor),
               static_cast<size_t>(send.tensor.bytes()));
}

}  // namespace lockstep::comm::gloo
