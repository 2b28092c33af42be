// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks on parts of the batch train as one rank on all of it, three steps of SGD with momentum, by
// every kind of DistributedDataParallel, within docs/numerics.md. Ranks are threads.
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/communication_hook.h"
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/loss_factors.h"
#include "lockstep/strategies/distributed_data_parallel/power_sgd.h"
#include "lockstep/strategies/distributed_data_parallel/reduction_statistics.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tests/equivalence/expect_near.h"
#include "lockstep/tests/equivalence/tasks.h"

namespace lockstep::equivalence {
namespace {

using strategies::DistributedDataParallel;
using Options = strategies::DistributedDataParallelOptions;

struct Scenario {
  std::string name;
  Options options = {};
  std::shared_ptr<strategies::CommunicationHook> (*hook)() = nullptr;
  int64_t micro_batches = 1;
  bool two_forwards = false;  // before one backward
  bool evaluate_inside = false;
  bool freeze_first = false;
  bool unused_layer = false;
  bool checkpointed = false;
  bool uneven = false;  // the last rank has one row more, rank 0 one less
  std::string amp = {};
  Bounds bounds = {};
};

std::ostream& operator<<(std::ostream& out, const Scenario& scenario) {
  return out << scenario.name;
}

constexpr int64_t kRows = 48;
constexpr int kSteps = 3;
constexpr double kLr = 0.1;
constexpr int64_t kSmallBuckets = 1000;

template <DType dtype>
std::shared_ptr<strategies::CommunicationHook> Compress() {
  return std::make_shared<strategies::CompressionHook>(dtype);
}

// Compresses the third step.
template <int64_t rank>
std::shared_ptr<strategies::CommunicationHook> PowerSgd() {
  return std::make_shared<strategies::PowerSgdHook>(
      strategies::PowerSgdOptions{.rank = rank, .start_step = kSteps - 1});
}

// The task, as one rank or a part of `world`, and a module that nothing uses.
class Run {
 public:
  Run(Task (*make)(), const Scenario& scenario, std::shared_ptr<comm::Communicator> world)
      : scenario_(scenario), world_(std::move(world)) {
    // Ranks start apart; rank 0 has the weights of the single one.
    ManualSeed(static_cast<uint64_t>(1 + rank()));
    task_ = make();
    if (scenario.unused_layer) unused_ = std::make_shared<nn::Linear>(3, 3);
    if (scenario.freeze_first) autograd::SetRequiresGrad(task_.model->Parameters()[0], false);
    if (scenario.checkpointed) {
      checkpoint::ApplyCheckpointing(*task_.model, {.choose = [](const std::string& name, auto&) {
        return name.ends_with("h.0") || name.ends_with("h.1") || name.ends_with("layers");
      }});
    }
    // What a program wraps is what it calls: its forward pass is where buffers are sent.
    root_ = unused_ ? std::make_shared<Root>(task_.model, unused_) : task_.model;
    parameters_ = task_.model->NamedParameters();
    optimizer_ =
        std::make_unique<optim::Sgd>(parameters_, optim::SgdOptions{.lr = kLr, .momentum = 0.9});
    if (!world_) return;
    Options options = scenario.options;
    if (scenario.hook != nullptr) options.communication_hook = scenario.hook();
    hook_ = options.communication_hook;
    ddp_.emplace(root_, world_, options);
  }

  // Losses of the steps, and then the parameters: without what PowerSGD has left out of the last
  // step, the only one that it compresses, and lr times which they lack.
  Result Train() {
    Result result(1);
    for (int step = 0; step < kSteps; ++step) result[0].push_back(Step(step));
    if (ddp_) ExpectBytesOnTheWire();
    bool left_out = false;
    const auto power_sgd = std::dynamic_pointer_cast<strategies::PowerSgdHook>(hook_);
    for (const auto& [name, parameter] : parameters_) {
      Tensor value = Detach(parameter);
      const Tensor error = power_sgd ? power_sgd->ErrorOf(name) : Tensor();
      if (error.defined()) {
        const Tensor mean = Clone(error);
        world_->AllReduce(mean, {.op = comm::ReduceOp::kAverage}).Wait();
        left_out |= Max(Abs(mean)).Item<double>() >
                    1e-3 * Max(Abs(autograd::Grad(parameter))).Item<double>();
        value = value - Reshape(mean, value.shape()) * kLr;
      }
      result.push_back(value.ToVector<double>());
    }
    EXPECT_EQ(left_out, power_sgd != nullptr);
    return result;
  }

 private:
  class Root : public nn::Module {
   public:
    Root(std::shared_ptr<nn::Module> model, std::shared_ptr<nn::Module> unused) {
      RegisterModule("model", std::move(model));
      if (unused) RegisterModule("unused", std::move(unused));
    }
  };

  int rank() const { return world_ ? world_->rank() : 0; }
  int64_t ranks() const { return world_ ? world_->size() : 1; }

  // This rank's rows of a step: first and count.
  std::pair<int64_t, int64_t> Share(int step) const {
    const int64_t even = kRows / ranks();
    int64_t first = rank() * even, count = even;
    if (scenario_.uneven && ranks() > 1) {
      first -= rank() > 0 ? 1 : 0;
      count += (rank() + 1 == ranks() ? 1 : 0) - (rank() == 0 ? 1 : 0);
    }
    return {step * kRows + first, count};
  }

  Tensor Loss(int64_t first, int64_t count) const {
    const auto options = amp::ParseAutocast(scenario_.amp);
    std::optional<amp::Autocast> autocast;
    if (options) autocast.emplace(*options);
    if (!scenario_.two_forwards) return task_.loss(first, count);
    const Tensor one = task_.loss(first, count / 2);
    return (one + task_.loss(first + count / 2, count / 2)) * 0.5;
  }

  void Evaluate() const {
    const int64_t before = world_ ? world_->sequence() : 0;
    const autograd::NoGradScope no_grad;
    task_.model->Eval();
    task_.loss(0, 2);
    task_.model->Train();
    const int64_t after = world_ ? world_->sequence() : 0;
    EXPECT_EQ(after, before) << "evaluation communicates nothing";
  }

  // Elements of a bucket's messages for the gradient of this parameter.
  int64_t ElementsSent(const Tensor& parameter) const {
    const auto power_sgd = std::dynamic_pointer_cast<strategies::PowerSgdHook>(hook_);
    if (power_sgd == nullptr || parameter.rank() < 2) return parameter.numel();
    const int64_t rows = parameter.size(0), columns = parameter.size(1);
    const int64_t thin = (rows + columns) * power_sgd->options().rank;
    return 2 * thin < rows * columns ? thin : parameter.numel();
  }

  // Of the last backward: each rank reads every other's messages whole, as those of up to 16 KiB
  // are over shared memory. An element that says "no reports" is in each bucket, or with a hook
  // sent once.
  void ExpectBytesOnTheWire() const {
    if (scenario_.options.bucket_cap_bytes != kSmallBuckets || scenario_.unused_layer) return;
    const bool halves = std::dynamic_pointer_cast<strategies::CompressionHook>(hook_) != nullptr;
    int64_t bytes = 4 * (hook_ ? 1 : ddp_->bucket_count());
    for (const auto& [name, parameter] : parameters_) {
      if (autograd::RequiresGrad(parameter)) bytes += ElementsSent(parameter) * (halves ? 2 : 4);
    }
    const strategies::ReductionStatistics statistics = ddp_->statistics();
    EXPECT_EQ(statistics.bytes_received + statistics.bytes_sent, bytes * (ranks() - 1));
  }

  double Step(int step) {
    optimizer_->ZeroGrad();
    const auto [first, rows] = Share(step);
    const int64_t micro = scenario_.micro_batches;
    double factor = 1.0 / static_cast<double>(micro);
    double weight = 1.0 / static_cast<double>(ranks());
    if (scenario_.uneven && world_) {
      const double count = static_cast<double>(rows);
      factor = strategies::LossFactors({count}, *world_)[0];
      weight *= factor;
    }
    double sum = 0;
    for (int64_t i = 0; i < micro; ++i) {
      std::optional<DistributedDataParallel::NoSync> no_sync;
      if (ddp_ && i + 1 < micro) no_sync.emplace(*ddp_);
      if (scenario_.evaluate_inside) Evaluate();
      const Tensor loss = Loss(first + i * (rows / micro), rows / micro);
      autograd::Backward(loss * factor);
      sum += loss.Item<double>() / static_cast<double>(micro);
    }
    optimizer_->Step();
    const Tensor mean = FromVector<double>({sum * weight}, {1});
    if (world_) world_->AllReduce(mean).Wait();
    return mean.Item<double>();
  }

  const Scenario scenario_;
  const std::shared_ptr<comm::Communicator> world_;
  Task task_;
  std::shared_ptr<nn::Module> unused_;
  std::shared_ptr<nn::Module> root_;
  NamedTensors parameters_;
  std::unique_ptr<optim::Sgd> optimizer_;
  std::shared_ptr<strategies::CommunicationHook> hook_;
  std::optional<DistributedDataParallel> ddp_;
};

class DataParallelTest : public testing::TestWithParam<Scenario> {};

void Compare(Task (*make)(), const Scenario& scenario) {
  Scenario single = scenario;
  single.micro_batches = 1;
  single.two_forwards = single.checkpointed = single.unused_layer = false;
  const auto one = Run(make, single, nullptr).Train();
  EXPECT_GT(std::abs(one[0][0] - one[0][2]), 5e-5 * one[0][0]) << "the steps do something";
  for (const int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(ranks);
    std::vector<Result> results(static_cast<size_t>(ranks));
    comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
      comm::ProcessGroupOptions options = context.group_options();
      options.timeout = absl::Seconds(60);
      results[static_cast<size_t>(context.rank)] =
          Run(make, scenario, comm::InitProcessGroup(options)).Train();
    }).ThrowIfFailed();
    for (const auto& result : results) EXPECT_EQ(result, results[0]) << "ranks differ";
    ExpectNear(results[0], one, scenario.bounds);
  }
}

TEST_P(DataParallelTest, MlpOnOneToFourRanks) { Compare(&MlpTask, GetParam()); }
TEST_P(DataParallelTest, GptOnOneToFourRanks) { Compare(&GptTask, GetParam()); }

Options With(void (*change)(Options&)) {
  Options options;
  options.bucket_cap_bytes = kSmallBuckets;
  options.first_bucket_bytes = 100;
  change(options);
  return options;
}

std::vector<Scenario> Scenarios() {
  const Options small = With([](Options&) {});
  const Options views = With([](Options& o) { o.gradient_as_bucket_view = true; });
  const Options unused = With([](Options& o) { o.find_unused_parameters = true; });
  const Options fixed = With([](Options& o) { o.static_graph = true; });
  return {
      {.name = "Plain", .options = small},
      {.name = "OneBucket"},
      {.name = "Views", .options = views, .micro_batches = 2},
      {.name = "Accumulation", .options = small, .micro_batches = 4, .evaluate_inside = true},
      {.name = "Unused", .options = unused, .micro_batches = 2, .unused_layer = true},
      {.name = "Static", .options = fixed, .micro_batches = 2, .unused_layer = true},
      {.name = "TwoForwards", .options = small, .two_forwards = true},
      {.name = "Frozen", .options = small, .freeze_first = true},
      {.name = "Checkpointed", .options = small, .checkpointed = true},
      {.name = "CheckpointedStatic", .options = fixed, .micro_batches = 2, .checkpointed = true},
      {.name = "CheckpointedUnused", .options = unused, .unused_layer = true, .checkpointed = true},
      {.name = "UnevenRows", .options = small, .uneven = true},
      {.name = "Autocast",
       .options = views,
       .amp = "bf16",
       .bounds = {.loss = 1e-3, .parameter = 1e-3, .of_model = true}},
      {.name = "Float16Hook",
       .options = small,
       .hook = &Compress<DType::kFloat16>,
       .bounds = {.loss = 1e-4, .parameter = 1e-4, .of_model = true}},
      {.name = "BFloat16Hook",
       .options = small,
       .hook = &Compress<DType::kBFloat16>,
       .bounds = {.loss = 1e-3, .parameter = 1e-3, .of_model = true}},
      {.name = "PowerSgdRank1", .options = small, .hook = &PowerSgd<1>},
      {.name = "PowerSgdRank2", .options = views, .hook = &PowerSgd<2>, .micro_batches = 2},
  };
}

INSTANTIATE_TEST_SUITE_P(Scenarios, DataParallelTest, testing::ValuesIn(Scenarios()),
                         [](const auto& info) { return info.param.name; });

// A generator and a critic, each with its own DistributedDataParallel, in one step, and in one
// backward.
TEST(TwoModulesTest, InOneStepAndInOneBackward) {
  const auto train = [](std::shared_ptr<comm::Communicator> world) {
    ManualSeed(static_cast<uint64_t>(world ? 3 + world->rank() : 3));
    auto first = std::make_shared<nn::Linear>(4, 6), second = std::make_shared<nn::Linear>(6, 2);
    std::optional<DistributedDataParallel> ddp_first, ddp_second;
    if (world) {
      ddp_first.emplace(first, world);
      ddp_second.emplace(second, world);
    }
    optim::Sgd one(first->NamedParameters(), {.lr = 0.1}),
        two(second->NamedParameters(), {.lr = 0.1});
    std::vector<double> values;
    const int64_t ranks = world ? world->size() : 1, rank = world ? world->rank() : 0;
    for (int64_t step = 0; step < kSteps; ++step) {
      const Tensor x = Waves(step * 12 + rank * 12 / ranks, 12 / ranks, 4, 0.9);
      one.ZeroGrad();
      two.ZeroGrad();
      autograd::Backward(Mean((*second)(Tanh((*first)(x))) * (*second)(Tanh((*first)(x)))));
      two.Step();
      two.ZeroGrad();
      one.Step();
      one.ZeroGrad();
      second->SetRequiresGrad(false);  // while the other one learns
      autograd::Backward(Mean((*second)(Tanh((*first)(x)))));
      second->SetRequiresGrad(true);
      one.Step();
    }
    for (const auto& module : {first, second}) {
      for (const Tensor& parameter : module->Parameters()) {
        for (const double value : parameter.ToVector<double>()) values.push_back(value);
      }
    }
    return values;
  };
  const std::vector<double> alone = train(nullptr);
  for (const int ranks : {2, 3}) {
    comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
      const std::vector<double> many = train(comm::InitProcessGroup(context.group_options()));
      ExpectNear(many, alone, 1e-5);
    }).ThrowIfFailed();
  }
}

// The same with two GPTs over the same rows.
TEST(TwoModulesTest, OfGptInOneStepAndInOneBackward) {
  const auto train = [](std::shared_ptr<comm::Communicator> world) {
    const int64_t ranks = world ? world->size() : 1, rank = world ? world->rank() : 0;
    ManualSeed(static_cast<uint64_t>(3 + rank));
    const Task first = GptTask(), second = GptTask();
    std::optional<DistributedDataParallel> ddp_first, ddp_second;
    if (world) {
      ddp_first.emplace(first.model, world, With([](Options&) {}));
      ddp_second.emplace(second.model, world, With([](Options&) {}));
    }
    optim::Sgd one(first.model->NamedParameters(), {.lr = kLr}),
        two(second.model->NamedParameters(), {.lr = kLr});
    for (int64_t step = 0; step < kSteps; ++step) {
      const int64_t count = 12 / ranks, at = step * 12 + rank * count;
      one.ZeroGrad();
      two.ZeroGrad();
      autograd::Backward(first.loss(at, count) * 0.5 + second.loss(at, count));
      one.Step();
      two.Step();
      one.ZeroGrad();
      autograd::Backward(first.loss(at, count));
      one.Step();
    }
    Result result = {{first.loss(0, 12).Item<double>(), second.loss(0, 12).Item<double>()}};
    for (const Task& task : {first, second}) {
      for (const Tensor& parameter : task.model->Parameters()) {
        result.push_back(parameter.ToVector<double>());
      }
    }
    return result;
  };
  const Result alone = train(nullptr);
  for (const int ranks : {2, 3}) {
    comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
      ExpectNear(train(comm::InitProcessGroup(context.group_options())), alone, {});
    }).ThrowIfFailed();
  }
}

}  // namespace
}  // namespace lockstep::equivalence
