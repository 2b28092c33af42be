// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Optimizers and averages of weights move parameters as PyTorch's do: 20 steps of every option
// (make_optimizer_goldens.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/adagrad.h"
#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/ema.h"
#include "lockstep/nn/optim/rmsprop.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/thread_state.h"
#include "lockstep/tests/parity/goldens.h"

namespace lockstep::parity {
namespace {

using nlohmann::json;

// Reads options by name and notes which were read, so that none is overlooked.
class Options {
 public:
  explicit Options(const json& options) : options_(options) {}
  ~Options() { EXPECT_EQ(read_, options_.size()) << options_; }
  template <typename T>
  void Read(const char* name, T& field) {
    if (!options_.contains(name)) return;
    field = options_[name].get<T>();
    ++read_;
  }

 private:
  const json& options_;
  size_t read_ = 0;
};

optim::SgdOptions SgdOf(const json& golden) {
  Options read(golden);
  optim::SgdOptions o;
  read.Read("lr", o.lr);
  read.Read("momentum", o.momentum);
  read.Read("dampening", o.dampening);
  read.Read("weight_decay", o.weight_decay);
  read.Read("nesterov", o.nesterov);
  read.Read("maximize", o.maximize);
  return o;
}

template <typename O>  // AdamOptions or AdamWOptions
O AdamOf(const json& golden) {
  Options read(golden);
  O o;
  read.Read("lr", o.lr);
  read.Read("beta1", o.beta1);
  read.Read("beta2", o.beta2);
  read.Read("epsilon", o.epsilon);
  read.Read("weight_decay", o.weight_decay);
  read.Read("amsgrad", o.amsgrad);
  read.Read("maximize", o.maximize);
  return o;
}

optim::RmspropOptions RmspropOf(const json& golden) {
  Options read(golden);
  optim::RmspropOptions o;
  read.Read("lr", o.lr);
  read.Read("alpha", o.alpha);
  read.Read("epsilon", o.epsilon);
  read.Read("weight_decay", o.weight_decay);
  read.Read("momentum", o.momentum);
  read.Read("centered", o.centered);
  read.Read("maximize", o.maximize);
  return o;
}

optim::AdagradOptions AdagradOf(const json& golden) {
  Options read(golden);
  optim::AdagradOptions o;
  read.Read("lr", o.lr);
  read.Read("lr_decay", o.lr_decay);
  read.Read("weight_decay", o.weight_decay);
  read.Read("initial_accumulator_value", o.initial_accumulator_value);
  read.Read("epsilon", o.epsilon);
  read.Read("maximize", o.maximize);
  return o;
}

std::unique_ptr<optim::Optimizer> MakeOptimizer(const std::string& kind,
                                                const NamedTensors& parameters,
                                                const json& options) {
  if (kind == "Sgd") return std::make_unique<optim::Sgd>(parameters, SgdOf(options));
  if (kind == "Adam") {
    return std::make_unique<optim::Adam>(parameters, AdamOf<optim::AdamOptions>(options));
  }
  if (kind == "AdamW") {
    return std::make_unique<optim::AdamW>(parameters, AdamOf<optim::AdamWOptions>(options));
  }
  if (kind == "Rmsprop") {
    return std::make_unique<optim::Rmsprop>(parameters, RmspropOf(options));
  }
  EXPECT_EQ(kind, "Adagrad");
  return std::make_unique<optim::Adagrad>(parameters, AdagradOf(options));
}

// Parameters without a model around them.
class Parameters : public nn::Module {
 public:
  Parameters(const json& shapes, Generator& generator, DType dtype) : tensors_(shapes.size()) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto sizes = shapes[i].get<std::vector<int64_t>>();
      const Shape shape(sizes.begin(), sizes.end());
      RegisterParameter(absl::StrCat("p", i), &tensors_[i],
                        DrawNormal(shape, 0, 1, generator, dtype));
    }
  }

 private:
  std::vector<Tensor> tensors_;
};

std::vector<double> Flat(const NamedTensors& tensors) {
  std::vector<double> values;
  for (const auto& [name, tensor] : tensors) {
    const std::vector<double> own = tensor.ToVector<double>();
    values.insert(values.end(), own.begin(), own.end());
  }
  return values;
}

// Within `ulps` units in the last place, of numbers of at least 1/8: the steps add up to numbers of
// that size, which then may cancel.
void ExpectNear(const std::vector<double>& actual, const json& expected, DType dtype, double ulps,
                const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  const double unit = dtype == DType::kFloat64 ? 0x1p-53 : 0x1p-24;
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double value = expected[i];
    const double distance = std::abs(actual[i] - value) / (unit * std::max(std::abs(value), 0.125));
    worst = std::max(worst, std::isnan(distance) ? INFINITY : distance);
  }
  EXPECT_LE(worst, ulps) << what;
}

void CheckRun(const json& config, const json& run, DType dtype) {
  Generator generator{{config["seed"].get<uint64_t>(), 0, 0}};
  Parameters module(config["shapes"], generator, dtype);
  const NamedTensors parameters = module.NamedParameters();
  const auto optimizer = MakeOptimizer(run["kind"], parameters, run["options"]);
  optim::Ema ema(module, {.decay = 0.9});
  for (int step = 0; step < config["steps"]; ++step) {
    optimizer->ZeroGrad();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& parameter = parameters[i].second;
      const Tensor gradient = DrawNormal(parameter.shape(), 0, 1, generator, dtype);
      if (i + 1 == parameters.size() && step % 3 == 1) continue;
      autograd::SetGrad(parameter, gradient);
    }
    optimizer->Step();
    ema.Update();
  }
  const json& golden = run[std::string(DTypeName(dtype))];
  ExpectNear(Flat(parameters), golden["parameters"], dtype, 8, "parameters");
  if (golden.contains("averages")) {
    ExpectNear(Flat(ema.Averages()), golden["averages"], dtype, 8, "averages");
  }
}

class OptimizersParity : public testing::TestWithParam<DType> {};

TEST_P(OptimizersParity, TwentyStepsOfEveryOption) {
  SetIntraOpThreads(1);  // A few elements at a time: threads would only wait for each other.
  const json goldens = ReadGoldens("tests/parity/optimizers/optimizer_goldens.json");
  ASSERT_EQ(goldens["runs"].size(), 20u);
  for (const auto& [name, run] : goldens["runs"].items()) {
    SCOPED_TRACE(name);
    CheckRun(goldens["config"], run, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, OptimizersParity,
                         testing::Values(DType::kFloat32, DType::kFloat64),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace lockstep::parity
