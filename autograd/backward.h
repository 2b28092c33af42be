// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Running the recorded graph backward.
//
//   Backward(loss);                                                  // adds into Grad() of leaves
//   std::vector<Tensor> dx = Gradients({y}, {x}, {.create_graph = true});
//   Backward(Sum(Mul(dx[0], dx[0])));                                // a gradient of a gradient
//
// A graph on one device runs on the calling thread; one over several devices uses a worker thread
// for each further device. Later forward ops run first. Each backward op runs under the thread
// state of its forward op (autocast, device, threads) and allocates as MemoryCategory::kBackward.
// The first exception stops the rest and is rethrown when all workers are idle; leaves that were
// reached by then keep what was added. May be called from several threads at once, also on graphs
// that share leaves, and from inside hooks and backward functions.
#ifndef LOCKSTEP_AUTOGRAD_BACKWARD_H_
#define LOCKSTEP_AUTOGRAD_BACKWARD_H_

#include <functional>
#include <optional>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd {

struct BackwardOptions {
  // d(something)/d(output), one for each output; empty, or undefined entries, mean 1 for outputs of
  // one element.
  std::vector<Tensor> gradients = {};
  // Keeps what the graph saved, for another backward over it. Default: create_graph.
  std::optional<bool> retain_graph = std::nullopt;
  // Records the backward ops themselves. The gradients in Grad() then have a history that holds the
  // leaves: drop them with SetGrad(leaf, {}) when done, else neither is ever freed. Gradients() has
  // no such cycle.
  bool create_graph = false;
  // Leaves to accumulate into; empty means all that are reached. Only what leads to them runs.
  std::vector<Tensor> inputs = {};
};

// Adds the gradients of the outputs' sum into Grad() of the leaves. Throws InvalidArgument
// (gradients that do not fit, several elements without a gradient, an input that is not a leaf),
// FailedPrecondition (an output without history, a graph that was freed, a saved tensor modified in
// place), and what hooks and backward functions throw.
void Backward(const Tensor& output, const BackwardOptions& options = {});
void Backward(TensorSpan outputs, const BackwardOptions& options = {});

struct GradientsOptions {
  std::vector<Tensor> grad_outputs = {};  // as BackwardOptions::gradients
  std::optional<bool> retain_graph = std::nullopt;
  bool create_graph = false;
  bool allow_unused = false;  // undefined results instead of an error
};

// The gradients of the outputs' sum for each of `inputs` (leaves or not), without touching any
// Grad(). Throws as Backward, and InvalidArgument for an input that does not require a gradient or
// that the outputs do not depend on (unless allow_unused).
std::vector<Tensor> Gradients(TensorSpan outputs, TensorSpan inputs,
                              const GradientsOptions& options = {});

// Runs `callback` on the thread that called the outermost Backward, when it is complete and before
// it returns; in the order queued; not after an error. For hooks and backward functions. Throws
// FailedPrecondition outside of a backward.
void QueueEndOfBackward(std::function<void()> callback);

// Whether the outermost Backward that this thread is inside of will reach `leaf`, or has: false for
// a leaf that its graph does not lead to. What backward functions run by themselves (a Backward
// inside) does not count. Throws FailedPrecondition outside of a backward.
bool BackwardReaches(const Tensor& leaf);

// Whether this thread is inside of a backward.
bool InBackward();

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_BACKWARD_H_
