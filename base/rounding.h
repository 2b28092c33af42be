// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How many whole units something takes, and how much they hold.
//
//   const int64_t part = RoundUp(CeilDiv(numel, ranks), kAlignment);
//
// For values of at least 0 and units of at least 1. RoundUp's result has to fit int64.
#ifndef LOCKSTEP_BASE_ROUNDING_H_
#define LOCKSTEP_BASE_ROUNDING_H_

#include <cstdint>

namespace lockstep {

// `value` / `unit`, rounded up. Any value will do: nothing is added to it that could overflow.
constexpr int64_t CeilDiv(int64_t value, int64_t unit) {
  return value / unit + (value % unit == 0 ? 0 : 1);
}

// The smallest multiple of `unit` that is not below `value`.
constexpr int64_t RoundUp(int64_t value, int64_t unit) { return CeilDiv(value, unit) * unit; }

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_ROUNDING_H_
