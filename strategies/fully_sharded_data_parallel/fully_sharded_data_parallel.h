// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// FullyShardedDataParallel: data parallelism in which each rank keeps a part of the parameters,
// gradients and optimizer state, and gathers the parameters of a unit while it computes.
//
//   auto model = std::make_shared<models::Gpt2>(config);
//   strategies::FullyShardedDataParallel fsdp(
//       model, world, {.wrap_policy = strategies::WrapByType<models::Gpt2Block>()});
//   optim::AdamW optimizer(model->NamedParameters());         // after sharding
//   for (...) {
//     optimizer.ZeroGrad();
//     autograd::Backward(model->Loss(ids, targets));          // this rank's rows
//     fsdp.ClipGradNorm(1.0);
//     optimizer.Step();
//   }
//
// The module's parameters stay the same tensors under the same names. Outside of forward and
// backward each shows this rank's elements, in one dimension (perhaps none); Grad() and optimizer
// state have that shape. Inside of a unit's call they have the module's shapes. Elementwise
// optimizers only, made after this object.
//
// Gradients are averages over all ranks, as with DistributedDataParallel; two backwards without
// ZeroGrad() between them add up. A parameter that no rank's backward reaches keeps its gradient
// untouched; one that some reach gets their sum divided by the number of all ranks.
//
// Sources: Zhao et al. 2023, "PyTorch FSDP"; Rajbhandari et al. 2020, "ZeRO".
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_FULLY_SHARDED_DATA_PARALLEL_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_FULLY_SHARDED_DATA_PARALLEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/nn/hooks.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/state/tensor_source.h"
#include "lockstep/strategies/fully_sharded_data_parallel/full_state_load.h"
#include "lockstep/strategies/fully_sharded_data_parallel/options.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharding_runtime.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharding_statistics.h"
#include "lockstep/strategies/fully_sharded_data_parallel/unit_plan.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// One forward and one backward at a time. Destroy it while the module is not in use, with it or
// after Unwrap(): without, the parameters have lost their elements, and each use of them, a forward
// pass or another strategy's construction too, is FailedPrecondition that names one.
class FullyShardedDataParallel {
 public:
  // Every rank of `group` calls it. Of a gradient that is there each rank keeps its elements, which
  // are to be the same on all ranks. Throws InvalidArgument (null, nothing to shard, ranks that
  // differ, unknown ignored names, parameters on devices that the group cannot reach),
  // AlreadyExists (a gradient is averaged, or a parameter sharded, by another strategy),
  // FailedPrecondition (a parameter was sharded by one that is gone), Unimplemented (options that
  // exclude each other) and what the group throws.
  FullyShardedDataParallel(std::shared_ptr<nn::Module> module,
                           std::shared_ptr<comm::Communicator> group,
                           const FullyShardedDataParallelOptions& options = {});
  // For the hybrid strategies, over a mesh with the dimensions "replicate" and "shard"; the others
  // take one with "shard" alone.
  FullyShardedDataParallel(std::shared_ptr<nn::Module> module, const comm::DeviceMesh& mesh,
                           const FullyShardedDataParallelOptions& options);
  ~FullyShardedDataParallel();
  FullyShardedDataParallel(const FullyShardedDataParallel&) = delete;
  FullyShardedDataParallel& operator=(const FullyShardedDataParallel&) = delete;

  // Scope for accumulation: backwards inside add to unsharded sums on this rank (as many bytes as
  // the parameters, in reduce_dtype) and reduce nothing; the next one outside reduces the sum. All
  // ranks enter it for the same backwards. Grad() shows nothing of these sums.
  class NoSync {
   public:
    explicit NoSync(FullyShardedDataParallel& fsdp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    std::shared_ptr<ShardingRuntime> runtime_;
  };
  // With the hybrid strategies, scope for accumulation with less communication and no unsharded
  // sums: backwards inside are reduced among the ranks that share and add to sums of this rank's
  // elements, in reduce_dtype; the next one outside is reduced likewise, and the sum averaged over
  // the replicas. Grad() shows nothing of these sums. All ranks enter it for the same backwards.
  // Throws InvalidArgument with other strategies, Unimplemented with optimizer_in_backward.
  class NoAllReduce {
   public:
    explicit NoAllReduce(FullyShardedDataParallel& fsdp);
    ~NoAllReduce();
    NoAllReduce(const NoAllReduce&) = delete;
    NoAllReduce& operator=(const NoAllReduce&) = delete;

   private:
    std::shared_ptr<ShardingRuntime> runtime_;
  };
  // Forgets what backwards under NoSync and NoAllReduce have added up.
  void DropAccumulated();

  // Clips by the norm over all elements of all ranks' gradients, each counted once, and returns it:
  // the same on every rank, which all call it. Gradients of ignored parameters count too, and have
  // to be equal on all ranks then: nothing here averages them. Throws as optim::ClipGradNorm does.
  Tensor ClipGradNorm(double max_norm, const optim::ClipGradNormOptions& options = {});

  // Calls `method` as the forward pass of `module` (a unit's) is called: with its parameters
  // gathered, and with backward told. For functions of a module other than operator():
  //   Tensor y = fsdp.CallMethod(*encoder, {x}, [&](TensorSpan in) -> TensorList {
  //     return {encoder->Embed(in[0])};
  //   })[0];
  // What wants gradients comes in through `inputs` and goes out through the result. A module whose
  // functions run Module::CallWithHooks needs no CallMethod: whoever calls them gathers it. Both
  // are in place of PyTorch's register_fsdp_forward_method, which replaces a method by its name.
  // Throws InvalidArgument for a module that is no unit, naming those that are.
  TensorList CallMethod(nn::Module& module, TensorList inputs, const nn::ForwardFunction& method);

  // Gathers a unit's parameters ahead, and lets them go. All ranks call them alike.
  void Unshard(nn::Module& module);
  void Reshard(nn::Module& module);

  struct SummonOptions {
    // What is written to them is kept: of each rank its part, so write the same on all.
    bool writeback = true;
    bool rank0_only = false;      // others see their parts; not with writeback
    bool offload_to_cpu = false;  // on the host device; not with writeback
    // Grad() is whole too. With writeback what Grad() is at the end is kept, perhaps nothing: the
    // same on all ranks. One more AllReduce.
    bool with_grads = false;
  };
  // Scope in which the parameters have the module's shapes and all values, in the dtypes that they
  // are stored in. Outside of forward and backward, and not inside another; every rank enters and
  // leaves it. Inside, the module can be called (to generate text, without gathering each time; not
  // with rank0_only or offload_to_cpu), and computes as an unsharded one, without mixed_precision;
  // Backward() and Step() are for outside. Throws FailedPrecondition, InvalidArgument for options
  // that exclude each other.
  class SummonFullParameters {
   public:
    explicit SummonFullParameters(FullyShardedDataParallel& fsdp);
    SummonFullParameters(FullyShardedDataParallel& fsdp, const SummonOptions& options);
    ~SummonFullParameters();
    SummonFullParameters(const SummonFullParameters&) = delete;
    SummonFullParameters& operator=(const SummonFullParameters&) = delete;

   private:
    void SummonGradients();
    void Leave();

    std::shared_ptr<ShardingRuntime> runtime_;
    SummonOptions options_;
  };

  // Calls `visit` with each sharded parameter's name and all its elements, in the dtype it is
  // stored in, unit by unit: one unit's memory more than there is. On every rank, or on rank 0
  // only (the others take part). Names come in the order of the units.
  void VisitFullParameters(const std::function<void(const std::string&, const Tensor&)>& visit,
                           bool rank0_only = false);
  // The same for what `piece_of` says this rank has for a parameter: optimizer state, an average.
  // Undefined, on all ranks alike: the parameter is left out. Pieces of parameters of one unit and
  // dtype are of one dtype, also where they have no elements.
  void VisitFull(const std::function<Tensor(const std::string& name)>& piece_of,
                 const std::function<void(const std::string&, const Tensor&)>& visit,
                 bool rank0_only = false);

  // Parameters and buffers as an unsharded module's StateDict(), on the host device; on rank 0 only
  // with `rank0_only` (empty elsewhere). Every rank calls it.
  NamedTensors FullStateDict(bool rank0_only = true);
  // Takes this rank's elements from `state`, which has all of it: the same on every rank. A name
  // that only repeats a shared parameter may be missing; every other must be there, in the right
  // shape, and no unknown one; else InvalidArgument that lists them, and nothing has changed.
  // sharded_files.h has it for files, with the ranks waiting for each other.
  void LoadFullStateDict(const NamedTensors& state);

  // An optimizer's state as that of an unsharded model, on the host device, and back. As above.
  optim::OptimizerState FullOptimizerState(const optim::Optimizer& optimizer,
                                           bool rank0_only = true);
  void LoadFullOptimizerState(optim::Optimizer& optimizer, const optim::OptimizerState& state);
  // The same from `tensors`, of which only this rank's elements are read.
  void LoadFullOptimizerState(optim::Optimizer& optimizer, const state::TensorSource& tensors,
                              const std::map<std::string, int64_t>& numbers);

  // What this rank has of each sharded parameter.
  using Piece = ShardedPiece;
  std::vector<Piece> Pieces() const;
  // All elements of one parameter, or of what this rank has for it (`piece`: Piece::tensor, or
  // optimizer state), on rank 0; undefined elsewhere. Every rank calls it for the same parameters
  // in the same order. The memory of one parameter. Throws NotFound for one that is not sharded.
  Tensor GatherPiece(const std::string& name, const Tensor& piece);

  // Puts whole parameters back, and gradients where there are any, in the dtypes that parameters
  // are stored in, on the compute device: the module is then as if it had never been sharded, and
  // can be frozen, thawed, moved and wrapped again. Every rank calls it, outside of forward and
  // backward. Needs memory for the whole model beside this rank's part.
  //
  // To change what is trained: FullOptimizerState() with rank0_only = false if the optimizer's
  // state is to go on; Unwrap(); SetRequiresGrad(); a new FullyShardedDataParallel; a new
  // optimizer, which LoadFullOptimizerState() gives that state.
  //
  // Parameters may have been frozen or thawed before. Throws FailedPrecondition, on every rank, for
  // those that were moved, converted or replaced, and for sums of NoSync or NoAllReduce that no
  // backward has reduced; nothing has changed when it throws. Every later call but module(),
  // groups() and statistics() is FailedPrecondition.
  void Unwrap();

  const std::shared_ptr<nn::Module>& module() const { return module_; }
  const ShardingGroups& groups() const { return groups_; }
  // Paths of the units, the root's "" first.
  std::vector<std::string> unit_names() const;
  // Units in the order in which the last training iteration called them.
  std::vector<std::string> execution_order() const;
  ShardingTotals statistics() const { return runtime_->statistics()->totals(); }
  void ResetStatistics() { runtime_->statistics()->Reset(); }

 private:
  void CheckFree(const FullyShardedDataParallelOptions& options,
                 const std::vector<UnitPlan>& plans) const;
  void Shard(const FullyShardedDataParallelOptions& options);
  size_t UnitOf(const char* call, const nn::Module& module) const;

  std::shared_ptr<nn::Module> module_;
  ShardingGroups groups_;
  std::vector<std::string> ignored_;
  std::shared_ptr<ShardingRuntime> runtime_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_FULLY_SHARDED_DATA_PARALLEL_H_
