// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/thread_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::pipeline {
namespace {

// Alone on `device`, outside of the graph: what the receiver does to it does not reach the sender.
Tensor OnDevice(const Tensor& tensor, Device device) {
  if (!tensor.defined()) return tensor;
  return tensor.device() == device ? Detach(tensor) : To(tensor, device);
}

}  // namespace

ThreadPost::ThreadPost(std::vector<Device> devices, int channels, int micro_batches)
    : devices_(std::move(devices)),
      micro_batches_(micro_batches),
      slots_(static_cast<size_t>(channels) * static_cast<size_t>(micro_batches)) {
  for (size_t i = 0; i < devices_.size(); ++i) boxes_.push_back(std::make_unique<Box>());
}

ThreadPost::Slot& ThreadPost::SlotOf(const Address& address) {
  return slots_[static_cast<size_t>(address.channel) * static_cast<size_t>(micro_batches_) +
                static_cast<size_t>(address.micro_batch)];
}

void ThreadPost::Put(const Address& to, Letter letter) {
  const auto peer = static_cast<size_t>(to.peer);
  {
    const autograd::NoGradScope no_grad;
    for (Tensor& tensor : letter.tensors) tensor = OnDevice(tensor, devices_[peer]);
  }
  Box& box = *boxes_[peer];
  {
    std::lock_guard<std::mutex> lock(box.mutex);
    if (box.failed) return;
    Slot& slot = SlotOf(to);
    slot.letter = std::move(letter);
    slot.full = true;
  }
  box.arrived.notify_one();
}

Letter ThreadPost::Take(int rank, const Address& from) {
  Box& box = *boxes_[static_cast<size_t>(rank)];
  Slot& slot = SlotOf(from);
  std::unique_lock<std::mutex> lock(box.mutex);
  box.arrived.wait(lock, [&] { return slot.full || box.failed; });
  if (box.failed) {
    lock.unlock();
    ThrowStopped();
  }
  slot.full = false;
  return std::exchange(slot.letter, {});
}

void ThreadPost::Fail(const Error& reason) {
  {
    std::lock_guard<std::mutex> lock(failure_mutex_);
    if (failure_.has_value()) return;
    failure_ = reason;
    failed_.store(true, std::memory_order_release);
  }
  for (const std::unique_ptr<Box>& box : boxes_) {
    {
      std::lock_guard<std::mutex> lock(box->mutex);
      box->failed = true;
    }
    box->arrived.notify_all();
  }
}

void ThreadPost::Check() const {
  if (failed_.load(std::memory_order_acquire)) ThrowStopped();
}

void ThreadPost::ThrowStopped() const {
  std::lock_guard<std::mutex> lock(failure_mutex_);
  throw AbortedError(absl::StrCat("stopped: ", failure_->message()));
}

}  // namespace lockstep::pipeline
