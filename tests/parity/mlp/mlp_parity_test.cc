// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// An MLP trains as PyTorch's does under each optimizer: ten steps against float64 goldens
// (make_goldens.py).

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tests/parity/goldens.h"

namespace lockstep::parity {
namespace {

struct Tolerance {
  DType dtype;
  double loss;       // relative, each step
  double gradient;   // norm of the difference over norm of the tensor
  double parameter;  // the same, after the last step
};

std::unique_ptr<optim::Optimizer> MakeOptimizer(const NamedTensors& parameters,
                                                const nlohmann::json& o) {
  if (o["kind"] == "sgd") {
    return std::make_unique<optim::Sgd>(parameters,
                                        optim::SgdOptions{.lr = o["lr"],
                                                          .momentum = o["momentum"],
                                                          .dampening = o["dampening"],
                                                          .weight_decay = o["weight_decay"],
                                                          .nesterov = o["nesterov"]});
  }
  return std::make_unique<optim::AdamW>(parameters,
                                        optim::AdamWOptions{.lr = o["lr"],
                                                            .beta1 = o["beta1"],
                                                            .beta2 = o["beta2"],
                                                            .epsilon = o["epsilon"],
                                                            .weight_decay = o["weight_decay"]});
}

Tensor Loss(const std::string& kind, const Tensor& y, const Tensor& uniform) {
  if (kind == "mse") return MseLoss(y, To(uniform, y.dtype()));
  std::vector<int64_t> target;
  for (const double u : Select(uniform, 1, 0).ToVector<double>()) {
    target.push_back(static_cast<int64_t>(u * static_cast<double>(y.size(1))));
  }
  return CrossEntropy(y, FromVector<int64_t>(target, {y.size(0)}));
}

void CheckRun(const nlohmann::json& config, const nlohmann::json& run, const Tolerance& tolerance) {
  const std::vector<int64_t> sizes = config["sizes"];
  const int64_t batch = config["batch"];
  nn::Sequential model;
  model.Emplace<nn::Linear>(sizes[0], sizes[1]);
  model.Emplace<nn::Tanh>();
  model.Emplace<nn::Linear>(sizes[1], sizes[2]);
  model.To(tolerance.dtype);
  Generator generator{{config["seed"].get<uint64_t>(), 0, 0}};
  for (const Tensor& parameter : model.Parameters()) {
    autograd::NoGradScope no_grad;
    CopyInto(parameter, DrawNormal(parameter.shape(), 0, 0.5, generator, tolerance.dtype));
  }
  const auto optimizer = MakeOptimizer(model.NamedParameters(), run["optimizer"]);
  for (size_t step = 0; step < config["steps"].get<size_t>(); ++step) {
    const Tensor x = DrawNormal({batch, sizes[0]}, 0, 1, generator, tolerance.dtype);
    const Tensor uniform = RandomUniform({batch, sizes[2]}, 0, 1, {&generator, {}});
    const Tensor loss = Loss(run["loss"], model(x), uniform);
    const double expected = run["losses"][step];
    EXPECT_NEAR(loss.Item<double>() / expected, 1, tolerance.loss) << "step " << step;
    optimizer->ZeroGrad();
    autograd::Backward(loss);
    for (const auto& [name, parameter] : model.NamedParameters()) {
      if (step > 0) break;
      EXPECT_LT(
          RelativeDistance(autograd::Grad(parameter).ToVector<double>(), run["gradients"].at(name)),
          tolerance.gradient)
          << name;
    }
    optimizer->Step();
  }
  ASSERT_EQ(run["parameters"].size(), 4u);
  for (const auto& [name, parameter] : model.NamedParameters()) {
    EXPECT_LT(RelativeDistance(parameter.ToVector<double>(), run["parameters"].at(name)),
              tolerance.parameter)
        << name;
  }
}

class MlpParity : public testing::TestWithParam<Tolerance> {};

TEST_P(MlpParity, EveryOptimizer) {
  const nlohmann::json goldens = ReadGoldens("tests/parity/mlp/mlp_goldens.json");
  ASSERT_EQ(goldens["runs"].size(), 8u);
  for (const auto& [name, run] : goldens["runs"].items()) {
    SCOPED_TRACE(name);
    CheckRun(goldens["config"], run, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, MlpParity,
                         testing::Values(Tolerance{DType::kFloat32, 1e-5, 1e-5, 1e-5},
                                         Tolerance{DType::kFloat64, 1e-12, 1e-12, 1e-12}),
                         [](const auto& info) { return std::string(DTypeName(info.param.dtype)); });

}  // namespace
}  // namespace lockstep::parity
