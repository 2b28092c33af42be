// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GradScaler does what torch.amp.GradScaler does, with two optimizers over 60 scripted iterations
// (make_scaler_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/nn/optim/adam.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tests/parity/goldens.h"

namespace lockstep::parity {
namespace {

using nlohmann::json;

amp::GradScalerOptions OptionsOf(const json& golden) {
  amp::GradScalerOptions options;
  options.init_scale = golden.value("init_scale", options.init_scale);
  options.growth_factor = golden.value("growth_factor", options.growth_factor);
  options.backoff_factor = golden.value("backoff_factor", options.backoff_factor);
  options.growth_interval = golden.value("growth_interval", options.growth_interval);
  return options;
}

// The scaled gradient of an iteration, as the script has it.
Tensor ScaledGradient(int step, size_t index, char what, double scale) {
  const Tensor truth =
      FromVector<float>({static_cast<float>(std::sin(0.7 * step + static_cast<double>(index))),
                         static_cast<float>(0.25 * (step % 5) - 0.5)},
                        {2});
  std::vector<float> gradient = (truth * scale).ToVector<float>();
  const int kind = std::tolower(what);
  if (kind == 'i') gradient[0] = -std::numeric_limits<float>::infinity();
  if (kind == 'n') gradient[1] = std::numeric_limits<float>::quiet_NaN();
  return FromVector<float>(gradient, {2});
}

void CheckRun(const std::vector<std::string>& scripts, const json& run) {
  amp::GradScaler scaler(OptionsOf(run["options"]));
  std::vector<Tensor> parameters;
  for (size_t i = 0; i < 2; ++i) {
    parameters.push_back(autograd::SetRequiresGrad(FromVector<float>({1, -2}, {2}), true));
  }
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  optimizers.push_back(std::make_unique<optim::Sgd>(NamedTensors{{"w", parameters[0]}},
                                                    optim::SgdOptions{.lr = 0.5, .momentum = 0.9}));
  optimizers.push_back(std::make_unique<optim::Adam>(NamedTensors{{"w", parameters[1]}},
                                                     optim::AdamOptions{.lr = 0.25}));
  ASSERT_EQ(run["trace"].size(), 60u);
  for (int step = 0; step < 60; ++step) {
    SCOPED_TRACE(step);
    const json& expected = run["trace"][static_cast<size_t>(step)];
    bool any = false;
    for (size_t i = 0; i < 2; ++i) {
      const char what = scripts[i][static_cast<size_t>(step)];
      bool stepped = false;
      if (what != '-') {
        any = true;
        autograd::SetGrad(parameters[i], ScaledGradient(step, i, what, scaler.scale()));
        if (std::isupper(what)) scaler.UnscaleGradients(*optimizers[i]);
        stepped = scaler.Step(*optimizers[i]);
      }
      EXPECT_EQ(stepped, expected["stepped"][i] == 1) << "optimizer " << i;
    }
    const std::string key = std::to_string(step);
    if (any && run["set_scale"].contains(key)) {
      scaler.Update(run["set_scale"][key].get<double>());
    } else if (any) {
      scaler.Update();
    }
    EXPECT_EQ(scaler.scale(), expected["scale"].get<double>());
    EXPECT_EQ(scaler.growth_tracker(), expected["tracker"].get<int64_t>());
    for (size_t k = 0; k < 4; ++k) {
      const double value = expected["parameters"][k];
      EXPECT_NEAR(parameters[k / 2].Item<double>({static_cast<int64_t>(k % 2)}), value,
                  1e-6 * std::max(1.0, std::abs(value)))
          << k;
    }
  }
}

TEST(ScalerParity, SixtyIterationsOfTwoOptimizers) {
  const json goldens = ReadGoldens("tests/parity/scaler/scaler_goldens.json");
  ASSERT_EQ(goldens["runs"].size(), 4u);
  for (const auto& [name, run] : goldens["runs"].items()) {
    SCOPED_TRACE(name);
    CheckRun({goldens["first"].get<std::string>(), goldens["second"].get<std::string>()}, run);
  }
}

}  // namespace
}  // namespace lockstep::parity
