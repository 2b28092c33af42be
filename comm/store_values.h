// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the in-process store and the server have in common: the rules for keys, values and numbers.
#ifndef LOCKSTEP_COMM_STORE_VALUES_H_
#define LOCKSTEP_COMM_STORE_VALUES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::comm {

using StoreValues = std::map<std::string, std::string>;

// Throw InvalidArgument.
void CheckStoreKey(absl::string_view key);
void CheckStoreValue(absl::string_view key, absl::string_view value);

// Throws FailedPrecondition when the key holds no number, OutOfRange when the sum is none.
int64_t AddToStoreValue(StoreValues& values, const std::string& key, int64_t delta);

// Those of `keys` that are not in `values`.
std::vector<std::string> MissingKeys(const StoreValues& values,
                                     const std::vector<std::string>& keys);

// "store: Wait: keys a, b did not appear in the store at 127.0.0.1:29500 within 1.5s".
std::string MissingKeysText(absl::string_view call, const std::vector<std::string>& missing,
                            absl::string_view store, absl::Duration waited);

// "keys a, b": the first eight.
std::string KeysText(const std::vector<std::string>& keys);
// "1.5s", to the nearest millisecond.
std::string WaitedText(absl::Duration waited);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_STORE_VALUES_H_
