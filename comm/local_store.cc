// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/store_values.h"

namespace lockstep::comm {

void CheckStoreKey(absl::string_view key) {
  if (key.empty() || static_cast<int64_t>(key.size()) > kMaxStoreKeyBytes) {
    throw InvalidArgumentError(absl::StrCat("store: a key of ", key.size(), " bytes: 1 to ",
                                            kMaxStoreKeyBytes, " are allowed"));
  }
}

void CheckStoreValue(absl::string_view key, absl::string_view value) {
  if (static_cast<int64_t>(value.size()) > kMaxStoreValueBytes) {
    throw InvalidArgumentError(absl::StrCat("store: the value of key \"", key, "\" has ",
                                            value.size(), " bytes, more than ",
                                            kMaxStoreValueBytes));
  }
}

int64_t AddToStoreValue(StoreValues& values, const std::string& key, int64_t delta) {
  int64_t number = 0;
  const auto it = values.find(key);
  if (it != values.end() && !absl::SimpleAtoi(it->second, &number)) {
    throw FailedPreconditionError(
        absl::StrCat("store: key \"", key, "\" does not hold a number: use another key for Add"));
  }
  int64_t sum = 0;
  if (__builtin_add_overflow(number, delta, &sum)) {
    throw OutOfRangeError(
        absl::StrCat("store: key \"", key, "\": ", number, " + ", delta, " overflows"));
  }
  values[key] = absl::StrCat(sum);
  return sum;
}

std::vector<std::string> MissingKeys(const StoreValues& values,
                                     const std::vector<std::string>& keys) {
  std::vector<std::string> missing;
  for (const std::string& key : keys) {
    if (values.count(key) == 0) missing.push_back(key);
  }
  return missing;
}

std::string KeysText(const std::vector<std::string>& keys) {
  constexpr size_t kShown = 8;
  const size_t shown = std::min(keys.size(), kShown);
  std::string text =
      absl::StrCat(keys.size() == 1 ? "key " : "keys ",
                   absl::StrJoin(keys.begin(), keys.begin() + static_cast<int64_t>(shown), ", "));
  if (shown < keys.size()) absl::StrAppend(&text, " and ", keys.size() - shown, " more");
  return text;
}

std::string WaitedText(absl::Duration waited) {
  return absl::FormatDuration(absl::Trunc(waited + absl::Microseconds(500), absl::Milliseconds(1)));
}

std::string MissingKeysText(absl::string_view call, const std::vector<std::string>& missing,
                            absl::string_view store, absl::Duration waited) {
  return absl::StrCat("store: ", call, ": ", KeysText(missing), " did not appear in the ", store,
                      " within ", WaitedText(waited));
}

void LocalStore::Set(absl::string_view key, absl::string_view value, Deadline /*deadline*/) {
  CheckStoreKey(key);
  CheckStoreValue(key, value);
  std::lock_guard<std::mutex> lock(mutex_);
  values_[std::string(key)] = std::string(value);
  changed_.notify_all();
}

std::string LocalStore::Get(absl::string_view key, Deadline deadline) {
  const std::string name(key);
  std::unique_lock<std::mutex> lock(mutex_);
  AwaitKeys("Get", {name}, deadline, lock);
  return values_[name];
}

void LocalStore::Wait(const std::vector<std::string>& keys, Deadline deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  AwaitKeys("Wait", keys, deadline, lock);
}

void LocalStore::AwaitKeys(absl::string_view call, const std::vector<std::string>& keys,
                           Deadline deadline, std::unique_lock<std::mutex>& lock) {
  for (const std::string& key : keys) CheckStoreKey(key);
  const Stopwatch watch;
  const auto complete = [&] { return MissingKeys(values_, keys).empty(); };
  if (deadline.IsInfinite()) {
    changed_.wait(lock, complete);
  } else if (!changed_.wait_until(lock, deadline.ToTimePoint(), complete)) {
    throw DeadlineExceededError(
        MissingKeysText(call, MissingKeys(values_, keys), Describe(), watch.Elapsed()));
  }
}

int64_t LocalStore::Add(absl::string_view key, int64_t delta, Deadline /*deadline*/) {
  CheckStoreKey(key);
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t sum = AddToStoreValue(values_, std::string(key), delta);
  changed_.notify_all();
  return sum;
}

bool LocalStore::Delete(absl::string_view key, Deadline /*deadline*/) {
  CheckStoreKey(key);
  std::lock_guard<std::mutex> lock(mutex_);
  return values_.erase(std::string(key)) > 0;
}

}  // namespace lockstep::comm
