// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs gpt2_benchmark as scripts do: flags in, one line and an exit status out.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
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
  const std::string errors = testing::TempDir() + "/gpt2_benchmark.err";
  const std::string command = absl::StrCat("models/gpt2_benchmark ", flags, " 2>", errors);
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof(buffer), pipe)) {
    outcome.out.append(buffer, count);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  std::ifstream file(errors);
  std::getline(file, outcome.err, '\0');
  return outcome;
}

// The number after "name=".
double Field(const std::string& line, const std::string& name) {
  for (absl::string_view part : absl::StrSplit(line, ' ')) {
    double value = 0;
    if (absl::StartsWith(part, name + "=") &&
        absl::SimpleAtod(part.substr(name.size() + 1), &value)) {
      return value;
    }
  }
  ADD_FAILURE() << "no " << name << " in " << line;
  return 0;
}

TEST(Gpt2BenchmarkTest, PrintsOneConsistentLine) {
  const Outcome run = RunBenchmark("--size=nano --threads=1 --seconds=1.5");
  ASSERT_EQ(run.status, 0) << run.err;
  const std::vector<std::string> lines = absl::StrSplit(run.out, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 1u) << run.out;
  const std::string& line = lines[0];
  EXPECT_TRUE(absl::StartsWith(line, "size=nano ")) << line;
  const double seconds = Field(line, "step_ms") / 1e3;
  constexpr double kTokens = 12 * 64;
  EXPECT_NEAR(Field(line, "tokens_per_second") * seconds / kTokens, 1, 0.01);
  // 6 * (parameters + layers * width * block) a token; nano has 809728 parameters with its head.
  constexpr double kFlops = 6 * (809728 + 4 * 128 * 64) * kTokens;
  EXPECT_NEAR(Field(line, "gflops") * seconds / (kFlops / 1e9), 1, 0.01);
  EXPECT_NEAR(Field(line, "peak_share"), Field(line, "gflops") / Field(line, "peak_gflops"), 0.011);
  EXPECT_GT(Field(line, "peak_bytes"), 4 * 4 * 809728);  // parameters, gradients, two moments
  EXPECT_GT(Field(line, "resident_bytes_above_start"), Field(line, "peak_bytes"));
}

TEST(Gpt2BenchmarkTest, MixedPrecisionAndCheckpointingSaveMemory) {
  const auto peak_bytes = [](const std::string& flags) {
    const Outcome run = RunBenchmark("--size=nano --threads=1 --seconds=0.1 " + flags);
    EXPECT_EQ(run.status, 0) << flags << ": " << run.err;
    return Field(run.out, "peak_bytes");
  };
  const double plain = peak_bytes("");
  const double low = peak_bytes("--amp=bf16");
  EXPECT_LT(low, plain);
  EXPECT_LT(peak_bytes("--amp=pure_bf16"), low);
  EXPECT_LT(peak_bytes("--amp=bf16 --checkpoint=block"), low);
  const double selective = peak_bytes("--checkpoint=selective");
  EXPECT_LT(selective, plain);
  EXPECT_LT(peak_bytes("--checkpoint=block"), selective);
  EXPECT_LT(peak_bytes("--checkpoint=budget:12MiB"), plain);
  EXPECT_LT(peak_bytes("--offload_activations"), plain);
}

TEST(Gpt2BenchmarkTest, ProfilesAndTraces) {
  const std::string trace = testing::TempDir() + "/step.json";
  const Outcome run =
      RunBenchmark("--size=nano --threads=1 --seconds=0.1 --profile --trace=" + trace);
  ASSERT_EQ(run.status, 0) << run.err;
  for (const char* part : {"limits measured here", "MatMul", "AdamStep", "backward", "\nsize="}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << " in " << run.out;
  }
  std::ifstream file(trace);
  EXPECT_GT(nlohmann::json::parse(file)["traceEvents"].size(), 100u);
}

TEST(Gpt2BenchmarkTest, WrongFlagsAreOneLineAndStatusOne) {
  for (const char* flags :
       {"--size=large", "--threads=-1", "--seconds=0", "--seconds=nan", "--no_such_flag", "stray",
        "--amp=bf8", "--checkpoint=all", "--threads=1 --checkpoint=budget:1KiB",
        "--seconds=0.1 --trace=/nonexistent/step.json"}) {
    const Outcome run = RunBenchmark(flags);
    EXPECT_EQ(run.status, 1) << flags;
    EXPECT_EQ(run.out, "") << flags;
    const std::vector<std::string> lines = absl::StrSplit(run.err, '\n', absl::SkipEmpty());
    EXPECT_EQ(lines.size(), 1u) << flags << ": " << run.err;
  }
  const Outcome help = RunBenchmark("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("--profile"), std::string::npos);
}

}  // namespace
