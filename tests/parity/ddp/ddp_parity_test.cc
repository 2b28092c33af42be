// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// DistributedDataParallel leaves the gradients and parameters that PyTorch's does, on two ranks,
// which are threads here: the scenarios of make_ddp_goldens.py, number for number.

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/join.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tests/parity/goldens.h"

namespace lockstep::parity {
namespace {

using autograd::Backward;
using autograd::Grad;
using strategies::DistributedDataParallel;
using strategies::testing_util::Weights;
using Options = strategies::DistributedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;
using Terms = std::vector<std::vector<size_t>>;

constexpr int kRanks = 2;

// The sum over the terms of x times the weights in the term.
Tensor SumOf(const Weights& weights, double x, const Terms& terms) {
  Tensor total = Zeros({1});
  for (const std::vector<size_t>& term : terms) {
    Tensor product = Full({1}, x);
    for (const size_t i : term) product = product * weights[i];
    total = total + product;
  }
  return Sum(total);
}

struct Notes {
  void Gradients(const nn::Module& model) {
    for (const Tensor& parameter : model.Parameters()) {
      const Tensor gradient = Grad(parameter);
      values.push_back(gradient.defined() ? std::optional(gradient.Item<double>()) : std::nullopt);
    }
  }
  void Parameters(const nn::Module& model) {
    for (const Tensor& parameter : model.Parameters()) values.push_back(parameter.Item<double>());
  }
  std::vector<std::optional<double>> values;
};

struct Rank {
  int rank;
  Group world;
  Options options;
  Notes& notes;
};

optim::Sgd MakeSgd(const nn::Module& model, double momentum = 0.5) {
  return optim::Sgd(model.NamedParameters(), {.lr = 0.125, .momentum = momentum});
}

void NoSync(Rank r, bool find_unused) {
  auto model = std::make_shared<Weights>(find_unused ? std::vector<double>{1, 2, 3}
                                                     : std::vector<double>{1, 2});
  r.options.find_unused_parameters = find_unused;
  DistributedDataParallel ddp(model, r.world, r.options);
  optim::Sgd optimizer = MakeSgd(*model);
  for (int step = 0; step < 3; ++step) {
    optimizer.ZeroGrad();
    {
      DistributedDataParallel::NoSync no_sync(ddp);
      Backward(SumOf(*model, r.rank + 1, {{0}, {0, 1}}));
    }
    Backward(SumOf(*model, 2 * r.rank + 1, find_unused ? Terms{{1}} : Terms{{1}, {0}}));
    r.notes.Gradients(*model);
    optimizer.Step();
  }
  r.notes.Parameters(*model);
}

void Unused(Rank r, bool set_to_none) {
  const std::vector<std::pair<Terms, Terms>> steps = {{{{0, 1}}, {{0, 1}}},
                                                      {{{0}}, {{0, 1}}},
                                                      {{{2}}, {{2}}},
                                                      {{{1}}, {{2}}},
                                                      {{{0, 1, 2}}, {{0, 1, 2}}}};
  auto model = std::make_shared<Weights>(std::vector<double>{1, 2, 3});
  r.options.find_unused_parameters = true;
  DistributedDataParallel ddp(model, r.world, r.options);
  optim::Sgd optimizer = MakeSgd(*model);
  for (const auto& [first, second] : steps) {
    optimizer.ZeroGrad(set_to_none);
    Backward(SumOf(*model, r.rank + 1, r.rank == 0 ? first : second));
    r.notes.Gradients(*model);
    optimizer.Step();
    r.notes.Parameters(*model);
  }
}

void Accumulated(Rank r) {
  auto model = std::make_shared<Weights>(std::vector<double>{1, 2});
  r.options.find_unused_parameters = true;
  DistributedDataParallel ddp(model, r.world, r.options);
  for (const Terms& terms : {Terms{{0, 1}}, Terms{{0, 1}}, Terms{{0}}}) {
    Backward(SumOf(*model, r.rank + 1, terms));
    r.notes.Gradients(*model);
  }
}

void StaticGraph(Rank r) {
  auto model = std::make_shared<Weights>(std::vector<double>{1, 2, 3});
  r.options.static_graph = true;
  DistributedDataParallel ddp(model, r.world, r.options);
  optim::Sgd optimizer = MakeSgd(*model);
  for (int step = 0; step < 3; ++step) {
    optimizer.ZeroGrad();
    Backward(SumOf(*model, r.rank + 1 + step, {{0, 1}, {0}}));
    r.notes.Gradients(*model);
    optimizer.Step();
  }
  r.notes.Parameters(*model);
}

void Join(Rank r, bool divide_by_initial) {
  auto model = std::make_shared<Weights>(std::vector<double>{1, 2});
  DistributedDataParallel ddp(model, r.world, r.options);
  optim::Sgd optimizer = MakeSgd(*model, 0);
  strategies::Join join({&ddp}, {.divide_by_initial_world_size = divide_by_initial});
  for (int step = 0; step < 2 + 2 * r.rank; ++step) {
    optimizer.ZeroGrad();
    Backward(SumOf(*model, r.rank + 1 + step, {{0, 1}}));
    optimizer.Step();
    r.notes.Gradients(*model);
  }
  join.Finish();
  r.notes.Parameters(*model);
}

void Thawed(Rank r) {
  auto model = std::make_shared<Weights>(std::vector<double>{1, 2});
  optim::Sgd optimizer = MakeSgd(*model);
  for (const bool frozen : {false, true, false}) {
    autograd::SetRequiresGrad((*model)[1], !frozen);
    DistributedDataParallel ddp(model, r.world, r.options);
    optimizer.ZeroGrad();
    Backward(SumOf(*model, r.rank + 1, {{0, 1}}));
    r.notes.Gradients(*model);
    optimizer.Step();
    r.notes.Parameters(*model);
  }
}

// w times a buffer that each forward pass adds the input to.
class Counter : public nn::UnaryModule {
 public:
  Counter() {
    RegisterParameter("w", &w_, Full({1}, 1.0));
    RegisterBuffer("total", &total_, Zeros({1}));
  }
  Tensor Forward(const Tensor& x) override {
    {
      const autograd::NoGradScope no_grad;
      AddInPlace(total_, x);
    }
    return w_ * Clone(total_);
  }
  const Tensor& total() const { return total_; }

 private:
  Tensor w_, total_;
};

void Buffers(Rank r) {
  auto model = std::make_shared<Counter>();
  DistributedDataParallel ddp(model, r.world, r.options);
  for (int step = 0; step < 3; ++step) {
    model->ZeroGrad();
    Backward(Sum((*model)(Full({1}, r.rank + 1.0 + step))));
    r.notes.values.push_back(model->total().Item<double>());
    r.notes.Gradients(*model);
  }
}

void TwoModules(Rank r) {
  auto first = std::make_shared<Weights>(std::vector<double>{1, 2});
  auto second = std::make_shared<Weights>(std::vector<double>{3, 4});
  DistributedDataParallel of_first(first, r.world, r.options);
  DistributedDataParallel of_second(second, r.world, r.options);
  for (int step = 0; step < 2; ++step) {
    first->ZeroGrad();
    second->ZeroGrad();
    Backward(SumOf(*first, r.rank + 1, {{0, 1}}) * SumOf(*second, step + 1, {{0, 1}}));
    r.notes.Gradients(*first);
    r.notes.Gradients(*second);
  }
}

const std::pair<DType, double> kSteps[] = {{DType::kFloat16, 1.0 / 1024},
                                           {DType::kBFloat16, 1.0 / 128}};

void Dtypes(Rank r) {
  for (const auto& [dtype, step] : kSteps) {
    auto model = std::make_shared<Weights>(std::vector<double>{1}, dtype);
    DistributedDataParallel ddp(model, r.world, r.options);
    for (const double mine : {1 + r.rank * step, 3 + r.rank * 5 * step, 40000.0 + 2000 * r.rank}) {
      model->ZeroGrad();
      Backward(Sum((*model)[0] * Full({1}, mine, {.dtype = dtype})));
      r.notes.Gradients(*model);
    }
  }
}

void Hooks(Rank r) {
  for (const auto& [dtype, step] : kSteps) {
    auto model = std::make_shared<Weights>(std::vector<double>{1});
    r.options.communication_hook = std::make_shared<strategies::CompressionHook>(dtype);
    DistributedDataParallel ddp(model, r.world, r.options);
    for (const double mine :
         {1 + r.rank * step, 3 + r.rank * 5 * step, 1.0 / 3 + r.rank, 40000.0 + 2000 * r.rank}) {
      model->ZeroGrad();
      Backward(SumOf(*model, mine, {{0}}));
      r.notes.Gradients(*model);
    }
  }
}

const std::map<std::string, std::function<void(Rank)>>& Scenarios() {
  static const auto& scenarios = *new std::map<std::string, std::function<void(Rank)>>{
      {"no_sync", [](Rank r) { NoSync(r, false); }},
      {"no_sync_unused", [](Rank r) { NoSync(r, true); }},
      {"unused_zeros", [](Rank r) { Unused(r, false); }},
      {"unused_none", [](Rank r) { Unused(r, true); }},
      {"accumulated", Accumulated},
      {"static_graph", StaticGraph},
      {"join_active", [](Rank r) { Join(r, false); }},
      {"join_initial", [](Rank r) { Join(r, true); }},
      {"thawed", Thawed},
      {"buffers", Buffers},
      {"two_modules", TwoModules},
      {"dtypes", Dtypes},
      {"hooks", Hooks}};
  return scenarios;
}

void Compare(const Notes& notes, const nlohmann::json& golden) {
  ASSERT_EQ(notes.values.size(), golden.size());
  for (size_t i = 0; i < golden.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(notes.values[i].has_value(), !golden[i].is_null());
    if (!notes.values[i] || golden[i].is_null()) continue;
    EXPECT_FLOAT_EQ(static_cast<float>(*notes.values[i]), golden[i].get<float>());
  }
}

TEST(DdpParityTest, LeavesWhatPyTorchLeaves) {
  const nlohmann::json golden = ReadGoldens("tests/parity/ddp/ddp_goldens.json")["scenarios"];
  EXPECT_EQ(golden.size(), Scenarios().size());
  for (const auto& [name, scenario] : Scenarios()) {
    for (const bool views : {false, true}) {
      SCOPED_TRACE(name + (views ? ", views" : ""));
      std::vector<Notes> notes(kRanks);
      const auto outcomes = strategies::testing_util::RunRanks(kRanks, [&, &scenario = scenario](
                                                                           int rank, Group world) {
        scenario(
            {rank, world, {.gradient_as_bucket_view = views}, notes[static_cast<size_t>(rank)]});
        return std::vector<double>();
      });
      for (size_t rank = 0; rank < kRanks; ++rank) {
        SCOPED_TRACE(rank);
        EXPECT_EQ(outcomes[rank].message, "");
        Compare(notes[rank], golden.at(name)[rank]);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::parity
