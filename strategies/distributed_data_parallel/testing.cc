// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/testing.h"

#include <cmath>
#include <optional>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies::testing_util {

std::vector<Outcome> RunRanks(int ranks, const RankBody& body) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
    EXPECT_EQ(context.world_size, ranks);
    Outcome& outcome = outcomes[static_cast<size_t>(context.rank)];
    try {
      comm::ProcessGroupOptions options = context.group_options();
      options.timeout = absl::Seconds(30);
      outcome.values = body(context.rank, comm::InitProcessGroup(options));
    } catch (const Error& error) {
      outcome.code = error.code();
      outcome.message = error.message();
    }
  }).ThrowIfFailed();
  return outcomes;
}

std::vector<double> ValuesOf(int ranks, const RankBody& body, bool same_on_all_ranks) {
  const std::vector<Outcome> outcomes = RunRanks(ranks, body);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, absl::StatusCode::kOk) << outcome.message;
    if (same_on_all_ranks) {
      EXPECT_EQ(outcome.values, outcomes[0].values) << "ranks differ";
    }
  }
  return outcomes[0].values;
}

Weights::Weights(const std::vector<double>& values, DType dtype) {
  tensors_.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    RegisterParameter(std::string(1, static_cast<char>('a' + i)), &tensors_[i],
                      Full({1}, values[i], {.dtype = dtype}));
  }
}

double ValueOf(const Tensor& gradient) { return gradient.defined() ? gradient.Item<double>() : -1; }

NamedTensors Rows(int64_t first, int64_t rows) {
  std::vector<float> inputs, targets;
  for (int64_t i = first; i < first + rows; ++i) {
    for (int64_t c = 0; c < 3; ++c)
      inputs.push_back(std::sin(0.7f * static_cast<float>(i * 3 + c)));
    for (int64_t c = 0; c < 2; ++c)
      targets.push_back(std::cos(0.3f * static_cast<float>(i + 5 * c)));
  }
  return {{"inputs", FromVector<float>(inputs, {rows, 3})},
          {"targets", FromVector<float>(targets, {rows, 2})}};
}

std::vector<double> AllParameters(const nn::Module& module) {
  std::vector<double> values;
  for (const Tensor& parameter : module.Parameters()) {
    for (double value : parameter.ToVector<double>()) values.push_back(value);
  }
  return values;
}

std::vector<double> TrainMlp(int rank, std::shared_ptr<comm::Communicator> world,
                             const DistributedDataParallelOptions& options, int64_t micro_batches) {
  constexpr int64_t kRows = 12;
  ManualSeed(static_cast<uint64_t>(100 + rank));
  auto model = std::make_shared<models::Mlp>(
      models::MlpConfig{.sizes = {3, 7, 5, 2}, .activation = models::MlpActivation::kTanh});
  DistributedDataParallel ddp(model, world, options);
  optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1, .momentum = 0.9});
  std::vector<double> result;
  const int64_t share = kRows / world->size() / micro_batches;
  for (int64_t step = 0; step < 3; ++step) {
    optimizer.ZeroGrad();
    double sum = 0;
    for (int64_t i = 0; i < micro_batches; ++i) {
      std::optional<DistributedDataParallel::NoSync> no_sync;
      if (i + 1 < micro_batches) no_sync.emplace(ddp);
      const NamedTensors batch = Rows(step * kRows + (rank * micro_batches + i) * share, share);
      Tensor loss = MseLoss((*model)(batch.At("inputs")), batch.At("targets"));
      autograd::Backward(loss * (1.0 / static_cast<double>(micro_batches)));
      sum += loss.Item<double>();
    }
    optimizer.Step();
    Tensor mean = FromVector<double>({sum / static_cast<double>(micro_batches)}, {1});
    world->AllReduce(mean, {.op = comm::ReduceOp::kAverage}).Wait();
    result.push_back(mean.Item<double>());
  }
  const std::vector<double> parameters = AllParameters(*model);
  result.insert(result.end(), parameters.begin(), parameters.end());
  return result;
}

}  // namespace lockstep::strategies::testing_util
