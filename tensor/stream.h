// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Streams and events. The current stream is part of thread state and never an argument of an op.
//
// A CPU device has two streams: compute (id 0), which is the calling thread itself, and copy (id
// 1), a worker thread that runs what is enqueued in order. Work on the compute stream is done when
// the call returns.
//
//   Stream copy = Stream::Copy(Cpu(0));
//   Event event = copy.Enqueue([&] { ... });
//   event.Wait();             // blocks this thread; rethrows what the work threw
#ifndef LOCKSTEP_TENSOR_STREAM_H_
#define LOCKSTEP_TENSOR_STREAM_H_

#include <exception>
#include <functional>
#include <memory>

#include "lockstep/tensor/device.h"

namespace lockstep {

// A point in a stream's work. Copies share it. A default Event is complete.
class Event {
 public:
  Event() = default;
  // Whether everything before the event is done. Never blocks or throws.
  bool IsComplete() const;
  // Blocks until complete; rethrows the exception of the work it stands for, every time.
  void Wait() const;

  // For whoever makes events: an incomplete event, and its completion (once).
  static Event MakePending();
  void Complete(std::exception_ptr error = nullptr);

  // The same point, not just an equal one.
  friend bool operator==(const Event&, const Event&) = default;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

struct Stream {
  Device device;
  int id = 0;

  static Stream Compute(Device device) { return {device, 0}; }
  static Stream Copy(Device device) { return {device, 1}; }

  // Runs `work` in order after what was enqueued before, under the caller's thread state; on a
  // compute stream of the CPU at once, on the calling thread. The event completes, with what `work`
  // threw, after `work` has been destroyed: what it holds is released by then.
  // Throws Unimplemented for devices whose backend is not linked.
  Event Enqueue(std::function<void()> work) const;
  // An event that completes after all work enqueued so far. It does not repeat that work's errors.
  Event Record() const;
  // Makes later work of this stream start after `event`.
  void WaitFor(const Event& event) const;
  // Blocks until everything enqueued is done.
  void Synchronize() const;

  friend bool operator==(const Stream&, const Stream&) = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_STREAM_H_
