// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Counter-based random numbers (Philox 4x32-10). Random ops are pure: element i depends on the key
// {seed, stream, offset} and the logical index i only, never on strides, threads, vector width or
// device. The public functions draw the key from this thread's generators and advance them.
//
//   ManualSeed(1234);                       // all streams of this thread
//   Tensor w = RandomNormal({3, 5}, {.generator = &ThreadGenerators().parameters});
#ifndef LOCKSTEP_TENSOR_RANDOM_H_
#define LOCKSTEP_TENSOR_RANDOM_H_

#include <cstdint>

namespace lockstep {

// Word i of a random op is word (offset + i) % 4 of Philox block (offset + i) / 4 (key = seed,
// counter = {block, stream}); offsets are multiples of 4. For element i, with w = word i:
//   uniform float64   w * 2^-32;  other dtypes (w >> 8) * 2^-24, rounded to the dtype;
//                     then scaled to [low, high), never reaching high
//   normal            Box-Muller in double over words 2j and 2j+1 (j = i / 2), rounded to the
//   dtype:
//                     r = sqrt(-2 ln((w0 + 0.5) * 2^-32)), a = 2 pi (w1 + 0.5) * 2^-32;
//                     r cos a for even i, r sin a for odd i
//   dropout           kept when (w >> 8) * 2^-24 >= probability
struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;
  uint64_t offset = 0;
  friend bool operator==(const RandomKey&, const RandomKey&) = default;
};

// A position in a random stream.
struct Generator {
  RandomKey key;

  // The key for `count` elements; advances by count rounded up to 4.
  RandomKey Draw(int64_t count);
};

// Stream numbers. Dropout streams are numbered by the data-parallel coordinate, not by the rank.
inline constexpr uint64_t kParameterStream = 0;
inline constexpr uint64_t kDataStream = 1;
inline constexpr uint64_t kDropoutStreamBase = 1u << 16;

struct RandomStreams {
  Generator parameters{{0, kParameterStream, 0}};  // the same on all ranks
  Generator data{{0, kDataStream, 0}};
  Generator dropout{{0, kDropoutStreamBase, 0}};  // differs over data-parallel coordinates
};

// This thread's generators.
RandomStreams& ThreadGenerators();

// Restarts all streams of this thread at `seed`; `data_parallel_rank` numbers the dropout stream.
// Throws InvalidArgument for a negative rank.
void ManualSeed(uint64_t seed, int64_t data_parallel_rank = 0);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_RANDOM_H_
