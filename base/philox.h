// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Counter-based random numbers: Philox 4x32 with 10 rounds (Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", 2011).
//
// There is no state: a block of four 32-bit words is a function of (seed, stream, block index), so
// that element i of a random tensor depends on its key and on i only, whichever thread, device or
// backend computes it, and can be computed again at any time.
//
//   std::array<uint32_t, 4> words = Philox4x32(seed, stream, block);
//   float x = UniformFloat(words[0]);
//
// The formulas are a contract, because other programs (NumPy scripts that write golden files,
// device kernels) state them again. Notation: `>>` shifts a 32-bit word, `+`, `*` and `/` before a
// function call are exact in float64, and log, sqrt, cos, sin and the other products are taken in
// float64.
//
//   word j of block b            Philox with key (seed low, seed high) and
//                                counter (b low, b high, stream low, stream high)
//   UniformFloat(w)              (w >> 8) / 2^24
//   UniformDouble(h, l)          ((h >> 5) * 2^26 + (l >> 6)) / 2^53
//   NormalPair(a, b)             u = (a + 0.5) / 2^32, v = (b + 0.5) / 2^32
//   NormalDoublePair(a, b, c, d) u = UniformDouble(a, b) + 2^-53, v = UniformDouble(c, d)
//                                both: r = sqrt(-2 * log(u)), t = (2 * pi) * v,
//                                first = r * cos(t), second = r * sin(t)

#ifndef LOCKSTEP_BASE_PHILOX_H_
#define LOCKSTEP_BASE_PHILOX_H_

#include <array>
#include <cmath>
#include <cstdint>

namespace lockstep {

// Philox 4x32-10 as published: any counter, any key.
constexpr std::array<uint32_t, 4> Philox4x32Raw(std::array<uint32_t, 4> counter,
                                                std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The four words of block `offset_block` of a stream.
constexpr std::array<uint32_t, 4> Philox4x32(uint64_t seed, uint64_t stream,
                                             uint64_t offset_block) {
  return Philox4x32Raw(
      {static_cast<uint32_t>(offset_block), static_cast<uint32_t>(offset_block >> 32),
       static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

// Uniform in [0, 1): a multiple of 2^-24.
constexpr float UniformFloat(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// Uniform in [0, 1): a multiple of 2^-53.
constexpr double UniformDouble(uint32_t high, uint32_t low) {
  return (static_cast<double>(high >> 5) * 0x1p26 + static_cast<double>(low >> 6)) * 0x1p-53;
}

namespace philox_internal {

// Box-Muller: two independent standard normals from u in (0, 1] and v in [0, 1).
inline std::array<double, 2> BoxMuller(double u, double v) {
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  const double radius = std::sqrt(-2.0 * std::log(u));
  return {radius * std::cos(kTwoPi * v), radius * std::sin(kTwoPi * v)};
}

}  // namespace philox_internal

// Two independent standard normals, at most 6.77 in magnitude. The caller rounds them to its dtype:
// the float64 on the way makes the rounded value the same whichever math library is used, but for
// one draw in millions.
inline std::array<double, 2> NormalPair(uint32_t a, uint32_t b) {
  return philox_internal::BoxMuller((static_cast<double>(a) + 0.5) * 0x1p-32,
                                    (static_cast<double>(b) + 0.5) * 0x1p-32);
}

// Two independent standard normals of full float64 resolution, at most 8.58 in magnitude.
inline std::array<double, 2> NormalDoublePair(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return philox_internal::BoxMuller(UniformDouble(a, b) + 0x1p-53, UniformDouble(c, d));
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_PHILOX_H_
