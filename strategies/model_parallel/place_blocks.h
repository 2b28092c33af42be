// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which block of a model goes to which device: contiguous parts, the costliest as cheap as it can
// be.
//
//   nn::Sequential net = ...;
//   const BlockList blocks = BlocksOf(net);
//   std::vector<Device> devices = CpuDevices(2);
//   PlaceBlocks(std::vector<double>(blocks.size(), 1), devices);   // by number
//   PlaceBlocks(BlockBytes(blocks), devices);                      // by bytes of parameters
//   PlaceBlocks(MeasureBlocks(blocks, x), devices);                // by time
#ifndef LOCKSTEP_STRATEGIES_MODEL_PARALLEL_PLACE_BLOCKS_H_
#define LOCKSTEP_STRATEGIES_MODEL_PARALLEL_PLACE_BLOCKS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// The device of each block: the blocks are cut as BalancedPartition (balanced_partition.h) cuts
// them, part k for devices[k]. Costs are in any unit. Throws InvalidArgument with the numbers for
// more devices than blocks and costs that are negative or not finite, and as CheckDevices
// (data_parallel/device_list.h) does: no devices, one given twice, meta or host.
std::vector<Device> PlaceBlocks(absl::Span<const double> costs, absl::Span<const Device> devices);

using BlockList = std::vector<std::shared_ptr<nn::UnaryModule>>;

// The modules of an nn::Sequential or nn::ModuleList, in order.
template <typename List>
BlockList BlocksOf(const List& list) {
  BlockList blocks;
  for (size_t i = 0; i < list.size(); ++i) blocks.push_back(list[i]);
  return blocks;
}

// Bytes of each block's parameters and buffers. What two blocks share counts for the first.
std::vector<double> BlockBytes(const BlockList& blocks);

struct MeasureBlocksOptions {
  int repeats = 5;  // counted runs, of which the median is taken
  int warmups = 1;  // runs before them
};

// Seconds of a forward and a backward pass of each block, where the first gets `input` and each
// other one what the one before returned. A block without gradients takes its forward pass only.
// Scopes of the caller hold (autocast).
//
// Parameters, gradients, buffers and random streams are afterwards as they were. Hooks of the
// blocks run in each run. Throws InvalidArgument (a null block, no input, counts out of range),
// FailedPrecondition (nothing is recorded here), and what the blocks throw.
std::vector<double> MeasureBlocks(const BlockList& blocks, const Tensor& input,
                                  const MeasureBlocksOptions& options = {});

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_MODEL_PARALLEL_PLACE_BLOCKS_H_
