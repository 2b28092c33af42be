// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Random ops: pure functions of a key and the logical index of an element (tensor/random.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lockstep/base/philox.h"
#include "lockstep/tensor/cpu/convert.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/random_words.h"
#include "lockstep/tensor/cpu/strided_loop.h"

namespace lockstep::cpu {
namespace {

// Even, so that a block of normal numbers begins at a pair as chunks do.
constexpr int64_t kWords = 512;
static_assert(kLoopChunk % kWords == 0 && kLoopBlock % 4 == 0);

// Calls f(first, n, words) for parts of [index, index + count).
template <typename F>
void ForWords(const RandomKey& key, int64_t index, int64_t count, F f) {
  alignas(64) uint32_t words[kWords];
  for (int64_t i = 0; i < count; i += kWords) {
    const int64_t n = std::min(kWords, count - i);
    RandomWords(key, index + i, n, words);
    f(i, n, static_cast<const uint32_t*>(words));
  }
}

// The largest value of `dtype` below `high`, in double: rounding to the dtype must not leave
// [low, high).
double LargestBelow(double high, DType dtype) {
  const auto below_as = [&](auto rounded, auto previous) {
    return static_cast<double>(rounded) < high ? static_cast<double>(rounded)
                                               : static_cast<double>(previous);
  };
  if (dtype == DType::kFloat64) return std::nextafter(high, -INFINITY);
  if (dtype == DType::kFloat32) {
    const float rounded = static_cast<float>(high);
    return below_as(rounded, std::nextafter(rounded, -INFINITY));
  }
  // 16 bits: one step in the pattern, downward for positive numbers and upward for negative ones.
  uint16_t bits;
  ConvertElements(DType::kFloat64, dtype, 1, &high, &bits);
  float value;
  ConvertElements(dtype, DType::kFloat32, 1, &bits, &value);
  if (static_cast<double>(value) < high) return value;
  if ((bits & 0x7fff) == 0) {
    bits = 0x8001;  // the negative number nearest to zero
  } else {
    bits = static_cast<uint16_t>((bits & 0x8000) != 0 ? bits + 1 : bits - 1);
  }
  ConvertElements(dtype, DType::kFloat32, 1, &bits, &value);
  return value;
}

template <typename T>
void UniformBlock(int64_t n, const uint32_t* words, double low, double range, double largest,
                  T* out) {
  for (int64_t i = 0; i < n; ++i) {
    double unit;
    if constexpr (std::is_same_v<T, double>) {
      unit = static_cast<double>(words[i]) * 0x1p-32;
    } else {
      unit = static_cast<double>(words[i] >> 8) * 0x1p-24;
    }
    out[i] = static_cast<T>(std::min(low + range * unit, largest));
  }
}

// `index` is the logical index of out[0].
template <typename T>
void NormalBlock(const RandomKey& key, int64_t index, int64_t count, double mean, double std,
                 T* out) {
  // An element at an odd index needs the word before it.
  const int64_t skipped = index % 2;
  ForWords(key, index - skipped, (count + skipped + 1) / 2 * 2,
           [&](int64_t first, int64_t n, const uint32_t* words) {
             for (int64_t j = 0; j < n; j += 2) {
               const std::array<double, 2> pair = NormalPair(words[j], words[j + 1]);
               for (int64_t k = 0; k < 2; ++k) {
                 const int64_t i = first + j + k - skipped;
                 if (i >= 0 && i < count) out[i] = static_cast<T>(mean + std * pair[k]);
               }
             }
           });
}

template <typename T>
void DropoutBlock(int64_t n, const uint32_t* words, const T* x, uint32_t threshold, T scale, T* y) {
  for (int64_t i = 0; i < n; ++i) {
    const T scaled = x[i] * scale;
    y[i] = (words[i] >> 8) >= threshold ? scaled : T{0};
  }
}

template <typename T>
void Dropout(const RandomKey& key, double p, int64_t index, int64_t count, const T* x, T* y) {
  // With p = 1 everything is dropped, and the scale has no say.
  const T scale = p < 1 ? static_cast<T>(1.0 / (1.0 - p)) : T{0};
  ForWords(key, index, count, [&](int64_t first, int64_t n, const uint32_t* words) {
    DropoutBlock(n, words, x + first, DropoutThreshold(p), scale, y + first);
  });
}

}  // namespace

void RandomUniformKernel(KernelContext& context, TensorSpan, absl::Span<Tensor> outputs,
                         const Scalars& scalars, const Attributes&) {
  const double low = scalars[0].AsDouble();
  const double high = scalars[1].AsDouble();
  const RandomKey key = KeyFromScalars(scalars, 2);
  const DType dtype = outputs[0].dtype();
  const double largest = high > low ? std::max(low, LargestBelow(high, dtype)) : low;
  RunStridedLoop(
      context, outputs, {},
      [&](int64_t index, int64_t count, char* const* data) {
        ForWords(key, index, count, [&](int64_t first, int64_t n, const uint32_t* words) {
          if (dtype == DType::kFloat64) {
            UniformBlock(n, words, low, high - low, largest, Out<double>(data[0]) + first);
          } else {
            UniformBlock(n, words, low, high - low, largest, Out<float>(data[0]) + first);
          }
        });
      },
      {.logical_order = true});
}

void RandomNormalKernel(KernelContext& context, TensorSpan, absl::Span<Tensor> outputs,
                        const Scalars& scalars, const Attributes&) {
  const double mean = scalars[0].AsDouble();
  const double std = scalars[1].AsDouble();
  const RandomKey key = KeyFromScalars(scalars, 2);
  const bool is_double = outputs[0].dtype() == DType::kFloat64;
  RunStridedLoop(context, outputs, {},
                 [&](int64_t index, int64_t count, char* const* data) {
                   if (is_double) {
                     NormalBlock(key, index, count, mean, std, Out<double>(data[0]));
                   } else {
                     NormalBlock(key, index, count, mean, std, Out<float>(data[0]));
                   }
                 },
                 {.logical_order = true, .chunk = kLoopChunk / 4});
}

void DropoutKernel(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                   const Scalars& scalars, const Attributes&) {
  const double p = scalars[0].AsDouble();
  const RandomKey key = KeyFromScalars(scalars, 1);
  const bool is_double = outputs[0].dtype() == DType::kFloat64;
  RunStridedLoop(context, outputs, inputs,
                 [&](int64_t index, int64_t count, char* const* data) {
                   if (is_double) {
                     Dropout(key, p, index, count, In<double>(data[1]), Out<double>(data[0]));
                   } else {
                     Dropout(key, p, index, count, In<float>(data[1]), Out<float>(data[0]));
                   }
                 },
                 {.logical_order = true});
}

}  // namespace lockstep::cpu
