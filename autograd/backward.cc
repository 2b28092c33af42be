// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/backward.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/engine.h"
#include "lockstep/autograd/grad_state.h"
#include "lockstep/autograd/meta.h"
#include "lockstep/autograd/roots.h"
#include "lockstep/base/error.h"

namespace lockstep::autograd {

void Backward(const Tensor& output, const BackwardOptions& options) {
  Backward(absl::MakeConstSpan(&output, 1), options);
}

void Backward(TensorSpan outputs, const BackwardOptions& options) {
  internal::EngineRequest request;
  request.seeds = internal::MakeSeeds(outputs, options.gradients, "Backward");
  request.targets = internal::MakeTargets(options.inputs, "Backward");
  for (size_t i = 0; i < request.targets.size(); ++i) {
    if (request.targets[i].leaf.defined()) continue;
    throw InvalidArgumentError(
        absl::StrCat("Backward: input ", i, " (", options.inputs[i].DebugString(), ") is made by ",
                     request.targets[i].node->Name(), " and not a leaf; use Gradients() for it"));
  }
  request.create_graph = options.create_graph;
  request.keep_graph = options.retain_graph.value_or(options.create_graph);
  internal::RunEngine(std::move(request));
}

std::vector<Tensor> Gradients(TensorSpan outputs, TensorSpan inputs,
                              const GradientsOptions& options) {
  if (inputs.empty()) throw InvalidArgumentError("Gradients: no inputs given");
  internal::EngineRequest request;
  request.seeds = internal::MakeSeeds(outputs, options.grad_outputs, "Gradients");
  request.targets = internal::MakeTargets(inputs, "Gradients");
  request.capture = true;
  request.create_graph = options.create_graph;
  request.keep_graph = options.retain_graph.value_or(options.create_graph);
  std::vector<Tensor> gradients = internal::RunEngine(std::move(request));
  for (size_t i = 0; i < gradients.size() && !options.allow_unused; ++i) {
    if (gradients[i].defined()) continue;
    throw InvalidArgumentError(absl::StrCat("Gradients: the outputs do not depend on input ", i,
                                            " (", inputs[i].DebugString(),
                                            "); set allow_unused for an undefined result"));
  }
  return gradients;
}

void QueueEndOfBackward(std::function<void()> callback) {
  const internal::GradState* state = internal::CurrentGradState();
  if (state != nullptr && state->run) {
    std::lock_guard<std::mutex> lock(state->run->mutex);
    if (!state->run->finished) {
      state->run->callbacks.push_back(std::move(callback));
      return;
    }
  }
  throw FailedPreconditionError(
      "QueueEndOfBackward: this thread is not inside of a backward; call it from a hook or a "
      "backward function");
}

bool BackwardReaches(const Tensor& leaf) {
  const internal::GradState* state = internal::CurrentGradState();
  if (state != nullptr && state->run) {
    std::lock_guard<std::mutex> lock(state->run->mutex);
    if (state->run->reaches) {
      const internal::Edge edge = internal::EdgeOf(leaf);
      return edge.valid() && state->run->reaches(edge.target());
    }
  }
  throw FailedPreconditionError(
      "BackwardReaches: this thread is not inside of a backward; call it from a hook or a backward "
      "function");
}

bool InBackward() {
  const internal::GradState* state = internal::CurrentGradState();
  if (state == nullptr || !state->run) return false;
  std::lock_guard<std::mutex> lock(state->run->mutex);
  return !state->run->finished;
}

}  // namespace lockstep::autograd
