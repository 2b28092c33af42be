// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/queued_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
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

int64_t LargestBytes(const Collective& collective) {
  return std::max(collective.input.defined() ? collective.input.bytes() : 0,
                  collective.output.defined() ? collective.output.bytes() : 0);
}

std::vector<int> WorldRanks(const ProcessGroupOptions& options) {
  if (!options.world_ranks.empty()) return options.world_ranks;
  std::vector<int> ranks(static_cast<size_t>(options.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

WaitBoard::Options WaitOptions(const ProcessGroupOptions& options,
                               std::shared_ptr<const std::atomic<int>> blocked) {
  return {.store = options.store,
          .group = options.group_name,
          .rank = options.rank,
          .world_ranks = WorldRanks(options),
          .slow_warning = options.slow_warning,
          .on_slow = options.on_slow,
          .blocked = std::move(blocked)};
}

// How often an idle rank looks whether its peers have failed the group.
constexpr std::chrono::milliseconds kIdleSlice(250);

}  // namespace

QueuedCommunicator::QueuedCommunicator(const ProcessGroupOptions& options, std::string key)
    : Communicator(options.rank, options.world_size, options.group_name, options.timeout),
      options_(options),
      key_(std::move(key)),
      recorder_({.group = options.group_name,
                 .key = key_,
                 .rank = options.rank,
                 .size = options.world_size,
                 .world_ranks = WorldRanks(options)},
                options.flight_recorder),
      blocked_(std::make_shared<std::atomic<int>>(0)),
      collective_waits_(WaitOptions(options, blocked_)),
      transfer_waits_(WaitOptions(options, blocked_)) {}

QueuedCommunicator::~QueuedCommunicator() = default;

ProcessGroupOptions QueuedCommunicator::SubgroupOptions(const std::string& name,
                                                        const std::vector<int>& ranks) const {
  ProcessGroupOptions sub = options_;
  // The processors are shared with the ranks outside too.
  sub.local_world_size = std::max(sub.local_world_size, sub.world_size);
  sub.group_name = absl::StrCat(group_name(), "/", name);
  sub.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  sub.world_size = static_cast<int>(ranks.size());
  sub.world_ranks.clear();
  const std::vector<int> mine = WorldRanks(options_);
  for (const int rank : ranks) sub.world_ranks.push_back(mine[static_cast<size_t>(rank)]);
  return sub;
}

std::string QueuedCommunicator::SubgroupKey(const std::string& name) const {
  return absl::StrCat(key_, "/", name);
}

void QueuedCommunicator::StartQueue() {
  thread_ = std::thread([this] { RunQueue(); });
}

void QueuedCommunicator::StopQueue() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  thread_.join();
  WriteIfFailed();
}

FlightRecord QueuedCommunicator::flight_record() const { return recorder_.Snapshot(); }

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
  task.work = std::make_shared<PendingWork>(std::move(buffers), collective.signature, blocked_);
  task.collective = std::move(collective);
  task.observer = CurrentThreadState().observer;
  const std::shared_ptr<PendingWork> work = task.work;
  if (task.collective.signature.peer >= 0) {
    IssueTransfer(std::move(task));
    return Work(work);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  task.sequence = next_sequence_++;
  task.ticket = recorder_.Issued(task.collective.signature, task.collective.counts, task.sequence,
                                 LargestBytes(task.collective));
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
  const int64_t ticket = recorder_.Issued(signature, {}, 0, tensor.bytes());
  const auto done = [this, signature, tensor, start_ns, ticket, unpack_to = task.unpack_to,
                     work = task.work, observer = task.observer](std::optional<Error> error) {
    if (!error.has_value() && unpack_to.defined()) Unpack(tensor, unpack_to);
    if (observer != nullptr) {
      observer->OnSpan({SpanKind::kCommunication, CollectiveName(signature.op), start_ns,
                        MonotonicNanoseconds(), 0, tensor.bytes()});
    }
    recorder_.Ended(ticket, error.has_value() ? &*error : nullptr);
    if (error.has_value()) recorder_.WriteOnce();  // who waits may end the process
    work->Complete(std::move(error));
  };
  StartTransfer(signature, tensor, timeout, done);
}

void QueuedCommunicator::RunQueue() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    AwaitTask(lock);
    if (queue_.empty()) return;  // stopping: what was queued has failed
    Task task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    RunTask(task);
    task = Task();  // buffers go before the lock is taken
    lock.lock();
  }
}

void QueuedCommunicator::AwaitTask(std::unique_lock<std::mutex>& lock) {
  const auto has_work = [this] { return stopping_ || !queue_.empty(); };
  while (recorder_.writes() && !recorder_.has_error()) {
    if (changed_.wait_for(lock, kIdleSlice, has_work)) return;
    lock.unlock();
    WriteIfFailed();
    lock.lock();
  }
  changed_.wait(lock, has_work);
}

void QueuedCommunicator::WriteIfFailed() {
  if (!recorder_.writes() || recorder_.has_error()) return;
  try {
    ThrowIfFailed();
  } catch (const Error& error) {
    recorder_.Failed(error);
    recorder_.WriteOnce();
  }
}

void QueuedCommunicator::RunTask(Task& task) {
  const int64_t start_ns = task.observer ? MonotonicNanoseconds() : 0;
  recorder_.Started(task.ticket);
  std::optional<Error> error = TryCollective(task);
  if (task.observer) {
    task.observer->OnSpan({SpanKind::kCommunication, CollectiveName(task.collective.signature.op),
                           start_ns, MonotonicNanoseconds(), 0, LargestBytes(task.collective)});
    task.observer = nullptr;
  }
  collective_waits_.Clear(error.has_value());
  recorder_.Ended(task.ticket, error.has_value() ? &*error : nullptr);
  if (error.has_value()) recorder_.WriteOnce();  // who waits may end the process
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
