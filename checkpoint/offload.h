// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Activation offload: what ops save for their gradients waits on the `host` device and comes back
// during the backward.
//
//   Tensor loss;
//   {
//     OffloadActivations offload({.min_bytes = 1 << 20, .prefetch = 4});
//     loss = model.Loss(ids, targets);
//   }
//   Backward(loss);
//
// Copies run on the copy stream beside the computation. Results are bitwise those without it. The
// host copies count in GetMemoryStats(kHost) and autograd::SavedBytes(kHost), and go with the graph
// or with a backward without retain_graph.
//
// Around checkpointed regions the inputs that they keep are offloaded; inside of a region, the
// scope offloads what the region's ops save, in both runs.
#ifndef LOCKSTEP_CHECKPOINT_OFFLOAD_H_
#define LOCKSTEP_CHECKPOINT_OFFLOAD_H_

#include <cstdint>
#include <memory>

#include "lockstep/autograd/saved_tensor_hooks.h"

namespace lockstep::checkpoint {

struct OffloadOptions {
  // Storages of fewer bytes stay where they are.
  int64_t min_bytes = 64 << 10;
  // How many storages to bring back ahead of the one that the backward asks for; 0: none, each is
  // fetched when it is needed.
  int64_t prefetch = 2;
  // Copies to the host that may be under way; the next one waits for the oldest.
  int64_t max_in_flight = 4;
};

// Scope, as SavedTensorHooksScope: the innermost of both kinds counts. Each storage moves once,
// however many saved tensors are views of it. Not moved: leaves that require gradients and storages
// of category parameter, gradient, optimizer or communication; what is on the host or meta device.
// A storage that something else holds, too (a tensor of the caller's), stays in memory there.
//
// A saved tensor that is changed in place inside of the scope, while its memory is there, is an
// error in the backward (FailedPrecondition) as without offload; later the host has the right
// values.
class OffloadActivations {
 public:
  // Throws InvalidArgument for a negative min_bytes or prefetch, or max_in_flight below 1.
  explicit OffloadActivations(const OffloadOptions& options = {});
  // Waits for the copies under way.
  ~OffloadActivations();
  OffloadActivations(const OffloadActivations&) = delete;
  OffloadActivations& operator=(const OffloadActivations&) = delete;

  // Bytes that went to the host within this scope so far.
  int64_t offloaded_bytes() const;

 private:
  class Session;
  std::shared_ptr<Session> session_;
  std::unique_ptr<autograd::SavedTensorHooksScope> scope_;
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_OFFLOAD_H_
