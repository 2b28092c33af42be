// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/balance.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/balanced_partition.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/random.h"

namespace lockstep::pipeline {
namespace {

// Puts gradients and random streams back.
class Undisturbed {
 public:
  explicit Undisturbed(const nn::Module& module)
      : parameters_(module.Parameters()), streams_(ThreadGenerators()) {
    for (const Tensor& parameter : parameters_) {
      gradients_.push_back(autograd::Grad(parameter));
      autograd::SetGrad(parameter, {});
    }
  }
  ~Undisturbed() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      autograd::SetGrad(parameters_[i], gradients_[i]);
    }
    ThreadGenerators() = streams_;
  }
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;

 private:
  std::vector<Tensor> parameters_, gradients_;
  RandomStreams streams_;
};

}  // namespace

std::vector<int64_t> SplitPoints(absl::Span<const double> costs, int stages) {
  const std::vector<int64_t> counts = BalancedPartition(costs, stages);
  std::vector<int64_t> points;
  int64_t layer = 0;
  for (size_t s = 0; s + 1 < counts.size(); ++s) points.push_back(layer += counts[s]);
  return points;
}

std::vector<double> CountLayers(const nn::Sequential& model) {
  return std::vector<double>(model.size(), 1.0);
}

std::vector<double> LayerBytes(const nn::Sequential& model) {
  std::vector<double> bytes;
  for (size_t i = 0; i < model.size(); ++i) {
    int64_t sum = 0;
    for (const Tensor& tensor : model[i]->NamedParameters().Tensors()) sum += tensor.bytes();
    for (const Tensor& tensor : model[i]->NamedBuffers().Tensors()) sum += tensor.bytes();
    bytes.push_back(static_cast<double>(sum));
  }
  return bytes;
}

std::vector<double> MeasureLayerSeconds(const nn::Sequential& model, const Tensor& sample,
                                        const MeasureOptions& options) {
  if (options.repeats < 1) {
    throw InvalidArgumentError(
        absl::StrCat("MeasureLayerSeconds: repeats is ", options.repeats, "; it is at least 1"));
  }
  const Undisturbed undisturbed(model);
  std::vector<double> seconds(model.size(), std::numeric_limits<double>::infinity());
  for (int run = 0; run <= options.repeats; ++run) {
    Tensor x = sample;
    for (size_t i = 0; i < model.size(); ++i) {
      // As in the pipeline, all but the first layer hand a gradient back.
      Tensor input = Detach(x);
      if (i > 0 && autograd::RequiresGrad(x)) autograd::SetRequiresGrad(input, true);
      const Stopwatch watch;
      x = (*model[i])(input);
      if (autograd::RequiresGrad(x)) autograd::Backward(x, {.gradients = {OnesLike(x)}});
      if (run > 0) seconds[i] = std::min(seconds[i], watch.ElapsedSeconds());
    }
  }
  return seconds;
}

}  // namespace lockstep::pipeline
