// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/trainer.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/amp/training/training_step.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/measure_units.h"
#include "lockstep/checkpoint/offload.h"
#include "lockstep/checkpoint/setting.h"
#include "lockstep/data/byte_text.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sampler.h"
#include "lockstep/examples/adamw_groups.h"
#include "lockstep/examples/find_state.h"
#include "lockstep/examples/initial_model.h"
#include "lockstep/examples/memory_table.h"
#include "lockstep/examples/progress.h"
#include "lockstep/examples/resume_command.h"
#include "lockstep/examples/run_state.h"
#include "lockstep/examples/stop_signal.h"
#include "lockstep/examples/training_strategy.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/nn/optim/schedules/cosine.h"
#include "lockstep/profile/machine_limits.h"
#include "lockstep/profile/profiler.h"
#include "lockstep/state/training_state.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::examples {
namespace {

constexpr int64_t kValidationRows = 240;
constexpr int64_t kValidateEvery = 200;
constexpr int64_t kSampleBytes = 240;

// Averages of recent steps, so that the shown speed follows the machine but does not flicker.
class RecentSpeed {
 public:
  void Add(double seconds, double communication_seconds) {
    constexpr double kKeep = 0.95;
    weight_ = kKeep * weight_ + 1;
    seconds_ = kKeep * seconds_ + seconds;
    communication_ = kKeep * communication_ + communication_seconds;
  }
  double SecondsPerStep() const { return seconds_ / weight_; }
  double CommunicationShare() const { return seconds_ > 0 ? communication_ / seconds_ : 0; }

 private:
  double weight_ = 0;
  double seconds_ = 0;
  double communication_ = 0;
};

// What names in a training state begin with.
constexpr absl::string_view kScalerPrefix = "scaler.";

void SaveScaler(const amp::GradScalerState& scaler, state::TrainingState& state) {
  for (const auto& [name, value] : scaler.reals) {
    state.Set(absl::StrCat(kScalerPrefix, name), value);
  }
  for (const auto& [name, value] : scaler.integers) {
    state.Set(absl::StrCat(kScalerPrefix, name), value);
  }
}

amp::GradScalerState LoadScaler(const state::TrainingState& state) {
  amp::GradScalerState scaler;
  for (const auto& [name, value] : state.values) {
    if (!absl::StartsWith(name, kScalerPrefix)) continue;
    const std::string own = name.substr(kScalerPrefix.size());
    if (const double* const real = std::get_if<double>(&value)) {
      scaler.reals[own] = *real;
    } else {
      scaler.integers[own] = state.Integer(name);
    }
  }
  return scaler;
}

class Trainer {
 public:
  Trainer(const TrainConfig& config, std::shared_ptr<comm::Communicator> world)
      : config_(config),
        world_(std::move(world)),
        first_(world_->rank() == 0),
        text_(data::ByteText::Open(config.data, {.extensions = config.extensions})),
        train_(std::make_shared<data::ByteTextDataset>(text_, config.block,
                                                       data::TextPart::kTraining)),
        validation_(std::make_shared<data::ByteTextDataset>(text_, config.block,
                                                            data::TextPart::kValidation)),
        loader_(train_, Sampler(train_->size(), data::Remainder::kDrop, /*shuffle=*/true),
                {.batch_size = config.RowsPerPass(), .drop_last = true, .threads = 1}),
        autocast_(amp::ParseAutocast(config.amp)) {
    if (loader_.BatchesPerEpoch() == 0) {
      throw InvalidArgumentError(absl::StrCat("--data=", config.data, ": has ", train_->size(),
                                              " training rows, fewer than --batch=", config.batch));
    }
    ManualSeed(static_cast<uint64_t>(config.seed), DataRank());
    {
      std::optional<nn::DeferredInitScope> deferred;
      if (config.deferred_init || config.RankPerStage()) deferred.emplace();
      model_ = std::make_shared<models::Gpt2>(config.ModelConfig());
    }
    ApplyCheckpointing();  // before strategies, which would take its trial passes for steps
    const std::set<std::string> matrices = NamesOfMatrices(*model_);
    parameter_count_ = model_->ParameterCount();
    strategy_ = MakeTrainingStrategy(config, model_, world_);
    if (engine::Engine* engine = strategy_->engine()) {
      optimizer_ = &engine->optimizer();
      schedule_ = engine->schedule();
      scaler_ = engine->scaler();
      autocast_ = engine->autocast();
    } else {
      MakeTraining(matrices);
    }
    if (!config.resume.empty()) {
      Restore(LoadRunState(config.resume, *strategy_, *optimizer_, *world_, begins_anew_));
    } else if (!config.init_from.empty()) {
      strategy_->LoadModel(*OpenInitialModel(config.init_from));
    }
  }

  void Run() {
    PrintPlan();
    // A state in parts, resumed to be made whole: whatever comes next, it is.
    if (!config_.resume.empty() && config_.state_layout == "full" &&
        IsShardedState(config_.resume)) {
      Save();
    }
    Progress progress(step_, config_.steps);
    bool stopped = false;
    double validation_loss = step_ >= config_.steps ? Validate() : 0;
    const int64_t first_step = step_;
    double communication_seconds = 0;
    while (step_ < config_.steps && !stopped) {
      Stopwatch watch;
      const bool profiled = step_ + 1 == config_.profile_step;
      const StepOutcome outcome = profiled ? ProfiledStep(progress) : Step();
      stopped = outcome.stop;
      recent_.Add(watch.ElapsedSeconds(), outcome.communication_seconds);
      communication_seconds += outcome.communication_seconds;
      training_seconds_ += watch.ElapsedSeconds();
      const bool last = step_ == config_.steps || stopped;
      if (first_ && !outcome.skipped.empty()) {
        progress.Line(absl::StrCat("step ", step_, ": ", outcome.skipped));
      }
      if (first_) progress.Update(Report(outcome.loss));
      if (last || step_ % kValidateEvery == 0) {
        validation_loss = Validate();
        if (first_) progress.Line(absl::StrFormat("validation_loss=%.4f", validation_loss));
      }
      if (last || (config_.save_every > 0 && step_ % config_.save_every == 0)) Save();
    }
    if (first_ && stopped) {
      progress.Line(absl::StrCat("stopped by a signal after step ", step_, "; all ranks saved"));
    }
    Finish(step_ - first_step, communication_seconds, validation_loss);
  }

 private:
  struct StepOutcome {
    double loss = 0;  // mean over all rows
    bool stop = false;
    double communication_seconds = 0;  // that this rank waited
    std::string skipped = {};          // why nothing was learnt, or ""
  };

  std::shared_ptr<data::DistributedSampler> Sampler(int64_t rows, data::Remainder remainder,
                                                    bool shuffle) const {
    return std::make_shared<data::DistributedSampler>(
        rows, data::SamplerOptions{.rank = DataRank(),
                                   .world_size = static_cast<int>(config_.DataRanks()),
                                   .shuffle = shuffle,
                                   .seed = static_cast<uint64_t>(config_.seed),
                                   .remainder = remainder});
  }

  // Which part of the rows this rank has: those of one pipeline are neighbours.
  int DataRank() const {
    return world_->rank() / (world_->size() / static_cast<int>(config_.DataRanks()));
  }

  NamedTensors NextBatch() {
    std::optional<NamedTensors> batch = loader_.Next();
    if (!batch) batch = loader_.Next();  // another epoch; it has batches, the constructor has seen
    return *std::move(batch);
  }

  void MakeTraining(const std::set<std::string>& matrices) {
    own_optimizer_ = strategy_->MakeOptimizer(
        MakeAdamWGroups(strategy_->module().NamedParameters(), matrices, config_.lr));
    optimizer_ = own_optimizer_.get();
    own_schedule_ = std::make_unique<optim::Schedule>(
        optimizer_, optim::WarmupCosine({.warmup_steps = config_.WarmupSteps(),
                                         .total_steps = config_.steps,
                                         .final_fraction = 0.1}));
    schedule_ = own_schedule_.get();
    // float16 reaches down to 6e-8: smaller gradients would be zero.
    if (autocast_ && autocast_->dtype == DType::kFloat16) {
      own_scaler_ = std::make_unique<amp::GradScaler>(amp::GradScalerOptions{.group = world_});
      scaler_ = own_scaler_.get();
    }
    training_ = std::make_unique<amp::TrainingStep>(StepOptions());
  }

  amp::TrainingStepOptions StepOptions() {
    amp::TrainingStepOptions options{.optimizers = {{optimizer_, schedule_}},
                                     .module = &strategy_->module(),
                                     .autocast = autocast_,
                                     .scaler = scaler_,
                                     .clip_norm = TrainConfig::kClipNorm,
                                     .micro_batches = config_.PassesPerStep(),
                                     .group = world_};
    options.clip_grad_norm = strategy_->ClipGradNorm();
    options.no_sync = strategy_->NoSync();
    return options;
  }

  void ApplyCheckpointing() {
    const int64_t rows = config_.batch / config_.DataRanks() / config_.micro_batches;
    const int64_t on_a_device = (rows + config_.devices - 1) / config_.devices;
    const Tensor ids = Zeros({on_a_device, config_.block}, {.dtype = DType::kInt64});
    checkpointing_ =
        checkpoint::ApplyCheckpointSetting(checkpoint::ParseCheckpointSetting(config_.checkpoint),
                                           checkpoint::UnitsOf(model_->transformer()->h()), [&] {
                                             std::optional<amp::Autocast> autocast;
                                             if (autocast_) autocast.emplace(*autocast_);
                                             return model_->Loss(ids, ids);
                                           });
  }

  StepOutcome Step() {
    std::vector<NamedTensors> batches;
    for (int64_t i = 0; i < config_.PassesPerStep(); ++i) batches.push_back(NextBatch());
    const amp::StepReport report = RunStep(batches);
    ++step_;
    strategy_->AfterStep();
    StepOutcome outcome;
    outcome.loss = report.loss;
    if (!report.stepped) outcome.skipped = report.ToString();
    // Whether any rank has been asked to stop.
    const Tensor stop = FromVector<int64_t>({StopRequested() ? 1 : 0}, {1});
    Stopwatch waiting;
    world_->AllReduce(stop, {.op = comm::ReduceOp::kMax}).Wait();
    outcome.communication_seconds = report.communication_seconds + waiting.ElapsedSeconds();
    outcome.communication_seconds += strategy_->exposed_seconds();
    outcome.stop = stop.Item<int64_t>() > 0;
    return outcome;
  }

  amp::StepReport RunStep(const std::vector<NamedTensors>& batches) {
    const std::shared_ptr<void> scope = strategy_->StepScope();
    try {
      const auto loss = [&](int64_t i) {
        const NamedTensors& batch = batches[static_cast<size_t>(i)];
        std::optional<checkpoint::OffloadActivations> offload;
        if (config_.offload_activations) offload.emplace();
        return strategy_->Loss(batch);
      };
      if (strategy_->runs_backward()) {
        const auto pass = [&](int64_t i, const amp::TrainingStep::ScaleLoss& scale) {
          return strategy_->ForwardBackward(batches[static_cast<size_t>(i)], scale);
        };
        return training_->RunPasses(pass, config_.PassesPerStep());
      }
      engine::Engine* const engine = strategy_->engine();
      return engine != nullptr ? engine->Step(loss) : training_->Run(loss);
    } catch (const Error& error) {
      if (error.code() != absl::StatusCode::kFailedPrecondition) throw;
      throw error.WithContext(absl::StrCat("step ", step_ + 1, ", --lr=", config_.lr));
    }
  }

  // The table is rank 0's; each rank's trace lies beside the states.
  StepOutcome ProfiledStep(Progress& progress) {
    const profile::MachineLimits limits = profile::MeasureMachineLimits();
    auto profiler = std::make_shared<profile::Profiler>();
    StepOutcome outcome;
    {
      profile::ProfileScope scope(profiler);
      outcome = Step();
    }
    std::filesystem::create_directories(config_.out);
    const std::string path =
        absl::StrCat(config_.out, "/profile-step-", step_, "-rank-", world_->rank(), ".json");
    profiler->WriteTrace(path, world_->rank());
    if (first_) progress.Line(absl::StrCat(profiler->Table(limits), "trace: ", path));
    return outcome;
  }

  // Mean loss over the first rows that are held out, the same rows for every number of ranks.
  double Validate() {
    strategy_->Average();
    const autograd::NoGradScope no_grad;
    std::optional<amp::Autocast> autocast;
    if (autocast_) autocast.emplace(*autocast_);
    const int64_t rows = std::min(kValidationRows, validation_->size());
    const int64_t batch_rows = config_.RowsPerPass();
    data::DataLoader loader(validation_, Sampler(rows, data::Remainder::kExact, /*shuffle=*/false),
                            {.batch_size = batch_rows, .threads = 0});
    strategy_->module().Eval();
    double sum = 0;
    NamedTensors last;
    const int64_t most = (rows + config_.DataRanks() - 1) / config_.DataRanks();
    int64_t passes = strategy_->collective_forward() ? (most + batch_rows - 1) / batch_rows : 0;
    while (std::optional<NamedTensors> batch = loader.Next()) {
      const double count = static_cast<double>(batch->At("ids").size(0));
      sum += count * strategy_->Loss(*batch).Item<double>();
      last = *std::move(batch);
      --passes;
    }
    // Ranks with fewer rows go along.
    for (; passes > 0; --passes) strategy_->Loss(last.empty() ? AnyBatch() : last);
    strategy_->module().Train();
    Tensor total = FromVector<double>({sum}, {1});
    world_->AllReduce(total).Wait();
    // All ranks of a pipeline have the loss of the same rows.
    const double copies =
        static_cast<double>(world_->size()) / static_cast<double>(config_.DataRanks());
    return total.Item<double>() / copies / static_cast<double>(rows);
  }

  NamedTensors AnyBatch() const {
    const Tensor ids = Zeros({1, config_.block}, {.dtype = DType::kInt64});
    return {{"ids", ids}, {"targets", ids}};
  }

  double TokensPerStep() const {
    return static_cast<double>(config_.batch * config_.accumulate * config_.block);
  }

  // Of the device that holds most.
  int64_t PeakBytes() const {
    int64_t most = 0;
    for (const Device device : strategy_->devices()) {
      most = std::max(most, GetMemoryStats(device).peak_bytes);
    }
    return most;
  }

  StepReport Report(double loss) const {
    return {.step = step_,
            .loss = loss,
            .tokens_per_second = TokensPerStep() / recent_.SecondsPerStep(),
            .communication_share = recent_.CommunicationShare(),
            .peak_bytes = PeakBytes()};
  }

  void Save() {
    strategy_->Average();
    state_path_ = SaveRunState(config_, *strategy_, *optimizer_, Snapshot(), *world_);
  }

  // All but what strategy and optimizer have.
  state::TrainingState Snapshot() {
    state::TrainingState state;
    state.step = step_;
    state.Set("schedule.step", schedule_ != nullptr ? schedule_->step() : step_);
    if (scaler_ != nullptr) SaveScaler(scaler_->SaveState(), state);
    state.Set("data.epoch", loader_.position().epoch);
    // In micro-batches, which every strategy has.
    state.Set("data.batch", loader_.position().batch * config_.MicroBatchesPerPass());
    state.Set("data.fingerprint", static_cast<int64_t>(text_->Fingerprint()));
    state::SaveRandomState(ThreadGenerators(), state);
    config_.Save(state);
    return state;
  }

  void Restore(const state::TrainingState& state) {
    if (state.Integer("data.fingerprint") != static_cast<int64_t>(text_->Fingerprint())) {
      throw InvalidArgumentError(absl::StrCat("--data=", config_.data,
                                              ": its bytes are not those "
                                              "that ",
                                              config_.resume,
                                              " was trained on; give that "
                                              "data, or start anew without --resume"));
    }
    optim::OptimizerState schedule;
    schedule.numbers["step"] = state.Integer("schedule.step");
    if (schedule_ != nullptr) schedule_->LoadState(schedule);
    // The run may have been in another precision until now.
    const amp::GradScalerState scaler = LoadScaler(state);
    if (scaler_ != nullptr && !scaler.reals.empty()) scaler_->LoadState(scaler);
    loader_.Seek(
        {state.Integer("data.epoch"), state.Integer("data.batch") / config_.MicroBatchesPerPass()});
    ThreadGenerators() = state::LoadRandomState(state, DataRank());
    step_ = state.step;
    state_path_ = config_.resume;
  }

  // What differs from plain float32 steps, for the plan.
  std::string Precision() const {
    std::string text;
    if (config_.micro_batches > 1) {
      absl::StrAppend(&text, ", ", config_.micro_batches, " micro-batches");
    }
    if (config_.accumulate > 1) {
      absl::StrAppend(&text, ", ", config_.accumulate, " batches a step");
    }
    if (autocast_) absl::StrAppend(&text, ", autocast ", config_.amp);
    if (config_.offload_activations) absl::StrAppend(&text, ", activations on the host");
    if (config_.comm_hook != "none") absl::StrAppend(&text, ", gradients ", config_.comm_hook);
    if (config_.StepsBeforeCompression() > 0) {
      absl::StrAppend(&text, " after ", config_.StepsBeforeCompression(), " steps in full");
    }
    if (config_.staleness > 0) {
      absl::StrAppend(&text, ", averages of ", config_.staleness, " steps ago");
    }
    if (config_.local_sgd_period > 0) {
      absl::StrAppend(&text, ", parameters averaged every ", config_.local_sgd_period, " steps");
    }
    return text;
  }

  void PrintPlan() const {
    if (!first_) return;
    std::printf("data: %s, %lld files, %s, %lld training and %lld validation rows of %lld bytes\n",
                config_.data.c_str(), static_cast<long long>(text_->file_count()),
                HumanBytes(text_->size_bytes()).c_str(), static_cast<long long>(train_->size()),
                static_cast<long long>(validation_->size()), static_cast<long long>(config_.block));
    std::printf(
        "model: GPT-2 over bytes, %lld layers, %lld heads, width %lld, block %lld, %lld "
        "parameters\n",
        static_cast<long long>(config_.layers), static_cast<long long>(config_.heads),
        static_cast<long long>(config_.width), static_cast<long long>(config_.block),
        static_cast<long long>(parameter_count_));
    std::printf("strategy: %s, %d rank%s of %d thread%s%s, backend %s\n", config_.strategy.c_str(),
                world_->size(), world_->size() == 1 ? "" : "s", IntraOpThreads(),
                IntraOpThreads() == 1 ? "" : "s", strategy_->Details().c_str(),
                std::string(world_->backend()).c_str());
    if (strategy_->engine() != nullptr) {
      std::printf("training: %lld steps of %lld rows, as %s says\n",
                  static_cast<long long>(config_.steps), static_cast<long long>(config_.batch),
                  config_.config.c_str());
    } else {
      std::printf(
          "training: %lld steps of %lld rows, AdamW %g, warm-up %lld, cosine to a tenth, clip "
          "%g%s\n",
          static_cast<long long>(config_.steps), static_cast<long long>(config_.batch), config_.lr,
          static_cast<long long>(config_.WarmupSteps()), TrainConfig::kClipNorm,
          Precision().c_str());
    }
    if (!config_.init_from.empty() && config_.resume.empty()) {
      std::printf("beginning with: %s\n", config_.init_from.c_str());
    }
    if (config_.checkpoint != "none") std::printf("memory: %s\n", checkpointing_.c_str());
    if (!config_.resume.empty()) {
      std::printf("resuming: %s, after step %lld\n", config_.resume.c_str(),
                  static_cast<long long>(step_));
      for (const std::string& what : begins_anew_) {
        std::printf("resuming: without %s\n", what.c_str());
      }
    }
    std::printf("states: %s%s\n", config_.out.c_str(),
                config_.state_layout == "sharded" ? ", a part for each rank" : "");
    std::fflush(stdout);
  }

  void PrintSample() {
    Generator generator;
    generator.key = {static_cast<uint64_t>(config_.seed), kDataStream, 0};
    const std::string prompt = "\n#include <";
    std::vector<int64_t> ids;
    for (char c : prompt) ids.push_back(static_cast<uint8_t>(c));
    if (static_cast<int64_t>(ids.size()) > config_.block) ids.resize(1);
    std::string text = prompt;
    std::vector<int64_t> sample;
    strategy_->Inside([&](models::Gpt2& model) {
      sample = model.Generate(ids, kSampleBytes,
                              {.temperature = 0.7, .top_k = 40, .generator = &generator});
    });
    for (const int64_t id : sample) {
      // Control bytes of an early model would garble the terminal.
      const char c = static_cast<char>(id);
      text += c == '\n' || c == '\t' || (c >= ' ' && c < 127) ? c : '?';
    }
    if (first_) std::printf("sample:%s\n", text.c_str());
  }

  void Finish(int64_t steps_done, double communication_seconds, double validation_loss) {
    Tensor peak = FromVector<int64_t>({PeakBytes()}, {1});
    world_->AllReduce(peak, {.op = comm::ReduceOp::kMax}).Wait();
    // Before the sample, for which rank 0 may need a whole model.
    if (strategy_->shards()) PrintMemory(*world_, strategy_->devices());
    if (first_ || strategy_->collective_forward()) PrintSample();
    const std::string picture = strategy_->Picture();
    if (!first_) return;
    std::printf("%s", picture.c_str());
    std::printf("state: %s\n", state_path_.c_str());
    std::printf("resume: %s\n",
                ResumeCommand(state_path_, step_ >= config_.steps ? 2 * config_.steps : 0).c_str());
    const double seconds = std::max(training_seconds_, 1e-9);
    std::printf(
        "summary: strategy=%s ranks=%d steps=%lld tokens_per_second=%.0f "
        "validation_loss=%.4f communication_share=%.4f peak_bytes_per_rank=%lld\n",
        config_.strategy.c_str(), world_->size(), static_cast<long long>(step_),
        TokensPerStep() * static_cast<double>(steps_done) / seconds, validation_loss,
        steps_done > 0 ? communication_seconds / seconds : 0.0,
        static_cast<long long>(peak.Item<int64_t>()));
    std::fflush(stdout);
  }

  const TrainConfig config_;
  const std::shared_ptr<comm::Communicator> world_;
  const bool first_;
  std::shared_ptr<const data::ByteText> text_;
  std::shared_ptr<data::ByteTextDataset> train_;
  std::shared_ptr<data::ByteTextDataset> validation_;
  data::DataLoader loader_;
  std::optional<amp::AutocastOptions> autocast_;
  std::shared_ptr<models::Gpt2> model_;
  std::string checkpointing_;  // what of the model is recomputed, in words
  int64_t parameter_count_ = 0;
  std::unique_ptr<TrainingStrategy> strategy_;
  std::unique_ptr<optim::Optimizer> own_optimizer_;
  std::unique_ptr<optim::Schedule> own_schedule_;
  std::unique_ptr<amp::GradScaler> own_scaler_;
  optim::Optimizer* optimizer_ = nullptr;
  optim::Schedule* schedule_ = nullptr;  // null: the learning rate stays
  amp::GradScaler* scaler_ = nullptr;    // null: gradients are not scaled
  std::unique_ptr<amp::TrainingStep> training_;
  RecentSpeed recent_;
  double training_seconds_ = 0;
  int64_t step_ = 0;
  std::string state_path_;
  std::vector<std::string> begins_anew_;  // of a resumed state, for the plan
};

}  // namespace

void Train(const TrainConfig& config, std::shared_ptr<comm::Communicator> world) {
  Trainer(config, std::move(world)).Run();
}

}  // namespace lockstep::examples
