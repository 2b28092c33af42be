// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/grad_check.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::autograd {
namespace {

bool IsChecked(const Tensor& input) {
  return input.defined() && input.dtype() == DType::kFloat64 && RequiresGrad(input) &&
         IsLeaf(input);
}

std::vector<Tensor> Differentiable(std::vector<Tensor> outputs) {
  std::erase_if(outputs, [](const Tensor& t) { return !t.defined() || !RequiresGrad(t); });
  return outputs;
}

class Checker {
 public:
  Checker(const DifferentiableFunction& function, TensorSpan inputs,
          const GradCheckOptions& options)
      : function_(function), inputs_(inputs), options_(options) {}

  GradCheckResult Run();
  // The outputs' weights, after Run().
  const std::vector<Tensor>& weights() const { return weights_; }

 private:
  std::vector<Tensor> Evaluate() const {
    EnableGradScope record;
    return Differentiable(function_(inputs_));
  }
  double WeightedSum() const;
  // Empty when every element of the input fits.
  std::string CheckInput(size_t position, const Tensor& analytic);

  const DifferentiableFunction& function_;
  TensorSpan inputs_;
  const GradCheckOptions& options_;
  std::vector<Tensor> weights_;
};

double Checker::WeightedSum() const {
  const std::vector<Tensor> outputs = Evaluate();
  double sum = 0;
  for (size_t i = 0; i < outputs.size() && i < weights_.size(); ++i) {
    NoGradScope no_grad;
    sum += Sum(Mul(outputs[i], weights_[i])).Item<double>();
  }
  return sum;
}

void SetElement(const Tensor& tensor, int64_t position, double value) {
  NoGradScope no_grad;
  Tensor element = tensor;
  for (int64_t dim = tensor.rank() - 1; dim >= 0; --dim) {
    const int64_t index = position % tensor.size(dim);
    position /= tensor.size(dim);
    element = Slice(element, dim, index, index + 1);
  }
  FillInPlace(element, value);
}

std::string Checker::CheckInput(size_t position, const Tensor& analytic) {
  const Tensor& input = inputs_[position];
  const std::vector<double> values = input.ToVector<double>();
  const std::vector<double> expected =
      analytic.defined() ? analytic.ToVector<double>() : std::vector<double>(values.size(), 0.0);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = [&](double value) {
      SetElement(input, static_cast<int64_t>(i), value);
      return WeightedSum();
    };
    const double above = at(values[i] + options_.step);
    const double below = at(values[i] - options_.step);
    SetElement(input, static_cast<int64_t>(i), values[i]);
    const double numeric = (above - below) / (2 * options_.step);
    const double bound =
        options_.absolute_tolerance +
        options_.relative_tolerance * std::max(std::abs(numeric), std::abs(expected[i]));
    if (std::abs(numeric - expected[i]) <= bound) continue;  // false for NaN
    return absl::StrFormat(
        "input %d (%s), element %d in row-major order: gradient %.12g, "
        "difference quotient %.12g",
        position, input.DebugString(), i, expected[i], numeric);
  }
  return "";
}

GradCheckResult Checker::Run() {
  std::vector<Tensor> checked;
  std::vector<size_t> positions;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!IsChecked(inputs_[i])) continue;
    checked.push_back(inputs_[i]);
    positions.push_back(i);
  }
  if (checked.empty()) {
    throw InvalidArgumentError(
        "GradCheck: no input is a float64 leaf that requires a gradient; call SetRequiresGrad");
  }
  const std::vector<Tensor> outputs = Evaluate();
  if (outputs.empty()) return {false, "no output requires a gradient"};
  Generator generator{{options_.seed, kDataStream, 0}};
  for (const Tensor& output : outputs) {
    weights_.push_back(RandomUniform(
        output.shape(), -1, 1,
        {.generator = &generator, .tensor = {.dtype = output.dtype(), .device = output.device()}}));
  }
  const std::vector<Tensor> analytic = Gradients(
      outputs, checked, {.grad_outputs = weights_, .create_graph = false, .allow_unused = true});
  for (size_t i = 0; i < checked.size(); ++i) {
    std::string difference = CheckInput(positions[i], analytic[i]);
    if (!difference.empty()) return {false, std::move(difference)};
  }
  return {true, ""};
}

}  // namespace

GradCheckResult GradCheck(const DifferentiableFunction& function, TensorSpan inputs,
                          const GradCheckOptions& options) {
  Checker first(function, inputs, options);
  GradCheckResult result = first.Run();
  if (!result.ok || !options.second_order) return result;

  // The gradient as a function of the inputs and of the incoming gradients.
  const size_t count = inputs.size();
  std::vector<Tensor> extended(inputs.begin(), inputs.end());
  for (const Tensor& weight : first.weights()) {
    extended.push_back(SetRequiresGrad(Clone(weight), true));
  }
  const DifferentiableFunction gradient = [&](TensorSpan all) {
    std::vector<Tensor> checked;
    for (const Tensor& input : all.subspan(0, count)) {
      if (IsChecked(input)) checked.push_back(input);
    }
    const std::vector<Tensor> incoming(all.begin() + static_cast<int64_t>(count), all.end());
    return Gradients(Differentiable(function(all.subspan(0, count))), checked,
                     {.grad_outputs = incoming, .create_graph = true, .allow_unused = true});
  };
  Checker second(gradient, extended, options);
  result = second.Run();
  if (!result.ok) result.message = absl::StrCat("second order: ", result.message);
  return result;
}

}  // namespace lockstep::autograd
