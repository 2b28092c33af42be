// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// ParallelApply: one function a device, each on a thread of its own.
//
//   std::vector<TensorTree> outputs = ParallelApply(
//       {[&](const TensorTree& in) { return first(in.tensor()); },
//        [&](const TensorTree& in) { return second(in.tensor()); }},
//       {x, y}, CpuDevices(2));
//
// A function runs under the caller's thread state (gradients, autocast, observers) with its device
// as the current one, and:
//
// * the caller's intra-op threads divided by the number of functions, at least one (or what the
//   options say);
// * random streams of its own. Function k of n has dropout stream r * n + k, where r is the
//   caller's: with the caller at rank 0, those of n ranks of a DistributedDataParallel. Its data
//   stream differs from the caller's unless k = 0; the parameter stream is the same for all.
//   Afterwards the caller's generators are as far as the furthest of the functions', so that runs
//   that begin with the same generators are the same.
//
// Function 0 runs on the calling thread, the others on threads that stay for the next call.
//
// Where saved-tensor hooks are in force (inside of Checkpoint(), under offload), functions run one
// after the other on the calling thread: hooks see tensors in an order that a second run repeats.
// To have both, checkpoint inside of the functions.
#ifndef LOCKSTEP_STRATEGIES_DATA_PARALLEL_PARALLEL_APPLY_H_
#define LOCKSTEP_STRATEGIES_DATA_PARALLEL_PARALLEL_APPLY_H_

#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/tensor_tree.h"

namespace lockstep::strategies {

using ReplicaFunction = std::function<TensorTree(const TensorTree& input)>;

struct ParallelApplyOptions {
  int threads_per_device = 0;  // intra-op threads; 0: the caller's, divided
};

// The results of functions[i](inputs[i]) on devices[i]. Returns when all are over.
//
// When functions throw, the exception of the first of them in the order of devices is thrown, as an
// Error of the same code with "replica 1 of 3 on cpu:1: " before its message; another
// std::exception becomes an Internal error, with the original nested in it.
//
// Throws InvalidArgument when the numbers differ, for an empty function, a negative number of
// threads, and as CheckDevices (device_list.h) does.
std::vector<TensorTree> ParallelApply(absl::Span<const ReplicaFunction> functions,
                                      absl::Span<const TensorTree> inputs,
                                      absl::Span<const Device> devices,
                                      const ParallelApplyOptions& options = {});

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DATA_PARALLEL_PARALLEL_APPLY_H_
