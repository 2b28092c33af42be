// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Integers that cannot be mixed up: a rank is not a device index, a count is not a size in bytes.
//
//   using RankId = StrongInt<struct RankIdTag, int32_t>;
//
//   RankId rank(3);
//   for (RankId r(0); r < world_size; ++r) ...
//   int32_t n = rank.value();
//   auto x = static_cast<int64_t>(rank);
//
// Construction and conversion are explicit; a StrongInt is compared with its own kind only, can be
// a key of hash containers, and prints as its number. There is no arithmetic beyond counting: what
// a sum of two ranks would mean is for the caller to say, on value().

#ifndef LOCKSTEP_BASE_STRONG_INT_H_
#define LOCKSTEP_BASE_STRONG_INT_H_

#include <compare>
#include <concepts>
#include <cstddef>
#include <functional>
#include <ostream>
#include <type_traits>
#include <utility>

namespace lockstep {

// `Tag` is any type, usually one declared on the spot; it tells one kind from another. `Rep` is the
// integer type that holds the value. The default value is 0.
template <typename Tag, std::integral Rep>
class StrongInt {
 public:
  using ValueType = Rep;

  constexpr StrongInt() = default;

  // Any integer that Rep holds exactly. A constant or variable outside Rep's range is the caller's
  // error; for untrusted numbers check std::in_range<Rep>(number) first.
  template <std::integral T>
  explicit constexpr StrongInt(T value) : value_(static_cast<Rep>(value)) {}

  constexpr Rep value() const { return value_; }

  template <typename T>
  requires std::is_arithmetic_v<T>
  explicit constexpr operator T() const { return static_cast<T>(value_); }

  constexpr StrongInt& operator++() {
    ++value_;
    return *this;
  }
  constexpr StrongInt operator++(int) { return StrongInt(value_++); }
  constexpr StrongInt& operator--() {
    --value_;
    return *this;
  }
  constexpr StrongInt operator--(int) { return StrongInt(value_--); }

  friend constexpr auto operator<=>(StrongInt a, StrongInt b) = default;

  template <typename H>
  friend H AbslHashValue(H h, StrongInt id) {
    return H::combine(std::move(h), id.value_);
  }

  // The unary plus prints 8-bit values as numbers, not as characters.
  friend std::ostream& operator<<(std::ostream& out, StrongInt id) { return out << +id.value_; }

 private:
  Rep value_ = 0;
};

}  // namespace lockstep

template <typename Tag, typename Rep>
struct std::hash<lockstep::StrongInt<Tag, Rep>> {
  size_t operator()(lockstep::StrongInt<Tag, Rep> id) const { return std::hash<Rep>()(id.value()); }
};

#endif  // LOCKSTEP_BASE_STRONG_INT_H_
