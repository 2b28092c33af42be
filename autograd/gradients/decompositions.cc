// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/gradients/decompositions.h"

#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/meta.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd::gradients {
namespace {

// A tensor of its own for input `x`, so that gradients for it do not include those that reach `x`
// through another input's history.
Tensor Independent(const Tensor& x, bool wanted, bool create_graph) {
  if (!x.defined()) return x;
  if (create_graph && internal::WantsGradient(x)) {
    ShapeAttributes attributes;
    attributes.shape = x.shape();
    return Dispatch1(OpId::kView, {x}, {}, attributes);
  }
  Tensor copy = internal::Alias(x);
  if (wanted) internal::MakeLeaf(copy);
  return copy;
}

DType StatisticsDType(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

Shape DimsFrom(int64_t begin, int64_t end) {
  Shape dims;
  for (int64_t dim = begin; dim < end; ++dim) dims.push_back(dim);
  return dims;
}

// Sum over all dimensions before `border`; nothing when there are none.
Tensor SumLeading(const Tensor& x, int64_t border) {
  return border == 0 ? x : Sum(x, DimsFrom(0, border));
}

}  // namespace

void DifferentiateDecomposition(const GradientContext& context, TensorSpan inputs,
                                absl::Span<Tensor> results,
                                absl::FunctionRef<TensorList(TensorSpan inputs)> decomposition) {
  const bool create_graph = context.CreatesGraph();
  std::vector<Tensor> independent, wanted, outputs, gradients;
  std::vector<int> positions;
  {
    EnableGradScope record;
    for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
      independent.push_back(Independent(inputs[i], context.Wanted(i), create_graph));
      if (!context.Wanted(i)) continue;
      wanted.push_back(independent.back());
      positions.push_back(i);
    }
    const TensorList all = decomposition(independent);
    for (int i = 0; i < static_cast<int>(all.size()); ++i) {
      const bool used = context.Gradient(i).defined() && all[i].defined();
      if (!used || !internal::WantsGradient(all[i])) continue;
      outputs.push_back(all[i]);
      gradients.push_back(context.Gradient(i));
    }
  }
  if (outputs.empty()) return;
  std::vector<Tensor> computed =
      Gradients(outputs, wanted,
                {.grad_outputs = gradients, .create_graph = create_graph, .allow_unused = true});
  for (size_t i = 0; i < positions.size(); ++i) results[positions[i]] = std::move(computed[i]);
}

Tensor DecomposedGeluBackward(const Tensor& grad, const Tensor& x, GeluKind kind) {
  if (kind == GeluKind::kErf) {
    const Tensor cdf = Mul(Add(Erf(Mul(x, 1 / std::numbers::sqrt2)), 1.0), 0.5);
    const double norm = 0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2;
    const Tensor density = Mul(Exp(Mul(Mul(x, x), -0.5)), norm);
    return Mul(grad, Add(cdf, Mul(x, density)));
  }
  const double beta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  constexpr double kKappa = 0.044715;
  const Tensor square = Mul(x, x);
  const Tensor inner = Mul(Mul(x, Add(Mul(square, kKappa), 1.0)), beta);
  const Tensor tanh = Tanh(inner);
  const Tensor slope = Mul(Add(Mul(square, 3 * kKappa), 1.0), beta);
  const Tensor left = Mul(Add(tanh, 1.0), 0.5);
  const Tensor right = Mul(Mul(x, 1.0 - Mul(tanh, tanh)), Mul(slope, 0.5));
  return Mul(grad, Add(left, right));
}

Tensor DecomposedSoftmaxBackward(const Tensor& grad, const Tensor& y, int64_t dim) {
  return Mul(y, Sub(grad, Sum(Mul(grad, y), {dim}, /*keepdim=*/true)));
}

Tensor DecomposedLogSoftmaxBackward(const Tensor& grad, const Tensor& y, int64_t dim) {
  return Sub(grad, Mul(Exp(y), Sum(grad, {dim}, /*keepdim=*/true)));
}

TensorList DecomposedLayerNormBackward(const Tensor& grad, const Tensor& x, const Tensor& mean,
                                       const Tensor& rstd, const Tensor& weight,
                                       int64_t normalized_rank) {
  const DType dtype = StatisticsDType(x.dtype());
  const int64_t border = x.rank() - normalized_rank;
  const Shape dims = DimsFrom(border, x.rank());
  Shape kept(x.shape().begin(), x.shape().begin() + border);
  kept.resize(static_cast<size_t>(x.rank()), 1);
  const Tensor g = To(grad, dtype);
  const Tensor scale = Reshape(rstd, kept);
  const Tensor normalized = Mul(Sub(To(x, dtype), Reshape(mean, kept)), scale);
  const Tensor weighted = weight.defined() ? Mul(g, To(weight, dtype)) : g;
  const Tensor centered = Sub(weighted, Mean(weighted, dims, /*keepdim=*/true));
  const Tensor projection = Mean(Mul(weighted, normalized), dims, /*keepdim=*/true);
  const Tensor dx = Mul(scale, Sub(centered, Mul(normalized, projection)));
  const DType parameter = weight.defined() ? weight.dtype() : x.dtype();
  return {To(dx, x.dtype()), To(SumLeading(Mul(g, normalized), border), parameter),
          To(SumLeading(g, border), parameter)};
}

Tensor DecomposedCrossEntropyBackward(const Tensor& grad, const Tensor& logits,
                                      const Tensor& target, const Tensor& log_sum_exp,
                                      const CrossEntropyAttributes& attributes,
                                      double label_smoothing) {
  const DType dtype = StatisticsDType(logits.dtype());
  const int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  const Tensor valid = NotEqual(target, attributes.ignore_index);
  const Tensor row_weight = To(valid, dtype);
  const Tensor index = Reshape(Where(valid, target, ZerosLike(target)), {rows, 1});
  const TensorOptions options = {.dtype = dtype, .device = logits.device()};
  const Tensor one_hot = ScatterAdd(Zeros({rows, classes}, options), 1, index,
                                    Full({rows, 1}, 1.0 - label_smoothing, options));
  const Tensor wanted = Add(one_hot, label_smoothing / static_cast<double>(classes));
  const Tensor probabilities = Exp(Sub(To(logits, dtype), Reshape(log_sum_exp, {rows, 1})));
  Tensor scale = Mul(row_weight, To(grad, dtype));
  if (attributes.reduction == Reduction::kMean) scale = Div(scale, Sum(row_weight));
  return To(Mul(Sub(probabilities, wanted), Reshape(scale, {rows, 1})), logits.dtype());
}

Tensor AttentionProbabilities(const Tensor& q, const Tensor& k, const Tensor& mask,
                              const Tensor& log_sum_exp, bool causal, double scale) {
  Tensor scores = Mul(MatMul(q, k, {.transpose_a = false, .transpose_b = true}), scale);
  Tensor allowed;
  if (causal) {
    const Shape square(scores.shape().end() - 2, scores.shape().end());
    allowed = Equal(Tril(Ones(square, {.dtype = scores.dtype(), .device = scores.device()})), 1.0);
  } else if (mask.defined() && mask.dtype() == DType::kBool) {
    allowed = mask;
  } else if (mask.defined()) {
    scores = Add(scores, To(mask, scores.dtype()));
  }
  // A row that may attend to nothing has a log-sum-exp of -infinity.
  const Tensor shift = Unsqueeze(Where(IsFinite(log_sum_exp), log_sum_exp, 0.0), -1);
  const Tensor exponent = Sub(scores, shift);
  if (!allowed.defined()) return Exp(exponent);
  // Masked before and after: an exponent out of range would make NaN of its zero gradient.
  return Where(allowed, Exp(Where(allowed, exponent, 0.0)), 0.0);
}

TensorList DecomposedAttentionBackward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                       const Tensor& v, const Tensor& mask, const Tensor& y,
                                       const Tensor& log_sum_exp,
                                       const AttentionAttributes& attributes,
                                       absl::Span<const Scalar> scalars) {
  const DType dtype = StatisticsDType(q.dtype());
  const double scale = scalars[0].AsDouble();
  const Tensor g = To(grad, dtype), wide_q = To(q, dtype), wide_k = To(k, dtype);
  const auto drop = [&](const Tensor& x) {
    if (scalars[1].AsDouble() == 0) return x;
    return Dispatch1(OpId::kDropout, {x}, Scalars(scalars.begin() + 1, scalars.end()));
  };
  const Tensor p =
      AttentionProbabilities(wide_q, wide_k, mask, log_sum_exp, attributes.causal, scale);
  const Tensor delta = Sum(Mul(g, To(y, dtype)), {-1}, /*keepdim=*/true);
  const Tensor dp = drop(MatMul(g, To(v, dtype), {.transpose_a = false, .transpose_b = true}));
  const Tensor dscores = Mul(p, Sub(dp, delta));
  const Tensor scaled = Mul(dscores, scale);
  return {To(MatMul(scaled, wide_k), q.dtype()),
          To(MatMul(scaled, wide_q, {.transpose_a = true, .transpose_b = false}), k.dtype()),
          To(MatMul(drop(p), g, {.transpose_a = true, .transpose_b = false}), v.dtype()), dscores};
}

}  // namespace lockstep::autograd::gradients
