// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/comm_bench_options.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/spawn.h"

namespace lockstep::comm_bench {
namespace {

TEST(OptionsTest, Parses) {
  const Options options =
      ParseOptions({"--ranks=4", "--backend=shm,gloo", "--op=all_reduce,send_recv",
                    "--sizes=7,1KiB,64MiB", "--mode=threads", "--memory=ordinary", "--json"});
  EXPECT_EQ(options.ranks, 4);
  EXPECT_EQ(options.backends, (std::vector<std::string>{"shm", "gloo"}));
  EXPECT_EQ(options.ops, (std::vector<std::string>{"all_reduce", "send_recv"}));
  EXPECT_EQ(options.sizes, (std::vector<int64_t>{7, 1024, 64 << 20}));
  EXPECT_EQ(options.mode, comm::SpawnMode::kThreads);
  EXPECT_FALSE(options.allocated);
  EXPECT_TRUE(options.json);
  EXPECT_EQ(ParseOptions({"--op=all"}).ops, OpNames());
  EXPECT_TRUE(ParseOptions({"--help"}).help);
  EXPECT_TRUE(ParseOptions({"-h"}).help);
}

TEST(OptionsTest, RefusesByName) {
  const auto message = [](const std::string& argument) {
    try {
      ParseOptions({argument});
    } catch (const Error& error) {
      return std::string(error.message());
    }
    return std::string("accepted");
  };
  EXPECT_TRUE(absl::StrContains(message("--ranks=0"), "--ranks=0: 1 to 64 ranks"));
  EXPECT_TRUE(absl::StrContains(message("--sizes=1KB"),
                                "--sizes=1KB: \"1KB\" is no size: sizes are 1 to 8GiB"));
  EXPECT_TRUE(absl::StrContains(message("--sizes=9GiB"), "9GiB"));
  for (const char* text : {"1GiBKiB", "1GiBMiB", "1KiBKiB", "-1", "KiB", "99999999999999999999"}) {
    EXPECT_TRUE(absl::StrContains(message(absl::StrCat("--sizes=8,", text)),
                                  absl::StrCat("\"", text, "\" is no size")));
  }
  EXPECT_TRUE(absl::StrContains(message("--sizes="), "--sizes=: \"\" is no size"));
  for (const char* backend : {"", "nccl", "shm,", "shm,mpi"}) {
    const std::string flag = std::string("--backend=") + backend;
    EXPECT_TRUE(absl::StrContains(message(flag), flag + ": backends are shm, gloo"));
  }
  EXPECT_TRUE(absl::StrContains(message("--op=reduce,sum"), "some of all_reduce, all_gather"));
  EXPECT_TRUE(absl::StrContains(message("--mode=fibers"), "processes or threads"));
  EXPECT_TRUE(absl::StrContains(message("--memory=pinned"), "allocated or ordinary"));
  EXPECT_TRUE(absl::StrContains(message("--rank=2"), "--rank=2: no such flag"));
  EXPECT_TRUE(absl::StrContains(message("ranks"), "\"ranks\" is not --flag=value"));
}

TEST(OptionsTest, MoreMemoryThanThereIsIsRefused) {
  const Options options = ParseOptions({"--ranks=64", "--sizes=1KiB,8GiB,1MiB"});
  const int64_t needed = int64_t{1} << 40;
  EXPECT_NO_THROW(CheckMemory(options, needed));
  try {
    CheckMemory(options, needed - 1);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
    for (const char* part :
         {"64 ranks", "8589934592 bytes", "need 1048576 MiB", "1048575 MiB", "--sizes"}) {
      EXPECT_TRUE(absl::StrContains(error.message(), part)) << error.message();
    }
  }
}

TEST(OptionsTest, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(BusFactor("all_reduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(BusFactor("all_gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor("all_to_all", 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor("broadcast", 4), 1);
}

}  // namespace
}  // namespace lockstep::comm_bench
