// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Activations as modules, for Sequential. Elsewhere call the functions: lockstep::Relu(x).
#ifndef LOCKSTEP_NN_ACTIVATIONS_H_
#define LOCKSTEP_NN_ACTIVATIONS_H_

#include <string>

#include "lockstep/nn/module.h"
#include "lockstep/tensor/op_attributes.h"

namespace lockstep::nn {

// max(x, 0).
class Relu : public UnaryModule {
 public:
  Tensor Forward(const Tensor& x) override;
  std::string Description() const override { return "Relu"; }
};

// x * Phi(x), exact or by its tanh approximation (as GPT-2).
class Gelu : public UnaryModule {
 public:
  explicit Gelu(GeluKind kind = GeluKind::kErf) : kind_(kind) {}
  Tensor Forward(const Tensor& x) override;
  std::string Description() const override {
    return kind_ == GeluKind::kErf ? "Gelu" : "Gelu(tanh)";
  }

 private:
  GeluKind kind_;
};

class Tanh : public UnaryModule {
 public:
  Tensor Forward(const Tensor& x) override;
  std::string Description() const override { return "Tanh"; }
};

// 1 / (1 + e^-x).
class Sigmoid : public UnaryModule {
 public:
  Tensor Forward(const Tensor& x) override;
  std::string Description() const override { return "Sigmoid"; }
};

}  // namespace lockstep::nn

#endif  // LOCKSTEP_NN_ACTIVATIONS_H_
