// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/queued_communicator.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/tensor_memory.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::comm {

namespace {

// Replaces strided tensors by row-major ones: a copy of the input, and an output whose elements go
// to `unpack_to` in the end.
void MakeRowMajor(Collective* collective, Tensor* unpack_to) {
  Tensor& input = collective->input;
  Tensor& output = collective->output;
  const bool in_place = input.defined() && output.defined() && input.IsSame(output);
  if (input.defined() && !input.is_contiguous()) input = Pack(input);
  if (!output.defined() || output.is_contiguous()) return;
  *unpack_to = output;
  if (in_place) {
    output = input;
    return;
  }
  CategoryScope category(MemoryCategory::kCommunication);
  output = Empty(ShapeSpan(output.shape()), {output.dtype(), output.device()});
}

}  // namespace

QueuedCommunicator::QueuedCommunicator(int rank, int size, std::string group_name,
                                       absl::Duration timeout)
    : Communicator(rank, size, std::move(group_name), timeout) {
  thread_ = std::thread([this] { RunQueue(); });
}

QueuedCommunicator::~QueuedCommunicator() = default;

void QueuedCommunicator::StopQueue() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void QueuedCommunicator::CheckAllocation(int64_t bytes) const {
  if (bytes < 0) {
    throw InvalidArgumentError(absl::StrCat("Communicator::Allocate: ", bytes, " bytes"));
  }
  if (CurrentDevice().type != DeviceType::kCpu) {
    throw InvalidArgumentError(absl::StrCat("Communicator::Allocate: the ", backend(),
                                            " backend has memory of CPU devices only, and "
                                            "the current device is ",
                                            ToString(CurrentDevice())));
  }
}

int64_t QueuedCommunicator::sequence() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return next_sequence_;
}

void QueuedCommunicator::CheckDevice(absl::string_view call, const Tensor& tensor) const {
  const DeviceType type = tensor.device().type;
  if (type != DeviceType::kCpu && type != DeviceType::kHost) {
    throw InvalidArgumentError(
        absl::StrCat(call, ": the ", backend(), " backend serves CPU memory, not ",
                     tensor.DebugString(), ": use another backend, or To(tensor, Cpu())"));
  }
}

std::string QueuedCommunicator::Where(const Collective& collective, int64_t sequence) const {
  return absl::StrCat(collective.signature.ToString(collective.counts), ": rank ", rank(),
                      " of group \"", group_name(), "\", collective ", sequence);
}

void QueuedCommunicator::ThrowIfFailedFor(const Signature& signature) const {
  try {
    ThrowIfFailed();
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat(signature.ToString(), ": group \"", group_name(),
                                         "\" is in the error state; make a new group"));
  }
}

Work QueuedCommunicator::Issue(Collective collective) {
  ThrowIfFailedFor(collective.signature);
  std::vector<Tensor> buffers;
  if (collective.input.defined()) {
    buffers.push_back(collective.input);
    RawData(collective.input);  // waits for copies into it
  }
  if (collective.output.defined()) {
    buffers.push_back(collective.output);
    MutableRawData(collective.output);  // a new version, from now on
  }
  Task task;
  MakeRowMajor(&collective, &task.unpack_to);
  task.work = std::make_shared<PendingWork>(std::move(buffers), collective.signature);
  task.collective = std::move(collective);
  task.observer = CurrentThreadState().observer;
  const std::shared_ptr<PendingWork> work = task.work;
  if (task.collective.signature.peer >= 0) {
    IssueTransfer(std::move(task));
    return Work(work);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  task.sequence = next_sequence_++;
  queue_.push_back(std::move(task));
  changed_.notify_one();
  return Work(work);
}

void QueuedCommunicator::IssueTransfer(Task task) {
  const Collective& transfer = task.collective;
  const Signature signature = transfer.signature;
  const Tensor tensor = signature.op == CollectiveId::kSend ? transfer.input : transfer.output;
  const absl::Duration timeout = transfer.timeout;
  const int64_t start_ns = task.observer ? MonotonicNanoseconds() : 0;
  const auto done = [signature, tensor, start_ns, unpack_to = task.unpack_to, work = task.work,
                     observer = task.observer](std::optional<Error> error) {
    if (!error.has_value() && unpack_to.defined()) Unpack(tensor, unpack_to);
    if (observer != nullptr) {
      observer->OnSpan({SpanKind::kCommunication, CollectiveName(signature.op), start_ns,
                        MonotonicNanoseconds(), 0, tensor.bytes()});
    }
    work->Complete(std::move(error));
  };
  StartTransfer(signature, tensor, timeout, done);
}

void QueuedCommunicator::RunQueue() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;  // stopping: what was queued has failed
    Task task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    RunTask(task);
    task = Task();  // buffers go before the lock is taken
    lock.lock();
  }
}

void QueuedCommunicator::RunTask(Task& task) {
  const int64_t start_ns = task.observer ? MonotonicNanoseconds() : 0;
  std::optional<Error> error = TryCollective(task);
  if (task.observer) {
    const int64_t input_bytes = task.collective.input.defined() ? task.collective.input.bytes() : 0;
    const int64_t output_bytes =
        task.collective.output.defined() ? task.collective.output.bytes() : 0;
    task.observer->OnSpan({SpanKind::kCommunication, CollectiveName(task.collective.signature.op),
                           start_ns, MonotonicNanoseconds(), 0,
                           std::max(input_bytes, output_bytes)});
    task.observer = nullptr;
  }
  // Copies go before the caller can look at what memory is in use.
  task.collective = Collective();
  task.unpack_to = Tensor();
  task.work->Complete(std::move(error));
}

std::optional<Error> QueuedCommunicator::TryCollective(const Task& task) {
  try {
    RunCollective(task.collective, task.sequence);
    if (task.unpack_to.defined()) Unpack(task.collective.output, task.unpack_to);
    if (task.collective.finish) task.collective.finish();
    return std::nullopt;
  } catch (const Error& error) {
    // Errors of the group are known already; others (no memory, a peer's memory gone) are
    // news to the peers, unless this rank is leaving, which they see by themselves.
    if (error.code() != absl::StatusCode::kAborted) {
      Fail(error.code(), absl::StrCat("rank ", rank(), ": ", error.message()));
    }
    return error.WithContext(Where(task.collective, task.sequence));
  } catch (const std::exception& error) {
    Fail(absl::StatusCode::kInternal, absl::StrCat("rank ", rank(), ": ", error.what()));
    return InternalError(absl::StrCat(Where(task.collective, task.sequence), ": ", error.what()));
  }
}

}  // namespace lockstep::comm
