// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Gradients of softmax, layer norm and cross entropy, and of their fused backward rows.

#include "lockstep/autograd/gradients/builtin.h"
#include "lockstep/autograd/gradients/decompositions.h"
#include "lockstep/autograd/gradients/util.h"

namespace lockstep::autograd::gradients {
namespace {

int64_t DimOf(const Context& c) { return c.attributes_as<DimAttributes>().dim; }

// Both backward rows need y for the gradient of grad, and grad too for that of y.
Saves SaveForSoftmaxBackward(const OpCall&, const InputMask& wanted) {
  return {.inputs = (wanted[1] ? 0b01u : 0u) | 0b10u};
}

void AddTo(Tensor& sum, const Tensor& addend) { sum = sum.defined() ? Add(sum, addend) : addend; }

// The gradient of x through the outputs mean and rstd, which users do not see but the backward row
// uses: dmean/dx = 1/n, drstd/dx = -rstd^3 (x - mean) / n.
void AddStatisticsGradient(const Context& c, Tensor& dx) {
  const Tensor &dmean = c.Gradient(1), &drstd = c.Gradient(2);
  if (!dmean.defined() && !drstd.defined()) return;
  const TensorMeta& x = c.InputMeta(0);
  const DType dtype = c.OutputMeta(1).dtype;
  const size_t border = c.OutputMeta(1).shape.size();
  Shape kept(c.OutputMeta(1).shape);
  kept.resize(x.shape.size(), 1);
  int64_t count = 1;
  for (size_t dim = border; dim < x.shape.size(); ++dim) count *= x.shape[dim];
  if (count == 0) return;
  if (dmean.defined()) {
    const Tensor spread = Expand(Reshape(Div(dmean, count), kept), x.shape);
    AddTo(dx, To(spread, x.dtype));
  }
  if (drstd.defined()) {
    const Tensor rstd = c.Output(2);
    const Tensor centered = Sub(To(c.Input(0), dtype), Reshape(c.Output(1), kept));
    const Tensor factor = Mul(Mul(drstd, Pow(rstd, 3.0)), -1.0 / static_cast<double>(count));
    AddTo(dx, To(Mul(centered, Reshape(factor, kept)), x.dtype));
  }
}

}  // namespace

GradientInfo SoftmaxGradient() {
  return {.saves = SaveAlways<0, 0b1>, .gradient = [](const Context& c, Results d) {
            d[0] = RunRow(OpId::kSoftmaxBackward, {c.Gradient(), c.Output()}, c);
          }};
}

// dx = y (grad - sum(grad y)) is symmetric in its use of y: its own transpose for grad.
GradientInfo SoftmaxBackwardGradient() {
  return {.saves = SaveForSoftmaxBackward, .gradient = [](const Context& c, Results d) {
            const Tensor g = c.Gradient(), y = c.Input(1);
            if (c.Wanted(0)) d[0] = RunRow(OpId::kSoftmaxBackward, {g, y}, c);
            if (!c.Wanted(1)) return;
            const Tensor grad = c.Input(0);
            const Tensor along_grad = Sum(Mul(grad, y), {DimOf(c)}, /*keepdim=*/true);
            const Tensor along_g = Sum(Mul(g, y), {DimOf(c)}, /*keepdim=*/true);
            d[1] = Sub(Mul(g, Sub(grad, along_grad)), Mul(grad, along_g));
          }};
}

GradientInfo LogSoftmaxGradient() {
  return {.saves = SaveAlways<0, 0b1>, .gradient = [](const Context& c, Results d) {
            d[0] = RunRow(OpId::kLogSoftmaxBackward, {c.Gradient(), c.Output()}, c);
          }};
}

// dx = grad - exp(y) sum(grad)
GradientInfo LogSoftmaxBackwardGradient() {
  return {.saves = SaveForSoftmaxBackward, .gradient = [](const Context& c, Results d) {
            const Tensor g = c.Gradient(), weighted = Mul(g, Exp(c.Input(1)));
            if (c.Wanted(0)) d[0] = Sub(g, Sum(weighted, {DimOf(c)}, /*keepdim=*/true));
            if (c.Wanted(1))
              d[1] = Neg(Mul(weighted, Sum(c.Input(0), {DimOf(c)}, /*keepdim=*/true)));
          }};
}

GradientInfo LayerNormGradient() {
  return {.saves =
              [](const OpCall&, const InputMask& wanted) {
                return Saves{.inputs = 0b1u | (wanted[0] ? 0b10u : 0u), .outputs = 0b110u};
              },
          .gradient =
              [](const Context& c, Results d) {
                if (c.Gradient(0).defined()) {
                  const Tensor weight = c.Wanted(0) ? c.Input(1) : Tensor();
                  const TensorList all =
                      Dispatch({OpId::kLayerNormBackward,
                                {c.Gradient(0), c.Input(0), c.Output(1), c.Output(2), weight},
                                Scalars(),
                                c.attributes()});
                  for (int i = 0; i < 3; ++i) {
                    if (c.Wanted(i)) d[i] = all[i];
                  }
                }
                if (c.Wanted(0)) AddStatisticsGradient(c, d[0]);
              }};
}

GradientInfo LayerNormBackwardGradient() {
  return {.saves = SaveAlways<0b11111>, .gradient = [](const Context& c, Results d) {
            const TensorList inputs = {c.Input(0), c.Input(1), c.Input(2), c.Input(3), c.Input(4)};
            DifferentiateDecomposition(c, inputs, d, [&c](TensorSpan in) {
              return DecomposedLayerNormBackward(
                  in[0], in[1], in[2], in[3], in[4],
                  c.attributes_as<LayerNormAttributes>().normalized_rank);
            });
          }};
}

GradientInfo CrossEntropyGradient() {
  return {.saves = SaveAlways<0b11, 0b10>, .gradient = [](const Context& c, Results d) {
            const Tensor logits = c.Input(0), log_sum_exp = c.Output(1);
            if (c.Gradient(0).defined()) {
              d[0] = RunRow(OpId::kCrossEntropyBackward,
                            {c.Gradient(0), logits, c.Input(1), log_sum_exp}, c);
            }
            if (!c.Gradient(1).defined()) return;
            const int64_t rows = logits.shape()[0];
            const Tensor softmax =
                Exp(Sub(To(logits, log_sum_exp.dtype()), Reshape(log_sum_exp, {rows, 1})));
            AddTo(d[0], To(Mul(softmax, Reshape(c.Gradient(1), {rows, 1})), logits.dtype()));
          }};
}

GradientInfo CrossEntropyBackwardGradient() {
  return {.saves = SaveAlways<0b1111>, .gradient = [](const Context& c, Results d) {
            const TensorList inputs = {c.Input(0), c.Input(1), c.Input(2), c.Input(3)};
            DifferentiateDecomposition(c, inputs, d, [&c](TensorSpan in) {
              return TensorList{DecomposedCrossEntropyBackward(
                  in[0], in[1], in[2], in[3], c.attributes_as<CrossEntropyAttributes>(),
                  c.scalars()[0].AsDouble())};
            });
          }};
}

}  // namespace lockstep::autograd::gradients
