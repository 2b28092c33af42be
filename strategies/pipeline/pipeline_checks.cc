// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/pipeline_checks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/pipeline/simulate.h"
#include "lockstep/tensor/capacity_limit.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::pipeline {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

template <typename... Args>
[[noreturn]] void Refuse(const Args&... pieces) {
  throw InvalidArgumentError(absl::StrCat("Pipeline: ", pieces...));
}

std::string NumbersOf(const std::map<int, Stage>& stages) {
  return absl::StrJoin(
      stages, ", ", [](std::string* out, const auto& entry) { absl::StrAppend(out, entry.first); });
}

}  // namespace

Schedule CheckedSchedule(Schedule schedule) {
  Validate(schedule);
  bool has_transfers = false;
  for (const std::vector<Action>& actions : schedule.ranks) {
    for (const Action& action : actions) has_transfers |= IsTransfer(action.kind);
  }
  return has_transfers ? schedule : WithTransfers(std::move(schedule));
}

std::map<int, Stage> NumberedStages(std::vector<Stage> stages, const Schedule& schedule) {
  if (static_cast<int>(stages.size()) != schedule.stage_count()) {
    Refuse(stages.size(), " stages are given and the schedule \"", schedule.name, "\" has ",
           schedule.stage_count());
  }
  std::map<int, Stage> result;
  for (Stage& stage : stages) {
    const auto number = static_cast<int>(result.size());
    if (stage.forward == nullptr) Refuse("stage ", number, " has no forward");
    result.emplace(number, std::move(stage));
  }
  return result;
}

void CheckOwnStages(const std::map<int, Stage>& stages, const Schedule& schedule, int rank,
                    int ranks) {
  if (ranks != schedule.rank_count()) {
    Refuse("the group has ", ranks, " ranks and the schedule \"", schedule.name, "\" has ",
           schedule.rank_count());
  }
  std::vector<int> own;
  for (int s = 0; s < schedule.stage_count(); ++s) {
    if (schedule.rank_of_stage[static_cast<size_t>(s)] == rank) own.push_back(s);
  }
  std::vector<int> given;
  for (const auto& [number, stage] : stages) given.push_back(number);
  if (own != given) {
    Refuse("rank ", rank, " has stages ", absl::StrJoin(own, ", "), " in the schedule \"",
           schedule.name, "\" and is given stages ", NumbersOf(stages));
  }
  for (const auto& [number, stage] : stages) {
    if (stage.forward == nullptr) Refuse("stage ", number, " has no forward");
  }
}

std::map<int, std::unique_ptr<StageTree>> MakeTrees(const std::map<int, Stage>& stages,
                                                    StageTree& whole) {
  std::map<int, std::unique_ptr<StageTree>> trees;
  absl::flat_hash_map<const TensorImpl*, int> stage_of;
  for (const auto& [number, stage] : stages) {
    auto& tree = trees[number] = std::make_unique<StageTree>();
    for (const auto& [path, module] : stage.parts) {
      tree->Add(path, module);
      whole.Add(path, module);
    }
    for (const auto& [name, tensor] : tree->StateTensors()) {
      const auto [it, is_new] = stage_of.emplace(&tensor.impl(), number);
      if (!is_new && it->second != number) {
        Refuse("\"", name, "\" of stage ", number, " is the very tensor of stage ", it->second,
               "; give each stage a copy and name both in PipelineOptions::tied");
      }
    }
  }
  return trees;
}

std::vector<std::vector<TiedCopy>> FindTied(
    const PipelineOptions& options, const std::map<int, Stage>& stages,
    const std::map<int, std::unique_ptr<StageTree>>& trees) {
  std::vector<std::vector<TiedCopy>> groups;
  std::set<std::pair<int, std::string>> seen;
  const int stage_count = options.schedule.stage_count();
  for (const std::vector<StageParameter>& group : options.tied) {
    if (group.size() < 2) Refuse("a group of ", group.size(), " tied parameters; give two or more");
    std::vector<TiedCopy>& copies = groups.emplace_back();
    for (const StageParameter& parameter : group) {
      const auto& [stage, name] = parameter;
      const int least = copies.empty() ? 0 : copies.back().stage + 1;
      if (stage < least || stage >= stage_count) {
        Refuse("the tied parameter \"", name, "\" is said to be of stage ", stage,
               "; stages ascend in a group, and the pipeline has ", stage_count);
      }
      if (!seen.emplace(stage, name).second) {
        Refuse("\"", name, "\" of stage ", stage, " is in two groups of tied parameters");
      }
      TiedCopy copy = {
          stage, name, options.schedule.rank_of_stage[static_cast<size_t>(stage)], {}, 0};
      if (const auto tree = trees.find(stage); tree != trees.end()) {
        const NamedTensors parameters = tree->second->NamedParameters();
        if (!parameters.Contains(name)) {
          Refuse("the tied \"", name, "\" is no parameter of stage ", stage, ", which has ",
                 parameters.empty() ? "none" : absl::StrJoin(parameters.Names(), ", "));
        }
        copy.parameter = parameters.At(name);
        const Stage& own = stages.at(stage);
        if (own.first_element != nullptr) copy.first_element = own.first_element(name);
      }
      copies.push_back(std::move(copy));
    }
  }
  return groups;
}

void CheckOptions(const PipelineOptions& options, bool one_process) {
  const int ranks = options.schedule.rank_count();
  if (one_process && !options.devices.empty()) {
    strategies::CheckDevices(options.devices, "Pipeline");
    if (static_cast<int>(options.devices.size()) != ranks) {
      Refuse(options.devices.size(), " devices are given and the schedule \"",
             options.schedule.name, "\" has ", ranks, " ranks");
    }
  }
  if (one_process && options.devices.empty() && ranks > kMaxDevicesPerType) {
    Refuse("the schedule \"", options.schedule.name, "\" has ", ranks, " ranks and there are ",
           kMaxDevicesPerType, " devices in a process; give each rank a process of its own");
  }
  if (!one_process && !options.devices.empty()) {
    Refuse("devices are given with a group; a rank is on its current device (DeviceScope)");
  }
  if (one_process && options.shard_group != nullptr) {
    Refuse(
        "a shard_group is given without a group; parameters are sharded over ranks that each run "
        "a pipeline of their own");
  }
  if (one_process && options.replica_group != nullptr) {
    Refuse(
        "a replica_group is given without a group; replicas are of ranks that each run a pipeline "
        "of their own");
  }
  if (one_process && !options.abort_groups.empty()) {
    Refuse(options.abort_groups.size(),
           " abort_groups are given without a group; they are of "
           "ranks that each run a pipeline of their own");
  }
  for (size_t i = 0; i < options.abort_groups.size(); ++i) {
    if (options.abort_groups[i] == nullptr) Refuse("abort_groups[", i, "] is null");
  }
  if (options.threads_per_rank < 0) {
    Refuse("threads_per_rank is ", options.threads_per_rank, "; give at least 1, or 0");
  }
  if (!one_process && options.threads_per_rank != 0) {
    Refuse("threads_per_rank is ", options.threads_per_rank,
           " with a group; a rank has its own number of threads (SetIntraOpThreads)");
  }
  if (options.timeout.has_value() && *options.timeout <= absl::ZeroDuration()) {
    Refuse("the timeout is ", absl::FormatDuration(*options.timeout), "; it is positive");
  }
}

void CheckDevicesHold(const PipelineOptions& options, const std::vector<Device>& own,
                      int first_rank, comm::Communicator* group) {
  if (options.stage_costs.empty()) return;
  const auto ranks = static_cast<size_t>(options.schedule.rank_count());
  std::vector<double> limits(ranks, group == nullptr ? kNoLimit : 0);
  for (size_t i = 0; i < own.size(); ++i) {
    const std::optional<int64_t> limit = CapacityLimit(own[i]);
    limits[static_cast<size_t>(first_rank) + i] =
        limit.has_value() ? static_cast<double>(*limit) : kNoLimit;
  }
  if (group != nullptr) {
    // Each number is of one rank.
    const Tensor sum = FromVector<double>(limits, {static_cast<int64_t>(ranks)},
                                          {.dtype = DType::kFloat64, .device = CurrentDevice()});
    group->AllReduce(sum).Wait();
    limits = sum.ToVector<double>();
  }
  CheckMemory(options.schedule, options.stage_costs, limits);
}

absl::Duration TimeoutInOneProcess(const PipelineOptions& options) {
  return options.timeout.value_or(comm::ProcessGroupOptions().timeout);
}

}  // namespace lockstep::pipeline
