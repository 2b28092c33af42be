// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs gpt2_parallel_benchmark as scripts do: flags in, one line and an exit status out.
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace {

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

Outcome RunBenchmark(const std::string& flags) {
  const std::string errors = testing::TempDir() + "/gpt2_parallel_benchmark.err";
  const std::string command =
      absl::StrCat("examples/gpt2_parallel_benchmark ", flags, " 2>", errors);
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
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

std::map<std::string, std::string> Fields(const std::string& line) {
  std::map<std::string, std::string> fields;
  for (absl::string_view field : absl::StrSplit(line, ' ')) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(field, absl::MaxSplits('=', 1));
    fields.insert(pair);
  }
  return fields;
}

double Number(const std::map<std::string, std::string>& fields, const std::string& name) {
  double value = 0;
  EXPECT_TRUE(absl::SimpleAtod(fields.at(name), &value)) << name;
  return value;
}

TEST(Gpt2ParallelBenchmarkTest, EveryStrategyTrainsTheSameRowsAndPrintsOneLine) {
  std::map<std::string, double> losses;
  for (const std::string strategy :
       {"single", "ddp", "dp", "model_parallel", "fsdp", "fsdp_offload", "1f1b", "zb_h1"}) {
    const Outcome run = RunBenchmark("--size=nano --threads=2 --steps=2 --strategy=" + strategy);
    ASSERT_EQ(run.status, 0) << run.err;
    const std::vector<std::string> lines = absl::StrSplit(run.out, '\n', absl::SkipEmpty());
    ASSERT_EQ(lines.size(), 1u) << run.out;
    const std::map<std::string, std::string> fields = Fields(lines[0]);
    EXPECT_EQ(fields.at("strategy"), strategy);
    EXPECT_EQ(fields.at("ranks"), strategy == "single" ? "1" : "2");
    const bool pipeline = strategy == "1f1b" || strategy == "zb_h1";
    EXPECT_EQ(fields.contains("bubble"), pipeline);
    const bool one_process =
        strategy == "single" || strategy == "dp" || strategy == "model_parallel" || pipeline;
    EXPECT_EQ(fields.at("threads"), one_process ? "2" : "1") << "of a process";
    EXPECT_EQ(fields.contains("hidden_gather_share"), strategy.starts_with("fsdp"));
    constexpr double kTokens = 12 * 64;
    EXPECT_NEAR(Number(fields, "tokens_per_second") * Number(fields, "step_ms") / 1e3 / kTokens, 1,
                0.01);
    EXPECT_GT(Number(fields, "processor_ms"), 0);
    losses[strategy] = Number(fields, "loss");
  }
  // Random tokens of 65, learnt by heart a little; one process has the same ones either way.
  EXPECT_LT(losses["single"], 4);
  EXPECT_NEAR(losses["dp"], losses["single"], 0.002);
  EXPECT_EQ(losses["model_parallel"], losses["single"]);
  EXPECT_NEAR(losses["1f1b"], losses["single"], 0.002);
  EXPECT_EQ(losses["zb_h1"], losses["1f1b"]);
  EXPECT_LT(losses["ddp"], 4);
  EXPECT_EQ(losses["fsdp"], losses["ddp"]);
  EXPECT_EQ(losses["fsdp_offload"], losses["ddp"]);
  EXPECT_EQ(RunBenchmark("--steps=1 --threads=2 --amp=bf16 --gradient_as_bucket_view").status, 0);
}

TEST(Gpt2ParallelBenchmarkTest, WrongFlagsAreOneLineAndStatusOne) {
  for (const char* flags :
       {"--size=large", "--strategy=sharded", "--strategy=single --ranks=2", "--ranks=-1",
        "--ranks=5", "--rows=5", "--rows=-1", "--threads=-1", "--steps=0", "--amp=bf8",
        "--strategy=dp --gradient_as_bucket_view", "--no_such_flag", "stray"}) {
    const Outcome run = RunBenchmark(flags);
    EXPECT_EQ(run.status, 1) << flags;
    EXPECT_EQ(run.out, "") << flags;
    const std::vector<std::string> lines = absl::StrSplit(run.err, '\n', absl::SkipEmpty());
    EXPECT_EQ(lines.size(), 1u) << flags << ": " << run.err;
  }
  const Outcome help = RunBenchmark("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("--strategy"), std::string::npos);
}

}  // namespace
