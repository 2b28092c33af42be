// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a Pipeline refuses at construction, and the schedule that it runs. Internal.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_PIPELINE_CHECKS_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_PIPELINE_CHECKS_H_

#include <map>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/stage_tree.h"
#include "lockstep/strategies/pipeline/tied_parameters.h"
#include "lockstep/tensor/device.h"

namespace lockstep::pipeline {

// The schedule with transfers. Throws as Validate.
Schedule CheckedSchedule(Schedule schedule);
// All stages of one process by number. Throws InvalidArgument when they are not the schedule's.
std::map<int, Stage> NumberedStages(std::vector<Stage> stages, const Schedule& schedule);
// Throws InvalidArgument unless `stages` are those that the schedule places on `rank`.
void CheckOwnStages(const std::map<int, Stage>& stages, const Schedule& schedule, int rank,
                    int ranks);
// Fills one tree a stage, and `whole`, with the stages' parts. Throws InvalidArgument for paths
// that meet and for a parameter or buffer in two stages.
std::map<int, std::unique_ptr<StageTree>> MakeTrees(const std::map<int, Stage>& stages,
                                                    StageTree& whole);
// Finds the copies that `stages`, of `trees`, have. Throws InvalidArgument for groups that are not
// ascending stages, or of fewer than two, a name that a stage here does not have, and a parameter
// in two groups.
std::vector<std::vector<TiedCopy>> FindTied(const PipelineOptions& options,
                                            const std::map<int, Stage>& stages,
                                            const std::map<int, std::unique_ptr<StageTree>>& trees);
// Devices, threads, timeout and loss.
void CheckOptions(const PipelineOptions& options, bool one_process);
// Throws as CheckMemory where `stage_costs` are given. `own` are the devices of the ranks from
// `first_rank` on; `group`, unless null, tells the others' limits.
void CheckDevicesHold(const PipelineOptions& options, const std::vector<Device>& own,
                      int first_rank, comm::Communicator* group);
// The given one, or that of a process group to which none is given.
absl::Duration TimeoutInOneProcess(const PipelineOptions& options);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_PIPELINE_CHECKS_H_
