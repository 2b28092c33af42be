// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Everything a training run needs to go on as if it had never stopped, as one folder that appears
// whole or not at all:
//
//   <root>/step-00002200/
//     state.json              step, numbers and texts, and a checksum of each other file
//     model.safetensors       parameters and buffers, by name
//     optimizer.safetensors   optimizer state, by parameter name
//     strategy.safetensors    what a strategy keeps between steps, where it keeps something
//     rank-00000.safetensors  what only rank 0 has, and one more for each other rank, where ranks
//                             have something of their own (group_state.h writes them)
//
//   state::TrainingState state;
//   state.step = 2200;
//   state.model = model.StateDict();
//   state.Set("learning_rate_schedule.step", int64_t{2200});
//   std::string path = state::SaveTrainingState(root, state, {.keep = 3});
//   state::TrainingState back = state::LoadLatestTrainingState(root, &skipped);
#ifndef LOCKSTEP_STATE_TRAINING_STATE_H_
#define LOCKSTEP_STATE_TRAINING_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/state/state_folder.h"
#include "lockstep/state/state_values.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/random.h"

namespace lockstep::state {

struct TrainingState {
  int64_t step = 0;
  NamedTensors model;
  NamedTensors optimizer;
  NamedTensors strategy;  // the same on every rank
  NamedTensors own;       // what other ranks have not: of the rank that saves, or that was loaded
  int64_t ranks = 0;      // as loaded: for how many ranks `own` was saved; 0: for none
  Values values;          // schedule, data position, random state, configuration

  void Set(absl::string_view name, Value value) { values[std::string(name)] = std::move(value); }
  // Throw DataLoss when there is no such value or it has another type.
  int64_t Integer(absl::string_view name) const;
  double Real(absl::string_view name) const;
  const std::string& Text(absl::string_view name) const;
};

// This thread's generators as values "random.*", and back. The dropout stream is numbered by the
// reader's data-parallel rank; its position is the writer's, so every rank must have drawn the same
// numbers (as ranks of one step do).
void SaveRandomState(const RandomStreams& random, TrainingState& state);
RandomStreams LoadRandomState(const TrainingState& state, int64_t data_parallel_rank);

// Writes <root>/step-<step>, replacing one of the same step at once, then removes the oldest ones.
// Returns the path. `own` is that of one rank, number 0; group_state.h is for more. Until the new
// state is complete and durable the old ones stay. Only states of this program's naming are ever
// removed. Throws InvalidArgument (keep < 0, a value that is not finite) and
// FailedPrecondition (cannot write).
std::string SaveTrainingState(const std::string& root, const TrainingState& state,
                              const SaveOptions& options = {});

struct LoadStateOptions {
  // False: `model` and `optimizer` stay empty (their files are verified): for those who read parts
  // of them (SafetensorsSource), or only want the values.
  bool tensors = true;
};
// Reads and verifies the state in the folder `path`. With a `rank`, `own` is what that rank saved
// (nothing for ranks beyond `ranks`), and the other ranks' files are not looked at; without one
// `own` is empty and all files are verified. Throws NotFound, or DataLoss naming the file: foreign,
// damaged, truncated, or mixed from several steps.
TrainingState LoadTrainingState(const std::string& path, std::optional<int64_t> rank = {},
                                const LoadStateOptions& options = {});

struct LoadedState {
  TrainingState state;
  std::string path;
  std::vector<std::string> skipped;  // one message for each newer state that could not be read
};
// The newest state under `root` that is good, without anyone's `own`. Throws NotFound when there is
// none, with the reasons.
LoadedState LoadLatestTrainingState(const std::string& root, const LoadStateOptions& options = {});

// Paths of the states under `root`, oldest first; empty when there is no such folder.
std::vector<std::string> ListTrainingStates(const std::string& root);

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_TRAINING_STATE_H_
