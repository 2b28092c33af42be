// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/losses.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::nn {

CrossEntropyLoss::CrossEntropyLoss(const CrossEntropyOptions& options) : options_(options) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    throw InvalidArgumentError(absl::StrCat("nn::CrossEntropyLoss: label_smoothing ",
                                            options.label_smoothing, " is not within [0, 1]"));
  }
}

Tensor CrossEntropyLoss::Forward(const Tensor& logits, const Tensor& target) {
  return CrossEntropy(logits, target, options_);
}

Tensor CrossEntropyLoss::operator()(const Tensor& logits, const Tensor& target) {
  return CallWithHooks({logits, target},
                       [this](TensorSpan in) -> TensorList { return {Forward(in[0], in[1])}; })[0];
}

Tensor MseLoss::Forward(const Tensor& x, const Tensor& target) {
  return lockstep::MseLoss(x, target, reduction_);
}

Tensor MseLoss::operator()(const Tensor& x, const Tensor& target) {
  return CallWithHooks({x, target},
                       [this](TensorSpan in) -> TensorList { return {Forward(in[0], in[1])}; })[0];
}

}  // namespace lockstep::nn
