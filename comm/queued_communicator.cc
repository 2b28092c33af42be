// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/queued_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
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

// How often an idle communication thread looks whether the peers have failed the group, and for a
// collective that was begun and that nobody waits for.
constexpr std::chrono::milliseconds kIdleSlice(250);

}  // namespace

// The tasks, and who runs them: one thread at a time.
class QueuedCommunicator::Queue final : public WorkRunner {
 public:
  explicit Queue(QueuedCommunicator* owner) : owner_(*owner) {}

  // Numbers the task, begins it if it is the only one and can be begun, and wakes the communication
  // thread otherwise.
  void Push(Task task) {
    std::unique_lock<std::mutex> lock(mutex_);
    task.sequence = next_sequence_++;
    owner_.RecordIssued(&task);
    // One that is observed runs where all communication is drawn: on the communication thread.
    const bool alone = tasks_.empty() && !running_ && !stopping_ && task.observer == nullptr;
    task.begun = alone && owner_.BeginCollective(task.collective, task.sequence);
    const bool begun = task.begun;
    if (begun) owner_.recorder_.Started(task.ticket);
    tasks_.push_back(std::move(task));
    lock.unlock();
    if (!begun) changed_.notify_one();
  }

  int64_t next_sequence() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return next_sequence_;
  }

  // The communication thread.
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    state_ = CurrentThreadState();
    for (;;) {
      AwaitTask(lock);
      if (tasks_.empty()) return;  // stopping: what was queued has failed
      RunFirst(lock);
    }
  }

  // Returns when no thread is in RunTransfersHere.
  void Stop() {
    std::unique_lock<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
    attendants_left_.wait(lock, [this] { return attendants_ == 0; });
  }

  void RunTransfersHere(const PendingWork& work) {
    std::unique_lock<std::mutex> lock(mutex_);
    // One that is observed is drawn with the thread of the transfers.
    if (stopping_ || !state_.has_value() || CurrentThreadState().observer != nullptr) return;
    ++attendants_;
    lock.unlock();
    {
      const ScopedThreadState scope(*state_);
      owner_.AttendTransfers([&work] { return work.HasCompleted(); });
    }
    lock.lock();
    if (--attendants_ == 0) attendants_left_.notify_all();
  }

  void RunHere(const PendingWork& work) override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!IsFirst(work) || stopping_) return;
    if (!owner_.RunsOnAnyThread() || !state_.has_value() || tasks_.front().observer != nullptr) {
      return Hurry();
    }
    const ScopedThreadState scope(*state_);
    RunFirst(lock);
    if (stopping_ || !tasks_.empty()) changed_.notify_one();
  }

  void RunSoon(const PendingWork& work) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (IsFirst(work)) Hurry();
  }

 private:
  void Hurry() {
    if (hurried_ || !tasks_.front().begun) return;  // the communication thread knows
    hurried_ = true;
    changed_.notify_one();
  }

  bool IsFirst(const PendingWork& work) const {
    return !running_ && !tasks_.empty() && tasks_.front().work.get() == &work;
  }

  void RunFirst(std::unique_lock<std::mutex>& lock) {
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    running_ = true;
    hurried_ = false;
    lock.unlock();
    owner_.RunTask(task);
    task = Task();  // buffers go before the lock is taken
    lock.lock();
    running_ = false;
  }

  // Whether there is something for the communication thread.
  bool HasTask() const {
    if (running_) return false;
    if (tasks_.empty()) return stopping_;
    return stopping_ || hurried_ || tasks_.size() > 1 || !tasks_.front().begun;
  }

  void AwaitTask(std::unique_lock<std::mutex>& lock) {
    int64_t left_alone = -1;  // begun at the end of the last slice
    while (!changed_.wait_for(lock, kIdleSlice, [this] { return HasTask(); })) {
      if (!running_ && !tasks_.empty()) {
        if (tasks_.front().sequence == left_alone) return;
        left_alone = tasks_.front().sequence;
      }
      lock.unlock();
      owner_.WriteIfFailed();
      lock.lock();
    }
  }

  QueuedCommunicator& owner_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  int64_t next_sequence_ = 0;
  bool running_ = false;
  bool hurried_ = false;  // the first one is wanted though it was begun
  bool stopping_ = false;
  int attendants_ = 0;  // threads in RunTransfersHere
  std::condition_variable attendants_left_;
  std::optional<ThreadState> state_;  // the communication thread's, constant once there
};

class QueuedCommunicator::TransferRunner final : public WorkRunner {
 public:
  explicit TransferRunner(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  void RunHere(const PendingWork& work) override { queue_->RunTransfersHere(work); }
  void RunSoon(const PendingWork& /*work*/) override {}  // their thread is at it

 private:
  const std::shared_ptr<Queue> queue_;
};

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
      transfer_waits_(WaitOptions(options, blocked_)),
      queue_(std::make_shared<Queue>(this)),
      transfer_runner_(std::make_shared<TransferRunner>(queue_)) {}

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
  thread_ = std::thread([this] { queue_->Run(); });
}

void QueuedCommunicator::StopQueue() {
  queue_->Stop();
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

int64_t QueuedCommunicator::sequence() const { return queue_->next_sequence(); }

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

void QueuedCommunicator::ThrowIfFailedFor(const Collective& collective) {
  try {
    ThrowIfFailed();
  } catch (const Error& error) {
    if (!recorder_.has_error()) {
      // The first that this rank hears of it. What it was about to call belongs to the record.
      recorder_.Failed(error);
      recorder_.Ended(recorder_.Issued(collective.signature, collective.counts, sequence(),
                                       LargestBytes(collective)),
                      &error);
      recorder_.WriteOnce();
    }
    const bool is_transfer = collective.signature.peer >= 0;
    throw error.WithContext(absl::StrCat(collective.signature.ToString(collective.counts),
                                         ": rank ", rank(), " of group \"", group_name(), "\"",
                                         is_transfer ? "" : ", collective ",
                                         is_transfer ? "" : absl::StrCat(sequence()),
                                         ": the group is in the error state; make a new group"));
  }
}

Work QueuedCommunicator::Issue(Collective collective) {
  ThrowIfFailedFor(collective);
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
  std::shared_ptr<WorkRunner> runner = queue_;
  if (collective.signature.peer >= 0) runner = transfer_runner_;
  task.work = std::make_shared<PendingWork>(std::move(buffers), collective.signature, blocked_,
                                            std::move(runner));
  task.collective = std::move(collective);
  task.observer = CurrentThreadState().observer;
  const std::shared_ptr<PendingWork> work = task.work;
  if (task.collective.signature.peer >= 0) {
    IssueTransfer(std::move(task));
    return Work(work);
  }
  queue_->Push(std::move(task));
  return Work(work);
}

void QueuedCommunicator::RecordIssued(Task* task) {
  task->ticket = recorder_.Issued(task->collective.signature, task->collective.counts,
                                  task->sequence, LargestBytes(task->collective));
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
  if (!task.begun) recorder_.Started(task.ticket);
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
