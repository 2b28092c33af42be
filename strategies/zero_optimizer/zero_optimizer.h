// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// ZeroOptimizer: every rank keeps the optimizer state of a part of the parameters and updates that
// part; then the ranks hand the new values to each other. ZeRO's stage 1, beside
// DistributedDataParallel, with the results of the same optimizer on every rank, bit for bit.
//
//   DistributedDataParallel ddp(model, world, {.gradient_as_bucket_view = true});
//   auto optimizer = MakeZeroOptimizer<optim::AdamW>(ddp, model->NamedParameters(),
//                                                    optim::AdamWOptions{.lr = 2e-3});
//   optim::Schedule schedule(optimizer.get(), ...);
//   for (...) {
//     optimizer->ZeroGrad();
//     autograd::Backward(model->Loss(ids, targets));
//     optimizer->Step();        // returns while parameters still travel
//   }
//   optim::OptimizerState state = optimizer->ConsolidateState();   // on rank 0, as unsharded
//
// Bytes of a rank, for P of float32 parameters with AdamW on N ranks: P of parameters, P of
// gradients (with gradient_as_bucket_view), 2 P / N of state.
//
// Parameters move into buckets, of about 25 MiB each, in memory that the ranks share; a bucket is
// cut into N equal parts, and a rank's state is that of its part. After a step each bucket is one
// AllGather in place, in the order in which the module registers its parameters, which is roughly
// the one in which the next forward pass needs them. Over shm it is not waited for: the first op
// that takes a parameter of the bucket does, and throws the group's error if the gather has failed.
// (Over other backends Step() waits for all of them.) Parameters keep their identity, so that DDP,
// hooks, ties, clipping, a GradScaler and state dictionaries see what they saw before.
//
// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models".
#ifndef LOCKSTEP_STRATEGIES_ZERO_OPTIMIZER_ZERO_OPTIMIZER_H_
#define LOCKSTEP_STRATEGIES_ZERO_OPTIMIZER_ZERO_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/work.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/zero_optimizer/partition.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

struct ZeroOptimizerOptions {
  int64_t bucket_bytes = int64_t{25} << 20;
};

// Used by the thread that trains, on every rank alike. May be destroyed at any time: parameters
// stay in their buckets, and gathers under way end by themselves.
class ZeroOptimizer final : public optim::Optimizer {
 public:
  // Makes the optimizer of this rank's pieces. A piece has one dimension and the name of its
  // parameter; every parameter has one on every rank, some of no elements. Group g of the pieces is
  // group g of the parameters.
  using Factory = std::function<std::unique_ptr<optim::Optimizer>(
      const std::vector<NamedTensors>& pieces_by_group)>;

  // `groups`: parameters of `ddp`'s module; others are left alone. Every rank calls it. Throws
  // InvalidArgument: what optim::Optimizer refuses, ranks with other parameters, groups or options,
  // parameters that are not the module's or whose gradients `ddp` does not average, parameters that
  // share elements, a `ddp` that steps in backward, an optimizer that is null, not elementwise
  // (is_elementwise()), or not of all pieces. And what the group throws.
  ZeroOptimizer(const DistributedDataParallel& ddp, const std::vector<NamedTensors>& groups,
                const Factory& make_optimizer, const ZeroOptimizerOptions& options = {});

  // Updates this rank's pieces from the gradients, which are averages, and starts to gather those
  // buckets that have one. Where some parameters that require gradients have none, the ranks
  // compare which (one more collective). Throws FailedPrecondition for a parameter that has been
  // moved, converted or replaced, and where ranks lack different gradients; else what the inner
  // optimizer throws, before anything is changed, and the group's error.
  void Step() override;
  // Waits for the gathers of the last step. For who wants their errors, or times, here; and on
  // every rank after the last step, before the first of them gives up the group.
  void Synchronize() const;

  // Unimplemented: buckets are gathered when all gradients are there.
  void StepOnly(TensorSpan parameters) override;

  size_t GroupCount() const override { return inner_->GroupCount(); }
  double BaseLearningRate(size_t group = 0) const override;
  std::optional<double> BaseMomentum(size_t group = 0) const override;
  bool is_elementwise() const override { return true; }

  // The state of all ranks, by parameter name, as the inner optimizer of an unsharded run saves it:
  // on rank `root`, and nothing on the others. Every rank calls it. The tensors are the root's own;
  // beside them no rank takes memory. Throws OutOfRange (no such rank) and the group's error.
  optim::OptimizerState ConsolidateState(int root = 0) const;
  // FailedPrecondition: this rank has its part only.
  optim::OptimizerState SaveState() const override;
  // Copies this rank's pieces out of a whole state (ConsolidateState, or that of an unsharded
  // optimizer), on any number of ranks; nothing is communicated, every rank gives the same. Throws
  // as Optimizer::LoadState.
  void LoadState(const optim::OptimizerState& state) override;

  // The optimizer of the pieces: to change its options.
  optim::Optimizer& inner() { return *inner_; }
  const optim::Optimizer& inner() const { return *inner_; }
  // In the order in which they are gathered; `parameters` are indices into parameters().
  const std::vector<PartitionBucket>& buckets() const { return plan_; }

 private:
  struct Bucket {
    RefPtr<Storage> storage;  // the parameters'; pending while they are gathered
    // For the gather: all elements in one dimension, and this rank's part. Of the same memory
    // behind a storage of their own, which is not pending: a backend that runs ops on them would
    // wait for itself.
    Tensor whole, mine;
    std::string text;  // for errors: its first and last parameter
  };
  // Where a parameter lies.
  struct Place {
    size_t bucket = 0;
    int64_t offset = 0;  // in elements
    Tensor piece;        // this rank's
  };

  std::vector<size_t> ForwardOrder(const DistributedDataParallel& ddp) const;
  void VerifySameOnAllRanks(const std::vector<NamedTensors>& groups, int64_t bucket_bytes) const;
  void CheckParameters(const DistributedDataParallel& ddp) const;
  void LayOut(const std::vector<size_t>& order, int64_t bucket_bytes);
  void MoveIntoBucket(size_t bucket);
  void MakeInner(const std::vector<NamedTensors>& groups, const Factory& make_optimizer);

  void CheckPlaces() const;
  bool AgreeOnGradients() const;
  void StepPieces();
  void GatherBuckets();
  void WaitWhereUsed(const Bucket& bucket, const comm::Work& work) const;
  // Elements of a tensor in row-major order; a view where it is contiguous.
  static Tensor FlatRange(const Tensor& tensor, const ElementRange& range);
  ElementRange RangeOn(size_t parameter, int rank) const;
  const std::string& NameOf(size_t parameter) const { return parameters()[parameter].first; }
  const Tensor& ParameterAt(size_t parameter) const { return parameters()[parameter].second; }
  // The parameter that a tensor of the state ("<parameter>.<kind>") belongs to.
  std::optional<size_t> ParameterOf(const std::string& state_name) const;

  const std::shared_ptr<comm::Communicator> group_;
  std::vector<PartitionBucket> plan_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  // of parameters(), in their order
  absl::flat_hash_map<std::string, size_t> index_;
  std::unique_ptr<optim::Optimizer> inner_;
};

// A ZeroOptimizer whose inner optimizer is an `Inner` with these groups and options.
template <typename Inner, typename InnerOptions>
std::unique_ptr<ZeroOptimizer> MakeZeroOptimizer(
    const DistributedDataParallel& ddp,
    const std::vector<optim::ParameterGroup<InnerOptions>>& groups,
    const ZeroOptimizerOptions& options = {}) {
  std::vector<NamedTensors> parameters;
  for (const auto& group : groups) parameters.push_back(group.parameters);
  const auto make = [&groups](const std::vector<NamedTensors>& pieces) {
    std::vector<optim::ParameterGroup<InnerOptions>> inner = groups;
    for (size_t i = 0; i < inner.size(); ++i) inner[i].parameters = pieces[i];
    return std::make_unique<Inner>(inner);
  };
  return std::make_unique<ZeroOptimizer>(ddp, parameters, make, options);
}
template <typename Inner, typename InnerOptions>
std::unique_ptr<ZeroOptimizer> MakeZeroOptimizer(const DistributedDataParallel& ddp,
                                                 const NamedTensors& parameters,
                                                 const InnerOptions& inner_options,
                                                 const ZeroOptimizerOptions& options = {}) {
  return MakeZeroOptimizer<Inner>(
      ddp, std::vector<optim::ParameterGroup<InnerOptions>>{{parameters, inner_options}}, options);
}

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_ZERO_OPTIMIZER_ZERO_OPTIMIZER_H_
