// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/comm_bench_options.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"
#include "lockstep/tools/size_text.h"

namespace lockstep::comm_bench {
namespace {

constexpr int kMaxRanks = 64;
constexpr int kMaxGib = 8;

[[noreturn]] void Refuse(absl::string_view flag, absl::string_view value,
                         absl::string_view allowed) {
  throw lockstep::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": ", allowed, " (see --help)"));
}

std::vector<std::string> ParseOps(absl::string_view value) {
  if (value == "all") return OpNames();
  std::vector<std::string> ops = absl::StrSplit(value, ',');
  for (const std::string& op : ops) {
    if (std::find(OpNames().begin(), OpNames().end(), op) == OpNames().end()) {
      Refuse("op", value, absl::StrCat("ops are all, or some of ", absl::StrJoin(OpNames(), ", ")));
    }
  }
  return ops;
}

void Set(absl::string_view flag, absl::string_view value, Options* options) {
  if (flag == "ranks") {
    if (!absl::SimpleAtoi(value, &options->ranks) || options->ranks < 1 ||
        options->ranks > kMaxRanks) {
      Refuse(flag, value, absl::StrCat("1 to ", kMaxRanks, " ranks"));
    }
  } else if (flag == "backend") {
    options->backends = absl::StrSplit(value, ',');
    for (const std::string& backend : options->backends) {
      if (std::find(BackendNames().begin(), BackendNames().end(), backend) ==
          BackendNames().end()) {
        Refuse(flag, value, absl::StrCat("backends are ", absl::StrJoin(BackendNames(), ", ")));
      }
    }
  } else if (flag == "op") {
    options->ops = ParseOps(value);
  } else if (flag == "sizes") {
    options->sizes = tools::ParseSizes(flag, value, kMaxGib);
  } else if (flag == "mode") {
    if (value != "processes" && value != "threads") Refuse(flag, value, "processes or threads");
    options->mode = value == "threads" ? comm::SpawnMode::kThreads : comm::SpawnMode::kProcesses;
  } else if (flag == "memory") {
    if (value != "allocated" && value != "ordinary") Refuse(flag, value, "allocated or ordinary");
    options->allocated = value == "allocated";
  } else {
    Refuse(flag, value, "no such flag");
  }
}

}  // namespace

const std::vector<std::string>& BackendNames() {
  static const auto* names = new std::vector<std::string>{"shm", "gloo"};
  return *names;
}

const std::vector<std::string>& OpNames() {
  static const auto* names = new std::vector<std::string>{
      "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
      "gather",     "scatter",    "all_to_all",     "send_recv"};
  return *names;
}

Options ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  for (const std::string& argument : arguments) {
    if (argument == "--json" || argument == "--help" || argument == "-h") {
      (argument == "--json" ? options.json : options.help) = true;
      continue;
    }
    absl::string_view rest = argument;
    const size_t equals = rest.find('=');
    if (!absl::ConsumePrefix(&rest, "--") || equals == absl::string_view::npos) {
      throw lockstep::InvalidArgumentError(
          absl::StrCat("\"", argument, "\" is not --flag=value (see --help)"));
    }
    Set(rest.substr(0, equals - 2), rest.substr(equals - 1), &options);
  }
  return options;
}

void CheckMemory(const Options& options, int64_t available_bytes) {
  const int64_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  const int64_t needed = 2 * options.ranks * largest;
  if (needed <= available_bytes) return;
  throw lockstep::ResourceExhaustedError(
      absl::StrCat(options.ranks, " ranks with an input and an output of ", largest,
                   " bytes each need ", needed >> 20, " MiB, and ", available_bytes >> 20,
                   " MiB of memory are available: give smaller --sizes or fewer --ranks"));
}

std::string HelpText() {
  return absl::StrCat(
      "Times collectives, in the manner of nccl-tests, and checks their results without "
      "tolerance.\n\n"
      "  ./bazelw run //tools:comm_bench -- [flags]\n\n"
      "  --ranks=2\n  --backend=shm\n      shm, gloo, separated by commas.\n"
      "  --op=all_reduce\n      all, or some of ",
      absl::StrJoin(OpNames(), ", "),
      "\n  --sizes=1KiB,1MiB,64MiB\n      Bytes of a rank's larger tensor.\n"
      "  --mode=processes\n      Or threads.\n"
      "  --memory=allocated\n      Memory that peers reach without a copy, or ordinary.\n"
      "  --json\n      One object a line instead of a table.\n");
}

double BusFactor(absl::string_view op, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  if (op == "all_reduce") return 2 * share;
  if (op == "broadcast" || op == "reduce" || op == "send_recv") return 1;
  return share;
}

}  // namespace lockstep::comm_bench
