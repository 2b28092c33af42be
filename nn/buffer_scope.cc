// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/nn/buffer_scope.h"

#include "lockstep/autograd/grad_mode.h"
#include "lockstep/tensor/ops/elementwise.h"

namespace lockstep::nn {

BufferScope::BufferScope(const Module& module) {
  autograd::NoGradScope no_grad;
  for (const auto& [name, buffer] : module.NamedBuffers()) {
    saved_.emplace_back(buffer, Clone(buffer));
  }
}

BufferScope::~BufferScope() {
  autograd::NoGradScope no_grad;
  for (const auto& [buffer, value] : saved_) CopyInto(buffer, value);
}

}  // namespace lockstep::nn
