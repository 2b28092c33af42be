// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GPT-2 trains as PyTorch's does: ten AdamW steps against float64 goldens (make_goldens.py).

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tests/parity/goldens.h"

namespace lockstep::parity {
namespace {

struct Tolerance {
  DType dtype;
  double loss;      // relative, each step
  double gradient;  // norm of the difference over norm of the tensor
};

// Draws in the order of the parameters, as draw_parameter() does.
void DrawParameters(models::Gpt2& model, Generator& generator, DType dtype) {
  autograd::NoGradScope no_grad;
  for (const auto& [name, parameter] : model.NamedParameters()) {
    const bool scale = absl::StrContains(name, ".ln_") && absl::EndsWith(name, ".weight");
    CopyInto(parameter,
             DrawNormal(parameter.shape(), scale ? 1 : 0, scale ? 0.1 : 0.2, generator, dtype));
  }
}

// int64 [batch, block + 1].
Tensor DrawTokens(const models::Gpt2Config& config, int64_t batch, Generator& generator) {
  const Tensor uniform =
      RandomUniform({batch, config.block + 1}, 0, 1, {&generator, {DType::kFloat32, {}}});
  std::vector<int64_t> tokens;
  for (const double u : uniform.ToVector<double>()) {
    tokens.push_back(static_cast<int64_t>(u * static_cast<double>(config.vocabulary)));
  }
  return FromVector<int64_t>(tokens, uniform.shape());
}

// The keys' part of a gradient of c_attn.bias is zero but for rounding: a constant added to all
// keys of a query changes nothing. It is left out.
void DropKeyBias(const std::string& name, int64_t width, std::vector<double>& values) {
  if (!absl::EndsWith(name, ".attn.c_attn.bias")) return;
  values.erase(values.begin() + width, values.begin() + 2 * width);
}

class Gpt2Parity : public testing::TestWithParam<Tolerance> {};

TEST_P(Gpt2Parity, TenAdamWSteps) {
  const Tolerance tolerance = GetParam();
  const nlohmann::json goldens = ReadGoldens("tests/parity/gpt2/gpt2_goldens.json");
  const nlohmann::json& c = goldens["config"];
  const models::Gpt2Config config{.layers = c["layers"],
                                  .heads = c["heads"],
                                  .width = c["width"],
                                  .block = c["block"],
                                  .vocabulary = c["vocabulary"]};
  models::Gpt2 model(config);
  model.To(tolerance.dtype);
  Generator generator{{c["seed"].get<uint64_t>(), 0, 0}};
  DrawParameters(model, generator, tolerance.dtype);
  const nlohmann::json& o = goldens["optimizer"];
  optim::AdamW optimizer(model.NamedParameters(), {.lr = o["lr"],
                                                   .beta1 = o["beta1"],
                                                   .beta2 = o["beta2"],
                                                   .epsilon = o["epsilon"],
                                                   .weight_decay = o["weight_decay"]});
  for (int step = 0; step < c["steps"].get<int>(); ++step) {
    const Tensor tokens = DrawTokens(config, c["batch"], generator);
    const Tensor loss =
        model.Loss(Slice(tokens, 1, 0, config.block), Slice(tokens, 1, 1, config.block + 1));
    const double expected = goldens["losses"][static_cast<size_t>(step)];
    EXPECT_NEAR(loss.Item<double>() / expected, 1, tolerance.loss) << "step " << step;
    optimizer.ZeroGrad();
    autograd::Backward(loss);
    if (step == 0) {
      ASSERT_EQ(goldens["gradients"].size(), model.NamedParameters().size());
      for (const auto& [name, parameter] : model.NamedParameters()) {
        std::vector<double> actual = autograd::Grad(parameter).ToVector<double>();
        auto golden = goldens["gradients"].at(name).get<std::vector<double>>();
        DropKeyBias(name, config.width, actual);
        DropKeyBias(name, config.width, golden);
        EXPECT_LT(RelativeDistance(actual, golden), tolerance.gradient) << name;
      }
    }
    const Tensor norm = optim::ClipGradNorm(model.Parameters(), o["max_norm"]);
    const double expected_norm = goldens["norms"][static_cast<size_t>(step)];
    EXPECT_NEAR(norm.Item<double>() / expected_norm, 1, tolerance.gradient) << "step " << step;
    optimizer.Step();
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, Gpt2Parity,
                         testing::Values(Tolerance{DType::kFloat32, 1e-6, 1e-5},
                                         Tolerance{DType::kFloat64, 1e-12, 1e-10}),
                         [](const auto& info) { return std::string(DTypeName(info.param.dtype)); });

}  // namespace
}  // namespace lockstep::parity
