// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// When a module's buffers go from rank 0 to the others.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_BUFFER_SYNC_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_BUFFER_SYNC_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/distributed_data_parallel/reducer.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::strategies {

class BufferSync {
 public:
  // `due` says whether the first forward pass has to broadcast already.
  BufferSync(NamedTensors buffers, std::shared_ptr<comm::Communicator> group,
             std::shared_ptr<const Reducer> reducer, bool due);

  // Before each forward pass of `module`: broadcasts in training with recording on, outside of
  // NoSync, once after each synchronised backward. Once: a second forward pass before the same
  // backward must not change what the first one has saved.
  void BeforeForward(const nn::Module& module);
  void Broadcast(int root = 0);

  // For uneven inputs: called before each broadcast of BeforeForward(); returns the rank to send.
  // Null: none, and rank 0.
  void SetAnnouncement(std::function<int()> announce) { announce_ = std::move(announce); }

 private:
  const NamedTensors buffers_;
  const std::shared_ptr<comm::Communicator> group_;
  const std::shared_ptr<const Reducer> reducer_;
  std::function<int()> announce_;
  int64_t synced_at_pass_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_BUFFER_SYNC_H_
