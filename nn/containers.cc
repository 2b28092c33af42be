// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/containers.h"

namespace lockstep::nn {

Sequential::Sequential(const std::vector<std::shared_ptr<UnaryModule>>& modules) {
  for (const auto& module : modules) Append(module);
}

Sequential& Sequential::Append(std::shared_ptr<UnaryModule> module) {
  modules_.push_back(RegisterModule(absl::StrCat(modules_.size()), std::move(module)));
  return *this;
}

Tensor Sequential::Forward(const Tensor& x) {
  Tensor y = x;
  for (const auto& module : modules_) y = (*module)(y);
  return y;
}

const std::shared_ptr<UnaryModule>& Sequential::operator[](size_t index) const {
  if (index >= size()) {
    throw OutOfRangeError(
        absl::StrCat("nn::Sequential: index ", index, " in a sequence of ", size()));
  }
  return modules_[index];
}

}  // namespace lockstep::nn
