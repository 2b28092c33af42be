// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/pipeline_strategy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/examples/gpt2_stages.h"
#include "lockstep/examples/stage_shards.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/gpt2_parts.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/state/tensor_description.h"
#include "lockstep/state/tensor_source.h"
#include "lockstep/strategies/average_gradients.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/fully_sharded_data_parallel/options.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/strategies/gather_named_tensors.h"
#include "lockstep/strategies/pipeline/draw.h"
#include "lockstep/strategies/pipeline/gather_timeline.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/sharded_stage.h"
#include "lockstep/strategies/pipeline/simulate.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/timeline.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::examples {
namespace {

constexpr char kEmbedding[] = "transformer.wte.weight";
constexpr char kHead[] = "lm_head.weight";
constexpr int kDrawingWidth = 100;

pipeline::Schedule ScheduleOf(const TrainConfig& config) {
  const int stages = static_cast<int>(config.stages);
  const int micro_batches = static_cast<int>(config.micro_batches);
  if (config.schedule == "gpipe") return pipeline::GPipe(stages, micro_batches);
  if (config.schedule == "zb_h1") return pipeline::ZeroBubbleH1(stages, micro_batches);
  if (config.schedule == "interleaved") {
    return pipeline::Interleaved(static_cast<int>(config.PipelineRanks()),
                                 static_cast<int>(config.stages_per_rank), micro_batches);
  }
  return pipeline::OneForwardOneBackward(stages, micro_batches);
}

class PipelineStrategy final : public TrainingStrategy {
 public:
  PipelineStrategy(const TrainConfig& config, const std::shared_ptr<models::Gpt2>& model,
                   const std::shared_ptr<comm::Communicator>& world)
      : TrainingStrategy(model), config_(config), schedule_(ScheduleOf(config)) {
    for (const auto& [name, tensor] : model->StateTensors()) shapes_[name] = tensor.shape();
    if (!config.RankPerStage()) {
      std::vector<pipeline::Stage> stages;
      for (const models::Gpt2Part& part : BalancedGpt2Parts(*model, schedule_.stage_count())) {
        stages.push_back(StageOf(part));
      }
      pipeline_ = std::make_unique<pipeline::Pipeline>(std::move(stages), Options());
      // The first device held all of it until now.
      for (const Device device : devices()) ResetPeakBytes(device);
      return;
    }
    mesh_ = std::make_unique<comm::DeviceMesh>(
        world,
        std::vector<comm::MeshDimension>{{"data", static_cast<int>(config.DataRanks())},
                                         {"pipeline", static_cast<int>(config.PipelineRanks())}});
    group_ = mesh_->Group("pipeline");
    if (config.shards > 1) {
      sharing_ = std::make_unique<comm::DeviceMesh>(
          mesh_->Group("data"),
          std::vector<comm::MeshDimension>{{"replicate", static_cast<int>(config.replicas)},
                                           {"shard", static_cast<int>(config.shards)}});
    }
    pipeline_ = std::make_unique<pipeline::Pipeline>(OwnStages(), group_, Options());
  }

  nn::Module& module() override { return pipeline_->module(); }
  bool collective_forward() const override { return true; }

  // The mean loss; passes without a history run forward only.
  Tensor Loss(const NamedTensors& batch) override {
    const auto [ids, targets] = WithEnoughRows(batch.At("ids"), batch.At("targets"));
    return ToTensor(pipeline_->Evaluate({ids}, {targets}).loss);
  }

  bool runs_backward() const override { return true; }
  Tensor ForwardBackward(const NamedTensors& batch,
                         const amp::TrainingStep::ScaleLoss& scale) override {
    if (!autograd::GradEnabled()) return Loss(batch);
    scale_ = &scale;
    const pipeline::StepResult result = pipeline_->Step({batch.At("ids")}, {batch.At("targets")});
    scale_ = nullptr;
    spans_ = pipeline_->spans();
    began_ns_ = pipeline_->began_ns();
    return ToTensor(result.loss);
  }

  std::function<std::shared_ptr<void>()> NoSync() override {
    if (sharing_ != nullptr) return nullptr;  // each pass adds to what this rank keeps
    return [this] {
      averages_ = false;
      return std::shared_ptr<void>(nullptr, [this](void*) { averages_ = true; });
    };
  }
  std::function<Tensor(double)> ClipGradNorm() override {
    return [this](double max_norm) {
      return pipeline_->ClipGradNorm(max_norm, {.error_if_nonfinite = true});
    };
  }

  void Inside(const std::function<void(models::Gpt2&)>& function) override {
    // No rank computes the whole by itself: rank 0 gets a model of one piece.
    const NamedTensors whole = Gather(pipeline_->module().StateDict());
    if (whole.empty()) return;
    models::Gpt2 model(config_.ModelConfig());
    model.LoadStateDict(whole);
    function(model);
  }

  // What this rank's stages have, and no more.
  void LoadModel(const state::TensorSource& source) override { LoadStages("--init_from", source); }
  bool loads_by_name() const override { return true; }
  void LoadByName(const state::TensorSource& source, const state::TensorSource& moments,
                  const state::TrainingState& state, optim::Optimizer& optimizer) override {
    LoadStages("--resume", source);
    const NamedTensors parameters = optimizer.parameters();
    optim::OptimizerState own;
    // Calls `function` for each own parameter that a part of the optimizer's state, named as in one
    // piece, is of, with the name of its part.
    const auto for_each_own = [&](const std::string& name, const auto& function) {
      const std::string whole = optim::SplitStateName(name).parameter;
      for (const std::string& parameter : parameters.Names()) {
        if ((parameter == kHead ? kEmbedding : parameter) != whole) continue;
        function(parameter, absl::StrCat(parameter, name.substr(whole.size())));
      }
    };
    for (const state::TensorDescription& tensor : moments.tensors()) {
      for_each_own(tensor.name, [&](const std::string& parameter, const std::string& name) {
        own.tensors.Insert(name, shards_.Read(parameter, moments, tensor.name));
      });
    }
    for (const auto& [whole, number] : GetOptimizer(state).numbers) {
      for_each_own(
          whole, [&](const std::string&, const std::string& name) { own.numbers[name] = number; });
    }
    optimizer.LoadState(own);
  }

  void Save(const optim::Optimizer& optimizer, state::TrainingState& state) override {
    const NamedTensors parameters = Gather(pipeline_->module().StateDict());
    const optim::OptimizerState own = optimizer.SaveState();
    NamedTensors packed = own.tensors;
    for (const auto& [name, number] : own.numbers) {
      packed.Insert(absl::StrCat(kNumber, name), FromVector<int64_t>({number}, {}));
    }
    packed = Gather(packed);
    if (packed.empty()) return;
    for (const std::string& name : model().StateTensors().Names()) {
      state.model.Insert(name, parameters.At(name));
    }
    optim::OptimizerState whole;
    for (const auto& [name, tensor] : packed) {
      // The head's are those of the embedding that it is tied to.
      absl::string_view plain = name;
      const bool number = absl::ConsumePrefix(&plain, kNumber);
      if (optim::SplitStateName(plain).parameter == kHead) continue;
      if (number) {
        whole.numbers[std::string(plain)] = tensor.Item<int64_t>();
      } else {
        whole.tensors.Insert(plain, tensor);
      }
    }
    PutOptimizer(whole, state);
  }

  std::vector<Device> devices() const override {
    if (group_ != nullptr) return TrainingStrategy::devices();
    return strategies::CpuDevices(schedule_.rank_count());
  }
  std::string Details() const override {
    std::string text =
        absl::StrCat(", ", schedule_.name, ", ", schedule_.stage_count(), " stages on ",
                     schedule_.rank_count(), group_ == nullptr ? " devices" : " ranks");
    if (config_.replicas > 1) absl::StrAppend(&text, ", ", config_.replicas, " replicas");
    if (config_.shards > 1) {
      absl::StrAppend(&text, ", each stage shared by ", config_.shards, " ranks");
    }
    return text;
  }
  bool shards() const override { return true; }

  // The last step as rank 0's replica ran it, on rank 0's clock.
  std::string Picture() override {
    if (group_ != nullptr && mesh_->Coordinate("data") > 0) return "";
    const pipeline::Timeline measured = group_ == nullptr
                                            ? pipeline::MakeTimeline(spans_, schedule_.rank_count())
                                            : pipeline::GatherTimeline(*group_, spans_, began_ns_);
    if (measured.spans.empty()) return "";
    const auto even = pipeline::UniformCosts(schedule_.stage_count(), {1, 1, 1});
    return absl::StrFormat(
        "%sbubble: %.1f %% of the last pass; %.1f %% if all actions were alike\n",
        pipeline::DrawText(measured, kDrawingWidth), 100 * measured.bubble,
        100 * pipeline::Simulate(schedule_, even).bubble);
  }

 private:
  static constexpr char kNumber[] = "number:";

  void LoadStages(absl::string_view flag, const state::TensorSource& source) {
    CheckFits(flag, source);
    NamedTensors own;
    for (const std::string& name : module().StateTensors().Names()) {
      const state::TensorDescription* tensor = state::FindTensor(source, name);
      if (tensor == nullptr) tensor = state::FindTensor(source, kEmbedding);  // a tied head
      own.Insert(name, shards_.Read(name, source, tensor->name));
    }
    pipeline_->LoadStateDict(own);
  }

  // The whole model's names and shapes, so that all ranks refuse alike.
  void CheckFits(absl::string_view flag, const state::TensorSource& source) {
    std::vector<std::string> wrong;
    for (const auto& [name, shape] : shapes_) {
      const state::TensorDescription* const found = state::FindTensor(source, name);
      const bool repeats = name == kHead && model().config().tie_head;
      if (found == nullptr && !repeats) wrong.push_back(absl::StrCat("\"", name, "\" is missing"));
      if (found != nullptr && found->shape != shape) {
        wrong.push_back(absl::StrCat("\"", name, "\" has shape ", lockstep::ToString(found->shape),
                                     " instead of ", lockstep::ToString(shape)));
      }
    }
    for (const state::TensorDescription& tensor : source.tensors()) {
      if (shapes_.count(tensor.name) == 0) {
        wrong.push_back(absl::StrCat("\"", tensor.name, "\" is unknown"));
      }
    }
    if (wrong.empty()) return;
    throw InvalidArgumentError(
        absl::StrCat(flag, " does not fit the model: ", absl::StrJoin(wrong, "; ")));
  }

  static Tensor ToTensor(double loss) { return FromVector<double>({loss}, {}); }

  // Those of this rank, with bytes. The whole model stays on meta.
  std::map<int, pipeline::Stage> OwnStages() {
    std::map<int, pipeline::Stage> own;
    const std::vector<models::Gpt2Part> parts = BalancedGpt2Parts(model(), schedule_.stage_count());
    for (int stage = 0; stage < schedule_.stage_count(); ++stage) {
      if (schedule_.rank_of_stage[static_cast<size_t>(stage)] != group_->rank()) continue;
      const models::Gpt2Part& part = parts[static_cast<size_t>(stage)];
      FillHead(part, stage);
      if (sharing_ != nullptr) {
        own[stage] = shards_.Add(stage, Shard(part, stage));
        continue;
      }
      for (const auto& [path, part_module] : part.modules) {
        nn::MaterializeModule(*part_module, CurrentDevice());
        for (const Tensor& parameter : part_module->Parameters()) {
          parameters_[stage].push_back(parameter);
        }
      }
      own[stage] = StageOf(part);
    }
    return own;
  }

  bool HasTiedHead(int stage) {
    return stage > 0 && stage == schedule_.stage_count() - 1 && model().config().tie_head;
  }

  // Gives the copy of the embedding that is the last stage's head its bytes.
  void FillHead(const models::Gpt2Part& part, int stage) {
    if (!HasTiedHead(stage)) return;
    for (const auto& [path, part_module] : part.modules) {
      if (path != "lm_head") continue;
      auto& head = static_cast<nn::Linear&>(*part_module);
      const CategoryScope category(MemoryCategory::kParameter);
      head.weight = autograd::SetRequiresGrad(
          nn::MaterializeTensor(model().lm_head()->weight, CurrentDevice()), true);
    }
  }

  // A part of each block's parameters, and of the others', made and kept by each rank of sharing_.
  std::unique_ptr<pipeline::ShardedStage> Shard(const models::Gpt2Part& part, int stage) {
    const bool hybrid = config_.replicas > 1;
    pipeline::ShardedStageOptions options;
    options.sharding.sharding_strategy = hybrid ? strategies::ShardingStrategy::kHybridShard
                                                : strategies::ShardingStrategy::kFullShard;
    options.sharding.wrap_policy = strategies::WrapByType<models::Gpt2Block>();
    const bool is_copied = stage == 0 && HasTiedHead(schedule_.stage_count() - 1);
    if (is_copied) options.tied = {kEmbedding};
    if (HasTiedHead(stage)) options.tied = {kHead};
    if (hybrid) {
      return std::make_unique<pipeline::ShardedStage>(StageOf(part), *sharing_, options);
    }
    return std::make_unique<pipeline::ShardedStage>(StageOf(part), sharing_->Group("shard"),
                                                    options);
  }

  pipeline::PipelineOptions Options() {
    pipeline::PipelineOptions options =
        Gpt2PipelineOptions(model().config(), schedule_.stage_count());
    options.schedule = schedule_;
    options.scale_loss = [this](const Tensor& loss) { return (*scale_)(loss); };
    if (config_.DataRanks() > 1) options.abort_groups.push_back(mesh_->Group("data"));
    if (sharing_ != nullptr) {
      options.abort_groups.push_back(sharing_->Group("replicate"));
      options.no_sync = [this](int stage) { return shards_.NoSync(stage); };
      options.shard_group = sharing_->Group("shard");
    } else if (config_.DataRanks() > 1) {
      options.after_last_backward = [this](int stage) {
        if (averages_) AverageStage(stage);
      };
    }
    return options;
  }

  // The gradients of a stage over the replicas. Stages of a rank end in the same order on each.
  void AverageStage(int stage) {
    strategies::AverageGradients(parameters_.at(stage), *mesh_->Group("data"));
  }

  // On rank 0 everything that the ranks of its pipeline have; empty elsewhere.
  NamedTensors Gather(const NamedTensors& own) {
    if (group_ == nullptr) return own;
    const NamedTensors whole = shards_.Gather(own);
    if (mesh_->Coordinate("data") > 0) return {};
    return strategies::GatherNamedTensors(whole, *group_);
  }

  // Rows without targets, which count nothing, where a batch is smaller than the micro-batches.
  std::pair<Tensor, Tensor> WithEnoughRows(const Tensor& ids, const Tensor& targets) const {
    const int64_t missing = config_.micro_batches - ids.size(0);
    if (missing <= 0) return {ids, targets};
    const Shape shape = {missing, ids.size(1)};
    return {Concat({ids, Zeros(shape, {.dtype = ids.dtype()})}, 0),
            Concat({targets, Full(shape, kNoTarget, {.dtype = targets.dtype()})}, 0)};
  }

  const TrainConfig config_;
  const pipeline::Schedule schedule_;
  std::map<std::string, Shape> shapes_;            // of the whole model, as it was made
  std::unique_ptr<comm::DeviceMesh> mesh_;         // null in one process, as the group is
  std::shared_ptr<comm::Communicator> group_;      // the ranks of this pipeline
  std::unique_ptr<comm::DeviceMesh> sharing_;      // the ranks of this stage; null without --shards
  StageShards shards_;                             // with --shards: of each stage of this rank
  std::map<int, std::vector<Tensor>> parameters_;  // without: the same
  std::unique_ptr<pipeline::Pipeline> pipeline_;
  const amp::TrainingStep::ScaleLoss* scale_ = nullptr;  // of the pass that runs
  bool averages_ = true;                                 // over the replicas, after the pass
  // Of the last pass, on this process's ranks, and when it began on its clock.
  std::vector<pipeline::Span> spans_;
  int64_t began_ns_ = 0;
};

}  // namespace

std::unique_ptr<TrainingStrategy> MakePipelineStrategy(const TrainConfig& config,
                                                       std::shared_ptr<models::Gpt2> model,
                                                       std::shared_ptr<comm::Communicator> world) {
  return std::make_unique<PipelineStrategy>(config, model, world);
}

}  // namespace lockstep::examples
