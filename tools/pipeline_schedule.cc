// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Simulates and draws schedules of a pipeline: pipeline_schedule_options.h, or --help.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/caller_path.h"
#include "lockstep/base/error.h"
#include "lockstep/state/file_io.h"
#include "lockstep/strategies/pipeline/draw.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/simulate.h"
#include "lockstep/strategies/pipeline/timeline.h"
#include "lockstep/tools/pipeline_schedule_options.h"
#include "lockstep/tools/run_tool.h"

namespace lockstep::pipeline_schedule {
namespace {

constexpr int64_t kMostFileBytes = 16 << 20;

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(CallerPath(path));
  file << text;
  file.close();
  if (!file.good()) {
    throw NotFoundError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  }
}

std::vector<double> MostBytes(const Options& options, const pipeline::Schedule& schedule,
                              const pipeline::Timeline& timeline) {
  return pipeline::PeakBytes(timeline, MakeStageBytes(options, schedule));
}

// "27.3 % (4)": the bubble, and the most activations that a rank keeps. ", too large" where that is
// more than the limit.
std::string TableCell(const Options& options, const std::string& name, int micro_batches) {
  const pipeline::Schedule schedule = MakeSchedule(options, name, micro_batches);
  const pipeline::Timeline timeline = pipeline::Simulate(schedule, MakeCosts(options, schedule));
  const double most = *std::max_element(timeline.peak_bytes.begin(), timeline.peak_bytes.end());
  bool fits = true;
  if (options.memory_limit_bytes.has_value()) {
    for (const double bytes : MostBytes(options, schedule, timeline)) {
      fits = fits && bytes <= *options.memory_limit_bytes;
    }
  }
  return absl::StrFormat("%.1f %% (%g)%s", 100 * timeline.bubble, most, fits ? "" : ", too large");
}

void PrintTable(const Options& options) {
  std::string text = "| schedule |";
  std::string rule = "|---|";
  for (const int count : options.micro_batches) {
    absl::StrAppend(&text, " m = ", count, " |");
    absl::StrAppend(&rule, "---|");
  }
  absl::StrAppend(&text, "\n", rule, "\n");
  for (const std::string& name : options.schedules) {
    absl::StrAppend(&text, "| ", name, " |");
    for (const int count : options.micro_batches) {
      absl::StrAppend(&text, " ", TableCell(options, name, count), " |");
    }
    absl::StrAppend(&text, "\n");
  }
  std::printf("%s", text.c_str());
}

void PrintOne(const Options& options) {
  const pipeline::Schedule schedule =
      options.file.empty()
          ? MakeSchedule(options, options.schedules[0], options.micro_batches[0])
          : pipeline::ParseSchedule(state::ReadFile(CallerPath(options.file), kMostFileBytes));
  pipeline::Validate(schedule);
  if (options.print != Print::kTimeline) {
    const bool transfers = options.print == Print::kTransfers;
    const pipeline::Schedule shown = transfers ? pipeline::WithTransfers(schedule) : schedule;
    std::printf("%s", pipeline::ToText(shown).c_str());
    return;
  }
  if (options.memory_limit_bytes.has_value()) {
    pipeline::CheckMemory(schedule, MakeStageBytes(options, schedule),
                          std::vector<double>(schedule.ranks.size(), *options.memory_limit_bytes));
  }
  const pipeline::Timeline timeline = pipeline::Simulate(schedule, MakeCosts(options, schedule));
  if (!options.svg.empty()) WriteFile(options.svg, pipeline::DrawSvg(timeline));
  std::printf("%smost micro-batches in flight, by stage: %s\n",
              pipeline::DrawText(timeline, options.width).c_str(),
              absl::StrJoin(timeline.peak_in_flight, " ").c_str());
  if (!KnowsBytes(options)) return;
  std::vector<double> megabytes = MostBytes(options, schedule, timeline);
  for (double& bytes : megabytes) bytes /= 1 << 20;
  std::printf("most MiB, by rank: %s\n", absl::StrJoin(megabytes, " ").c_str());
}

int Run(const std::vector<std::string>& arguments) {
  const Options options = ParseOptions(arguments);
  if (options.help) {
    std::printf("%s", HelpText().c_str());
  } else if (options.IsTable()) {
    PrintTable(options);
  } else {
    PrintOne(options);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::pipeline_schedule

int main(int argc, char** argv) {
  return lockstep::tools::RunTool("pipeline_schedule", argc, argv,
                                  lockstep::pipeline_schedule::Run);
}
