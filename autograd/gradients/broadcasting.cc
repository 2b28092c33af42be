// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Gradients of ops with broadcasting: each is computed in the result's shape and summed over what
// the input was stretched to.

#include "lockstep/autograd/gradients/builtin.h"
#include "lockstep/autograd/gradients/util.h"

namespace lockstep::autograd::gradients {
namespace {

void SetUnbroadcast(const Context& c, Results d, int input, const Tensor& gradient) {
  d[input] = Unbroadcast(gradient, c.InputMeta(input));
}

// Maximum and Minimum: the chosen operand's gradient; equal operands get half each, and both all of
// it where one is NaN.
template <Tensor (*Loses)(const Tensor&, const Tensor&)>
void ExtremumGradient(const Context& c, Results d) {
  const Tensor x = c.Input(0), y = c.Input(1), g = c.Gradient();
  const Tensor half = Mul(g, 0.5), equal = Equal(x, y);
  if (c.Wanted(0))
    SetUnbroadcast(c, d, 0, Where(equal, half, Where(LogicalNot(Loses(x, y)), g, 0.0)));
  if (c.Wanted(1))
    SetUnbroadcast(c, d, 1, Where(equal, half, Where(LogicalNot(Loses(y, x)), g, 0.0)));
}

}  // namespace

// The operands may have different dtypes.
GradientInfo AddGradient() {
  return {.gradient = [](const Context& c, Results d) {
    const auto set = [&](int input, double factor) {
      SetUnbroadcast(c, d, input, c.Gradient());
      if (factor != 1) d[input] = Mul(d[input], c.scalars()[0]);
      const DType dtype = c.InputMeta(input).dtype;
      if (d[input].dtype() != dtype) d[input] = To(d[input], dtype);
    };
    if (c.Wanted(0)) set(0, 1);
    if (c.Wanted(1)) set(1, c.scalars()[0].AsDouble());
  }};
}

GradientInfo MulGradient() {
  return {.saves =
              [](const OpCall&, const InputMask& wanted) {
                return Saves{.inputs = (wanted[0] ? 0b10u : 0u) | (wanted[1] ? 0b01u : 0u)};
              },
          .gradient =
              [](const Context& c, Results d) {
                if (c.Wanted(0)) SetUnbroadcast(c, d, 0, Mul(c.Gradient(), c.Input(1)));
                if (c.Wanted(1)) SetUnbroadcast(c, d, 1, Mul(c.Gradient(), c.Input(0)));
              }};
}

// d(x / y) / dy = -(x / y) / y
GradientInfo DivGradient() {
  return {.saves =
              [](const OpCall&, const InputMask& wanted) {
                return Saves{.inputs = 0b10u, .outputs = wanted[1] ? 0b1u : 0u};
              },
          .gradient =
              [](const Context& c, Results d) {
                const Tensor scaled = Div(c.Gradient(), c.Input(1));
                if (c.Wanted(0)) SetUnbroadcast(c, d, 0, scaled);
                if (c.Wanted(1)) SetUnbroadcast(c, d, 1, Neg(Mul(scaled, c.Output())));
              }};
}

// d(x^y)/dx = y x^(y-1), 0 for y = 0; d(x^y)/dy = x^y ln x, 0 for x = 0 and y >= 0, where the
// products above would be 0 * infinity.
GradientInfo PowGradient() {
  return {.saves =
              [](const OpCall&, const InputMask& wanted) {
                return Saves{.inputs = 0b11u, .outputs = wanted[1] ? 0b1u : 0u};
              },
          .gradient =
              [](const Context& c, Results d) {
                const Tensor x = c.Input(0), y = c.Input(1), g = c.Gradient();
                if (c.Wanted(0)) {
                  const Tensor constant = Equal(y, 0.0);
                  // A harmless exponent where the result is not used.
                  const Tensor power = Pow(x, Where(constant, OnesLike(y), Sub(y, 1.0)));
                  SetUnbroadcast(c, d, 0, Mul(g, Mul(y, power)));
                }
                if (c.Wanted(1)) {
                  const Tensor flat = LogicalAnd(Equal(x, 0.0), GreaterEqual(y, 0.0));
                  const Tensor log = Log(Where(flat, OnesLike(g), x));
                  SetUnbroadcast(c, d, 1, Mul(g, Mul(c.Output(), log)));
                }
              }};
}

GradientInfo MaximumGradient() {
  return {.saves = SaveAlways<0b11>, .gradient = ExtremumGradient<&Less>};
}

GradientInfo MinimumGradient() {
  return {.saves = SaveAlways<0b11>, .gradient = ExtremumGradient<&Greater>};
}

GradientInfo WhereGradient() {
  return {.saves = SaveAlways<0b1>, .gradient = [](const Context& c, Results d) {
            const Tensor condition = c.Input(0);
            if (c.Wanted(1)) SetUnbroadcast(c, d, 1, Where(condition, c.Gradient(), 0.0));
            if (c.Wanted(2))
              SetUnbroadcast(c, d, 2, Where(LogicalNot(condition), c.Gradient(), 0.0));
          }};
}

}  // namespace lockstep::autograd::gradients
