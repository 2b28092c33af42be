// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What train_gpt is asked to do: every setting in one struct that is validated as a whole before
// any work starts, travels to the ranks as text, and is kept in training states.
#ifndef LOCKSTEP_EXAMPLES_TRAIN_CONFIG_H_
#define LOCKSTEP_EXAMPLES_TRAIN_CONFIG_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/state/training_state.h"
#include "lockstep/strategies/engine/deepspeed_config.h"

namespace lockstep::examples {

struct TrainConfig {
  // Data: bytes of a file, or of a folder's files.
  std::string data = "/usr/include/c++";
  std::vector<std::string> extensions = {};

  // Model: GPT-2 over bytes.
  std::string model = "nano";
  int64_t layers = 0;  // resolved from `model` by Resolve() where 0
  int64_t heads = 0;
  int64_t width = 0;
  int64_t block = 0;

  // Training.
  std::string strategy = "ddp";
  int64_t ranks = 2;
  int64_t devices = 1;  // of dp
  int64_t stages = 1;   // parts of the blocks: devices of a rank, or a pipeline's stages
  // Of pipelines.
  std::string schedule = "1f1b";  // gpipe, 1f1b, interleaved or zb_h1
  int64_t stages_per_rank = 1;    // of the interleaved schedule
  int64_t shards = 1;             // ranks that share each stage's parameters
  int64_t threads_per_rank = 0;   // 0: processors / ranks
  int64_t steps = 2200;
  int64_t batch = 12;         // rows of the whole step
  int64_t micro_batches = 1;  // forward and backward passes that a rank splits its rows into
  double lr = 2e-3;
  int64_t seed = 0;
  std::string amp;                  // as amp::ParseAutocast takes it
  std::string checkpoint = "none";  // as checkpoint::ParseCheckpointSetting takes it
  bool offload_activations = false;
  int64_t accumulate = 1;  // batches that a step adds up
  // Of DistributedDataParallel, which zero1 has too.
  int64_t bucket_cap_mb = 25;
  bool static_graph = false;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  std::string comm_hook = "none";  // as strategies::ParseCommunicationHook takes it
  int64_t staleness = 0;           // steps that averages arrive late
  int64_t local_sgd_period = 0;    // 0: gradients are averaged in every step
  // Of FullyShardedDataParallel.
  std::string wrap = "block";  // block, none, or size:ELEMENTS
  int64_t replicas = 1;        // of hybrid strategies and pipelines
  int64_t reshard_ranks = 0;
  std::string backward_prefetch = "pre";  // pre, post or none
  bool forward_prefetch = true;
  bool cpu_offload = false;
  std::string param_dtype = {};  // bf16; empty: float32
  bool deferred_init = false;
  std::string config = {};       // path of a file in DeepSpeed's vocabulary: the strategy "config"
  std::string config_text = {};  // what was in it: a run that goes on is set as it was

  // The model to begin with (initial_model.h); empty: random values.
  std::string init_from = {};

  // States.
  std::string out;                    // absolute
  std::string state_layout = "full";  // --state: full, or sharded
  int64_t save_every = 500;
  int64_t keep = 3;
  std::string resume;  // path of the state to go on from; empty: start anew

  // Of this run only, not kept in states.
  int64_t profile_step = 0;          // the step to record; 0: none
  std::string backend;               // of the group of ranks; empty: the default
  std::string flight_recorder = {};  // folder for the ranks' last collectives; empty: none

  // The norm that gradients are clipped to; in a file of `config` what "auto" stands for.
  static constexpr double kClipNorm = 1.0;
  // Steps in which the learning rate rises.
  int64_t WarmupSteps() const { return std::min<int64_t>(50, steps); }

  // Fills sizes from the preset and checks every setting. Throws InvalidArgument naming the flag,
  // its value and what to give.
  void Resolve();
  models::Gpt2Config ModelConfig() const;
  // Whether ranks average their gradients: ddp, and zero1, which shards the optimizer beside it.
  bool HasDdp() const { return strategy == "ddp" || strategy == "zero1"; }
  // Whether each rank keeps a part of the parameters' memory, or could: the strategies of
  // FullyShardedDataParallel.
  bool HasFsdp() const;
  // Steps whose gradients --comm_hook=powersgd averages in full, before it compresses; 0 with
  // another hook.
  int64_t StepsBeforeCompression() const;
  // What `config` says, with the flags for what it leaves to "auto".
  engine::DeepSpeedConfig EngineConfig() const;
  // The batch, micro-batches and learning rate become those of `config_text`, where there is one.
  void TakeFileSettings();
  // Ranks, or devices of the one process, that a pipeline has.
  int64_t PipelineRanks() const { return stages / stages_per_rank; }
  // Whether each rank has the parameters of its own stages only.
  bool RankPerStage() const { return strategy == "pipeline" && ranks > 1; }
  // In how many parts ranks divide the rows of a step.
  int64_t DataRanks() const { return RankPerStage() ? replicas * shards : ranks; }
  // Forward and backward passes of a rank in a step, and rows of each. A pipeline takes all
  // micro-batches in one.
  int64_t PassesPerStep() const { return accumulate * PassesPerBatch(); }
  int64_t RowsPerPass() const { return batch / DataRanks() / PassesPerBatch(); }
  int64_t MicroBatchesPerPass() const { return micro_batches / PassesPerBatch(); }

  // To and from the values of a training state ("config.*"). A setting that the state does not
  // have, because it is newer, is its default: what was done before there was a choice.
  void Save(state::TrainingState& state) const;
  static TrainConfig FromState(const state::TrainingState& state);

  // One line of text for spawned ranks, and back.
  std::string Serialize() const;
  static TrainConfig Deserialize(absl::string_view text);

 private:
  void ResolveSizes();
  void CheckRanks() const;
  void CheckBatch() const;
  // What DDP's flags and --local_sgd_period go with.
  void CheckReduction() const;
  void CheckLocalSgd() const;
  int64_t PassesPerBatch() const { return strategy == "pipeline" ? 1 : micro_batches; }
  void ResolvePipeline() const;
  void ResolveSharding();
  void ResolveStages() const;
  void ResolveEngine();
  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor&& visit);
};

// Throws InvalidArgument when `asked` shards in another way than `saved`, whose state in the folder
// `path` is in parts, with what to do.
void CheckSameSharding(const TrainConfig& saved, const TrainConfig& asked, const std::string& path);

// Throws InvalidArgument when `asked` (flags given by the user) contradicts what `saved` was
// trained with in a way that would make it another training: model sizes, batch, learning rate,
// seed. `given` names the flags that the user set.
void CheckResumable(const TrainConfig& saved, const TrainConfig& asked,
                    const std::vector<std::string>& given);

// Throws InvalidArgument when the file of --config has made `resolved` another training than flags
// in `given` ask for, whose values are in `asked`: a flag counts where the file says "auto".
void CheckFlagsCount(const TrainConfig& resolved, const TrainConfig& asked,
                     const std::vector<std::string>& given);

// Throws InvalidArgument when the file of --config makes the steps of `resolved` others than those
// of `saved`, the state that it goes on from.
void CheckFileResumable(const TrainConfig& saved, const TrainConfig& resolved);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_TRAIN_CONFIG_H_
