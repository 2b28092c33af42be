// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/neural.h"

#include <cmath>

#include "absl/types/span.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/op_util.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep {
namespace {

using ops::RequireDefined;

Tensor SoftmaxAlong(OpId op, const char* call, const Tensor& x, int64_t dim) {
  RequireDefined(x, call, "x");
  DimAttributes attributes;
  attributes.dim = NormalizeDim(dim, x.rank(), call);
  return Dispatch1(op, absl::MakeConstSpan(&x, 1), {}, attributes);
}

Generator& DropoutGenerator(Generator* given) {
  return given != nullptr ? *given : ThreadGenerators().dropout;
}

// Attention weights that dropout decides on: [..., H, T, S].
int64_t ScoreCount(const Tensor& q, const Tensor& k) {
  const char* const call = "ScaledDotProductAttention";
  if (q.rank() < 2 || k.rank() < 2) {
    ops::Refuse(call, "q ", ToString(q.shape()), " and k ", ToString(k.shape()),
                " must have at least 2 dimensions");
  }
  Shape scores(q.shape());
  scores.back() = k.size(-2);
  return NumElements(scores, call);
}

}  // namespace

Tensor Softmax(const Tensor& x, int64_t dim) {
  return SoftmaxAlong(OpId::kSoftmax, "Softmax", x, dim);
}
Tensor LogSoftmax(const Tensor& x, int64_t dim) {
  return SoftmaxAlong(OpId::kLogSoftmax, "LogSoftmax", x, dim);
}

Tensor LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                 int64_t normalized_rank) {
  RequireDefined(x, "LayerNorm", "x");
  if (!(epsilon >= 0) || std::isinf(epsilon)) {
    ops::Refuse("LayerNorm", "epsilon ", epsilon, " must be a number that is not negative");
  }
  LayerNormAttributes attributes;
  attributes.normalized_rank = normalized_rank;
  const Tensor inputs[] = {x, weight, bias};
  return Dispatch1(OpId::kLayerNorm, inputs, {epsilon}, attributes);
}

Tensor Dropout(const Tensor& x, double p, const DropoutOptions& options) {
  RequireDefined(x, "Dropout", "x");
  if (!(p >= 0 && p <= 1)) ops::Refuse("Dropout", "probability ", p, " is not in [0, 1]");
  if (!options.training || p == 0) return x;
  ops::PendingDraw draw(DropoutGenerator(options.generator), x.numel());
  Tensor result = Dispatch1(OpId::kDropout, absl::MakeConstSpan(&x, 1),
                            {p, draw.seed(), draw.stream(), draw.offset()});
  draw.Commit();
  return result;
}

Tensor CrossEntropy(const Tensor& logits, const Tensor& target,
                    const CrossEntropyOptions& options) {
  RequireDefined(logits, "CrossEntropy", "logits");
  RequireDefined(target, "CrossEntropy", "target");
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    ops::Refuse("CrossEntropy", "label_smoothing ", options.label_smoothing, " is not in [0, 1]");
  }
  CrossEntropyAttributes attributes;
  attributes.reduction = options.reduction;
  attributes.ignore_index = options.ignore_index;
  const bool single = logits.rank() == 1 && target.rank() == 0;
  const Tensor inputs[] = {single ? Unsqueeze(logits, 0) : logits,
                           single ? Unsqueeze(target, 0) : target};
  Tensor loss = Dispatch1(OpId::kCrossEntropy, inputs, {options.label_smoothing}, attributes);
  return single && options.reduction == Reduction::kNone ? Squeeze(loss, 0) : loss;
}

Tensor MseLoss(const Tensor& x, const Tensor& target, Reduction reduction) {
  RequireDefined(x, "MseLoss", "x");
  RequireDefined(target, "MseLoss", "target");
  if (x.shape() != target.shape()) {
    ops::Refuse("MseLoss", "x has shape ", ToString(x.shape()), " and target has ",
                ToString(target.shape()), "; they must be the same (Reshape or Expand one)");
  }
  if (!IsFloatingPoint(ops::ResultType(x, target))) {
    ops::Refuse("MseLoss", "x has dtype ", DTypeName(x.dtype()), " and target ",
                DTypeName(target.dtype()), "; a floating-point dtype is needed (cast with To)");
  }
  const Tensor difference = Sub(x, target);
  const Tensor squares = Mul(difference, difference);
  switch (reduction) {
    case Reduction::kMean:
      return Mean(squares);
    case Reduction::kSum:
      return Sum(squares);
    case Reduction::kNone:
      break;
  }
  return squares;
}

Tensor ScaledDotProductAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const AttentionOptions& options) {
  const char* const call = "ScaledDotProductAttention";
  RequireDefined(q, call, "q");
  RequireDefined(k, call, "k");
  RequireDefined(v, call, "v");
  const double p = options.dropout_p;
  if (!(p >= 0 && p < 1)) ops::Refuse(call, "dropout_p ", p, " is not in [0, 1)");
  const int64_t scores = ScoreCount(q, k);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
  // Of no components the default scale is infinite; the products are 0 whatever it is.
  if (options.scale.has_value() && !std::isfinite(scale)) {
    ops::Refuse(call, "scale ", scale, " is not a finite number");
  }
  AttentionAttributes attributes;
  attributes.causal = options.causal;
  const Tensor inputs[] = {q, k, v, options.mask};
  const Scalar finite_scale = std::isfinite(scale) ? scale : 1.0;
  if (p == 0)
    return Dispatch1(OpId::kScaledDotProductAttention, inputs, {finite_scale, 0.0, 0, 0, 0},
                     attributes);
  ops::PendingDraw draw(DropoutGenerator(options.generator), scores);
  Tensor result =
      Dispatch1(OpId::kScaledDotProductAttention, inputs,
                {finite_scale, p, draw.seed(), draw.stream(), draw.offset()}, attributes);
  draw.Commit();
  return result;
}

}  // namespace lockstep
