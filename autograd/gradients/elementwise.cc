// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Gradients of elementwise ops of one tensor, and of their backward rows.

#include <cmath>
#include <numbers>

#include "lockstep/autograd/gradients/builtin.h"
#include "lockstep/autograd/gradients/decompositions.h"
#include "lockstep/autograd/gradients/util.h"

namespace lockstep::autograd::gradients {

GradientInfo DropoutGradient() {
  // The same key gives the same mask.
  return {.gradient = [](const Context& c, Results dx) {
    dx[0] = RunRow(OpId::kDropout, {c.Gradient()}, c);
  }};
}

GradientInfo FillGradient() {
  return {.gradient = [](const Context& c, Results dx) { dx[0] = ExpandedZeros(c.InputMeta(0)); }};
}

GradientInfo CloneGradient() {
  return {.gradient = [](const Context& c, Results dx) { dx[0] = c.Gradient(); }};
}

GradientInfo CastGradient() {
  return {.gradient = [](const Context& c, Results dx) {
    dx[0] = To(c.Gradient(), c.InputMeta(0).dtype);
  }};
}

GradientInfo NegGradient() {
  return {.gradient = [](const Context& c, Results dx) { dx[0] = Neg(c.Gradient()); }};
}

GradientInfo AbsGradient() {
  return {.saves = SaveAlways<0b1>, .gradient = [](const Context& c, Results dx) {
            dx[0] = Mul(c.Gradient(), Sign(c.Input(0)));
          }};
}

GradientInfo SignGradient() {
  return {.gradient = [](const Context& c, Results dx) { dx[0] = ExpandedZeros(c.InputMeta(0)); }};
}

GradientInfo ExpGradient() {
  return {.saves = SaveAlways<0, 0b1>,
          .gradient = [](const Context& c, Results dx) { dx[0] = Mul(c.Gradient(), c.Output()); }};
}

GradientInfo LogGradient() {
  return {.saves = SaveAlways<0b1>,
          .gradient = [](const Context& c, Results dx) { dx[0] = Div(c.Gradient(), c.Input(0)); }};
}

GradientInfo SqrtGradient() {
  return {.saves = SaveAlways<0, 0b1>, .gradient = [](const Context& c, Results dx) {
            dx[0] = Div(c.Gradient(), Mul(c.Output(), 2.0));
          }};
}

GradientInfo RsqrtGradient() {
  return {.saves = SaveAlways<0, 0b1>, .gradient = [](const Context& c, Results dx) {
            dx[0] = Mul(Mul(c.Gradient(), Pow(c.Output(), 3.0)), -0.5);
          }};
}

GradientInfo ReciprocalGradient() {
  return {.saves = SaveAlways<0, 0b1>, .gradient = [](const Context& c, Results dx) {
            const Tensor y = c.Output();
            dx[0] = Neg(Mul(c.Gradient(), Mul(y, y)));
          }};
}

GradientInfo ErfGradient() {
  return {.saves = SaveAlways<0b1>, .gradient = [](const Context& c, Results dx) {
            const Tensor x = c.Input(0);
            dx[0] = Mul(c.Gradient(), Mul(Exp(Neg(Mul(x, x))), 2.0 * std::numbers::inv_sqrtpi));
          }};
}

GradientInfo TanhGradient() {
  return {.saves = SaveAlways<0, 0b1>, .gradient = [](const Context& c, Results dx) {
            dx[0] = RunRow(OpId::kTanhBackward, {c.Gradient(), c.Output()}, c);
          }};
}

// dx = grad * (1 - y^2)
GradientInfo TanhBackwardGradient() {
  return {.saves =
              [](const OpCall&, const InputMask& wanted) {
                return Saves{.inputs = (wanted[1] ? 0b01u : 0u) | 0b10u};
              },
          .gradient =
              [](const Context& c, Results d) {
                const Tensor y = c.Input(1);
                if (c.Wanted(0)) d[0] = RunRow(OpId::kTanhBackward, {c.Gradient(), y}, c);
                if (c.Wanted(1)) d[1] = Mul(Mul(c.Gradient(), Mul(c.Input(0), y)), -2.0);
              }};
}

GradientInfo SigmoidGradient() {
  return {.saves = SaveAlways<0, 0b1>, .gradient = [](const Context& c, Results dx) {
            dx[0] = RunRow(OpId::kSigmoidBackward, {c.Gradient(), c.Output()}, c);
          }};
}

// dx = grad * y * (1 - y)
GradientInfo SigmoidBackwardGradient() {
  return {.saves =
              [](const OpCall&, const InputMask& wanted) {
                return Saves{.inputs = (wanted[1] ? 0b01u : 0u) | 0b10u};
              },
          .gradient =
              [](const Context& c, Results d) {
                const Tensor y = c.Input(1);
                if (c.Wanted(0)) d[0] = RunRow(OpId::kSigmoidBackward, {c.Gradient(), y}, c);
                if (c.Wanted(1)) d[1] = Mul(Mul(c.Gradient(), c.Input(0)), 1.0 - Mul(y, 2.0));
              }};
}

GradientInfo ReluGradient() {
  return {.saves = SaveAlways<0, 0b1>, .gradient = [](const Context& c, Results dx) {
            dx[0] = RunRow(OpId::kReluBackward, {c.Gradient(), c.Output()}, c);
          }};
}

// dx = grad where y > 0
GradientInfo ReluBackwardGradient() {
  return {.saves = [](const OpCall&,
                      const InputMask& wanted) { return Saves{.inputs = wanted[0] ? 0b10u : 0u}; },
          .gradient =
              [](const Context& c, Results d) {
                if (c.Wanted(0)) d[0] = RunRow(OpId::kReluBackward, {c.Gradient(), c.Input(1)}, c);
                if (c.Wanted(1)) d[1] = ExpandedZeros(c.InputMeta(1));
              }};
}

GradientInfo GeluGradient() {
  return {.saves = SaveAlways<0b1>, .gradient = [](const Context& c, Results dx) {
            dx[0] = RunRow(OpId::kGeluBackward, {c.Gradient(), c.Input(0)}, c);
          }};
}

GradientInfo GeluBackwardGradient() {
  return {.saves = SaveAlways<0b11>, .gradient = [](const Context& c, Results d) {
            DifferentiateDecomposition(c, {c.Input(0), c.Input(1)}, d, [&c](TensorSpan inputs) {
              const GeluKind kind = c.attributes_as<GeluAttributes>().kind;
              return TensorList{DecomposedGeluBackward(inputs[0], inputs[1], kind)};
            });
          }};
}

GradientInfo ClampGradient() {
  return {.saves = SaveAlways<0b1>, .gradient = [](const Context& c, Results dx) {
            const Tensor x = c.Input(0);
            // Nothing at the bounds themselves, as in PyTorch.
            const Tensor inside = LogicalAnd(Greater(x, c.scalars()[0]), Less(x, c.scalars()[1]));
            dx[0] = Where(inside, c.Gradient(), 0.0);
          }};
}

GradientInfo AddScalarGradient() {
  return {.gradient = [](const Context& c, Results dx) { dx[0] = c.Gradient(); }};
}

GradientInfo MulScalarGradient() {
  return {
      .gradient = [](const Context& c, Results dx) { dx[0] = Mul(c.Gradient(), c.scalars()[0]); }};
}

GradientInfo DivScalarGradient() {
  return {
      .gradient = [](const Context& c, Results dx) { dx[0] = Div(c.Gradient(), c.scalars()[0]); }};
}

GradientInfo PowScalarGradient() {
  return {.saves = SaveAlways<0b1>, .gradient = [](const Context& c, Results dx) {
            const double exponent = c.scalars()[0].AsDouble();
            // 0 * x^-1 would be NaN at 0.
            dx[0] = exponent == 0 ? ExpandedZeros(c.InputMeta(0))
                                  : Mul(c.Gradient(), Mul(Pow(c.Input(0), exponent - 1), exponent));
          }};
}

GradientInfo TriangularMaskGradient() {
  return {.gradient = [](const Context& c, Results dx) {
    dx[0] = RunRow(OpId::kTriangularMask, {c.Gradient()}, c);
  }};
}

}  // namespace lockstep::autograd::gradients
