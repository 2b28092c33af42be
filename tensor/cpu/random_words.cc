// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/cpu/random_words.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "lockstep/base/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/random_words.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void PhiloxBlocks(uint64_t seed, uint64_t stream, uint64_t block, int64_t count, uint32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const auto words = Philox4x32(seed, stream, block + static_cast<uint64_t>(i));
    std::copy(words.begin(), words.end(), out + 4 * i);
  }
}

#else

using Tag = hn::ScalableTag<uint32_t>;
using Words = hn::Vec<Tag>;

// The two halves of the products of all lanes with one number.
HWY_INLINE void MulWide(Words a, Words b, Words& high, Words& low) {
  const hn::RepartitionToWide<Tag> wide;
  const Tag d;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), b);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}

// As many blocks at once as a vector has lanes; base/philox.h has the rounds one by one.
void PhiloxVector(uint64_t seed, uint64_t stream, uint64_t block, uint32_t* out) {
  const Tag d;
  // Lanes whose low half of the block number wraps carry into the high half.
  const Words low_start = hn::Set(d, static_cast<uint32_t>(block));
  Words c0 = hn::Add(low_start, hn::Iota(d, 0));
  const auto carried = hn::Lt(c0, low_start);
  Words c1 = hn::Set(d, static_cast<uint32_t>(block >> 32));
  c1 = hn::IfThenElse(carried, hn::Add(c1, hn::Set(d, 1)), c1);
  Words c2 = hn::Set(d, static_cast<uint32_t>(stream));
  Words c3 = hn::Set(d, static_cast<uint32_t>(stream >> 32));
  const Words multiplier0 = hn::Set(d, 0xD2511F53u);
  const Words multiplier1 = hn::Set(d, 0xCD9E8D57u);
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    Words high0, low0, high1, low1;
    MulWide(c0, multiplier0, high0, low0);
    MulWide(c2, multiplier1, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, key0));
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, key1));
    c3 = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, out);
}

void PhiloxBlocks(uint64_t seed, uint64_t stream, uint64_t block, int64_t count, uint32_t* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag()));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    PhiloxVector(seed, stream, block + static_cast<uint64_t>(i), out + 4 * i);
  }
  for (; i < count; ++i) {
    const auto words = Philox4x32(seed, stream, block + static_cast<uint64_t>(i));
    std::copy(words.begin(), words.end(), out + 4 * i);
  }
}

#endif

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(PhiloxBlocks);

}  // namespace

void RandomWords(const RandomKey& key, int64_t begin, int64_t count, uint32_t* words) {
  uint64_t position = key.offset + static_cast<uint64_t>(begin);
  // The rest of a block that an earlier call has begun, and the start of one at the end.
  while (count > 0 && (position % 4 != 0 || count < 4)) {
    const auto block = Philox4x32(key.seed, key.stream, position / 4);
    const int64_t n = std::min<int64_t>(count, 4 - static_cast<int64_t>(position % 4));
    words = std::copy_n(block.begin() + position % 4, n, words);
    position += static_cast<uint64_t>(n);
    count -= n;
  }
  if (count == 0) return;
  const int64_t blocks = count / 4;
  HWY_DYNAMIC_DISPATCH(PhiloxBlocks)(key.seed, key.stream, position / 4, blocks, words);
  if (count % 4 != 0) {
    const auto block =
        Philox4x32(key.seed, key.stream, position / 4 + static_cast<uint64_t>(blocks));
    std::copy_n(block.begin(), count % 4, words + 4 * blocks);
  }
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
