// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// ShardedCommunicationHook: how the gradients of a unit become averages over the ranks, of which
// each keeps a part. What CommunicationHook (distributed_data_parallel/communication_hook.h) is to
// DistributedDataParallel.
//
//   class Halved : public strategies::ShardedCommunicationHook {
//     comm::Work ReduceScatter(const strategies::UnitGradients& unit,
//                              comm::Communicator& group) override {
//       MulInPlace(unit.whole, 0.5);
//       return group.ReduceScatter(unit.whole, unit.part,
//                                  {.op = comm::ReduceOp::kAverage, .tag = unit.tag});
//     }
//     comm::Work AllReduce(const strategies::UnitGradients& unit,
//                          comm::Communicator& group) override {
//       return group.AllReduce(unit.part, {.op = comm::ReduceOp::kAverage, .tag = unit.tag});
//     }
//   };
//
// Every rank gives a hook of the same kind and options. One that keeps something between calls
// belongs to one FullyShardedDataParallel. ShardingTotals::reduced_bytes are those of the sums,
// whatever a hook sends.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_SHARDED_COMMUNICATION_HOOK_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_SHARDED_COMMUNICATION_HOOK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// The gradients of those parameters of a unit that are flattened together, in reduce_dtype.
struct UnitGradients {
  std::string unit;  // its path
  // For the collectives: ranks that use units in different orders get an error then.
  int64_t tag = 0;
  // This rank's sums of all elements, [n * ranks], padding of zeros included, not divided by
  // anything. May be written. In AllReduce() the same as `part`.
  Tensor whole;
  Tensor part;  // this rank's n elements
};

// Calls of different units may be under way at once; those of one never are.
class ShardedCommunicationHook {
 public:
  virtual ~ShardedCommunicationHook() = default;

  // Starts what makes `part` the average over the ranks of `group`, which share the parameters, of
  // its elements of `whole`, and returns a work that is complete when it is. Called unit by unit in
  // one order on all ranks, on the thread that runs backward, without recording. What it throws
  // ends the backward on all ranks.
  virtual comm::Work ReduceScatter(const UnitGradients& unit, comm::Communicator& group) = 0;

  // Starts what makes `part` its average over the ranks of `group`, which have the same part: after
  // ReduceScatter() with the hybrid strategies, then on a thread of the group of those that share
  // (under the rules of comm::Work::OnComplete), and instead of it with kNoShard.
  virtual comm::Work AllReduce(const UnitGradients& unit, comm::Communicator& group) = 0;
};

// Rounds gradients to a 16-bit type, averages that and converts it back, as CompressionHook: they
// are added up, and kept, in reduce_dtype, and half of its bytes travel. Rounds once more between
// the halves of a hybrid's reduction. Gradients of that type already go as they are. Keeps buffers
// of the compressed size of as many units as are reduced at once.
class ShardedCompressionHook final : public ShardedCommunicationHook {
 public:
  // Throws InvalidArgument unless `dtype` is float16 or bfloat16.
  explicit ShardedCompressionHook(DType dtype);
  ~ShardedCompressionHook() override;

  comm::Work ReduceScatter(const UnitGradients& unit, comm::Communicator& group) override;
  comm::Work AllReduce(const UnitGradients& unit, comm::Communicator& group) override;

 private:
  class Buffers;

  const DType dtype_;
  const std::shared_ptr<Buffers> buffers_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_SHARDED_COMMUNICATION_HOOK_H_
