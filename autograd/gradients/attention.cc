// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Gradients of scaled dot-product attention and of its fused backward row.

#include "lockstep/autograd/gradients/builtin.h"
#include "lockstep/autograd/gradients/decompositions.h"
#include "lockstep/autograd/gradients/util.h"

namespace lockstep::autograd::gradients {
namespace {

constexpr int kQ = 0, kK = 1, kV = 2, kMask = 3;

bool WantsQkv(const Context& c) { return c.Wanted(kQ) || c.Wanted(kK) || c.Wanted(kV); }

void AddTo(Tensor& sum, const Tensor& addend) { sum = sum.defined() ? Add(sum, addend) : addend; }

// Gradients through the output y.
void AddOutputGradient(const Context& c, Results d) {
  const TensorList inputs = {c.Gradient(0),  c.Input(kQ), c.Input(kK), c.Input(kV),
                             c.Input(kMask), c.Output(0), c.Output(1)};
  if (WantsQkv(c)) {
    const TensorList all =
        Dispatch({OpId::kScaledDotProductAttentionBackward, inputs, c.scalars(), c.attributes()});
    for (int i = kQ; i <= kV; ++i) {
      if (c.Wanted(i)) d[i] = all[i];
    }
  }
  // The fused row has no gradient for a float mask: it would not be linear in memory.
  if (!c.Wanted(kMask)) return;
  const Tensor dscores = DecomposedAttentionBackward(
      inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], inputs[5], inputs[6],
      c.attributes_as<AttentionAttributes>(), c.scalars())[3];
  d[kMask] = To(SumTo(dscores, c.InputMeta(kMask).shape), c.InputMeta(kMask).dtype);
}

// Gradients through the output log_sum_exp, which users do not see but the backward row uses.
void AddLogSumExpGradient(const Context& c, Results d) {
  const double scale = c.scalars()[0].AsDouble();
  const DType dtype = c.OutputMeta(1).dtype;
  const Tensor q = To(c.Input(kQ), dtype), k = To(c.Input(kK), dtype);
  const Tensor p = AttentionProbabilities(q, k, c.Input(kMask), c.Output(1),
                                          c.attributes_as<AttentionAttributes>().causal, scale);
  const Tensor dscores = Mul(p, Unsqueeze(c.Gradient(1), -1));
  const Tensor scaled = Mul(dscores, scale);
  if (c.Wanted(kQ)) AddTo(d[kQ], To(MatMul(scaled, k), c.InputMeta(kQ).dtype));
  if (c.Wanted(kK)) {
    const Tensor dk = MatMul(scaled, q, {.transpose_a = true, .transpose_b = false});
    AddTo(d[kK], To(dk, c.InputMeta(kK).dtype));
  }
  if (c.Wanted(kMask)) {
    const TensorMeta& mask = c.InputMeta(kMask);
    AddTo(d[kMask], To(SumTo(dscores, mask.shape), mask.dtype));
  }
}

}  // namespace

GradientInfo ScaledDotProductAttentionGradient() {
  return {.saves = SaveAlways<0b1111, 0b11>, .gradient = [](const Context& c, Results d) {
            if (c.Gradient(0).defined()) AddOutputGradient(c, d);
            if (c.Gradient(1).defined()) AddLogSumExpGradient(c, d);
          }};
}

GradientInfo ScaledDotProductAttentionBackwardGradient() {
  return {.saves = SaveAlways<0b1111111>, .gradient = [](const Context& c, Results d) {
            TensorList inputs;
            for (int i = 0; i < 7; ++i) inputs.push_back(c.Input(i));
            DifferentiateDecomposition(c, inputs, d, [&c](TensorSpan in) {
              TensorList outputs =
                  DecomposedAttentionBackward(in[0], in[1], in[2], in[3], in[4], in[5], in[6],
                                              c.attributes_as<AttentionAttributes>(), c.scalars());
              outputs.pop_back();  // the scores are no output of the row
              return outputs;
            });
          }};
}

}  // namespace lockstep::autograd::gradients
