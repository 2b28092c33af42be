// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/base/strong_int.h"

#include <concepts>
#include <cstdint>
#include <limits>
#include <sstream>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using RankId = StrongInt<struct RankIdTag, int32_t>;
using DeviceIndex = StrongInt<struct DeviceIndexTag, int32_t>;
using Small = StrongInt<struct SmallTag, uint8_t>;

static_assert(!std::is_convertible_v<int, RankId>);
static_assert(!std::is_convertible_v<RankId, int>);
static_assert(!std::is_convertible_v<DeviceIndex, RankId>);
static_assert(!std::is_constructible_v<RankId, DeviceIndex>);
static_assert(!std::is_constructible_v<RankId, double>);
static_assert(!std::equality_comparable_with<RankId, DeviceIndex>);
static_assert(!std::equality_comparable_with<RankId, int>);
static_assert(std::totally_ordered<RankId>);
static_assert(sizeof(RankId) == sizeof(int32_t) && std::is_trivially_copyable_v<RankId>);
static_assert(RankId(3).value() == 3 && RankId() == RankId(0));

TEST(StrongIntTest, Compares) {
  EXPECT_EQ(RankId(2), RankId(2));
  EXPECT_NE(RankId(2), RankId(3));
  EXPECT_LT(RankId(-1), RankId(0));
  EXPECT_LE(RankId(3), RankId(3));
  EXPECT_GT(RankId(5), RankId(3));
  EXPECT_GE(RankId(5), RankId(3));
}

TEST(StrongIntTest, Counts) {
  std::vector<int32_t> seen;
  for (RankId r(0); r < RankId(3); ++r) seen.push_back(r.value());
  EXPECT_EQ(seen, (std::vector<int32_t>{0, 1, 2}));
  RankId r(5);
  EXPECT_EQ(r++, RankId(5));
  EXPECT_EQ(r, RankId(6));
  EXPECT_EQ(r--, RankId(6));
  EXPECT_EQ(--r, RankId(4));
  EXPECT_EQ(++r, RankId(5));
}

TEST(StrongIntTest, ConvertsExplicitly) {
  EXPECT_EQ(static_cast<int64_t>(RankId(-7)), int64_t{-7});
  EXPECT_EQ(static_cast<double>(RankId(3)), 3.0);
  EXPECT_EQ(RankId(int64_t{9}).value(), 9);
  EXPECT_EQ(RankId(std::numeric_limits<int32_t>::min()).value(), INT32_MIN);
}

TEST(StrongIntTest, IsAKeyOfHashContainers) {
  absl::flat_hash_set<RankId> set = {RankId(1), RankId(2), RankId(1)};
  EXPECT_EQ(set.size(), 2u);
  EXPECT_TRUE(set.contains(RankId(2)));
  EXPECT_FALSE(set.contains(RankId(3)));
  std::unordered_map<RankId, int> map = {{RankId(1), 10}};
  EXPECT_EQ(map.at(RankId(1)), 10);
}

TEST(StrongIntTest, PrintsAsANumber) {
  std::ostringstream out;
  out << RankId(-3) << ' ' << Small(65);
  EXPECT_EQ(out.str(), "-3 65");
}

}  // namespace
}  // namespace lockstep
