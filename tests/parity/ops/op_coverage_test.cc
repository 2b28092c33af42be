// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// No row of the op table is without a parity case: every row is named by a case in which it runs,
// runs in the backward pass of a case, or is in the list below with the place that covers it.

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tests/parity/ops/case_runner.h"
#include "lockstep/tests/parity/ops/families.h"
#include "lockstep/tests/parity/ops/golden_case.h"

namespace lockstep::parity {
namespace {

// Row -> where it is compared, and why not here.
const std::map<std::string, std::string>& CoveredElsewhere() {
  static const auto& rows = *new std::map<std::string, std::string>{
      {"AdamStep", "optimizers step by step: tests/parity/optimizers"},
      {"SgdStep", "optimizers step by step: tests/parity/optimizers"},
      {"RmspropStep", "optimizers step by step: tests/parity/optimizers"},
      {"AdagradStep", "optimizers step by step: tests/parity/optimizers"},
      {"LerpInto", "averages of weights: tests/parity/optimizers"},
  };
  return rows;
}

struct RowsRun {
  std::set<std::string> named;           // by cases in which they ran forward
  std::set<std::string> differentiated;  // by cases with gradients
  std::set<std::string> backward;        // in the backward pass of such a case
};

// Each case in one dtype.
RowsRun RunAllCases() {
  RowsRun rows;
  for (const std::string& family : Families()) {
    for (const GoldenCase& test_case : ReadGoldenCases(family)) {
      bool found = test_case.row.empty();
      for (const auto& call : RunCase(test_case, test_case.results.front()).calls) {
        const std::string& row = GetOpInfo(call.op).name;
        if (call.backward) rows.backward.insert(row);
        if (!call.backward && row == test_case.row) {
          rows.named.insert(row);
          if (HasGradients(test_case.results.front())) rows.differentiated.insert(row);
          found = true;
        }
      }
      EXPECT_TRUE(found) << test_case.op << "/" << test_case.name << " does not run "
                         << test_case.row;
    }
  }
  return rows;
}

TEST(OpCoverage, EveryRowHasAParityCase) {
  const RowsRun rows = RunAllCases();
  for (int op = 0; op < static_cast<int>(OpId::kBuiltinCount); ++op) {
    const OpInfo& info = GetOpInfo(static_cast<OpId>(op));
    const std::string& row = info.name;
    const bool elsewhere = CoveredElsewhere().count(row) > 0;
    // The gradients of their forward rows are these rows' results.
    const bool as_gradient = absl::EndsWith(row, "Backward") && rows.backward.count(row) > 0;
    const bool covered = rows.named.count(row) > 0 || as_gradient;
    EXPECT_TRUE(covered || elsewhere)
        << row << " has no parity case: add one to tests/parity/ops/op_cases.py";
    EXPECT_FALSE(covered && elsewhere) << row << " has a case now: take it off the list";
    // (The gradients of backward rows: autograd/gradients/gradients_test.cc.)
    if (info.differentiable && rows.named.count(row) > 0) {
      EXPECT_GT(rows.differentiated.count(row), 0u) << row << " has no case with gradients";
    }
  }
}

TEST(OpCoverage, TheListNamesRows) {
  for (const auto& [row, where] : CoveredElsewhere()) {
    EXPECT_NO_THROW(FindOp(row)) << row;
    EXPECT_FALSE(where.empty());
  }
}

}  // namespace
}  // namespace lockstep::parity
