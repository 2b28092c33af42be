// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the graph keeps for its gradients: how much, and a place to put it elsewhere (on the host,
// in a lower precision, or nowhere: recomputed).
//
//   SavedTensorHooksScope scope(
//       [](const Tensor& t) -> PackedTensor { return std::make_shared<Tensor>(To(t, kHost)); },
//       [](const PackedTensor& p) { return To(*static_cast<const Tensor*>(p.get()), Cpu(0)); });
//   Tensor y = model.Forward(x);
#ifndef LOCKSTEP_AUTOGRAD_SAVED_TENSOR_HOOKS_H_
#define LOCKSTEP_AUTOGRAD_SAVED_TENSOR_HOOKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "lockstep/tensor/device.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::autograd {

// Whatever pack made of a tensor.
using PackedTensor = std::shared_ptr<const void>;
// Called once for each tensor that an op saves: inputs right before the op runs, results right
// after. The tensor has no history; a
// leaf that requires a gradient (a parameter) is given as itself, so that it can be told apart
// with RequiresGrad(). Runs without recording.
using PackHook = std::function<PackedTensor(const Tensor& tensor)>;
// Called each time a backward needs the tensor; returns one of the same shape, dtype and device.
// Runs without recording.
using UnpackHook = std::function<Tensor(const PackedTensor& packed)>;

// Scope: tensors saved by ops of this thread go through the hooks; the innermost scope counts. The
// graph then holds what pack returned and not the tensor; unpack may be called after the scope, on
// another thread. What hooks throw ends the op or the backward. Tensors that went through hooks
// have no version check: what unpack returns is used.
class SavedTensorHooksScope {
 public:
  // Throws InvalidArgument when a hook is empty.
  SavedTensorHooksScope(PackHook pack, UnpackHook unpack);
  ~SavedTensorHooksScope();
  SavedTensorHooksScope(const SavedTensorHooksScope&) = delete;
  SavedTensorHooksScope& operator=(const SavedTensorHooksScope&) = delete;

 private:
  std::shared_ptr<const LayerState> saved_;
};

// Bytes of the storages that graphs keep alive for their gradients, each storage once; on all
// devices or on one. Leaves that require gradients, which live anyway, and packed tensors do not
// count. Freed by a backward without retain_graph, or with the graph.
int64_t SavedBytes(std::optional<Device> device = std::nullopt);
// The largest SavedBytes(device) since the start or the last reset, which restarts it from the
// current bytes.
int64_t PeakSavedBytes(Device device);
void ResetPeakSavedBytes(Device device);

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_SAVED_TENSOR_HOOKS_H_
