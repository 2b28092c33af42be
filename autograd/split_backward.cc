// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/split_backward.h"

#include <utility>

#include "lockstep/autograd/engine.h"
#include "lockstep/autograd/roots.h"
#include "lockstep/base/error.h"

namespace lockstep::autograd {

struct SplitBackward::State {
  enum class Phase { kInputs, kWeights, kDone };

  std::vector<internal::Seed> seeds;
  std::vector<internal::Edge> targets;
  internal::EngineRequest::Rest rest;
  Phase phase = Phase::kInputs;
};

SplitBackward::SplitBackward(TensorSpan outputs, TensorSpan inputs,
                             const SplitBackwardOptions& options)
    : state_(std::make_unique<State>()) {
  if (inputs.empty()) {
    throw InvalidArgumentError("SplitBackward: no inputs given; use Backward() for a first stage");
  }
  state_->seeds = internal::MakeSeeds(outputs, options.gradients, "SplitBackward");
  state_->targets = internal::MakeTargets(inputs, "SplitBackward");
}

SplitBackward::~SplitBackward() = default;
SplitBackward::SplitBackward(SplitBackward&&) noexcept = default;
SplitBackward& SplitBackward::operator=(SplitBackward&&) noexcept = default;

std::vector<Tensor> SplitBackward::RunInputs() {
  if (state_->phase != State::Phase::kInputs) {
    throw FailedPreconditionError("SplitBackward::RunInputs: has run already; run it once");
  }
  // Not to be tried again after an error: part of the graph is freed.
  state_->phase = State::Phase::kDone;
  internal::EngineRequest request;
  request.seeds = std::move(state_->seeds);
  request.targets = std::move(state_->targets);
  request.capture = true;
  request.rest = &state_->rest;
  std::vector<Tensor> gradients = internal::RunEngine(std::move(request));
  state_->phase = State::Phase::kWeights;
  return gradients;
}

void SplitBackward::RunWeights() {
  if (state_->phase != State::Phase::kWeights) {
    throw FailedPreconditionError(
        "SplitBackward::RunWeights: runs once, after RunInputs() has succeeded");
  }
  state_->phase = State::Phase::kDone;
  internal::EngineRequest request;
  request.seeds = std::move(state_->rest.seeds);
  request.calls = std::move(state_->rest.calls);
  internal::RunEngine(std::move(request));
}

}  // namespace lockstep::autograd
