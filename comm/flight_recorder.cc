// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/flight_recorder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/flight_record_file.h"
#include "lockstep/comm/socket.h"

namespace lockstep::comm {
namespace {

size_t CheckedCapacity(int calls) {
  if (calls < 1 || calls > (1 << 20)) {
    throw InvalidArgumentError(absl::StrCat("flight recorder: ", calls,
                                            " calls: the ring keeps 1 to 1048576, a hundred bytes "
                                            "each"));
  }
  return static_cast<size_t>(calls);
}

// Now, and not when the group is in trouble.
const std::string& CheckedFolder(const std::string& folder) {
  if (folder.empty()) return folder;
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    throw NotFoundError(absl::StrCat("flight recorder: cannot make the folder ", folder, ": ",
                                     ErrnoText(errno), ": make its parent first"));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    throw UnavailableError(absl::StrCat("flight recorder: cannot write into the folder ", folder,
                                        ": ", ErrnoText(errno)));
  }
  return folder;
}

}  // namespace

FlightRecorder::FlightRecorder(const Group& group, const FlightRecorderOptions& options)
    : folder_(CheckedFolder(options.folder)), capacity_(CheckedCapacity(options.calls)) {
  record_.group = group.group;
  record_.key = group.key;
  record_.rank = group.rank;
  record_.size = group.size;
  record_.world_ranks = group.world_ranks;
  record_.process = getpid();
  record_.anchor_monotonic_ns = MonotonicNanoseconds();
  record_.anchor_wall_ns = absl::GetCurrentTimeNanos();
  ring_.reserve(capacity_);
  sent_.resize(static_cast<size_t>(group.size));
  received_.resize(static_cast<size_t>(group.size));
}

FlightRecorder::Entry* FlightRecorder::Find(int64_t ticket) {
  Entry& entry = ring_[static_cast<size_t>(ticket) % capacity_];
  return entry.ticket == ticket ? &entry : nullptr;
}

int64_t FlightRecorder::Issued(const Signature& signature, absl::Span<const int64_t> counts,
                               int64_t number, int64_t bytes) {
  const int64_t now = MonotonicNanoseconds();
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t ticket = next_ticket_++;
  if (ring_.size() < capacity_) ring_.emplace_back();
  Entry& entry = ring_[static_cast<size_t>(ticket) % capacity_];
  entry.ticket = ticket;
  FlightCall& call = entry.call;
  call.signature = signature;
  call.counts.assign(counts.begin(), counts.end());
  call.bytes = bytes;
  call.state = CallState::kIssued;
  call.issued_ns = now;
  call.started_ns = 0;
  call.ended_ns = 0;
  if (call.is_transfer()) {
    std::vector<int64_t>& lanes = signature.op == CollectiveId::kSend ? sent_ : received_;
    call.number = lanes[static_cast<size_t>(signature.peer)]++;
    call.started_ns = now;
  } else {
    call.number = number;
    ++record_.collectives_issued;
  }
  return ticket;
}

void FlightRecorder::Started(int64_t ticket) {
  const int64_t now = MonotonicNanoseconds();
  std::lock_guard<std::mutex> lock(mutex_);
  Entry* entry = Find(ticket);
  if (entry == nullptr) return;
  entry->call.started_ns = now;
  entry->call.state = CallState::kStarted;
}

void FlightRecorder::Ended(int64_t ticket, const Error* error) {
  const int64_t now = MonotonicNanoseconds();
  if (error != nullptr) Failed(*error);
  std::lock_guard<std::mutex> lock(mutex_);
  Entry* entry = Find(ticket);
  // One that was overwritten is long ago: transfers leave the counter alone.
  if (entry == nullptr) return;
  entry->call.ended_ns = now;
  entry->call.state = error == nullptr ? CallState::kCompleted : CallState::kFailed;
  if (error == nullptr && !entry->call.is_transfer()) {
    record_.collectives_completed = entry->call.number + 1;
  }
}

void FlightRecorder::Failed(const Error& error) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (record_.error_code != absl::StatusCode::kOk) return;
  record_.error_code = error.code();
  record_.error = error.message();
  has_error_.store(true, std::memory_order_release);
}

FlightRecord FlightRecorder::Snapshot() const {
  // The ring is copied entry by entry: nobody who issues a call waits for the whole copy.
  FlightRecord record;
  int64_t end = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    record = record_;
    end = next_ticket_;
  }
  record.written_monotonic_ns = MonotonicNanoseconds();
  for (int64_t ticket = std::max<int64_t>(0, end - static_cast<int64_t>(capacity_)); ticket < end;
       ++ticket) {
    std::lock_guard<std::mutex> lock(mutex_);
    const Entry& entry = ring_[static_cast<size_t>(ticket) % capacity_];
    if (entry.ticket == ticket) record.calls.push_back(entry.call);
  }
  record.forgotten = end - static_cast<int64_t>(record.calls.size());
  return record;
}

void FlightRecorder::WriteOnce() {
  if (folder_.empty() || !has_error() || written_.exchange(true)) return;
  try {
    WriteFlightRecord(Snapshot(), folder_);
  } catch (const Error& error) {
    LOG(WARNING) << error.message();
  }
}

}  // namespace lockstep::comm
