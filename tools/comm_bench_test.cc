// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The program: what it prints, and how it ends.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/tests/launch/test_process.h"
#include "lockstep/tools/comm_bench_case.h"
#include "lockstep/tools/comm_bench_options.h"
#include "nlohmann/json.hpp"

namespace lockstep::comm_bench {
namespace {

using launch_test::Contains;
using launch_test::TestFolder;
using launch_test::TestProcess;
using Json = nlohmann::json;

constexpr char kBench[] = "tools/comm_bench";

// An object of one line, with these fields and no other.
void CheckFields(const Json& json) {
  const std::set<std::string> names = {"backend",
                                       "op",
                                       "ranks",
                                       "size_bytes",
                                       "in_place",
                                       "latency_us",
                                       "algorithm_bandwidth_gbps",
                                       "bus_bandwidth_gbps",
                                       "errors"};
  std::set<std::string> got;
  for (const auto& [name, value] : json.items()) got.insert(name);
  ASSERT_EQ(got, names) << json;
  EXPECT_EQ(json["ranks"], 2) << json;
  EXPECT_EQ(json["size_bytes"], 1024) << json;
  EXPECT_EQ(json["errors"], 0) << json;
  const double latency = json["latency_us"].get<double>();
  const double algorithm = json["algorithm_bandwidth_gbps"].get<double>();
  EXPECT_GT(latency, 0) << json;
  // All are rounded as they are printed: to 0.001 us and to 0.0001 GB/s.
  EXPECT_NEAR(algorithm, 1024 / latency * 1e-3, 1e-4 + 1e-3 * algorithm) << json;
  EXPECT_NEAR(json["bus_bandwidth_gbps"].get<double>(),
              algorithm * BusFactor(json["op"].get<std::string>(), 2), 1.1e-4)
      << json;
}

TEST(CommBenchTest, PrintsOneJsonObjectALine) {
  const TestFolder folder;
  TestProcess process(kBench, {"--backend=shm,gloo", "--op=all", "--sizes=1KiB", "--json"}, folder);
  ASSERT_EQ(process.Wait(), 0) << process.err();
  std::vector<std::string> wanted;
  for (const char* backend : {"shm", "gloo"}) {
    for (const std::string& op : OpNames()) {
      wanted.push_back(absl::StrCat(backend, " ", op, " 0"));
      if (Case::HasInPlace(op)) wanted.push_back(absl::StrCat(backend, " ", op, " 1"));
    }
  }
  std::vector<std::string> got;
  for (const absl::string_view line : absl::StrSplit(process.out(), '\n', absl::SkipEmpty())) {
    const Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.is_object()) << line;
    CheckFields(json);
    if (HasFatalFailure()) return;
    got.push_back(absl::StrCat(json["backend"].get<std::string>(), " ",
                               json["op"].get<std::string>(), " ",
                               json["in_place"].get<bool>() ? 1 : 0));
  }
  EXPECT_EQ(got, wanted);
}

TEST(CommBenchTest, PrintsATableWithoutJson) {
  const TestFolder folder;
  TestProcess process(kBench, {"--sizes=1KiB"}, folder);
  ASSERT_EQ(process.Wait(), 0) << process.err();
  const std::vector<std::string> lines = absl::StrSplit(process.out(), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 3u) << process.out();
  EXPECT_TRUE(Contains(lines[0], "bus GB/s")) << lines[0];
  EXPECT_TRUE(Contains(lines[1], "all_reduce")) << lines[1];
}

// By this process, which prints the heading, or by rank 0, which prints the rows.
TEST(CommBenchTest, OutputThatIsLostIsAnError) {
  const TestFolder folder;
  for (const char* flags :
       {"--json --mode=processes >/dev/full", "--json --mode=threads >/dev/full", ">/dev/full",
        "--json --mode=processes >&-", "--help >&-"}) {
    const std::string command = absl::StrCat("exec ", launch_test::ProgramPath(kBench),
                                             " --sizes=8 --backend=gloo ", flags);
    TestProcess process("/bin/sh", {"-c", command}, folder);
    EXPECT_EQ(process.Wait(), 1) << flags;
    EXPECT_TRUE(Contains(process.err(), "cannot write to stdout: ")) << flags << process.err();
  }
}

TEST(CommBenchTest, SaysWhatIsWrongInOneLine) {
  const TestFolder folder;
  for (const auto& [flag, text] :
       {std::pair<std::string, std::string>{"--ranks=65", "1 to 64 ranks"},
        {"--op=sum", "ops are all, or some of"},
        {"--backend=nccl", "backends are shm, gloo"}}) {
    TestProcess process(kBench, {flag}, folder);
    EXPECT_EQ(process.Wait(), 1);
    EXPECT_EQ(process.out(), "") << flag;
    const std::vector<std::string> lines = absl::StrSplit(process.err(), '\n', absl::SkipEmpty());
    ASSERT_EQ(lines.size(), 1u) << process.err();
    EXPECT_TRUE(Contains(lines[0], absl::StrCat("comm_bench: ", flag, ": ", text))) << lines[0];
  }
}

}  // namespace
}  // namespace lockstep::comm_bench
