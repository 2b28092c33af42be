// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// docs/ops.md states what the op table states.

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/docs/ops_table.h"
#include "lockstep/tensor/op.h"

namespace lockstep::docs {
namespace {

std::string Page() {
  std::ifstream file("docs/ops.md");
  EXPECT_TRUE(file.good());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(OpsPageTest, TableIsThatOfTheOps) {
  const std::string page = Page();
  const std::string begin = "<!-- table: bazel run //docs:print_ops_table -->\n";
  const std::string end = "<!-- end of table -->\n";
  const size_t from = page.find(begin);
  const size_t to = page.find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  EXPECT_EQ(page.substr(from + begin.size(), to - from - begin.size()), OpsTable())
      << "replace the table of docs/ops.md by what //docs:print_ops_table prints";
}

TEST(OpsPageTest, EveryRowIsThere) {
  const std::string page = Page();
  for (int i = 0; i < static_cast<int>(OpId::kBuiltinCount); ++i) {
    const std::string name = GetOpInfo(static_cast<OpId>(i)).name;
    EXPECT_NE(page.find(absl::StrCat("| `", name, "` |")), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace lockstep::docs
