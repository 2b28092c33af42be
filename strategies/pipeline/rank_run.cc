// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/rank_run.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/clock.h"
#include "lockstep/strategies/pipeline/named_errors.h"
#include "lockstep/strategies/pipeline/stage_streams.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::pipeline {
namespace {

// This thread's state as for a forward pass of its own, if it has anything that belongs to one.
std::optional<ThreadState> FreshState() {
  ThreadState state = CurrentThreadState();
  bool changed = false;
  for (auto& layer : state.layer_state) {
    if (layer == nullptr) continue;
    std::shared_ptr<const LayerState> fresh = layer->ForReplay();
    if (fresh == nullptr) continue;
    layer = std::move(fresh);
    changed = true;
  }
  if (!changed) return std::nullopt;
  return state;
}

// Puts this thread's random streams back.
class StreamScope {
 public:
  explicit StreamScope(const RandomStreams& streams) : saved_(ThreadGenerators()) {
    ThreadGenerators() = streams;
  }
  ~StreamScope() { ThreadGenerators() = saved_; }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  const RandomStreams saved_;
};

}  // namespace

RankRun::RankRun(const ExecutionPlan& plan, const RunRequest& request, int rank,
                 Transport& transport)
    : plan_(plan),
      request_(request),
      rank_(rank),
      transport_(transport),
      made_(static_cast<size_t>(plan.channel_count()) * static_cast<size_t>(plan.micro_batches)),
      since_ns_(MonotonicNanoseconds()) {
  for (const PlannedStage& stage : plan.stages) {
    const bool here = RankOf(stage.stage) == rank;
    stages_.push_back(here ? std::make_unique<StageRun>(plan, stage,
                                                        stage.is_last ? &request.loss : nullptr,
                                                        request.trains)
                           : nullptr);
  }
}

void RankRun::Run() {
  spans_.reserve(actions().size());
  for (const PlannedAction& planned : actions()) {
    since_ns_.store(MonotonicNanoseconds(), std::memory_order_relaxed);
    CallNamed([&] { return Place(); },
              [&] {
                transport_.Check();
                Execute(planned);
              });
    position_.fetch_add(1, std::memory_order_relaxed);
  }
  since_ns_.store(MonotonicNanoseconds(), std::memory_order_relaxed);
}

std::string RankRun::CurrentAction() const {
  const size_t position = position_.load(std::memory_order_relaxed);
  return position < actions().size() ? ToString(actions()[position].action) : "its end";
}

std::string RankRun::Place() const {
  const size_t position = position_.load(std::memory_order_relaxed);
  if (position >= actions().size()) return absl::StrCat("pipeline: rank ", rank_, ", its end");
  const Action& action = actions()[position].action;
  return absl::StrCat("pipeline: rank ", rank_, ", stage ", action.stage, ", micro-batch ",
                      action.micro_batch, ", action ", ToString(action));
}

void RankRun::Execute(const PlannedAction& planned) {
  const Action& action = planned.action;
  std::shared_ptr<void> no_sync;
  if (planned.is_earlier_backward && request_.no_sync != nullptr) {
    no_sync = request_.no_sync(action.stage);
  }
  switch (action.kind) {
    case ActionKind::kForward:
      RunForward(action);
      break;
    case ActionKind::kBackward:
      RunBackward(action, /*inputs_only=*/false);
      break;
    case ActionKind::kBackwardInput:
      RunBackward(action, /*inputs_only=*/true);
      break;
    case ActionKind::kBackwardWeight:
      StartSpan();
      stage(action.stage)->BackwardWeight(action.micro_batch);
      EndSpan(action);
      break;
    default:
      RunTransfer(planned);
  }
  if (!planned.is_last_backward || request_.after_last_backward == nullptr) return;
  if (!request_.later[static_cast<size_t>(action.stage)]) {
    request_.after_last_backward(action.stage);
  }
}

std::vector<Tensor> RankRun::BatchFor(const PlannedStage& stage, int micro_batch) const {
  if (!stage.takes_all_of_batch && stage.batch_inputs.empty()) return {};
  const autograd::NoGradScope no_grad;
  const std::vector<Tensor>& whole = request_.batch[static_cast<size_t>(micro_batch)];
  std::vector<Tensor> batch(whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    const bool wanted =
        stage.takes_all_of_batch || stage.batch_inputs.count(static_cast<int>(i)) > 0;
    if (wanted && whole[i].defined()) batch[i] = To(whole[i], CurrentDevice());
  }
  return batch;
}

Letter RankRun::TakeLetter(int channel, int micro_batch, int other_stage) {
  const int peer = RankOf(other_stage);
  if (peer == rank_) return std::exchange(made_[SlotOf(channel, micro_batch)], {});
  is_waiting_.store(true, std::memory_order_relaxed);
  Letter letter = transport_.Take({channel, micro_batch, peer});
  is_waiting_.store(false, std::memory_order_relaxed);
  return letter;
}

void RankRun::RunForward(const Action& action) {
  const PlannedStage& planned = plan_.stages[static_cast<size_t>(action.stage)];
  const int m = action.micro_batch;
  std::vector<Letter> incoming;
  for (const int edge : planned.incoming) {
    const int from = plan_.edges[static_cast<size_t>(edge)].from;
    incoming.push_back(TakeLetter(ForwardChannel(edge), m, from));
  }
  StartSpan();
  std::vector<Letter> outgoing;
  {
    std::optional<ScopedThreadState> fresh;
    if (const auto state = FreshState(); state.has_value()) fresh.emplace(*state);
    const StreamScope streams(StageStreams(request_.start, action.stage, plan_.stage_count(), m));
    const std::vector<Tensor> batch = BatchFor(planned, m);
    outgoing = stage(action.stage)->Forward(m, std::move(incoming), batch);
  }
  for (size_t i = 0; i < outgoing.size(); ++i) {
    made_[SlotOf(ForwardChannel(planned.outgoing[i]), m)] = std::move(outgoing[i]);
  }
  EndSpan(action);
}

void RankRun::RunBackward(const Action& action, bool inputs_only) {
  const PlannedStage& planned = plan_.stages[static_cast<size_t>(action.stage)];
  const int m = action.micro_batch;
  std::vector<Letter> gradients;
  for (const int edge : planned.outgoing) {
    const int to = plan_.edges[static_cast<size_t>(edge)].to;
    gradients.push_back(TakeLetter(BackwardChannel(edge), m, to));
  }
  StartSpan();
  std::vector<Letter> incoming =
      stage(action.stage)->Backward(m, std::move(gradients), inputs_only);
  for (size_t i = 0; i < incoming.size(); ++i) {
    made_[SlotOf(BackwardChannel(planned.incoming[i]), m)] = std::move(incoming[i]);
  }
  EndSpan(action);
}

void RankRun::RunTransfer(const PlannedAction& planned) {
  const Action& action = planned.action;
  const bool forward =
      action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvForward;
  const bool sends =
      action.kind == ActionKind::kSendForward || action.kind == ActionKind::kSendBackward;
  const int channel = forward ? ForwardChannel(planned.edge) : BackwardChannel(planned.edge);
  const Address address = {channel, action.micro_batch, RankOf(action.peer_stage)};
  StartSpan();
  const CategoryScope category(forward ? MemoryCategory::kActivation : MemoryCategory::kBackward);
  if (sends) {
    transport_.Send(address, std::exchange(made_[SlotOf(channel, action.micro_batch)], {}));
  } else {
    transport_.Expect(address);
  }
  EndSpan(action);
}

void RankRun::StartSpan() { span_start_ns_ = MonotonicNanoseconds(); }

void RankRun::EndSpan(const Action& action) {
  const auto seconds = [&](int64_t ns) {
    return static_cast<double>(ns - request_.origin_ns) * 1e-9;
  };
  spans_.push_back({rank_, action, seconds(span_start_ns_), seconds(MonotonicNanoseconds())});
}

}  // namespace lockstep::pipeline
