// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/models/mlp.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"

namespace lockstep::models {
namespace {

std::shared_ptr<nn::UnaryModule> MakeActivation(MlpActivation activation) {
  switch (activation) {
    case MlpActivation::kRelu:
      return std::make_shared<nn::Relu>();
    case MlpActivation::kGelu:
      return std::make_shared<nn::Gelu>();
    case MlpActivation::kTanh:
      return std::make_shared<nn::Tanh>();
    case MlpActivation::kSigmoid:
      return std::make_shared<nn::Sigmoid>();
  }
  throw InvalidArgumentError(
      absl::StrCat("Mlp: activation ", static_cast<int>(activation), " does not exist"));
}

}  // namespace

Mlp::Mlp(const MlpConfig& config)
    : layers_(RegisterModule("layers", std::make_shared<nn::Sequential>())) {
  bool valid = config.sizes.size() >= 2;
  for (const int64_t size : config.sizes) valid &= size >= 1;
  if (!valid || !(config.dropout >= 0 && config.dropout <= 1)) {
    throw InvalidArgumentError(absl::StrCat(
        "Mlp: sizes [", absl::StrJoin(config.sizes, ", "), "], dropout ", config.dropout,
        "; it takes at least inputs and outputs, sizes of at least 1, and a dropout in [0, 1]"));
  }
  for (size_t i = 0; i + 1 < config.sizes.size(); ++i) {
    layers_->Emplace<nn::Linear>(config.sizes[i], config.sizes[i + 1]);
    if (i + 2 == config.sizes.size()) break;
    layers_->Append(MakeActivation(config.activation));
    if (config.dropout > 0) layers_->Emplace<nn::Dropout>(config.dropout);
  }
}

Tensor Mlp::Forward(const Tensor& x) { return (*layers_)(x); }

}  // namespace lockstep::models
