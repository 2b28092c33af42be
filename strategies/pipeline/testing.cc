// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/testing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <mutex>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/pipeline/balance.h"
#include "lockstep/strategies/pipeline/micro_batches.h"
#include "lockstep/strategies/pipeline/stage_streams.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::pipeline::testing_util {
namespace {

Tensor Waves(int64_t first, int64_t rows, int64_t columns, double frequency) {
  std::vector<float> values;
  for (int64_t i = first * columns; i < (first + rows) * columns; ++i) {
    values.push_back(static_cast<float>(std::sin(frequency * static_cast<double>(i) + 0.1)));
  }
  return FromVector<float>(values, {rows, columns}, {.device = Cpu()});
}

// One thread an op, and puts the caller's number back.
class OneThread {
 public:
  OneThread() : saved_(CurrentThreadState().intra_op_threads) { SetIntraOpThreads(1); }
  ~OneThread() { SetIntraOpThreads(saved_); }

 private:
  int saved_;
};

void Seed(const Training& training) { ManualSeed(training.seed + 100); }

}  // namespace

bool IsSoakRun() {
  const std::vector<std::string> arguments = testing::internal::GetArgvs();
  return std::find(arguments.begin(), arguments.end(), "--soak") != arguments.end();
}

std::shared_ptr<nn::Sequential> MakeMlp(int layers, uint64_t seed, double dropout) {
  const std::vector<int64_t> sizes = {5, 7, 9, 7, 11, 5, 7};
  ManualSeed(seed);
  auto model = std::make_shared<nn::Sequential>();
  int64_t width = 5;
  for (int i = 0; i < layers; ++i) {
    if (i % 2 == 1 && i + 1 < layers) {
      if (dropout > 0 && i % 4 == 3) {
        model->Emplace<nn::Dropout>(dropout);
      } else {
        model->Emplace<nn::Tanh>();
      }
      continue;
    }
    // The last two are linear where the number is even.
    const bool last = i + 1 == layers;
    const int64_t next = last ? 3 : sizes[static_cast<size_t>(i / 2 + 1) % sizes.size()];
    model->Emplace<nn::Linear>(width, next);
    width = next;
  }
  return model;
}

Tensor Inputs(int64_t first, int64_t rows) { return Waves(first, rows, 5, 0.7); }
Tensor Targets(int64_t first, int64_t rows) { return Waves(first, rows, 3, 0.3); }

std::vector<Stage> CutEvenly(const nn::Sequential& model, int stages) {
  return SplitSequential(model, SplitPoints(std::vector<double>(model.size(), 1), stages));
}

Tensor MseOf(TensorSpan outputs, TensorSpan targets) { return MseLoss(outputs[0], targets[0]); }

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

Trained TrainAlone(const Schedule& schedule, const Training& training) {
  const OneThread one_thread;
  const auto model = MakeMlp(training.layers, training.seed, training.dropout);
  const int stages = schedule.stage_count(), micro_batches = schedule.micro_batches;
  const std::vector<Stage> parts = CutEvenly(*model, stages);
  optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1, .momentum = 0.9});
  Seed(training);
  Trained trained;
  for (int step = 0; step < training.steps; ++step) {
    optimizer.ZeroGrad();
    const RandomStreams start = ThreadGenerators();
    const auto inputs =
        SplitRows({Inputs(step * training.rows, training.rows)}, micro_batches, "input");
    const auto targets =
        SplitRows({Targets(step * training.rows, training.rows)}, micro_batches, "target");
    double sum = 0;
    for (int m = 0; m < micro_batches; ++m) {
      const auto at = static_cast<size_t>(m);
      TensorList x = {inputs[at][0]};
      for (int s = 0; s < stages; ++s) {
        ThreadGenerators() = StageStreams(start, s, stages, m);
        x = parts[static_cast<size_t>(s)].forward(x);
      }
      const Tensor loss = MseOf(x, targets[at]);
      const double share =
          static_cast<double>(inputs[at][0].size(0)) / static_cast<double>(training.rows);
      autograd::Backward(share == 1 ? loss : Mul(loss, share));
      sum += share * loss.Item<double>();
    }
    ThreadGenerators() = StreamsAfter(start, stages, micro_batches);
    optimizer.Step();
    trained.losses.push_back(sum);
  }
  trained.parameters = ParametersOf(*model);
  return trained;
}

Trained TrainThreads(const Schedule& schedule, const Training& training) {
  const auto model = MakeMlp(training.layers, training.seed, training.dropout);
  Pipeline pipeline(
      CutEvenly(*model, schedule.stage_count()),
      {.schedule = schedule, .loss = MseOf, .threads_per_rank = 1, .timeout = absl::Seconds(30)});
  optim::Sgd optimizer(pipeline.module().NamedParameters(), {.lr = 0.1, .momentum = 0.9});
  Seed(training);
  Trained trained;
  for (int step = 0; step < training.steps; ++step) {
    optimizer.ZeroGrad();
    const StepResult result = pipeline.Step({Inputs(step * training.rows, training.rows)},
                                            {Targets(step * training.rows, training.rows)});
    optimizer.Step();
    trained.losses.push_back(result.loss);
  }
  trained.parameters = ParametersOf(pipeline.module());
  return trained;
}

Trained TrainRanks(const Schedule& schedule, const Training& training, const std::string& backend) {
  Trained trained;
  std::mutex mutex;
  OnRanks(
      schedule.rank_count(),
      [&](int rank, std::shared_ptr<comm::Communicator> world) {
        const auto model = MakeMlp(training.layers, training.seed, training.dropout);
        Pipeline pipeline(StagesOf(schedule, rank, CutEvenly(*model, schedule.stage_count())),
                          world, {.schedule = schedule, .loss = MseOf});
        const NamedTensors parameters = pipeline.module().NamedParameters();
        std::unique_ptr<optim::Sgd> optimizer;
        if (!parameters.empty()) {
          optimizer = std::make_unique<optim::Sgd>(parameters,
                                                   optim::SgdOptions{.lr = 0.1, .momentum = 0.9});
        }
        Seed(training);
        std::vector<double> losses;
        for (int step = 0; step < training.steps; ++step) {
          pipeline.module().ZeroGrad();
          const StepResult result = pipeline.Step({Inputs(step * training.rows, training.rows)},
                                                  {Targets(step * training.rows, training.rows)});
          if (optimizer != nullptr) optimizer->Step();
          losses.push_back(result.loss);
        }
        std::lock_guard<std::mutex> lock(mutex);
        if (!trained.losses.empty()) {
          EXPECT_EQ(losses, trained.losses) << "of rank " << rank;
        }
        trained.losses = losses;
        for (auto& [name, values] : ParametersOf(pipeline.module())) {
          trained.parameters[name] = values;
        }
      },
      backend);
  return trained;
}

void ExpectSame(const Trained& got, const Trained& wanted) {
  EXPECT_EQ(got.losses, wanted.losses);
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
