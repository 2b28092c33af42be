// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/testing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <mutex>

#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/pipeline/micro_batches.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/stage_streams.h"
#include "lockstep/strategies/pipeline/stage_tree.h"
#include "lockstep/strategies/pipeline/wiring.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::pipeline::testing_util {
namespace {

// One thread an op, and puts the caller's number back.
class OneThread {
 public:
  OneThread() : saved_(CurrentThreadState().intra_op_threads) { SetIntraOpThreads(1); }
  ~OneThread() { SetIntraOpThreads(saved_); }

 private:
  int saved_;
};

std::unique_ptr<amp::Autocast> AutocastOf(const Training& training) {
  if (training.precision == Precision::kFloat32) return nullptr;
  const bool bfloat16 = training.precision == Precision::kBFloat16;
  return std::make_unique<amp::Autocast>(
      amp::AutocastOptions{.dtype = bfloat16 ? DType::kBFloat16 : DType::kFloat16});
}

// The optimizer, and with float16 the scaler, of the parameters of one process; and what becomes of
// its steps.
class Trainer {
 public:
  Trainer(const Training& training, nn::Module& module, std::shared_ptr<comm::Communicator> group)
      : module_(module) {
    const NamedTensors parameters = module.NamedParameters();
    if (!parameters.empty()) {
      optimizer_ =
          std::make_unique<optim::Sgd>(parameters, optim::SgdOptions{.lr = 0.1, .momentum = 0.9});
    }
    if (training.precision == Precision::kFloat16) {
      scaler_ = std::make_unique<amp::GradScaler>(
          amp::GradScalerOptions{.init_scale = 0x1p20, .backoff_factor = 0x1p-4, .group = group});
    }
    ManualSeed(training.seed + 100);
  }

  Tensor Scale(const Tensor& loss) const {
    return scaler_ != nullptr ? scaler_->Scale(loss) : loss;
  }

  void Step(double loss) {
    trained_.losses.push_back(loss);
    if (scaler_ != nullptr) {
      trained_.stepped.push_back(scaler_->Step(*optimizer_));
      scaler_->Update();
    } else if (optimizer_ != nullptr) {
      optimizer_->Step();
    }
  }

  Trained Finish() {
    trained_.parameters = ParametersOf(module_);
    return trained_;
  }

 private:
  nn::Module& module_;
  std::unique_ptr<optim::Sgd> optimizer_;
  std::unique_ptr<amp::GradScaler> scaler_;
  Trained trained_;
};

// `trainer` is there when the pipeline steps.
PipelineOptions OptionsOf(const TestModel& model, Schedule schedule,
                          const std::unique_ptr<Trainer>& trainer) {
  if (!model.wiring.empty()) schedule.edges = EdgesOf(model.wiring);
  return {.schedule = std::move(schedule),
          .loss = model.loss,
          .wiring = model.wiring,
          .tied = model.tied,
          .scale_loss = [&trainer](const Tensor& loss) { return trainer->Scale(loss); }};
}

Trained TrainWith(Pipeline& pipeline, const Training& training, Trainer& trainer) {
  for (int step = 0; step < training.steps; ++step) {
    pipeline.module().ZeroGrad();
    double loss = 0;
    {
      const auto autocast = AutocastOf(training);
      loss = pipeline.Step({InputsOf(training, step)}, {TargetsOf(training, step)}).loss;
    }
    trainer.Step(loss);
  }
  return trainer.Finish();
}

TensorList InputsOfStage(const TestModel& model, int stage, const std::vector<Tensor>& batch,
                         const std::vector<TensorList>& outputs) {
  if (model.wiring.empty()) {
    return stage == 0 ? TensorList(batch.begin(), batch.end()) : outputs.back();
  }
  TensorList inputs;
  for (const InputSource& source : model.wiring[static_cast<size_t>(stage)]) {
    const auto index = static_cast<size_t>(source.index);
    inputs.push_back(source.stage == kBatch ? batch[index]
                                            : outputs[static_cast<size_t>(source.stage)][index]);
  }
  return inputs;
}

// The copies of a tied parameter, in the order of stages.
std::vector<Tensor> CopiesOf(const TestModel& model, const std::vector<StageParameter>& group) {
  std::vector<Tensor> copies;
  for (const StageParameter& copy : group) {
    for (const auto& [path, module] : model.stages[static_cast<size_t>(copy.stage)].parts) {
      for (const auto& [name, tensor] : module->NamedParameters()) {
        if (path + "." + name == copy.name) copies.push_back(tensor);
      }
    }
  }
  return copies;
}

void MakeTiedEqual(const TestModel& model) {
  const autograd::NoGradScope no_grad;
  for (const auto& group : model.tied) {
    const std::vector<Tensor> copies = CopiesOf(model, group);
    for (size_t i = 1; i < copies.size(); ++i) CopyInto(copies[i], copies[0]);
  }
}

void AddTiedGradients(const TestModel& model) {
  const autograd::NoGradScope no_grad;
  for (const auto& group : model.tied) {
    const std::vector<Tensor> copies = CopiesOf(model, group);
    Tensor sum = autograd::Grad(copies[0]);
    for (size_t i = 1; i < copies.size(); ++i) sum = Add(sum, autograd::Grad(copies[i]));
    for (const Tensor& copy : copies) autograd::SetGrad(copy, Clone(sum));
  }
}

}  // namespace

bool IsSoakRun() {
  const std::vector<std::string> arguments = testing::internal::GetArgvs();
  return std::find(arguments.begin(), arguments.end(), "--soak") != arguments.end();
}

std::map<std::string, std::vector<float>> ParametersOf(const nn::Module& module) {
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, parameter] : module.NamedParameters()) {
    values[name] = parameter.ToVector<float>();
  }
  return values;
}

std::map<std::string, std::vector<float>> GradientsOf(const nn::Module& module) {
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, parameter] : module.NamedParameters()) {
    const Tensor gradient = autograd::Grad(parameter);
    values[name] = gradient.defined() ? gradient.ToVector<float>() : std::vector<float>();
  }
  return values;
}

Trained TrainAlone(Schedule schedule, const Training& training) {
  const OneThread one_thread;
  const int stages = schedule.stage_count(), micro_batches = schedule.micro_batches;
  const TestModel model = MakeTestModel(training, stages);
  StageTree whole;
  for (const Stage& stage : model.stages) {
    for (const auto& [path, module] : stage.parts) whole.Add(path, module);
  }
  MakeTiedEqual(model);
  Trainer trainer(training, whole, nullptr);
  for (int step = 0; step < training.steps; ++step) {
    whole.ZeroGrad();
    const RandomStreams start = ThreadGenerators();
    const auto inputs = SplitRows({InputsOf(training, step)}, micro_batches, "input");
    const auto targets = SplitRows({TargetsOf(training, step)}, micro_batches, "target");
    double sum = 0;
    for (int m = 0; m < micro_batches; ++m) {
      const auto at = static_cast<size_t>(m);
      Tensor loss;
      {
        const auto autocast = AutocastOf(training);
        std::vector<TensorList> outputs;
        for (int s = 0; s < stages; ++s) {
          ThreadGenerators() = StageStreams(start, s, stages, m);
          outputs.push_back(model.stages[static_cast<size_t>(s)].forward(
              InputsOfStage(model, s, inputs[at], outputs)));
        }
        loss = model.loss(outputs.back(), targets[at]);
      }
      const double share =
          static_cast<double>(inputs[at][0].size(0)) / static_cast<double>(training.rows);
      autograd::Backward(trainer.Scale(share == 1 ? loss : Mul(loss, share)));
      sum += share * loss.Item<double>();
    }
    ThreadGenerators() = StreamsAfter(start, stages, micro_batches);
    AddTiedGradients(model);
    trainer.Step(sum);
  }
  return trainer.Finish();
}

Trained TrainThreads(Schedule schedule, const Training& training) {
  TestModel model = MakeTestModel(training, schedule.stage_count());
  std::unique_ptr<Trainer> trainer;
  PipelineOptions options = OptionsOf(model, std::move(schedule), trainer);
  options.threads_per_rank = 1;
  options.timeout = absl::Seconds(60);
  Pipeline pipeline(std::move(model.stages), options);
  trainer = std::make_unique<Trainer>(training, pipeline.module(), nullptr);
  return TrainWith(pipeline, training, *trainer);
}

Trained TrainRank(Schedule schedule, const Training& training,
                  std::shared_ptr<comm::Communicator> world) {
  TestModel model = MakeTestModel(training, schedule.stage_count());
  std::unique_ptr<Trainer> trainer;
  const PipelineOptions options = OptionsOf(model, schedule, trainer);
  Pipeline pipeline(StagesOf(schedule, world->rank(), std::move(model.stages)), world, options);
  trainer = std::make_unique<Trainer>(training, pipeline.module(), world);
  return TrainWith(pipeline, training, *trainer);
}

Trained TrainRanks(Schedule schedule, const Training& training, const std::string& backend) {
  Trained trained;
  std::mutex mutex;
  OnRanks(
      schedule.rank_count(),
      [&](int rank, std::shared_ptr<comm::Communicator> world) {
        const Trained own = TrainRank(schedule, training, std::move(world));
        std::lock_guard<std::mutex> lock(mutex);
        if (!trained.losses.empty()) {
          EXPECT_EQ(own.losses, trained.losses) << "of rank " << rank;
          EXPECT_EQ(own.stepped, trained.stepped) << "of rank " << rank;
        }
        trained.losses = own.losses;
        trained.stepped = own.stepped;
        trained.parameters.insert(own.parameters.begin(), own.parameters.end());
      },
      backend);
  return trained;
}

void ExpectSame(const Trained& got, const Trained& wanted) {
  EXPECT_EQ(got.losses, wanted.losses);
  EXPECT_EQ(got.stepped, wanted.stepped);
  EXPECT_EQ(got.parameters.size(), wanted.parameters.size());
  for (const auto& [name, values] : wanted.parameters) {
    const auto it = got.parameters.find(name);
    ASSERT_NE(it, got.parameters.end()) << name;
    EXPECT_EQ(it->second, values) << name;
  }
}

void ExpectNear(const Trained& got, const Trained& wanted, double bound) {
  ASSERT_EQ(got.losses.size(), wanted.losses.size());
  for (size_t step = 0; step < wanted.losses.size(); ++step) {
    EXPECT_NEAR(got.losses[step], wanted.losses[step], bound * std::abs(wanted.losses[step]));
  }
  EXPECT_EQ(got.parameters.size(), wanted.parameters.size());
  for (const auto& [name, values] : wanted.parameters) {
    const auto it = got.parameters.find(name);
    ASSERT_NE(it, got.parameters.end()) << name;
    ASSERT_EQ(it->second.size(), values.size()) << name;
    double largest = 0, difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(double{values[i]}));
      difference = std::max(difference, std::abs(double{values[i]} - double{it->second[i]}));
    }
    EXPECT_LE(difference, bound * largest) << name;
  }
}

std::vector<RankOutcome> RunRanks(int ranks, const RankBody& body, const std::string& backend,
                                  absl::Duration timeout) {
  std::vector<RankOutcome> outcomes(static_cast<size_t>(ranks));
  comm::SpawnThreads(ranks,
                     [&](comm::RankContext& context) {
                       RankOutcome& outcome = outcomes[static_cast<size_t>(context.rank)];
                       try {
                         comm::ProcessGroupOptions options = context.group_options();
                         options.timeout = timeout;
                         options.backend = backend;
                         body(context.rank, comm::InitProcessGroup(options));
                       } catch (const Error& error) {
                         outcome = {error.code(), error.message()};
                       }
                     },
                     {.threads_per_rank = 1})
      .ThrowIfFailed();
  return outcomes;
}

void OnRanks(int ranks, const RankBody& body, const std::string& backend) {
  for (const RankOutcome& outcome : RunRanks(ranks, body, backend)) {
    EXPECT_EQ(outcome.code, absl::StatusCode::kOk) << outcome.message;
  }
}

std::map<int, Stage> StagesOf(const Schedule& schedule, int rank, std::vector<Stage> all) {
  std::map<int, Stage> stages;
  for (int s = 0; s < schedule.stage_count(); ++s) {
    if (schedule.rank_of_stage[static_cast<size_t>(s)] != rank) continue;
    stages.emplace(s, std::move(all[static_cast<size_t>(s)]));
  }
  return stages;
}

}  // namespace lockstep::pipeline::testing_util
