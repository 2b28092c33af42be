// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/pipeline.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/grad_state.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/subgroups.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/distributed_data_parallel/loss_factors.h"
#include "lockstep/strategies/pipeline/communicator_transport.h"
#include "lockstep/strategies/pipeline/micro_batches.h"
#include "lockstep/strategies/pipeline/named_errors.h"
#include "lockstep/strategies/pipeline/pipeline_checks.h"
#include "lockstep/strategies/pipeline/rank_run.h"
#include "lockstep/strategies/pipeline/stage_streams.h"
#include "lockstep/strategies/pipeline/threaded_ranks.h"
#include "lockstep/strategies/pipeline/tied_parameters.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/update.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::pipeline {
namespace {

// What the last stage's rank tells the others: the losses, and how they count.
Letter LossLetter(const StepResult& result, const std::vector<double>& shares) {
  if (result.losses.empty()) return {{Tensor()}, {false}};
  std::vector<double> numbers = result.losses;
  numbers.insert(numbers.end(), shares.begin(), shares.end());
  const auto count = static_cast<int64_t>(numbers.size());
  return {{FromVector<double>(numbers, {count}, {.dtype = DType::kFloat64})}, {false}};
}

void SetLoss(StepResult& result, std::vector<double> losses, const std::vector<double>& shares) {
  result.losses = std::move(losses);
  // What does not count may be NaN: a mean over nothing.
  for (size_t m = 0; m < result.losses.size(); ++m) {
    if (shares[m] != 0) result.loss += shares[m] * result.losses[m];
  }
}

std::vector<double> Shares(const std::vector<double>& weights) {
  double total = 0;
  for (size_t m = 0; m < weights.size(); ++m) {
    if (!(weights[m] >= 0) || !std::isfinite(weights[m])) {
      throw InvalidArgumentError(absl::StrCat("Pipeline: PipelineOptions::weight of micro-batch ",
                                              m, " is ", weights[m],
                                              "; a weight is finite and not negative"));
    }
    total += weights[m];
  }
  std::vector<double> shares;
  for (const double weight : weights) shares.push_back(total == 0 ? 0 : weight / total);
  return shares;
}

std::vector<Tensor> JoinOutputs(absl::Span<const std::vector<Tensor>> micro_batches) {
  return CallNamed([] { return "pipeline: outputs of the last stage, joined to those of a batch"; },
                   [&] { return MergeRows(micro_batches); });
}

// Of squares, or of largest values. A NaN stays one.
double Combine(NormKind kind, absl::Span<const double> values) {
  double total = 0;
  for (const double value : values) {
    if (kind == NormKind::kTwo) {
      total += value;
    } else if (std::isnan(value) || value > total) {
      total = std::isnan(total) ? total : value;
    }
  }
  return total;
}

// Each stage's value over the ranks that share its parameters.
std::vector<double> OverShards(NormKind kind, const std::vector<double>& values,
                               comm::Communicator& shards) {
  const auto stages = static_cast<int64_t>(values.size());
  const Tensor own = FromVector<double>(values, {stages}, {.device = Cpu()});
  const Tensor all = Empty({shards.size(), stages}, {.dtype = DType::kFloat64, .device = Cpu()});
  shards.AllGather(own, all).Wait();
  std::vector<double> result;
  for (int64_t s = 0; s < stages; ++s) {
    result.push_back(Combine(kind, Select(all, 1, s).ToVector<double>()));
  }
  return result;
}

}  // namespace

struct Pipeline::Impl {
  PipelineOptions options;
  Schedule schedule;  // with transfers
  std::shared_ptr<ExecutionPlan> plan;
  StageTree whole;
  std::map<int, std::unique_ptr<StageTree>> trees;
  std::optional<TiedParameters> tied;
  std::vector<Span> spans;
  int64_t began_ns = 0;
  // In one process:
  std::unique_ptr<ThreadedRanks> threads;
  std::vector<Device> devices;
  // Over a communicator:
  TransportGroups groups;
  int rank = 0;

  bool one_process() const { return groups.data == nullptr; }
  int last_stage() const { return plan->stage_count() - 1; }
  int loss_channel() const { return plan->channel_count() + tied->channel_count(); }
  int rank_of_last() const { return plan->rank_of_stage.back(); }
  bool Has(int stage) const { return trees.count(stage) > 0; }

  void Build(std::map<int, Stage> stages);
  std::unique_ptr<CommunicatorTransport> MakeTransport() const;
  StepResult Run(TensorSpan inputs, TensorSpan targets, bool trains);
  RunRequest MakeRequest(TensorSpan inputs, TensorSpan targets, bool trains) const;
  std::vector<double> SharesOf(const RunRequest& request, TensorSpan inputs,
                               TensorSpan targets) const;
  std::vector<double> WeightsOf(const RunRequest& request, TensorSpan inputs,
                                TensorSpan targets) const;
  // Tells all who wait for this rank, in this pipeline and beside it.
  void FailRun(Transport& transport, const Error& error) const;
  void CheckStep() const;
  void CheckBatch(TensorSpan inputs) const;
  StepResult RunThreads(RunRequest request);
  StepResult RunRank(const RunRequest& request);
  void RunRankWith(Transport& transport, const RunRequest& request, StepResult& result);
  void EndBackward(Transport* transport);
  std::vector<double> SquaresOfNorms(NormKind kind) const;
};

// ---- Construction ----

void Pipeline::Impl::Build(std::map<int, Stage> stages) {
  plan = std::make_shared<ExecutionPlan>(MakeExecutionPlan(schedule, options.wiring));
  trees = MakeTrees(stages, whole);
  for (auto& [number, stage] : stages) {
    PlannedStage& planned = plan->stages[static_cast<size_t>(number)];
    planned.forward = std::move(stage.forward);
    for (const auto& [path, module] : stage.parts) planned.modules.push_back(module);
  }
  tied.emplace(FindTied(options, stages, trees), plan->channel_count());
}

Pipeline::Pipeline(std::vector<Stage> stages, PipelineOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->schedule = CheckedSchedule(options.schedule);
  CheckOptions(options, /*one_process=*/true);
  impl_->options = std::move(options);
  impl_->Build(NumberedStages(std::move(stages), impl_->schedule));
  impl_->devices = impl_->options.devices.empty()
                       ? strategies::CpuDevices(impl_->schedule.rank_count())
                       : impl_->options.devices;
  CheckDevicesHold(impl_->options, impl_->devices, /*first_rank=*/0, /*group=*/nullptr);
  for (const auto& [stage, tree] : impl_->trees) {
    const int rank = impl_->plan->rank_of_stage[static_cast<size_t>(stage)];
    tree->To(impl_->devices[static_cast<size_t>(rank)]);
  }
  impl_->tied->MakeEqual(nullptr);
  impl_->threads =
      std::make_unique<ThreadedRanks>(impl_->plan, impl_->devices, impl_->options.threads_per_rank,
                                      TimeoutInOneProcess(impl_->options));
}

Pipeline::Pipeline(std::map<int, Stage> stages, std::shared_ptr<comm::Communicator> group,
                   PipelineOptions options)
    : impl_(std::make_unique<Impl>()) {
  if (group == nullptr) {
    throw InvalidArgumentError(
        "Pipeline: the group is null; give a list of stages for one process");
  }
  impl_->schedule = CheckedSchedule(options.schedule);
  CheckOptions(options, /*one_process=*/false);
  CheckOwnStages(stages, impl_->schedule, group->rank(), group->size());
  impl_->options = std::move(options);
  impl_->rank = group->rank();
  impl_->Build(std::move(stages));
  std::vector<int> ranks;
  for (int r = 0; r < group->size(); ++r) ranks.push_back(r);
  impl_->groups = {group, comm::Subgroup(*group, ranks)};
  CheckDevicesHold(impl_->options, {CurrentDevice()}, impl_->rank, group.get());
  if (impl_->tied->empty()) return;
  const std::unique_ptr<CommunicatorTransport> transport = impl_->MakeTransport();
  try {
    impl_->tied->MakeEqual(transport.get());
    transport->Finish();
  } catch (const Error& error) {
    impl_->FailRun(*transport, error);
    throw;
  }
}

Pipeline::~Pipeline() = default;

std::unique_ptr<CommunicatorTransport> Pipeline::Impl::MakeTransport() const {
  return std::make_unique<CommunicatorTransport>(groups, CurrentDevice(), plan->micro_batches,
                                                 options.timeout);
}

// ---- Runs ----

void Pipeline::Impl::FailRun(Transport& transport, const Error& error) const {
  for (const auto& group : {options.replica_group, options.shard_group}) {
    if (group != nullptr) group->Abort(error.message());
  }
  for (const auto& group : options.abort_groups) group->Abort(error.message());
  transport.Fail(error);
}

void Pipeline::Impl::CheckStep() const {
  if (schedule.forward_only) {
    throw FailedPreconditionError(absl::StrCat("Pipeline: Step: the schedule \"", schedule.name,
                                               "\" is forward only; use Evaluate"));
  }
  if (options.loss == nullptr) {
    throw FailedPreconditionError("Pipeline: Step: there is no PipelineOptions::loss");
  }
  if (!autograd::GradEnabled()) {
    throw FailedPreconditionError(
        "Pipeline: Step: gradients are not recorded here (NoGradScope); use Evaluate");
  }
  const auto* const gradients = autograd::internal::CurrentGradState();
  if (one_process() && gradients != nullptr && gradients->hooks != nullptr) {
    throw FailedPreconditionError(
        "Pipeline: Step: under saved-tensor hooks (a checkpoint, an offload), which are of one "
        "thread; put them inside of the stages");
  }
}

void Pipeline::Impl::CheckBatch(TensorSpan inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined() && autograd::RequiresGrad(inputs[i])) {
      throw InvalidArgumentError(
          absl::StrCat("Pipeline: input ", i, " is ", inputs[i].DebugString(),
                       " and requires a gradient, which no pipeline returns; "
                       "Detach it, or make it a parameter of stage 0"));
    }
  }
}

RunRequest Pipeline::Impl::MakeRequest(TensorSpan inputs, TensorSpan targets, bool trains) const {
  RunRequest request;
  request.trains = trains;
  request.start = ThreadGenerators();
  CheckBatch(inputs);
  request.batch = SplitRows(inputs, plan->micro_batches, "input");
  request.later.resize(plan->stages.size());
  for (int s = 0; s < plan->stage_count(); ++s) {
    request.later[static_cast<size_t>(s)] = tied->Contains(s);
  }
  if (trains) request.after_last_backward = options.after_last_backward;
  request.no_sync = options.no_sync;
  request.loss.keeps_outputs = !trains || options.keep_outputs;
  request.loss.targets = SplitRows(targets, plan->micro_batches, "target");
  if (Has(last_stage()) && (trains || !targets.empty()) && options.loss != nullptr) {
    request.loss.loss = options.loss;
    request.loss.scale_loss = options.scale_loss;
    request.loss.shares = SharesOf(request, inputs, targets);
  }
  request.origin_ns = MonotonicNanoseconds();
  return request;
}

std::vector<double> Pipeline::Impl::SharesOf(const RunRequest& request, TensorSpan inputs,
                                             TensorSpan targets) const {
  const std::vector<double> weights = WeightsOf(request, inputs, targets);
  if (!request.trains || options.replica_group == nullptr) return Shares(weights);
  return strategies::LossFactors(weights, *options.replica_group);
}

std::vector<double> Pipeline::Impl::WeightsOf(const RunRequest& request, TensorSpan inputs,
                                              TensorSpan targets) const {
  std::vector<double> weights;
  if (options.weight != nullptr) {
    for (const std::vector<Tensor>& micro_batch : request.loss.targets) {
      const auto place = [&] {
        return absl::StrCat("pipeline: rank ", rank, ", PipelineOptions::weight of micro-batch ",
                            weights.size());
      };
      weights.push_back(CallNamed(place, [&] { return options.weight(micro_batch); }));
    }
    return weights;
  }
  const int64_t input_rows = RowCount(inputs), target_rows = RowCount(targets);
  if (input_rows != target_rows && input_rows > 0 && target_rows > 0) {
    throw InvalidArgumentError(absl::StrCat("Pipeline: inputs have ", input_rows,
                                            " rows and targets ", target_rows,
                                            "; dimension 0 of each is the batch"));
  }
  const int64_t rows = target_rows > 0 ? target_rows : input_rows;
  for (const int64_t count : RowsOfMicroBatches(rows, plan->micro_batches)) {
    weights.push_back(static_cast<double>(count));
  }
  return weights;
}

StepResult Pipeline::Impl::Run(TensorSpan inputs, TensorSpan targets, bool trains) {
  const RandomStreams after =
      StreamsAfter(ThreadGenerators(), plan->stage_count(), plan->micro_batches);
  RunRequest request;
  try {
    request = MakeRequest(inputs, targets, trains);
  } catch (const Error& error) {
    // The other ranks may have nothing to refuse, and wait.
    if (!one_process()) FailRun(*MakeTransport(), error);
    throw;
  }
  spans.clear();
  began_ns = request.origin_ns;
  if (trains) tied->PutAside();
  StepResult result;
  try {
    result = one_process() ? RunThreads(std::move(request)) : RunRank(request);
  } catch (...) {
    // A thread that is still in its stage may write gradients at this moment.
    if (threads == nullptr || !threads->HasLeftBehind()) tied->Restore();
    throw;
  }
  ThreadGenerators().dropout = after.dropout;
  return result;
}

StepResult Pipeline::Impl::RunThreads(RunRequest request) {
  const bool trains = request.trains;
  const std::vector<double> shares = request.loss.shares;
  ThreadedRanks::Outcome outcome = threads->Run(std::move(request));
  spans = std::move(outcome.spans);
  if (trains) EndBackward(nullptr);
  StepResult result;
  std::vector<double> losses;
  for (const Tensor& loss : outcome.losses) {
    if (loss.defined()) losses.push_back(loss.Item<double>());
  }
  SetLoss(result, std::move(losses), shares);
  result.outputs = JoinOutputs(outcome.outputs);
  return result;
}

StepResult Pipeline::Impl::RunRank(const RunRequest& request) {
  const std::unique_ptr<CommunicatorTransport> transport = MakeTransport();
  StepResult result;
  try {
    RunRankWith(*transport, request, result);
  } catch (const Error& error) {
    FailRun(*transport, error);
    throw;
  }
  return result;
}

void Pipeline::Impl::RunRankWith(Transport& transport, const RunRequest& request,
                                 StepResult& result) {
  RankRun run(*plan, request, rank, transport);
  run.Run();
  spans = run.spans();
  if (request.trains) EndBackward(&transport);
  const Address losses = {loss_channel(), 0, rank_of_last()};
  StageRun* const last = run.stage(last_stage());
  if (last == nullptr) {
    transport.Expect(losses);
    const Tensor numbers = transport.Take(losses).tensors[0];
    if (numbers.defined()) {
      std::vector<double> values = numbers.ToVector<double>();
      const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
      const std::vector<double> shares(middle, values.end());
      SetLoss(result, std::vector<double>(values.begin(), middle), shares);
    }
  } else {
    std::vector<double> values;
    std::vector<std::vector<Tensor>> outputs;
    for (int m = 0; m < plan->micro_batches; ++m) {
      if (last->loss(m).defined()) values.push_back(last->loss(m).Item<double>());
      outputs.push_back(last->TakeOutputs(m));
    }
    SetLoss(result, std::move(values), request.loss.shares);
    result.outputs = JoinOutputs(outputs);
    for (int peer = 0; peer < groups.data->size(); ++peer) {
      if (peer == rank) continue;
      transport.Send({loss_channel(), 0, peer}, LossLetter(result, request.loss.shares));
    }
  }
  transport.Finish();
}

void Pipeline::Impl::EndBackward(Transport* transport) {
  if (tied->empty()) return;
  CallNamed([&] { return absl::StrCat("pipeline: rank ", rank, ", gradients of tied parameters"); },
            [&] { tied->SumGradients(transport); });
  if (options.after_last_backward == nullptr) return;
  for (int s = 0; s < plan->stage_count(); ++s) {
    if (!Has(s) || !tied->Contains(s)) continue;
    CallNamed([&] { return absl::StrCat("pipeline: stage ", s, ", after_last_backward"); },
              [&] { options.after_last_backward(s); });
  }
}

StepResult Pipeline::Step(TensorSpan inputs, TensorSpan targets) {
  impl_->CheckStep();
  return impl_->Run(inputs, targets, /*trains=*/true);
}

StepResult Pipeline::Evaluate(TensorSpan inputs, TensorSpan targets) {
  if (!targets.empty() && impl_->options.loss == nullptr) {
    throw FailedPreconditionError(
        "Pipeline: Evaluate: targets are given and there is no PipelineOptions::loss");
  }
  const autograd::NoGradScope no_grad;
  return impl_->Run(inputs, targets, /*trains=*/false);
}

// ---- State, clipping, statistics ----

nn::Module& Pipeline::module() { return impl_->whole; }

void Pipeline::LoadStateDict(const NamedTensors& state) {
  if (impl_->one_process()) {
    impl_->whole.LoadStateDict(state);
    return;
  }
  const NamedTensors own = impl_->whole.StateTensors();
  impl_->whole.LoadStateDict(
      state.Filter([&](const std::string& name, const Tensor&) { return own.Contains(name); }));
}

// Of the gradients of each stage that is here; of the others 0.
std::vector<double> Pipeline::Impl::SquaresOfNorms(NormKind kind) const {
  std::vector<double> values(plan->stages.size());
  for (const auto& [stage, tree] : trees) {
    std::vector<Tensor> gradients;
    for (const Tensor& parameter : tree->Parameters()) {
      const Tensor gradient = autograd::Grad(parameter);
      if (gradient.defined() && !tied->IsLaterCopy(parameter)) gradients.push_back(gradient);
    }
    if (gradients.empty()) continue;
    const auto norm = GlobalNorm(gradients, kind).Item<double>();
    values[static_cast<size_t>(stage)] = kind == NormKind::kTwo ? norm * norm : norm;
  }
  return values;
}

Tensor Pipeline::ClipGradNorm(double max_norm, const optim::ClipGradNormOptions& options) {
  constexpr char kCall[] = "Pipeline: ClipGradNorm";
  optim::CheckMaxNorm(kCall, max_norm);
  const autograd::NoGradScope no_grad;
  std::vector<double> values = impl_->SquaresOfNorms(options.kind);
  if (impl_->options.shard_group != nullptr) {
    values = OverShards(options.kind, values, *impl_->options.shard_group);
  }
  if (!impl_->one_process()) {
    // Each number is of one rank: the sum is exact.
    const auto count = static_cast<int64_t>(values.size());
    const Tensor sum = FromVector<double>(values, {count}, {.dtype = DType::kFloat64});
    impl_->groups.data->AllReduce(sum).Wait();
    values = sum.ToVector<double>();
  }
  const double total = Combine(options.kind, values);
  const double norm = options.kind == NormKind::kTwo ? std::sqrt(total) : total;
  const Tensor result = Full({}, norm, {.dtype = DType::kFloat32, .device = Cpu()});
  std::vector<Tensor> parameters;
  for (const auto& [stage, tree] : impl_->trees) {
    for (const Tensor& parameter : tree->Parameters()) parameters.push_back(parameter);
  }
  optim::ClipGradsWithNorm(kCall, parameters, result, max_norm, options);
  return result;
}

const std::vector<Span>& Pipeline::spans() const { return impl_->spans; }

int64_t Pipeline::began_ns() const { return impl_->began_ns; }

Timeline Pipeline::MeasuredTimeline() const {
  if (impl_->one_process()) return MakeTimeline(impl_->spans, impl_->schedule.rank_count());
  std::vector<Span> own = impl_->spans;
  for (Span& span : own) span.rank = 0;
  return MakeTimeline(std::move(own), 1);
}

const Schedule& Pipeline::schedule() const { return impl_->schedule; }

}  // namespace lockstep::pipeline
