// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/shm_communicator.h"

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
#include "lockstep/comm/signature.h"
#include "lockstep/comm/tensor_memory.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::comm::shm {

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

ShmCommunicator::ShmCommunicator(const ProcessGroupOptions& options, GroupParts parts)
    : Communicator(options.rank, options.world_size, options.group_name, options.timeout),
      options_(options),
      parts_(std::move(parts)),
      algorithms_(parts_.member.get(), parts_.memory.get()),
      transfers_(
          std::make_unique<Transfers>(parts_.member.get(), parts_.memory.get(), parts_.may_spin)) {
  thread_ = std::thread([this] { RunQueue(); });
}

ShmCommunicator::~ShmCommunicator() {
  parts_.member->Stop();
  parts_.member->Leave();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
  transfers_.reset();
}

RefPtr<Storage> ShmCommunicator::Allocate(int64_t bytes, MemoryCategory category) {
  if (bytes < 0) {
    throw InvalidArgumentError(absl::StrCat("Communicator::Allocate: ", bytes, " bytes"));
  }
  if (CurrentDevice().type != DeviceType::kCpu) {
    throw InvalidArgumentError(absl::StrCat(
        "Communicator::Allocate: the shm backend has memory of CPU devices only, and the current "
        "device is ",
        ToString(CurrentDevice())));
  }
  return parts_.memory->Allocate(bytes, category);
}

std::shared_ptr<Communicator> ShmCommunicator::MakeSubgroup(const std::string& name, int rank,
                                                            int size) {
  ProcessGroupOptions options = options_;
  // The processors are shared with the ranks outside too.
  options.local_world_size = std::max(options.local_world_size, options.world_size);
  options.group_name = absl::StrCat(group_name(), "/", name);
  options.rank = rank;
  options.world_size = size;
  return MakeShmCommunicator(options, absl::StrCat(parts_.key, "/", name));
}

void ShmCommunicator::Abort(absl::string_view reason) {
  parts_.member->Fail(absl::StatusCode::kAborted,
                      absl::StrCat("aborted by rank ", rank(), ": ", reason));
}

int64_t ShmCommunicator::sequence() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return next_sequence_;
}

Traffic ShmCommunicator::traffic() const {
  return {parts_.member->steps() + transfers_->fragments_sent(),
          algorithms_.bytes_received() + transfers_->bytes_received(), algorithms_.bytes_sent()};
}

void ShmCommunicator::CheckDevice(absl::string_view call, const Tensor& tensor) const {
  const DeviceType type = tensor.device().type;
  if (type != DeviceType::kCpu && type != DeviceType::kHost) {
    throw InvalidArgumentError(absl::StrCat(call, ": the shm backend serves CPU memory, not ",
                                            tensor.DebugString(),
                                            ": use another backend, or To(tensor, Cpu())"));
  }
}

std::string ShmCommunicator::Where(const Collective& collective, int64_t sequence) const {
  return absl::StrCat(collective.signature.ToString(collective.counts), ": rank ", rank(),
                      " of group \"", group_name(), "\", collective ", sequence);
}

Work ShmCommunicator::Issue(Collective collective) {
  if (parts_.member->Failed()) {
    try {
      parts_.member->ThrowFailure();
    } catch (const Error& error) {
      throw error.WithContext(absl::StrCat(collective.signature.ToString(), ": group \"",
                                           group_name(),
                                           "\" is in the error state; make a new group"));
    }
  }
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
    StartTransfer(std::move(task));
    return Work(work);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  task.sequence = next_sequence_++;
  queue_.push_back(std::move(task));
  changed_.notify_one();
  return Work(work);
}

void ShmCommunicator::StartTransfer(Task task) {
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
  transfers_->Start(signature, tensor, timeout, done);
}

void ShmCommunicator::RunQueue() {
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

void ShmCommunicator::RunTask(Task& task) {
  const int64_t start_ns = task.observer ? MonotonicNanoseconds() : 0;
  std::optional<Error> error = RunCollective(task);
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

std::optional<Error> ShmCommunicator::RunCollective(const Task& task) {
  try {
    algorithms_.Run(task.collective, task.sequence);
    if (task.unpack_to.defined()) Unpack(task.collective.output, task.unpack_to);
    if (task.collective.finish) task.collective.finish();
    return std::nullopt;
  } catch (const Error& error) {
    // The member's own errors are the group's already; others (no memory, a peer's memory gone) are
    // news to the peers, unless this rank is leaving, which they see by themselves.
    if (error.code() != absl::StatusCode::kAborted) {
      parts_.member->Fail(error.code(), absl::StrCat("rank ", rank(), ": ", error.message()));
    }
    return error.WithContext(Where(task.collective, task.sequence));
  } catch (const std::exception& error) {
    parts_.member->Fail(absl::StatusCode::kInternal,
                        absl::StrCat("rank ", rank(), ": ", error.what()));
    return InternalError(absl::StrCat(Where(task.collective, task.sequence), ": ", error.what()));
  }
}

}  // namespace lockstep::comm::shm
