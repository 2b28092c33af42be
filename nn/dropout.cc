// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/dropout.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/neural.h"

namespace lockstep::nn {

Dropout::Dropout(double p) : p_(p) {
  if (!(p >= 0 && p <= 1)) {
    throw InvalidArgumentError(
        absl::StrCat("nn::Dropout: probability ", p, " is not within [0, 1]"));
  }
}

Tensor Dropout::Forward(const Tensor& x) {
  // With p = 0 nothing can change, and nothing is drawn: the generator stays where it is.
  if (!training() || p_ == 0) return x;
  return lockstep::Dropout(x, p_);
}

std::string Dropout::Description() const { return absl::StrCat("Dropout(", p_, ")"); }

}  // namespace lockstep::nn
