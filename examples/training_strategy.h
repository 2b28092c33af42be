// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a training run share the work: what a trainer needs to know of each strategy,
// and all that it knows.
#ifndef LOCKSTEP_EXAMPLES_TRAINING_STRATEGY_H_
#define LOCKSTEP_EXAMPLES_TRAINING_STRATEGY_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/amp/training/training_step.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/examples/adamw_groups.h"
#include "lockstep/examples/train_config.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/state/tensor_source.h"
#include "lockstep/state/training_state.h"
#include "lockstep/strategies/engine/engine.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::examples {

// The default of each function is what one rank alone does.
class TrainingStrategy {
 public:
  explicit TrainingStrategy(std::shared_ptr<models::Gpt2> model) : model_(std::move(model)) {}
  virtual ~TrainingStrategy() = default;
  TrainingStrategy(const TrainingStrategy&) = delete;
  TrainingStrategy& operator=(const TrainingStrategy&) = delete;

  // The parameters that this rank trains, under the model's names.
  virtual nn::Module& module() { return *model_; }
  virtual std::unique_ptr<optim::Optimizer> MakeOptimizer(const AdamWGroups& groups);

  // What steps by itself, with an optimizer, schedule and scaler of its own; null: nothing does.
  virtual engine::Engine* engine() { return nullptr; }

  // Mean over the rows of a batch.
  virtual Tensor Loss(const NamedTensors& batch);
  // Whether forward and backward of a batch are one call, ForwardBackward (an
  // amp::TrainingStep::Pass), which cuts the batch into micro-batches by itself.
  virtual bool runs_backward() const { return false; }
  virtual Tensor ForwardBackward(const NamedTensors& batch,
                                 const amp::TrainingStep::ScaleLoss& scale);
  // Runs `function` on a model that can be called in another way than Loss(), at least on rank 0.
  virtual void Inside(const std::function<void(models::Gpt2&)>& function) { function(*model_); }
  // Whether all ranks have to run the same forward passes, evaluation included.
  virtual bool collective_forward() const { return false; }

  // Scopes: of all backwards of a step, and of those that communicate nothing. Null: none needed.
  virtual std::shared_ptr<void> StepScope() { return nullptr; }
  virtual std::function<std::shared_ptr<void>()> NoSync() { return nullptr; }
  // Clips by the norm of all gradients. Null: that of the optimizer's parameters.
  virtual std::function<Tensor(double max_norm)> ClipGradNorm() { return nullptr; }
  virtual void AfterStep() {}
  // Makes all ranks' parameters the same, where they are not.
  virtual void Average() {}
  // Time of the last step that this rank waited for gradients and parameters.
  virtual double exposed_seconds() { return 0; }

  // What keeps the parameters in parts; null: nothing does. States are written and read by parts
  // then (run_state.h), and Save and Load are not called.
  virtual strategies::FullyShardedDataParallel* fsdp() { return nullptr; }
  // Gives the parameters the values of `source`, which has all of them by the model's names: read
  // whole, or with fsdp() by parts. Throws InvalidArgument on every rank, with each name that is
  // missing or unknown and each wrong shape.
  virtual void LoadModel(const state::TensorSource& source);
  // Whether this rank reads no more of a state than it keeps: LoadByName is called in place of
  // Load, with the names and tensors of a model in one piece, of which `state` has only the values.
  virtual bool loads_by_name() const { return false; }
  virtual void LoadByName(const state::TensorSource& model, const state::TensorSource& moments,
                          const state::TrainingState& state, optim::Optimizer& optimizer);

  // Whole states, as one rank alone has them. Save is called by every rank and fills rank 0's
  // `state`, and what is each rank's own; Load gets the same state on every rank. Names of what the
  // new run cannot use, because it is set differently, are added to `begins_anew`.
  virtual void Save(const optim::Optimizer& optimizer, state::TrainingState& state);
  virtual void Load(const state::TrainingState& state, optim::Optimizer& optimizer,
                    std::vector<std::string>& begins_anew);

  // Devices that hold parts of the model or its activations.
  virtual std::vector<Device> devices() const { return {CurrentDevice()}; }
  // More of it for the plan: ", 5 units".
  virtual std::string Details() const { return ""; }
  // Whether to print who holds how many bytes.
  virtual bool shards() const { return false; }
  // On rank 0, what to print of the last step; or "". Every rank calls it.
  virtual std::string Picture() { return ""; }

  // An optimizer's state as a part of a training state, and back.
  static void PutOptimizer(const optim::OptimizerState& optimizer, state::TrainingState& state);
  static optim::OptimizerState GetOptimizer(const state::TrainingState& state);

 protected:
  models::Gpt2& model() { return *model_; }

 private:
  std::shared_ptr<models::Gpt2> model_;
};

// The strategy that `config` names. Every rank of `world` calls it.
std::unique_ptr<TrainingStrategy> MakeTrainingStrategy(const TrainConfig& config,
                                                       std::shared_ptr<models::Gpt2> model,
                                                       std::shared_ptr<comm::Communicator> world);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_TRAINING_STRATEGY_H_
