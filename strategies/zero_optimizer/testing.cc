// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/zero_optimizer/testing.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/amp/training/training_step.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/nn/optim/adagrad.h"
#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/rmsprop.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/zero_optimizer/zero_optimizer.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies::testing_util {
namespace {

// Values that tell their position.
Tensor Positions(std::vector<int64_t> shape, double phase, DType dtype = DType::kFloat32) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(0.5 * std::sin(phase + 1.3 * static_cast<double>(i)));
  }
  return FromVector<double>(values, shape, {.dtype = dtype});
}

template <typename Inner, typename Options>
std::unique_ptr<optim::Optimizer> MakeWith(const TrainSettings& settings,
                                           const DistributedDataParallel& ddp,
                                           const Options& matrices, const Options& others) {
  const NamedTensors all = ddp.module()->NamedParameters();
  const auto of_kind = [&](bool matrix) {
    return all.Filter(
        [&](const std::string&, const Tensor& t) { return (t.rank() == 2) == matrix; });
  };
  const std::vector<optim::ParameterGroup<Options>> groups = {{of_kind(true), matrices},
                                                              {of_kind(false), others}};
  if (!settings.zero) return std::make_unique<Inner>(groups);
  return MakeZeroOptimizer<Inner>(ddp, groups, {.bucket_bytes = settings.bucket_bytes});
}

}  // namespace

OddModel::OddModel() {
  RegisterParameter("w1", &w1_, Positions({7, 3}, 0.1));
  RegisterParameter("b1", &b1_, Positions({7}, 0.2));
  RegisterParameter("frozen", &frozen_, Positions({7}, 0.3), /*requires_grad=*/false);
  RegisterParameter("w2", &w2_, Positions({7, 7}, 0.4));
  RegisterParameter("scale", &scale_, Positions({1}, 1.5));
  RegisterParameter("w2_again", &w2_again_, w2_);
  RegisterParameter("factor", &factor_, Positions({}, 1.2));
  RegisterParameter("double", &double_, Positions({13}, 0.6, DType::kFloat64));
  RegisterParameter("rare", &rare_, Positions({5}, 0.7));
  RegisterParameter("w3", &w3_, Positions({2, 7}, 0.8));
}

Tensor OddModel::Loss(const NamedTensors& rows, bool use_rare) {
  Tensor h = Tanh(MatMul(rows.At("inputs"), Transpose(w1_, 0, 1)) + b1_ + frozen_);
  h = Tanh(MatMul(h, Transpose(w2_, 0, 1)) * scale_);
  h = Tanh(MatMul(h, Transpose(w2_again_, 0, 1)) * factor_);
  Tensor loss = MseLoss(MatMul(h, Transpose(w3_, 0, 1)), rows.At("targets"));
  loss = loss + lockstep::To(Mean(double_ * double_), DType::kFloat32);
  return use_rare ? loss + Mean(rare_ * rare_) : loss;
}

std::unique_ptr<optim::Optimizer> MakeOptimizer(const TrainSettings& settings,
                                                const DistributedDataParallel& ddp) {
  if (settings.optimizer == "sgd") {
    return MakeWith<optim::Sgd>(settings, ddp,
                                optim::SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1},
                                optim::SgdOptions{.lr = 0.05});
  }
  if (settings.optimizer == "adam") {
    return MakeWith<optim::Adam>(settings, ddp, optim::AdamOptions{.lr = 0.01, .amsgrad = true},
                                 optim::AdamOptions{.lr = 0.02});
  }
  if (settings.optimizer == "rmsprop") {
    return MakeWith<optim::Rmsprop>(
        settings, ddp, optim::RmspropOptions{.lr = 0.01, .momentum = 0.5, .centered = true},
        optim::RmspropOptions{.lr = 0.02});
  }
  if (settings.optimizer == "adagrad") {
    return MakeWith<optim::Adagrad>(settings, ddp, optim::AdagradOptions{.lr = 0.1},
                                    optim::AdagradOptions{.lr = 0.2, .lr_decay = 0.1});
  }
  return MakeWith<optim::AdamW>(settings, ddp, optim::AdamWOptions{.lr = 0.01, .weight_decay = 0.1},
                                optim::AdamWOptions{.lr = 0.02, .weight_decay = 0});
}

optim::OptimizerState WholeState(const optim::Optimizer& optimizer) {
  const auto* const zero = dynamic_cast<const ZeroOptimizer*>(&optimizer);
  return zero != nullptr ? zero->ConsolidateState() : optimizer.SaveState();
}

Trained Train(int rank, std::shared_ptr<comm::Communicator> world, const TrainSettings& settings,
              const Trained& start) {
  constexpr int64_t kRows = 12;
  auto model = std::make_shared<OddModel>();
  DistributedDataParallel ddp(model, world, settings.ddp);
  const std::unique_ptr<optim::Optimizer> optimizer = MakeOptimizer(settings, ddp);
  optim::Schedule schedule(
      optimizer.get(), [](int64_t step) { return 1.0 / (1.0 + 0.1 * static_cast<double>(step)); });
  if (!start.model.empty()) {
    model->LoadStateDict(start.model);
    optimizer->LoadState(start.state);
    optim::OptimizerState at;
    at.numbers["step"] = settings.first_step;
    schedule.LoadState(at);
  }
  amp::GradScaler scaler({.group = world});
  amp::TrainingStepOptions options{.optimizers = {{optimizer.get(), &schedule}},
                                   .micro_batches = settings.micro_batches,
                                   .group = world};
  if (settings.clip) options.clip_norm = 0.05;
  if (settings.fp16) {
    options.autocast = amp::AutocastOptions{.dtype = DType::kFloat16};
    options.scaler = &scaler;
  }
  if (settings.no_sync) {
    options.no_sync = [&] { return std::make_shared<DistributedDataParallel::NoSync>(ddp); };
  }
  amp::TrainingStep training(options);
  const int64_t share = kRows / world->size() / settings.micro_batches;
  for (int64_t step = settings.first_step; step < settings.first_step + settings.steps; ++step) {
    const auto report = training.Run([&](int64_t i) {
      const int64_t first = step * kRows + (rank * settings.micro_batches + i) * share;
      const Tensor loss = model->Loss(Rows(first, share), !settings.rare || step % 2 == 1);
      return settings.fp16 && step == 1 ? loss * 1e35 : loss;
    });
    EXPECT_EQ(report.stepped, !(settings.fp16 && step == 1)) << report.ToString();
  }
  Trained trained;
  for (const auto& [name, tensor] : model->StateDict()) trained.model.Insert(name, Clone(tensor));
  const optim::OptimizerState state = WholeState(*optimizer);
  for (const auto& [name, tensor] : state.tensors)
    trained.state.tensors.Insert(name, Clone(tensor));
  trained.state.numbers = state.numbers;
  return trained;
}

Trained TrainOn(int ranks, const TrainSettings& settings, const Trained& start) {
  std::vector<Trained> all(static_cast<size_t>(ranks));
  const auto outcomes = RunRanks(ranks, [&](int rank, auto world) {
    all[static_cast<size_t>(rank)] = Train(rank, world, settings, start);
    return std::vector<double>();
  });
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].code, absl::StatusCode::kOk) << outcomes[rank].message;
    ExpectSame(all[rank].model, all[0].model);
  }
  return all[0];
}

void OverGloo(int ranks, bool flat,
              const std::function<void(int, std::shared_ptr<comm::Communicator>)>& body) {
  comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
    comm::ProcessGroupOptions options = context.group_options();
    options.backend = "gloo";
    options.bind_address = "127.0.0.1";
    options.host_grouping = flat ? comm::HostGrouping::kFlat : comm::HostGrouping::kAutomatic;
    options.timeout = absl::Seconds(30);
    body(context.rank, comm::InitProcessGroup(options));
  }).ThrowIfFailed();
}

Trained TrainOverGloo(int ranks, bool flat, const TrainSettings& settings) {
  std::vector<Trained> all(static_cast<size_t>(ranks));
  OverGloo(ranks, flat, [&](int rank, std::shared_ptr<comm::Communicator> world) {
    all[static_cast<size_t>(rank)] = Train(rank, std::move(world), settings);
  });
  for (const Trained& trained : all) ExpectSame(trained.model, all[0].model);
  return all[0];
}

void ExpectSame(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.Names(), b.Names());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].second.shape(), b[i].second.shape()) << a[i].first;
    EXPECT_EQ(a[i].second.dtype(), b[i].second.dtype()) << a[i].first;
    EXPECT_EQ(a[i].second.ToVector<double>(), b[i].second.ToVector<double>()) << a[i].first;
  }
}

void ExpectSame(const optim::OptimizerState& a, const optim::OptimizerState& b) {
  ExpectSame(a.tensors, b.tensors);
  EXPECT_EQ(a.numbers, b.numbers);
}

void ExpectSame(const Trained& a, const Trained& b) {
  ExpectSame(a.model, b.model);
  ExpectSame(a.state, b.state);
}

}  // namespace lockstep::strategies::testing_util
