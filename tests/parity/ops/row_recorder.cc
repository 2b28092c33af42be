// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tests/parity/ops/row_recorder.h"

#include "lockstep/autograd/backward.h"

namespace lockstep::parity {
namespace {

RowRecorder*& Active() {
  static RowRecorder* active = nullptr;
  return active;
}

}  // namespace

RowRecorder::RowRecorder() : scope_(DispatchLayer::kUser, true) {
  static const bool kRegistered = [] {
    RegisterLayer(DispatchLayer::kUser, &RowRecorder::Record, /*on_by_default=*/false);
    return true;
  }();
  (void)kRegistered;
  Active() = this;
}

RowRecorder::~RowRecorder() { Active() = nullptr; }

TensorList RowRecorder::Record(const OpCall& call) {
  TensorList outputs = DispatchBelow(DispatchLayer::kUser, call);
  Active()->calls_.push_back(
      {call.op, autograd::InBackward(), std::vector<Tensor>(call.inputs.begin(), call.inputs.end()),
       call.scalars, call.attributes.Clone(), std::vector<Tensor>(outputs.begin(), outputs.end())});
  return outputs;
}

}  // namespace lockstep::parity
