// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A ring buffer of what one rank did in one group: always on, and written to a file when something
// goes wrong.
//
//   FlightRecorder recorder({.group = "world", .rank = 0, .size = 2}, {.calls = 1024});
//   const int64_t ticket = recorder.Issued(signature, counts, sequence, bytes);
//   recorder.Started(ticket);
//   recorder.Ended(ticket, nullptr);
//
// Programs see it as Communicator::flight_record() and through the options below.
#ifndef LOCKSTEP_COMM_FLIGHT_RECORDER_H_
#define LOCKSTEP_COMM_FLIGHT_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/flight_record.h"
#include "lockstep/comm/signature.h"

namespace lockstep::comm {

struct FlightRecorderOptions {
  // The last so many collectives and transfers are kept: 1 to 2^20.
  int calls = 1024;
  // Where each rank writes <group>.rank<k>.json when the group gets an error: once, also on a rank
  // that has nothing pending, within half a second. It is made if its parent exists. Empty: nothing
  // is written.
  std::string folder = {};
};

// Thread-safe. No call but the constructor, Snapshot() and Write() allocates once the ring is full
// (uneven collectives: once its entries have seen them). A call costs about 0.15 us in all.
class FlightRecorder {
 public:
  struct Group {
    std::string group;
    std::string key = {};
    int rank = 0;
    int size = 1;
    std::vector<int> world_ranks = {};  // of the members, by rank
  };
  // Throws InvalidArgument (calls), NotFound or Unavailable (a folder that cannot be used).
  FlightRecorder(const Group& group, const FlightRecorderOptions& options);

  // A call enters the record. The ticket is for the functions below, which forget calls that the
  // ring has overwritten. Transfers are numbered here: `number` is theirs for collectives only.
  int64_t Issued(const Signature& signature, absl::Span<const int64_t> counts, int64_t number,
                 int64_t bytes);
  void Started(int64_t ticket);
  // `error` null: completed. The first error is kept as the group's.
  void Ended(int64_t ticket, const Error* error);

  // The group's error, learned otherwise than by a call that ended: kept if it is the first.
  void Failed(const Error& error);
  bool has_error() const { return has_error_.load(std::memory_order_acquire); }

  FlightRecord Snapshot() const;

  bool writes() const { return !folder_.empty(); }
  // Writes the file, the first time that it is called with an error known. What goes wrong with the
  // file is logged: the group's error matters more.
  void WriteOnce();

 private:
  struct Entry {
    int64_t ticket = -1;
    FlightCall call;
  };
  // Of a call that the ring still has, else null.
  Entry* Find(int64_t ticket);

  const std::string folder_;
  const size_t capacity_;
  std::atomic<bool> has_error_{false};
  std::atomic<bool> written_{false};

  mutable std::mutex mutex_;
  FlightRecord record_;      // but for `calls`, which are in the ring
  std::vector<Entry> ring_;  // reserved whole, so that it never moves
  int64_t next_ticket_ = 0;
  std::vector<int64_t> sent_;  // transfers to and from each peer
  std::vector<int64_t> received_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_FLIGHT_RECORDER_H_
