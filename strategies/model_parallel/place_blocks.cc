// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/model_parallel/place_blocks.h"

#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/median.h"
#include "lockstep/nn/buffer_scope.h"
#include "lockstep/strategies/balanced_partition.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

void CheckBlocks(const char* call, const BlockList& blocks) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] == nullptr) {
      throw InvalidArgumentError(
          absl::StrCat(call, ": block ", i, " of ", blocks.size(), " is null"));
    }
  }
}

void CheckMeasurement(const BlockList& blocks, const Tensor& input,
                      const MeasureBlocksOptions& options) {
  CheckBlocks("MeasureBlocks", blocks);
  if (!input.defined()) throw InvalidArgumentError("MeasureBlocks: no input given");
  if (options.repeats < 1 || options.warmups < 0) {
    throw InvalidArgumentError(absl::StrCat("MeasureBlocks: ", options.repeats, " repeats and ",
                                            options.warmups,
                                            " warmups; give at least 1 repeat and 0 warmups"));
  }
  if (!autograd::GradEnabled()) {
    throw FailedPreconditionError(
        "MeasureBlocks: nothing is recorded here; call it outside of NoGradScope and "
        "InferenceScope");
  }
}

// One forward and backward pass; returns the seconds and leaves the block's result in `output`.
double RunOnce(nn::UnaryModule& block, const Tensor& input, Tensor& output) {
  const nn::BufferScope buffers(block);
  Tensor x = Detach(input);
  std::vector<Tensor> targets;
  if (IsFloatingPoint(x.dtype())) targets.push_back(autograd::SetRequiresGrad(x, true));
  for (const Tensor& parameter : block.Parameters()) {
    if (autograd::RequiresGrad(parameter)) targets.push_back(parameter);
  }
  const Stopwatch watch;
  const Tensor result = block(x);
  if (autograd::RequiresGrad(result)) {
    // Not Backward(): gradients that are there stay as they are.
    autograd::Gradients({&result, 1}, targets,
                        {.grad_outputs = {Ones(result.shape(), {result.dtype(), result.device()})},
                         .allow_unused = true});
  }
  const double seconds = watch.ElapsedSeconds();
  output = Detach(result);
  return seconds;
}

}  // namespace

std::vector<Device> PlaceBlocks(absl::Span<const double> costs, absl::Span<const Device> devices) {
  CheckDevices(devices, "PlaceBlocks");
  if (devices.size() > costs.size()) {
    throw InvalidArgumentError(absl::StrCat(
        "PlaceBlocks: ", devices.size(), " devices for ", costs.size(),
        " blocks; each device needs a block: give at most ", costs.size(), " devices"));
  }
  const std::vector<int64_t> counts = BalancedPartition(costs, static_cast<int>(devices.size()));
  std::vector<Device> placed;
  for (size_t k = 0; k < devices.size(); ++k) {
    placed.insert(placed.end(), static_cast<size_t>(counts[k]), devices[k]);
  }
  return placed;
}

std::vector<double> BlockBytes(const BlockList& blocks) {
  CheckBlocks("BlockBytes", blocks);
  std::vector<double> costs;
  absl::flat_hash_set<const TensorImpl*> seen;
  for (const auto& block : blocks) {
    int64_t bytes = 0;
    const auto add = [&](const NamedTensors& tensors) {
      for (const auto& [name, tensor] : tensors) {
        if (seen.insert(&tensor.impl()).second) bytes += tensor.bytes();
      }
    };
    add(block->NamedParameters());
    add(block->NamedBuffers());
    costs.push_back(static_cast<double>(bytes));
  }
  return costs;
}

std::vector<double> MeasureBlocks(const BlockList& blocks, const Tensor& input,
                                  const MeasureBlocksOptions& options) {
  CheckMeasurement(blocks, input, options);
  const ScopedThreadState state(CurrentThreadState());  // drops what the runs draw
  std::vector<double> medians;
  Tensor x = input;
  for (const auto& block : blocks) {
    Tensor output;
    std::vector<double> seconds;
    for (int i = 0; i < options.warmups; ++i) RunOnce(*block, x, output);
    for (int i = 0; i < options.repeats; ++i) seconds.push_back(RunOnce(*block, x, output));
    medians.push_back(Median(seconds));
    x = output;
  }
  return medians;
}

}  // namespace lockstep::strategies
