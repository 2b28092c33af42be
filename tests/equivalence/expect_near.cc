// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tests/equivalence/expect_near.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lockstep::equivalence {
namespace {

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

void ExpectWithin(const std::vector<double>& values, const std::vector<double>& wanted,
                  double distance, const std::string& what) {
  ASSERT_EQ(values.size(), wanted.size()) << what;
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(values[i], wanted[i], distance) << what << ", " << i;
  }
}

}  // namespace

void ExpectNear(const std::vector<double>& values, const std::vector<double>& wanted, double bound,
                const std::string& what) {
  ExpectWithin(values, wanted, bound * Largest(wanted), what);
}

void ExpectNear(const Result& result, const Result& wanted, const Bounds& bounds) {
  ASSERT_EQ(result.size(), wanted.size());
  ASSERT_FALSE(wanted.empty());
  ASSERT_EQ(result[0].size(), wanted[0].size()) << "losses";
  for (size_t i = 0; i < wanted[0].size(); ++i) {
    EXPECT_NEAR(result[0][i], wanted[0][i], bounds.loss * std::abs(wanted[0][i])) << "loss " << i;
  }
  double largest = 0;
  for (size_t i = 1; i < wanted.size(); ++i) largest = std::max(largest, Largest(wanted[i]));
  for (size_t i = 1; i < wanted.size(); ++i) {
    ExpectWithin(result[i], wanted[i],
                 bounds.parameter * (bounds.of_model ? largest : Largest(wanted[i])),
                 absl::StrCat("parameter ", i));
  }
}

}  // namespace lockstep::equivalence
