// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A training state while it is being written: a folder under a temporary name, which several
// processes may put files into, until one of them gives it its name.
#ifndef LOCKSTEP_STATE_STATE_WRITER_H_
#define LOCKSTEP_STATE_STATE_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/state/state_folder.h"
#include "lockstep/state/training_state.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::state {

// "model.safetensors", "optimizer.safetensors": every state has them. The third is there where it
// is not empty, RankFileName() of ranks where TrainingState::ranks says so.
inline constexpr char kStateFile[] = "state.json";
inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer.safetensors";
inline constexpr char kStrategyFile[] = "strategy.safetensors";
inline constexpr char kStateFormat[] = "lockstep training state 1";

class StateWriter {
 public:
  // Checks what does not depend on files, then makes `root` and the temporary folder in it. Throws
  // InvalidArgument and FailedPrecondition as SaveTrainingState does. `state` outlives the writer.
  // The folder is removed with the writer unless it has been published.
  StateWriter(const std::string& root, const TrainingState& state, const SaveOptions& options);

  const std::string& folder() const { return folder_.path(); }

  // Writes what `rank` has for itself into a writer's folder, of this process or another. Returns
  // the file's checksum.
  static std::string WriteRankFile(const std::string& folder, int64_t rank,
                                   const NamedTensors& own);

  // Writes everything else that is not in the folder yet (files of gathered tensors are), gives the
  // folder its name and removes the oldest states. The checksums are those of the ranks' files, one
  // for each rank, or none. Returns the path.
  std::string Publish(const std::vector<std::string>& rank_checksums);

 private:
  void WriteStateFile(const std::vector<std::string>& rank_checksums);

  const std::string root_;
  const TrainingState& state_;
  const SaveOptions options_;
  TemporaryFolder folder_;
};

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_STATE_WRITER_H_
