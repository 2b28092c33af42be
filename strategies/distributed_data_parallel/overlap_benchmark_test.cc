// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs overlap_benchmark as scripts do: flags in, lines and an exit status out.
#include <sys/wait.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace {

// Its exit status, and the lines of both streams.
int RunBenchmark(const std::string& flags, std::vector<std::string>* lines) {
  FILE* pipe =
      popen(absl::StrCat("strategies/distributed_data_parallel/overlap_benchmark ", flags, " 2>&1")
                .c_str(),
            "r");
  std::string text;
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, count);
  const int status = pclose(pipe);
  *lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(OverlapBenchmarkTest, MeasuresAndPrintsALineForEachLink) {
  std::vector<std::string> lines;
  ASSERT_EQ(RunBenchmark("--model=nano --rows=1 --steps=1", &lines), 0);
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[0].find("nothing sent"), 0u) << lines[0];
  EXPECT_EQ(lines[6].find("statistics: "), 0u) << lines[6];
}

TEST(OverlapBenchmarkTest, WrongFlagsAreOneLineAndStatusOne) {
  for (const char* flags : {"--model=x", "--ranks=0", "--rows=-1", "--steps=0", "--no_such_flag"}) {
    std::vector<std::string> lines;
    EXPECT_EQ(RunBenchmark(flags, &lines), 1) << flags;
    EXPECT_EQ(lines.size(), 1u) << flags;
  }
}

}  // namespace
