// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/buffer_sync.h"

#include <utility>

#include "lockstep/autograd/grad_mode.h"
#include "lockstep/strategies/parameter_sync.h"

namespace lockstep::strategies {

BufferSync::BufferSync(NamedTensors buffers, std::shared_ptr<comm::Communicator> group,
                       std::shared_ptr<const Reducer> reducer, bool due)
    : buffers_(std::move(buffers)),
      group_(std::move(group)),
      reducer_(std::move(reducer)),
      synced_at_pass_(due ? -1 : 0) {}

void BufferSync::BeforeForward(const nn::Module& module) {
  if (!module.training() || !autograd::GradEnabled() || !reducer_->synchronizes()) return;
  if (reducer_->passes() == synced_at_pass_) return;
  Broadcast(announce_ ? announce_() : 0);
}

void BufferSync::Broadcast(int root) {
  BroadcastTensors(buffers_, *group_, root);
  synced_at_pass_ = reducer_->passes();
}

}  // namespace lockstep::strategies
