// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/pipeline_schedule_options.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"

namespace lockstep::pipeline_schedule {
namespace {

constexpr int kMaxStages = 256;
constexpr int kMaxMicroBatches = 4096;
constexpr double kMiB = 1 << 20;

[[noreturn]] void Refuse(absl::string_view flag, absl::string_view value,
                         absl::string_view allowed) {
  throw InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": ", allowed, " (see --help)"));
}

int Integer(absl::string_view flag, absl::string_view value, int most) {
  int number = 0;
  if (!absl::SimpleAtoi(value, &number) || number < 1 || number > most) {
    Refuse(flag, value, absl::StrCat("1 to ", most));
  }
  return number;
}

double Number(absl::string_view flag, absl::string_view value) {
  double number = 0;
  if (!absl::SimpleAtod(value, &number) || !(number >= 0) || !std::isfinite(number)) {
    Refuse(flag, value, "a number from 0");
  }
  return number;
}

std::vector<std::string> ParseSchedules(absl::string_view value) {
  std::vector<std::string> names = absl::StrSplit(value, ',');
  for (const std::string& name : names) {
    if (name != "gpipe" && name != "1f1b" && name != "interleaved" && name != "zb_h1") {
      Refuse("schedule", value, "some of gpipe, 1f1b, interleaved, zb_h1");
    }
  }
  return names;
}

Print ParsePrint(absl::string_view value) {
  if (value == "timeline") return Print::kTimeline;
  if (value == "schedule") return Print::kSchedule;
  if (value == "transfers") return Print::kTransfers;
  Refuse("print", value, "timeline, schedule or transfers");
}

void Set(absl::string_view flag, absl::string_view value, Options* options) {
  if (flag == "schedule") {
    options->schedules = ParseSchedules(value);
  } else if (flag == "file" || flag == "svg") {
    if (value.empty()) Refuse(flag, value, "a path");
    (flag == "file" ? options->file : options->svg) = std::string(value);
  } else if (flag == "stages") {
    options->stages = Integer(flag, value, kMaxStages);
  } else if (flag == "stages_per_rank") {
    options->stages_per_rank = Integer(flag, value, kMaxStages);
  } else if (flag == "micro_batches") {
    options->micro_batches.clear();
    for (const absl::string_view count : absl::StrSplit(value, ',')) {
      options->micro_batches.push_back(Integer(flag, count, kMaxMicroBatches));
    }
  } else if (flag == "forward") {
    options->compute.forward = Number(flag, value) * 1e-3;
  } else if (flag == "backward_input") {
    options->compute.backward_input = Number(flag, value) * 1e-3;
  } else if (flag == "backward_weight") {
    options->compute.backward_weight = Number(flag, value) * 1e-3;
  } else if (flag == "latency_us") {
    options->link.latency_seconds = Number(flag, value) * 1e-6;
  } else if (flag == "bandwidth_gbps") {
    options->link.bytes_per_second = Number(flag, value) * 1e9;
    if (options->link.bytes_per_second == 0) Refuse(flag, value, "more than 0 GB/s");
  } else if (flag == "transfer_bytes") {
    options->transfer_bytes = Number(flag, value);
  } else if (flag == "activation_mb") {
    options->activation_bytes = Number(flag, value) * kMiB;
  } else if (flag == "static_mb") {
    options->static_bytes = Number(flag, value) * kMiB;
  } else if (flag == "memory_limit_mb") {
    options->memory_limit_bytes = Number(flag, value) * kMiB;
  } else if (flag == "print") {
    options->print = ParsePrint(value);
  } else if (flag == "width") {
    options->width = Integer(flag, value, 10000);
  } else {
    Refuse(flag, value, "no such flag");
  }
}

// What would otherwise be accepted and ignored.
void CheckTogether(const Options& options, const std::set<std::string>& given) {
  const auto refuse_with = [&](absl::string_view what, const std::vector<std::string>& flags) {
    for (const std::string& flag : flags) {
      if (given.count(flag) == 0) continue;
      throw InvalidArgumentError(
          absl::StrCat("--", flag, " does not go with ", what, " (see --help)"));
    }
  };
  if (!options.file.empty()) {
    refuse_with("--file", {"schedule", "stages", "stages_per_rank", "micro_batches"});
  }
  if (options.IsTable()) {
    refuse_with("several schedules or numbers of micro-batches", {"svg", "print", "width"});
  }
  if (options.print != Print::kTimeline) {
    refuse_with(
        "--print=schedule or transfers, which are not simulated",
        {"forward", "backward_input", "backward_weight", "latency_us", "bandwidth_gbps",
         "transfer_bytes", "activation_mb", "static_mb", "memory_limit_mb", "svg", "width"});
  }
  if (options.memory_limit_bytes.has_value() && !KnowsBytes(options)) {
    throw InvalidArgumentError(
        "--memory_limit_mb needs --activation_mb or --static_mb: what is it to hold? (see --help)");
  }
  if (options.IsTable() && KnowsBytes(options) && !options.memory_limit_bytes.has_value()) {
    throw InvalidArgumentError(
        "a table says something of --activation_mb and --static_mb only with --memory_limit_mb "
        "(see --help)");
  }
  if (given.count("transfer_bytes") != given.count("bandwidth_gbps")) {
    throw InvalidArgumentError(
        "--transfer_bytes and --bandwidth_gbps say something only together (see --help)");
  }
}

}  // namespace

Options ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  std::set<std::string> given;
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") {
      options.help = true;
      continue;
    }
    if (argument == "--serial_links") {
      options.link.serial = true;
      continue;
    }
    absl::string_view rest = argument;
    const size_t equals = rest.find('=');
    if (!absl::ConsumePrefix(&rest, "--") || equals == absl::string_view::npos) {
      throw InvalidArgumentError(
          absl::StrCat("\"", argument, "\" is not --flag=value (see --help)"));
    }
    const absl::string_view flag = rest.substr(0, equals - 2);
    Set(flag, rest.substr(equals - 1), &options);
    given.emplace(flag);
  }
  CheckTogether(options, given);
  if (options.link.serial && given.count("bandwidth_gbps") == 0) {
    throw InvalidArgumentError(
        "--serial_links needs --bandwidth_gbps: without, a transfer occupies no link (see --help)");
  }
  return options;
}

std::string HelpText() {
  return "Simulates a schedule of a pipeline and draws it: docs/pipeline.md.\n\n"
         "  ./bazelw run //tools:pipeline_schedule -- [flags]\n\n"
         "  --schedule=1f1b\n      gpipe, 1f1b, interleaved, zb_h1. Several, separated by commas: "
         "a table of bubbles,\n      each with the activations that the fullest rank keeps, in "
         "those of a micro-batch.\n"
         "  --file=PATH\n      A schedule as text instead, as --print=schedule prints it.\n"
         "  --stages=4\n  --stages_per_rank=1\n      At least 2 for interleaved, and 1 for the "
         "others.\n"
         "  --micro_batches=8\n      Several: a table.\n"
         "  --forward=1 --backward_input=1 --backward_weight=1\n      Milliseconds of a stage and "
         "micro-batch. A whole backward takes the latter two.\n"
         "  --latency_us=0\n  --transfer_bytes=0 --bandwidth_gbps=...\n      A transfer's bytes, "
         "and GB/s of each link; both or neither.\n"
         "  --serial_links\n      One transfer at a time from one rank to another; else each has "
         "the whole bandwidth.\n"
         "  --activation_mb=... --static_mb=...\n      MiB that a stage keeps of each micro-batch, "
         "and always: the most of each rank is printed.\n"
         "  --memory_limit_mb=...\n      MiB of each rank: a schedule that does not fit is "
         "refused, "
         "and marked in a table.\n"
         "  --print=timeline\n      Or schedule, or transfers: the text, without and with "
         "transfers.\n"
         "  --width=100\n      Characters of the drawing.\n"
         "  --svg=PATH\n      A picture, too.\n";
}

pipeline::Schedule MakeSchedule(const Options& options, const std::string& name,
                                int micro_batches) {
  const int each = options.stages_per_rank;
  if (name == "interleaved") {
    if (each == 1) {
      Refuse("stages_per_rank", "1", "interleaved has several stages a rank; give 2 or more");
    }
    if (options.stages % each != 0) {
      Refuse("stages_per_rank", absl::StrCat(each),
             absl::StrCat("--stages=", options.stages, " is no multiple of it"));
    }
    return pipeline::Interleaved(options.stages / each, each, micro_batches);
  }
  if (each != 1) {
    Refuse("stages_per_rank", absl::StrCat(each),
           absl::StrCat(name, " has one stage a rank; use interleaved"));
  }
  if (name == "gpipe") return pipeline::GPipe(options.stages, micro_batches);
  if (name == "zb_h1") return pipeline::ZeroBubbleH1(options.stages, micro_batches);
  return pipeline::OneForwardOneBackward(options.stages, micro_batches);
}

pipeline::Costs MakeCosts(const Options& options, const pipeline::Schedule& schedule) {
  pipeline::Costs costs = pipeline::UniformCosts(schedule.stage_count(), options.compute);
  for (size_t stage = 0; stage < costs.stages.size(); ++stage) {
    const auto same = std::count(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end(),
                                 schedule.rank_of_stage[stage]);
    costs.stages[stage].activation_bytes = 1.0 / static_cast<double>(same);
  }
  costs.link = options.link;
  for (const pipeline::StageEdge& edge : schedule.edges) {
    costs.edge_bytes[{edge.from, edge.to}] = options.transfer_bytes;
  }
  return costs;
}

bool KnowsBytes(const Options& options) {
  return options.activation_bytes.has_value() || options.static_bytes.has_value();
}

std::vector<pipeline::StageCosts> MakeStageBytes(const Options& options,
                                                 const pipeline::Schedule& schedule) {
  return std::vector<pipeline::StageCosts>(
      static_cast<size_t>(schedule.stage_count()),
      {.activation_bytes = options.activation_bytes.value_or(0),
       .static_bytes = options.static_bytes.value_or(0)});
}

}  // namespace lockstep::pipeline_schedule
