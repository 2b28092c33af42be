// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Activation checkpointing: a region of the forward pass keeps its inputs instead of what its ops
// save for their gradients, and runs once more when a backward needs that.
//
//   Tensor y = Checkpoint([&](const Tensor& x) { return (*block)(x); }, x);
//
//   TensorList both = Checkpoint(
//       [block, mask](TensorSpan in) -> TensorList { return block->Run(in[0], in[1], mask); },
//       {x, memory});
//
//   Tensor z = CheckpointSequential(layers, /*segments=*/4, x);   // layers: an nn::Sequential
//
// Loss, gradients, buffers and random streams are bitwise those of the same region without
// checkpointing. The second run has the thread state of the first (random streams, autocast,
// device, intra-op threads, recording), on whatever thread the backward is, and leaves the caller's
// as it is. Parameters that the region uses get their gradients whatever the inputs require.
// Regions nest; Gradients(), create_graph, several backwards over a retained graph, and backwards
// on several threads work as without checkpointing. What has been recomputed is then an ordinary
// saved tensor: kept until a backward without retain_graph has used it, or the graph goes.
//
// What the region does besides computing happens twice. Statistics, counters and logs belong under
// `if (!Recomputing())` (recomputing.h). Forward hooks of modules inside the region run twice, too.
// Code that catches everything (`catch (...)`) around ops in a region must rethrow: the second run
// ends by an exception of no standard type, as soon as it has what is needed.
#ifndef LOCKSTEP_CHECKPOINT_CHECKPOINT_H_
#define LOCKSTEP_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/checkpoint/op_policy.h"
#include "lockstep/checkpoint/recomputing.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::checkpoint {

struct CheckpointOptions {
  // Ends the second run when everything that is still needed exists. Off: it runs to the end.
  bool early_stop = true;
  // Compares count, op, shape, dtype and device of what the second run saves with the first.
  bool check_metadata = true;
  // Compares a hash of every saved tensor, too: for finding a region that is not a function of its
  // inputs. Reads every saved tensor twice.
  bool verify_values = false;
  // What to keep of the region's results (selective checkpointing); empty: nothing.
  OpPolicy policy = nullptr;
  // Generators that the region draws from besides the thread's: their positions are put back for
  // the second run, and then to what they were. They must outlive the graph.
  std::vector<Generator*> generators = {};
};

// The region. Called once in the forward pass and at most once more a backward, so what it captures
// by reference must live until then; captured tensors and shared_ptrs live as long as the graph.
using CheckpointFunction = std::function<TensorList(TensorSpan inputs)>;

// Runs `fn`. `inputs` may be undefined, and count in autograd::SavedBytes() while the graph holds
// them; other arguments are what `fn` captures. Without recording (NoGradScope) this is fn(inputs).
//
// Throws InvalidArgument for an empty function or a null generator, FailedPrecondition when fn
// changes an input in place, and what fn throws. A backward throws FailedPrecondition when an input
// or a parameter that an op has saved was changed in place since, or when the second run differs
// from the first (the message names the ops), and what fn throws in its second run; the graph is as
// it was then.
TensorList Checkpoint(CheckpointFunction fn, TensorSpan inputs,
                      const CheckpointOptions& options = {});
// One tensor in, one out.
Tensor Checkpoint(std::function<Tensor(const Tensor&)> fn, const Tensor& input,
                  const CheckpointOptions& options = {});

// Runs `functions` one after the other, in `segments` checkpointed regions of equal length (the
// first ones are longer by one where it does not divide). The last region is checkpointed too.
// Throws InvalidArgument unless 1 <= segments <= number of functions, and for an empty function.
Tensor CheckpointSequential(const std::vector<std::function<Tensor(const Tensor&)>>& functions,
                            int64_t segments, const Tensor& input,
                            const CheckpointOptions& options = {});
// The graph keeps the modules alive.
Tensor CheckpointSequential(const std::vector<std::shared_ptr<nn::UnaryModule>>& modules,
                            int64_t segments, const Tensor& input,
                            const CheckpointOptions& options = {});
Tensor CheckpointSequential(const nn::Sequential& modules, int64_t segments, const Tensor& input,
                            const CheckpointOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_CHECKPOINT_H_
