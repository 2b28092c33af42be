// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Mlp: linear layers with an activation between them.
//
//   models::Mlp model({.sizes = {784, 128, 10}});
//   Tensor logits = model(images);           // [..., 784] -> [..., 10]
//
// Parameters: "layers.0.weight", "layers.0.bias", "layers.2.weight", ... as a PyTorch Sequential of
// Linear and activation (and Dropout, where the probability is above 0).
#ifndef LOCKSTEP_MODELS_MLP_H_
#define LOCKSTEP_MODELS_MLP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/nn/containers.h"
#include "lockstep/nn/module.h"

namespace lockstep::models {

enum class MlpActivation : uint8_t { kRelu, kGelu, kTanh, kSigmoid };

struct MlpConfig {
  std::vector<int64_t> sizes;  // inputs, hidden layers, outputs
  MlpActivation activation = MlpActivation::kRelu;
  double dropout = 0;  // after each activation
};

class Mlp : public nn::UnaryModule {
 public:
  // Throws InvalidArgument for fewer than two sizes, sizes below 1, or a dropout outside [0, 1].
  explicit Mlp(const MlpConfig& config);

  Tensor Forward(const Tensor& x) override;
  std::string Description() const override { return "Mlp"; }

 private:
  std::shared_ptr<nn::Sequential> layers_;
};

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_MLP_H_
