// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What pipeline_schedule is asked to simulate.
#ifndef LOCKSTEP_TOOLS_PIPELINE_SCHEDULE_OPTIONS_H_
#define LOCKSTEP_TOOLS_PIPELINE_SCHEDULE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/simulate.h"

namespace lockstep::pipeline_schedule {

enum class Print : uint8_t { kTimeline, kSchedule, kTransfers };

struct Options {
  std::vector<std::string> schedules = {"1f1b"};
  std::string file;  // A schedule's text, instead of those; "": none.
  int stages = 4;
  int stages_per_rank = 1;
  std::vector<int> micro_batches = {8};
  // Of each stage.
  pipeline::ComputeSeconds compute = {
      .forward = 1e-3, .backward_input = 1e-3, .backward_weight = 1e-3};
  pipeline::Link link;
  double transfer_bytes = 0;
  // Bytes that each stage keeps of each micro-batch and always; absent: nobody asks.
  std::optional<double> activation_bytes, static_bytes;
  std::optional<double> memory_limit_bytes;  // of each rank
  Print print = Print::kTimeline;
  int width = 100;
  std::string svg;  // "": none
  bool help = false;

  // Several schedules or numbers of micro-batches: their bubbles, not their pictures.
  bool IsTable() const { return schedules.size() > 1 || micro_batches.size() > 1; }
};

// From "--schedule=1f1b", "--micro_batches=4,8", ... Throws InvalidArgument, naming the flag and
// what is allowed.
Options ParseOptions(const std::vector<std::string>& arguments);

std::string HelpText();

// One of `options.schedules` with one of `options.micro_batches`.
pipeline::Schedule MakeSchedule(const Options& options, const std::string& name, int micro_batches);

// Each stage keeps its share, of its rank's stages, of one byte for each micro-batch: peak_bytes
// are then micro-batches' activations.
pipeline::Costs MakeCosts(const Options& options, const pipeline::Schedule& schedule);

// What the flags say that stages keep, in bytes.
bool KnowsBytes(const Options& options);
std::vector<pipeline::StageCosts> MakeStageBytes(const Options& options,
                                                 const pipeline::Schedule& schedule);

}  // namespace lockstep::pipeline_schedule

#endif  // LOCKSTEP_TOOLS_PIPELINE_SCHEDULE_OPTIONS_H_
