// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Transport: how the ranks of a pipeline hand tensors to each other. One rank's end of one run.
//
//   transport.Send({.channel = 2, .micro_batch = 0, .peer = 1}, {{output}, {true}});
//   ...
//   transport.Expect({.channel = 2, .micro_batch = 0, .peer = 0});      // on rank 1
//   Letter letter = transport.Take({.channel = 2, .micro_batch = 0, .peer = 0});
//
// What is received counts under the memory category of the thread that sends it (threads) or
// expects it (ranks). Used by one thread, that of the rank. Two kinds: threads of one process
// (thread_transport.h), and the ranks of a communicator (communicator_transport.h).
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_TRANSPORT_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_TRANSPORT_H_

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline {

// What one rank hands to another: shapes, dtypes and the number of tensors differ freely from one
// letter to the next.
struct Letter {
  std::vector<Tensor> tensors;       // outside the graph of gradients; undefined ones arrive so
  std::vector<bool> wants_gradient;  // of each, whether its gradient is to be sent back
};

// Names a letter. Channels are numbered alike on all ranks; a letter is sent once a run.
struct Address {
  int channel = 0;
  int micro_batch = 0;
  int peer = 0;  // the rank at the other end
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Starts sending; never waits for the peer. The tensors are not written afterwards.
  virtual void Send(const Address& to, Letter letter) = 0;
  // Starts receiving. Letters from one rank are expected in the order in which it sends them.
  virtual void Expect(const Address& from) = 0;
  // Waits for a letter that is expected; its tensors are on this rank's device. Throws what has
  // failed the run elsewhere, and DeadlineExceeded when it does not come in time.
  virtual Letter Take(const Address& from) = 0;
  // Waits until the peers have what was sent. Throws as Take.
  virtual void Finish() = 0;
  // Throws what has failed the run elsewhere, where that is known without a wait.
  virtual void Check() {}
  // Ends the run on all ranks: what they wait for, here and there, throws. Never waits for a peer.
  virtual void Fail(const Error& reason) = 0;
};

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_TRANSPORT_H_
