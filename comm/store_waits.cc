// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/store_waits.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace lockstep::comm {

bool StoreWaits::Advance(Entry& entry, const StoreValues& values) {
  const std::vector<std::string>& keys = entry.wait.keys;
  const auto skip = [&] {
    while (entry.looks_at < keys.size() && values.count(keys[entry.looks_at]) > 0) {
      ++entry.looks_at;
    }
    return entry.looks_at < keys.size();
  };
  if (skip()) return true;
  // Those seen earlier may have been deleted since.
  entry.looks_at = 0;
  return skip();
}

bool StoreWaits::Add(StoreWait wait, const StoreValues& values) {
  Entry entry = {.wait = std::move(wait)};
  if (!Advance(entry, values)) return false;
  const Id id = ++last_id_;
  by_key_[entry.wait.keys[entry.looks_at]].insert(id);
  by_deadline_.emplace(entry.wait.deadline, id);
  by_connection_.emplace(entry.wait.connection, id);
  waits_.emplace(id, std::move(entry));
  return true;
}

StoreWait StoreWaits::Take(Id id) {
  const auto it = waits_.find(id);
  StoreWait wait = std::move(it->second.wait);
  waits_.erase(it);
  by_deadline_.erase({wait.deadline, id});
  by_connection_.erase({wait.connection, id});
  return wait;
}

StoreWait StoreWaits::TakeWithKey(Id id) {
  const Entry& entry = waits_.at(id);
  const auto looking = by_key_.find(entry.wait.keys[entry.looks_at]);
  looking->second.erase(id);
  if (looking->second.empty()) by_key_.erase(looking);
  return Take(id);
}

void StoreWaits::KeyArrived(const std::string& key, const StoreValues& values, Answer ready) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return;
  const std::set<Id> looking = std::move(it->second);
  by_key_.erase(it);
  for (const Id id : looking) {
    Entry& entry = waits_.at(id);
    if (Advance(entry, values)) {
      by_key_[entry.wait.keys[entry.looks_at]].insert(id);
    } else {
      ready(Take(id));
    }
  }
}

void StoreWaits::Expire(Answer expired) {
  while (!by_deadline_.empty() && by_deadline_.begin()->first.Expired()) {
    expired(TakeWithKey(by_deadline_.begin()->second));
  }
}

void StoreWaits::Forget(uint64_t connection) {
  for (;;) {
    const auto it = by_connection_.lower_bound({connection, 0});
    if (it == by_connection_.end() || it->first != connection) return;
    TakeWithKey(it->second);
  }
}

Deadline StoreWaits::NextDeadline() const {
  return by_deadline_.empty() ? Deadline() : by_deadline_.begin()->first;
}

}  // namespace lockstep::comm
