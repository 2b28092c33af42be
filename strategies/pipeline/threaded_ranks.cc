// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/threaded_ranks.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/worker_pool.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/pipeline/thread_transport.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::pipeline {

// Shared with the threads: one that does not come back in time still has all that it uses.
struct ThreadedRanks::State {
  std::shared_ptr<const ExecutionPlan> plan;
  RunRequest request;
  std::shared_ptr<ThreadPost> post;
  std::vector<std::unique_ptr<ThreadTransport>> transports;
  std::vector<std::unique_ptr<RankRun>> ranks;
  std::vector<ThreadState> thread_states;

  std::mutex mutex;
  std::condition_variable ended;
  std::vector<bool> has_ended, has_stalled;
  size_t running = 0;
  std::exception_ptr error;  // the first

  void RunRank(size_t rank) {
    std::exception_ptr thrown;
    try {
      const ScopedThreadState scope(thread_states[rank]);
      ranks[rank]->Run();
    } catch (const Error& caught) {
      thrown = std::current_exception();
      {
        std::lock_guard<std::mutex> lock(mutex);
        if (error == nullptr) error = thrown;
      }
      post->Fail(caught);
    }
    std::lock_guard<std::mutex> lock(mutex);
    has_ended[rank] = true;
    --running;
    ended.notify_all();
  }

  // Below: with the mutex.

  // "rank 0 waits at 0B0, rank 1 is at 1F1"; of the ranks that have not ended, or all.
  std::string Whereabouts(bool of_all) const {
    std::string text;
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (!of_all && has_ended[r]) continue;
      absl::StrAppend(&text, text.empty() ? "" : ", ", "rank ", r,
                      ranks[r]->IsWaiting() ? " waits at " : " is at ", ranks[r]->CurrentAction());
    }
    return text;
  }

  absl::Duration SinceLastBegin() const {
    int64_t last = 0;
    for (const auto& rank : ranks) last = std::max(last, rank->since_ns());
    return absl::Nanoseconds(MonotonicNanoseconds() - last);
  }

  // The run's error is then that of a rank which is in an action, not waiting for another.
  Error SetStalled(absl::Duration timeout) {
    std::string place;
    for (size_t r = 0; r < ranks.size(); ++r) {
      has_stalled[r] = !has_ended[r] && !ranks[r]->IsWaiting();
      if (has_stalled[r] && place.empty()) place = ranks[r]->Place();
    }
    Error stall = DeadlineExceededError(
        absl::StrCat(place.empty() ? "pipeline" : place, ": did not come back within ",
                     absl::FormatDuration(timeout), "; ", Whereabouts(/*of_all=*/true),
                     "; where an action may take longer, give a larger PipelineOptions::timeout"));
    error = std::make_exception_ptr(stall);
    return stall;
  }

  // Below: without the mutex.

  // Until all ranks have ended, one has failed, or none has begun an action for so long.
  void Watch(absl::Duration timeout) {
    std::optional<Error> stall;
    {
      std::unique_lock<std::mutex> lock(mutex);
      const auto is_over = [&] { return running == 0 || error != nullptr; };
      for (;;) {
        const Deadline deadline = Deadline::After(timeout - SinceLastBegin());
        if (deadline.IsInfinite()) {
          ended.wait(lock, is_over);
          return;
        }
        if (ended.wait_until(lock, deadline.ToTimePoint(), is_over)) return;
        if (SinceLastBegin() >= timeout) break;
      }
      stall = SetStalled(timeout);
    }
    post->Fail(*stall);
  }

  // Until the ranks that have not stalled have ended, for as long as `timeout`. Whether all have.
  bool AwaitEnd(absl::Duration timeout) {
    const Deadline deadline = Deadline::After(timeout);
    std::unique_lock<std::mutex> lock(mutex);
    const auto done = [&] {
      for (size_t r = 0; r < has_ended.size(); ++r) {
        if (!has_ended[r] && !has_stalled[r]) return false;
      }
      return true;
    };
    if (deadline.IsInfinite()) {
      ended.wait(lock, done);
    } else {
      ended.wait_until(lock, deadline.ToTimePoint(), done);
    }
    return running == 0;
  }
};

ThreadedRanks::ThreadedRanks(std::shared_ptr<const ExecutionPlan> plan, std::vector<Device> devices,
                             int threads_per_rank, absl::Duration timeout)
    : plan_(std::move(plan)),
      devices_(std::move(devices)),
      threads_per_rank_(threads_per_rank),
      timeout_(timeout) {}

bool ThreadedRanks::HasLeftBehind() {
  if (left_behind_ == nullptr) return false;
  std::lock_guard<std::mutex> lock(left_behind_->mutex);
  return left_behind_->running > 0;
}

ThreadedRanks::Outcome ThreadedRanks::Run(RunRequest request) {
  if (HasLeftBehind()) {
    std::lock_guard<std::mutex> lock(left_behind_->mutex);
    throw FailedPreconditionError(absl::StrCat(
        "pipeline: of an earlier run that failed, ", left_behind_->Whereabouts(/*of_all=*/false),
        " still; go on when it has returned, or make a new pipeline and model"));
  }
  left_behind_ = nullptr;
  const size_t count = devices_.size();
  const auto state = std::make_shared<State>();
  state->plan = plan_;
  state->request = std::move(request);
  state->post =
      std::make_shared<ThreadPost>(devices_, plan_->channel_count(), plan_->micro_batches);
  state->has_ended.resize(count);
  state->has_stalled.resize(count);
  state->running = count;
  const int threads = threads_per_rank_ > 0
                          ? threads_per_rank_
                          : std::max(1, IntraOpThreads() / static_cast<int>(count));
  for (size_t r = 0; r < count; ++r) {
    const int rank = static_cast<int>(r);
    state->transports.push_back(std::make_unique<ThreadTransport>(state->post, rank));
    state->ranks.push_back(
        std::make_unique<RankRun>(*plan_, state->request, rank, *state->transports.back()));
    ThreadState& thread_state = state->thread_states.emplace_back(CurrentThreadState());
    thread_state.device = devices_[r];
    thread_state.stream = 0;
    thread_state.intra_op_threads = threads;
  }
  for (size_t r = 0; r < count; ++r) {
    try {
      autograd::internal::RunOnWorker([state, r] { state->RunRank(r); });
    } catch (const std::exception& error) {  // no thread to be had
      const Error failure = ResourceExhaustedError(
          absl::StrCat("pipeline: no thread for rank ", r, ": ", error.what()));
      std::lock_guard<std::mutex> lock(state->mutex);
      if (state->error == nullptr) state->error = std::make_exception_ptr(failure);
      state->has_ended[r] = true;
      --state->running;
      state->post->Fail(failure);
    }
  }
  state->Watch(timeout_);
  // After a failure the others end at their next action. One that was not in its stage for long may
  // come back yet.
  if (!state->AwaitEnd(timeout_)) left_behind_ = state;
  if (state->error != nullptr) {
    const std::exception_ptr error = state->error;
    // The threads may hold on to the state a little longer than they use it; not to its tensors.
    if (left_behind_ == nullptr) {
      state->ranks.clear();
      state->request = {};
      state->post = nullptr;
      state->transports.clear();
    }
    std::rethrow_exception(error);
  }
  Outcome outcome;
  for (const std::unique_ptr<RankRun>& rank : state->ranks) {
    outcome.spans.insert(outcome.spans.end(), rank->spans().begin(), rank->spans().end());
    StageRun* const last = rank->stage(plan_->stage_count() - 1);
    for (int m = 0; last != nullptr && m < plan_->micro_batches; ++m) {
      outcome.losses.push_back(last->loss(m));
      outcome.outputs.push_back(last->TakeOutputs(m));
    }
  }
  state->ranks.clear();
  state->request = {};
  return outcome;
}

}  // namespace lockstep::pipeline
