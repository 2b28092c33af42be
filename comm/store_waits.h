// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The waits that a store's server has not answered yet, by key, deadline and connection.
//
//   StoreWaits waits;
//   waits.Add({.connection = 7, .request = 1, .keys = {"a", "b"}, .deadline = deadline}, values);
//   values["a"] = "1";
//   waits.KeyArrived("a", values, answer);  // nothing yet
//   values["b"] = "2";
//   waits.KeyArrived("b", values, answer);  // answer is called with the wait
//
// A wait looks at one of its missing keys at a time. So a key that arrives costs what looks at it
// and not what else is pending, and a wait for n keys costs n steps in all, unless keys are deleted
// meanwhile. Not thread-safe.
#ifndef LOCKSTEP_COMM_STORE_WAITS_H_
#define LOCKSTEP_COMM_STORE_WAITS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/store_values.h"

namespace lockstep::comm {

struct StoreWait {
  uint64_t connection = 0;
  uint64_t request = 0;
  std::vector<std::string> keys;
  Deadline deadline;
};

class StoreWaits {
 public:
  // Must not call back into this object.
  using Answer = absl::FunctionRef<void(const StoreWait&)>;

  // False when all keys are there already: nothing is added then.
  bool Add(StoreWait wait, const StoreValues& values);
  // Takes out the waits whose keys are all there, now that `key` is, in order of their arrival.
  void KeyArrived(const std::string& key, const StoreValues& values, Answer ready);
  // Takes out those whose deadline has passed.
  void Expire(Answer expired);
  // Takes out a connection's.
  void Forget(uint64_t connection);

  // The earliest one; infinite when there is none.
  Deadline NextDeadline() const;
  size_t size() const { return waits_.size(); }

 private:
  struct Entry {
    StoreWait wait;
    size_t looks_at = 0;  // a missing key; those before it were there when it was reached
  };
  using Id = uint64_t;

  // Moves on to the next missing key. False when there is none.
  static bool Advance(Entry& entry, const StoreValues& values);
  // Out of everything but by_key_.
  StoreWait Take(Id id);
  StoreWait TakeWithKey(Id id);

  Id last_id_ = 0;
  std::map<Id, Entry> waits_;
  std::map<std::string, std::set<Id>> by_key_;  // of what an entry looks at
  std::set<std::pair<Deadline, Id>> by_deadline_;
  std::set<std::pair<uint64_t, Id>> by_connection_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_STORE_WAITS_H_
