// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Says from the flight records of a job's ranks where they parted: flight_report.h, or --help.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/caller_path.h"
#include "lockstep/base/error.h"
#include "lockstep/tools/flight_report.h"
#include "lockstep/tools/run_tool.h"

namespace lockstep::flight_recorder {
namespace {

constexpr char kHelp[] =
    "flight_recorder [--json] <folder>\n"
    "\n"
    "Reads the files <group>.rank<k>.json that the ranks of a job wrote into the folder\n"
    "(ProcessGroupOptions::flight_recorder.folder) and says, for each group: the last collective\n"
    "that all ranks completed, which rank called something else next or nothing, which was late,\n"
    "which has no file, and which ranks wait for each other over several groups.\n"
    "The exit status is 1 if there is no file, or one that cannot be read.\n";

int Run(const std::vector<std::string>& arguments) {
  bool json = false;
  std::string folder;
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") {
      std::printf("%s", kHelp);
      return 0;
    }
    if (argument == "--json") {
      json = true;
    } else if (absl::StartsWith(argument, "-") || !folder.empty()) {
      throw InvalidArgumentError(
          absl::StrCat("\"", argument, "\" is not expected: give --json or not, and one folder"));
    } else {
      folder = argument;
    }
  }
  if (folder.empty()) throw InvalidArgumentError("which folder? See --help");
  const RecordFolder read = ReadRecords(CallerPath(folder));
  const Report report = Analyze(read.records);
  std::printf("%s", (json ? ToJson(report) : ToText(report)).c_str());
  for (const std::string& problem : read.problems) {
    std::fprintf(stderr, "flight_recorder: skipped: %s\n", problem.c_str());
  }
  if (read.records.empty() && read.problems.empty()) {
    throw NotFoundError(absl::StrCat("no file <group>.rank<k>.json in ", folder));
  }
  return read.problems.empty() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::flight_recorder

int main(int argc, char** argv) {
  return lockstep::tools::RunTool("flight_recorder", argc, argv, lockstep::flight_recorder::Run);
}
