// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// A fast 64-bit hash of bytes, the same on every machine, process and version: for checksums of
// files and messages, for cache keys on disk, and to compare parameters between ranks.
//
//   uint64_t checksum = Hash64(bytes);
//
//   Hasher64 hasher;
//   for (absl::string_view piece : pieces) hasher.Update(piece);   // same value as one string
//   uint64_t checksum = hasher.Finish();
//
// The function is XXH64 (xxHash's specification, 0.1.1). It runs at several GB/s. It finds damage
// and tells contents apart; it is no protection against someone who forges data on purpose. For
// hash containers inside one process use absl::Hash.

#ifndef LOCKSTEP_BASE_HASH_H_
#define LOCKSTEP_BASE_HASH_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace lockstep {

uint64_t Hash64(absl::string_view bytes, uint64_t seed = 0);

inline uint64_t Hash64(const void* data, size_t size_bytes, uint64_t seed = 0) {
  return Hash64(absl::string_view(static_cast<const char*>(data), size_bytes), seed);
}

// Hashes bytes that arrive in pieces; how they are cut does not matter. Not safe for concurrent
// use.
class Hasher64 {
 public:
  explicit Hasher64(uint64_t seed = 0);

  Hasher64& Update(absl::string_view bytes);
  Hasher64& Update(const void* data, size_t size_bytes) {
    return Update(absl::string_view(static_cast<const char*>(data), size_bytes));
  }

  // The hash of everything so far. More may be added afterwards.
  uint64_t Finish() const;

 private:
  static constexpr size_t kStripeBytes = 32;

  void ConsumeStripe(const char* stripe);

  uint64_t seed_;
  std::array<uint64_t, 4> lanes_;
  uint64_t total_bytes_ = 0;
  std::array<char, kStripeBytes> pending_;  // The first total_bytes_ % kStripeBytes are in use.
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_HASH_H_
