// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/launcher/options.h"

#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lockstep/base/caller_path.h"
#include "lockstep/base/error.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxPerNode = 1024;
constexpr int kMaxNodes = 4096;
constexpr absl::Duration kMaxDuration = absl::Hours(24 * 7);

[[noreturn]] void Refuse(absl::string_view flag, absl::string_view value, absl::string_view give) {
  throw InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": ", give, " (see --help)"));
}

int Number(absl::string_view flag, absl::string_view value, int minimum, int maximum) {
  int number = 0;
  if (!absl::SimpleAtoi(value, &number) || number < minimum || number > maximum) {
    Refuse(flag, value, absl::StrCat("give a number from ", minimum, " to ", maximum));
  }
  return number;
}

absl::Duration Time(absl::string_view flag, absl::string_view value) {
  absl::Duration time;
  if (!absl::ParseDuration(value, &time) || time <= absl::ZeroDuration() || time > kMaxDuration) {
    Refuse(flag, value, "give a time such as 500ms, 30s or 10m");
  }
  return time;
}

std::string Path(absl::string_view flag, absl::string_view value) {
  if (value.empty()) Refuse(flag, value, "give a path, or leave the flag out");
  return CallerPath(std::string(value));
}

// "host:port", "[::1]:port" or "file:///folder".
void SetRendezvous(absl::string_view value, LaunchOptions* options) {
  constexpr absl::string_view kGive =
      "give host:port of node 0, or file:///folder that all nodes see";
  absl::string_view rest = value;
  if (absl::ConsumePrefix(&rest, "file://")) {
    if (!absl::StartsWith(rest, "/") || rest.size() < 2) Refuse("rendezvous", value, kGive);
    options->rendezvous_folder = std::string(absl::StripSuffix(rest, "/"));
    return;
  }
  const size_t colon = value.rfind(':');
  int port = 0;
  if (absl::StrContains(value, "//") || colon == absl::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(value.substr(colon + 1), &port) || port < 1 || port > 65535) {
    Refuse("rendezvous", value, kGive);
  }
  absl::string_view host = value.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") && !absl::ConsumeSuffix(&host, "]")) {
    Refuse("rendezvous", value, kGive);
  }
  options->rendezvous_host = std::string(host);
  options->rendezvous_port = port;
}

void SetFlag(absl::string_view flag, absl::string_view value, LaunchOptions* options) {
  if (flag == "nproc") {
    options->nproc = Number(flag, value, 1, kMaxPerNode);
  } else if (flag == "nnodes") {
    options->nnodes = Number(flag, value, 1, kMaxNodes);
  } else if (flag == "node_rank") {
    options->node_rank = Number(flag, value, 0, kMaxNodes - 1);
  } else if (flag == "max_restarts") {
    options->max_restarts = Number(flag, value, 0, 1 << 20);
  } else if (flag == "rendezvous") {
    SetRendezvous(value, options);
  } else if (flag == "token_file") {
    options->token_file = Path(flag, value);
  } else if (flag == "log_dir") {
    options->log_dir = Path(flag, value);
  } else if (flag == "stop_grace") {
    options->stop_grace = Time(flag, value);
  } else if (flag == "node_timeout") {
    options->node_timeout = Time(flag, value);
  } else if (flag == "join_timeout") {
    options->join_timeout = Time(flag, value);
  } else {
    Refuse(flag, value, "no such flag; the program comes after the launcher's flags");
  }
}

void CheckTogether(const LaunchOptions& options) {
  if (options.node_rank >= options.nnodes) {
    Refuse("node_rank", absl::StrCat(options.node_rank),
           absl::StrCat("with --nnodes=", options.nnodes, " it is 0 to ", options.nnodes - 1));
  }
  const bool at_host = !options.rendezvous_host.empty();
  if (options.nnodes > 1 && !at_host && options.rendezvous_folder.empty()) {
    Refuse("nnodes", absl::StrCat(options.nnodes),
           "several nodes need --rendezvous=host:port or --rendezvous=file:///folder, the same on "
           "each");
  }
  if (options.nnodes > 1 && at_host && options.token_file.empty()) {
    Refuse("rendezvous", absl::StrCat(options.rendezvous_host, ":", options.rendezvous_port),
           "the port is open to others: give --token_file, a file with the same random text on "
           "each node: (umask 077; openssl rand -hex 32 > token)");
  }
  if (!options.rendezvous_folder.empty() && !options.token_file.empty()) {
    Refuse("token_file", options.token_file,
           "a rendezvous folder is protected by its permissions: leave the flag out");
  }
  if (options.program.empty() && !options.help) {
    throw InvalidArgumentError(
        "no program is given: launch [flags] program [arguments] (see --help)");
  }
}

}  // namespace

LaunchOptions ParseLaunchOptions(const std::vector<std::string>& arguments) {
  LaunchOptions options;
  size_t i = 0;
  for (; i < arguments.size() && absl::StartsWith(arguments[i], "-"); ++i) {
    absl::string_view rest = arguments[i];
    if (rest == "--") {
      ++i;
      break;
    }
    if (rest == "--help" || rest == "-h") {
      options.help = true;
      continue;
    }
    const size_t equals = rest.find('=');
    if (!absl::StartsWith(rest, "--") || equals == absl::string_view::npos) {
      throw InvalidArgumentError(
          absl::StrCat("\"", arguments[i], "\" is not --flag=value (see --help)"));
    }
    SetFlag(rest.substr(2, equals - 2), rest.substr(equals + 1), &options);
  }
  if (i < arguments.size()) {
    options.program = arguments[i];
    options.arguments.assign(arguments.begin() + static_cast<ptrdiff_t>(i) + 1, arguments.end());
  }
  CheckTogether(options);
  return options;
}

std::string LaunchHelp() {
  return
      R"(Starts the ranks of a program on this host, and restarts them when one fails.

  ./bazelw run //tools:launch -- [flags] program [arguments of the program]

  --nproc=1          ranks on this node
  --max_restarts=0   how often all ranks are started again after a failure
  --log_dir=         folder for each rank's output: DIR/<run>/attempt-0/rank-0.out and .err, and
                     after an error what its last collectives were: world.rank0.json
  --stop_grace=30s   from SIGTERM to SIGKILL
  --token_file=      private file with the token of the job's stores; needed with several nodes and
                     host:port, else a random one is made

Several nodes: one launcher on each, with the same flags but --node_rank.

  --nnodes=1         nodes
  --node_rank=0      of this node
  --rendezvous=      host:port, where node 0 serves, or file:///folder that all nodes see, not used
                     before
  --join_timeout=10m for all nodes to come, at the start and after each failure
  --node_timeout=30s without a sign of life a node is taken for dead

The ranks get RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT
and more: docs/launch.md. The exit status is 0, or the first failing rank's (128 + the signal).
)";
}

std::string FindProgram(const std::string& program, const std::string& folder,
                        const std::string& search_path) {
  std::vector<std::string> places = {""};
  if (!absl::StrContains(program, "/")) places = absl::StrSplit(search_path, ':');
  for (const std::string& place : places) {
    const fs::path path = (fs::path(folder) / place / program).lexically_normal();
    std::error_code failure;
    if (fs::is_regular_file(path, failure) && access(path.c_str(), X_OK) == 0) return path.string();
  }
  throw NotFoundError(
      absl::StrContains(program, "/")
          ? absl::StrCat("program ", program, ": no executable file, seen from ", folder)
          : absl::StrCat("program ", program, ": not in PATH (", search_path,
                         "): give its path, ./", program, " for one in this folder"));
}

}  // namespace lockstep::launcher
