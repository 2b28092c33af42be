// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/base/hash.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace lockstep {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;

static_assert(std::endian::native == std::endian::little, "the hash reads words as little-endian");

template <typename Word>
Word Load(const char* from) {
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

uint64_t Round(uint64_t lane, uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

uint64_t MergeLane(uint64_t hash, uint64_t lane) {
  return (hash ^ Round(0, lane)) * kPrime1 + kPrime4;
}

// The last 0..31 bytes, then the final mixing.
uint64_t FinishTail(uint64_t hash, const char* tail, size_t tail_bytes) {
  for (; tail_bytes >= 8; tail += 8, tail_bytes -= 8) {
    hash = std::rotl(hash ^ Round(0, Load<uint64_t>(tail)), 27) * kPrime1 + kPrime4;
  }
  if (tail_bytes >= 4) {
    hash = std::rotl(hash ^ (Load<uint32_t>(tail) * kPrime1), 23) * kPrime2 + kPrime3;
    tail += 4;
    tail_bytes -= 4;
  }
  for (; tail_bytes > 0; ++tail, --tail_bytes) {
    hash = std::rotl(hash ^ (Load<uint8_t>(tail) * kPrime5), 11) * kPrime1;
  }
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace

Hasher64::Hasher64(uint64_t seed)
    : seed_(seed), lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1} {}

void Hasher64::ConsumeStripe(const char* stripe) {
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane] = Round(lanes_[lane], Load<uint64_t>(stripe + 8 * lane));
  }
}

Hasher64& Hasher64::Update(absl::string_view bytes) {
  const size_t pending_bytes = total_bytes_ % kStripeBytes;
  total_bytes_ += bytes.size();
  if (pending_bytes > 0) {
    const size_t taken = std::min(kStripeBytes - pending_bytes, bytes.size());
    std::copy_n(bytes.data(), taken, pending_.data() + pending_bytes);
    bytes.remove_prefix(taken);
    if (pending_bytes + taken < kStripeBytes) return *this;
    ConsumeStripe(pending_.data());
  }
  for (; bytes.size() >= kStripeBytes; bytes.remove_prefix(kStripeBytes)) {
    ConsumeStripe(bytes.data());
  }
  std::copy_n(bytes.data(), bytes.size(), pending_.data());
  return *this;
}

uint64_t Hasher64::Finish() const {
  uint64_t hash = seed_ + kPrime5;
  if (total_bytes_ >= kStripeBytes) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_) hash = MergeLane(hash, lane);
  }
  return FinishTail(hash + total_bytes_, pending_.data(), total_bytes_ % kStripeBytes);
}

uint64_t Hash64(absl::string_view bytes, uint64_t seed) {
  return Hasher64(seed).Update(bytes).Finish();
}

}  // namespace lockstep
