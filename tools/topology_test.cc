// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The flags of topology, and the program as scripts run it.
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tools/topology_options.h"

namespace lockstep::topology {
namespace {

using ::testing::HasSubstr;

TEST(OptionsTest, Parses) {
  const Options options =
      ParseOptions({"--devices=cpu:3,host", "--sizes=7,1KiB,64MiB", "--threads=2", "--json"});
  EXPECT_EQ(options.devices, (std::vector<Device>{Cpu(3), kHost}));
  EXPECT_EQ(options.sizes, (std::vector<int64_t>{7, 1024, 64 << 20}));
  EXPECT_EQ(options.threads, 2);
  EXPECT_TRUE(options.json);
  EXPECT_TRUE(ParseOptions({"--help"}).help);
  EXPECT_TRUE(ParseOptions({"-h"}).help);
  EXPECT_EQ(ParseOptions({}).devices, (std::vector<Device>{Cpu(0), Cpu(1)}));
}

TEST(OptionsTest, RefusesByName) {
  const auto message = [](const std::string& argument) {
    return MessageOf([&] { ParseOptions({argument}); });
  };
  EXPECT_THAT(message("--devices=cpu:9"), HasSubstr("--devices=cpu:9: ParseDevice"));
  EXPECT_THAT(message("--devices="), HasSubstr("--devices=: "));
  EXPECT_THAT(message("--devices=meta"), HasSubstr("meta has no memory"));
  EXPECT_THAT(message("--devices=cpu:1,cpu:1"), HasSubstr("cpu:1 is given twice"));
  EXPECT_THAT(message("--sizes=1KB"),
              HasSubstr("--sizes=1KB: \"1KB\" is no size: sizes are 1 to 1GiB"));
  EXPECT_THAT(message("--sizes=2GiB"), HasSubstr("1 to 1GiB"));
  EXPECT_THAT(message("--threads=-1"), HasSubstr("--threads=-1: 1 to 1024 threads"));
  EXPECT_THAT(message("--device=cpu:0"), HasSubstr("--device=cpu:0: no such flag"));
  EXPECT_THAT(message("devices"), HasSubstr("\"devices\" is not --flag=value"));
}

struct Outcome {
  int status = -1;
  std::string out, err;
};

Outcome RunProgram(const std::string& flags) {
  const std::string errors = testing::TempDir() + "/topology.err";
  FILE* pipe = popen(absl::StrCat("tools/topology ", flags, " 2>", errors).c_str(), "r");
  Outcome outcome;
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof(buffer), pipe)) {
    outcome.out.append(buffer, count);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::ifstream file(errors);
  outcome.err.assign(std::istreambuf_iterator<char>(file), {});
  return outcome;
}

TEST(TopologyTest, JsonHasDevicesPeersAndMoves) {
  const Outcome outcome =
      RunProgram("--devices=cpu:0,cpu:2,host --sizes=1KiB,1MiB --threads=1 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(json["devices"].size(), 3u);
  EXPECT_EQ(json["devices"][1]["device"], "cpu:2");
  EXPECT_EQ(json["devices"][1]["threads"], 1);
  EXPECT_GT(json["devices"][1]["memory_bytes"], 1 << 20);
  EXPECT_EQ(json["devices"][0]["reaches"]["host"], true);
  ASSERT_EQ(json["moves"].size(), 2 * 6u);
  for (const nlohmann::json& move : json["moves"]) {
    EXPECT_NE(move["from"], move["to"]);
    EXPECT_GT(move["latency_us"], 0);
    const double bytes = move["size_bytes"], us = move["latency_us"];
    EXPECT_NEAR(move["bandwidth_gbps"], bytes / us * 1e-3, 1e-6 * bytes);
  }
}

TEST(TopologyTest, ATableForPeople) {
  const Outcome outcome = RunProgram("--devices=cpu:0,cpu:1 --sizes=1KiB");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* part : {"device ", "memory MiB", "reaches", "yes", "us a move", "GB/s"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  EXPECT_EQ(RunProgram("--help").status, 0);
}

TEST(TopologyTest, WrongInputIsOneLineAndStatusOne) {
  for (const char* flags : {"--devices=cpu:9", "--sizes=many", "stray", "--devices=cpu:0,cuda:0"}) {
    const Outcome outcome = RunProgram(flags);
    EXPECT_EQ(outcome.status, 1) << flags;
    EXPECT_EQ(outcome.out, "") << flags;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.err.find("topology: "), 0u) << outcome.err;
  }
}

TEST(TopologyTest, OutputThatIsLostIsAnError) {
  for (const char* where : {">/dev/full", ">&-"}) {
    for (const char* flags : {"--devices=host --sizes=1KiB ", "--help "}) {
      const Outcome outcome = RunProgram(absl::StrCat(flags, where));
      EXPECT_EQ(outcome.status, 1) << flags << where;
      EXPECT_EQ(outcome.err.find("topology: cannot write to stdout: "), 0u) << outcome.err;
    }
  }
}

}  // namespace
}  // namespace lockstep::topology
