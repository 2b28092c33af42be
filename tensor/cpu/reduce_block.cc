// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/cpu/reduce_block.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/reduce_block.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu::HWY_NAMESPACE {

// The lanes in double, in a fixed order.
template <class D, class V>
double SumLanes(D d, V value) {
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::Store(value, d, lanes);
  double sum = 0;
  for (size_t i = 0; i < hn::Lanes(d); ++i) sum += static_cast<double>(lanes[i]);
  return sum;
}

template <typename T>
double SumBlock(int64_t count, const T* x) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = hn::Add(sum0, hn::LoadU(d, x + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, x + i + lanes));
    sum2 = hn::Add(sum2, hn::LoadU(d, x + i + 2 * lanes));
    sum3 = hn::Add(sum3, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) sum0 = hn::Add(sum0, hn::LoadU(d, x + i));
  if (i < count)
    sum1 =
        hn::Add(sum1, LoadPartial(d, x + i, static_cast<size_t>(count - i)));  // padded with zeros
  return SumLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
}

template <bool kLargest, class V>
HWY_INLINE V Extreme(V best, V value) {
  // A comparison with NaN is false: a NaN in either operand has to be put into the result.
  const auto better = kLargest ? hn::Gt(value, best) : hn::Lt(value, best);
  const V chosen = hn::IfThenElse(hn::Or(better, hn::IsNaN(value)), value, best);
  return hn::IfThenElse(hn::IsNaN(best), best, chosen);
}

template <bool kLargest, typename T>
double ExtremeBlock(int64_t count, const T* x) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto best0 = hn::Set(d, x[0]);
  auto best1 = best0;
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    best0 = Extreme<kLargest>(best0, hn::LoadU(d, x + i));
    best1 = Extreme<kLargest>(best1, hn::LoadU(d, x + i + lanes));
  }
  best0 = Extreme<kLargest>(best0, best1);
  for (; i < count; ++i) best0 = Extreme<kLargest>(best0, hn::Set(d, x[i]));
  HWY_ALIGN T values[hn::MaxLanes(hn::ScalableTag<T>())];
  hn::Store(best0, d, values);
  auto result = hn::Set(d, values[0]);
  for (int64_t j = 1; j < lanes; ++j) result = Extreme<kLargest>(result, hn::Set(d, values[j]));
  return static_cast<double>(hn::GetLane(result));
}

template <typename T>
bool AnyZero(int64_t count, const T* x) {
  for (int64_t i = 0; i < count; ++i) {
    if (x[i] == 0) return true;
  }
  return false;
}

template <typename T>
bool AnyNonZero(int64_t count, const T* x) {
  for (int64_t i = 0; i < count; ++i) {
    if (x[i] != 0) return true;
  }
  return false;
}

template <typename T>
double ReduceFloating(ReduceOp op, int64_t count, const T* x) {
  switch (op) {
    case ReduceOp::kSum:
      return SumBlock(count, x);
    case ReduceOp::kMax:
      return ExtremeBlock<true>(count, x);
    case ReduceOp::kMin:
      return ExtremeBlock<false>(count, x);
    case ReduceOp::kAll:
      return AnyZero(count, x) ? 0 : 1;
    case ReduceOp::kAny:
      return AnyNonZero(count, x) ? 1 : 0;
  }
  return 0;
}

// Rows of elements E, added in T.
template <typename E, typename T>
void SumRows(int row_count, int64_t count, const E* const* rows, T* accumulator) {
  const hn::ScalableTag<T> d;
  if (row_count == kRowGroup) {
    Transform(
        d, static_cast<size_t>(count), accumulator,
        [](auto sum, auto r0, auto r1, auto r2, auto r3)
            HWY_ATTR { return hn::Add(sum, hn::Add(hn::Add(r0, r1), hn::Add(r2, r3))); },
        static_cast<const T*>(accumulator), rows[0], rows[1], rows[2], rows[3]);
    return;
  }
  for (int r = 0; r < row_count; ++r) {
    Transform(
        d, static_cast<size_t>(count), accumulator,
        [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); }, static_cast<const T*>(accumulator),
        rows[r]);
  }
}

template <typename E, typename T>
void AccumulateFloating(ReduceOp op, int row_count, int64_t count, const E* const* rows,
                        T* accumulator) {
  if (op == ReduceOp::kSum) return SumRows(row_count, count, rows, accumulator);
  const hn::ScalableTag<T> tag;
  const auto one = hn::Set(tag, T{1});
  const auto zero = hn::Zero(tag);
  const T* acc = accumulator;
  for (int r = 0; r < row_count; ++r) {
    const auto map = [&](const auto& f) HWY_ATTR {
      Transform(tag, static_cast<size_t>(count), accumulator, f, acc, rows[r]);
    };
    switch (op) {
      case ReduceOp::kMax:
        map([](auto a, auto b) HWY_ATTR { return Extreme<true>(a, b); });
        break;
      case ReduceOp::kMin:
        map([](auto a, auto b) HWY_ATTR { return Extreme<false>(a, b); });
        break;
      case ReduceOp::kAll:
        map([=](auto a, auto b) HWY_ATTR { return hn::IfThenZeroElse(hn::Eq(b, zero), a); });
        break;
      default:
        map([=](auto a, auto b) HWY_ATTR { return hn::IfThenElse(hn::Eq(b, zero), a, one); });
        break;
    }
  }
}

double ReduceFloat(ReduceOp op, int64_t count, const float* x) {
  return ReduceFloating(op, count, x);
}
double ReduceDouble(ReduceOp op, int64_t count, const double* x) {
  return ReduceFloating(op, count, x);
}
void AccumulateFloat(ReduceOp op, int row_count, int64_t count, const float* const* rows,
                     float* accumulator) {
  AccumulateFloating(op, row_count, count, rows, accumulator);
}
void AccumulateBFloat16(ReduceOp op, int row_count, int64_t count, const bfloat16* const* rows,
                        float* accumulator) {
  AccumulateFloating(op, row_count, count, rows, accumulator);
}
void AccumulateDouble(ReduceOp op, int row_count, int64_t count, const double* const* rows,
                      double* accumulator) {
  AccumulateFloating(op, row_count, count, rows, accumulator);
}

}  // namespace lockstep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(ReduceFloat);
HWY_EXPORT(ReduceDouble);
HWY_EXPORT(AccumulateFloat);
HWY_EXPORT(AccumulateBFloat16);
HWY_EXPORT(AccumulateDouble);

int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

int64_t CombineIntegers(ReduceOp op, int64_t a, int64_t b) {
  switch (op) {
    case ReduceOp::kSum:
      return WrappingAdd(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kAll:
      return a != 0 && b != 0;
    case ReduceOp::kAny:
      return a != 0 || b != 0;
  }
  return 0;
}

}  // namespace

double ReduceBlock(ReduceOp op, int64_t count, const float* x) {
  return HWY_DYNAMIC_DISPATCH(ReduceFloat)(op, count, x);
}

double ReduceBlock(ReduceOp op, int64_t count, const double* x) {
  return HWY_DYNAMIC_DISPATCH(ReduceDouble)(op, count, x);
}

int64_t ReduceBlock(ReduceOp op, int64_t count, const int64_t* x) {
  if (op == ReduceOp::kSum) {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; ++i) sum = WrappingAdd(sum, x[i]);
    return sum;
  }
  int64_t result = op == ReduceOp::kAll || op == ReduceOp::kAny ? x[0] != 0 : x[0];
  for (int64_t i = 1; i < count; ++i) result = CombineIntegers(op, result, x[i]);
  return result;
}

void AccumulateRows(ReduceOp op, int row_count, int64_t count, const float* const* rows,
                    float* accumulator) {
  HWY_DYNAMIC_DISPATCH(AccumulateFloat)(op, row_count, count, rows, accumulator);
}

void AccumulateRows(ReduceOp op, int row_count, int64_t count, const bfloat16* const* rows,
                    float* accumulator) {
  HWY_DYNAMIC_DISPATCH(AccumulateBFloat16)(op, row_count, count, rows, accumulator);
}

void AccumulateRows(ReduceOp op, int row_count, int64_t count, const double* const* rows,
                    double* accumulator) {
  HWY_DYNAMIC_DISPATCH(AccumulateDouble)(op, row_count, count, rows, accumulator);
}

void AccumulateRows(ReduceOp op, int row_count, int64_t count, const int64_t* const* rows,
                    int64_t* accumulator) {
  for (int r = 0; r < row_count; ++r) {
    for (int64_t j = 0; j < count; ++j) {
      accumulator[j] = CombineIntegers(op, accumulator[j], rows[r][j]);
    }
  }
}

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
