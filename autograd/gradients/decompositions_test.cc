// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// The fused backward kernels against their decompositions.

#include "lockstep/autograd/gradients/decompositions.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd::gradients {
namespace {

Tensor Data(const Shape& shape, int seed, DType dtype) {
  Generator generator{{static_cast<uint64_t>(seed), 0, 0}};
  return To(
      RandomUniform(shape, -1, 1, {.generator = &generator, .tensor = {.dtype = DType::kFloat64}}),
      dtype);
}

void ExpectNear(const Tensor& actual, const Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.shape(), expected.shape());
  ASSERT_EQ(actual.dtype(), expected.dtype());
  const std::vector<double> a = actual.ToVector<double>(), b = expected.ToVector<double>();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "element " << i;
}

struct Precision {
  DType dtype;
  double tolerance;
};

class DecompositionTest : public testing::TestWithParam<Precision> {
 protected:
  DType dtype() const { return GetParam().dtype; }
  DType statistics() const {
    return dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  }
  double tolerance() const { return GetParam().tolerance; }
};

TEST_P(DecompositionTest, Gelu) {
  for (const GeluKind kind : {GeluKind::kErf, GeluKind::kTanh}) {
    const Tensor g = Data({3, 37}, 1, dtype()), x = Mul(Data({3, 37}, 2, dtype()), 4.0);
    GeluAttributes attributes;
    attributes.kind = kind;
    ExpectNear(Dispatch1(OpId::kGeluBackward, {g, x}, {}, attributes),
               DecomposedGeluBackward(g, x, kind), 4 * tolerance());
  }
}

TEST_P(DecompositionTest, Softmax) {
  for (const int64_t dim : {0, 1, 2}) {
    DimAttributes attributes;
    attributes.dim = dim;
    const Tensor g = Data({3, 5, 7}, 1, dtype());
    const Tensor y = Softmax(Data({3, 5, 7}, 2, dtype()), dim);
    ExpectNear(Dispatch1(OpId::kSoftmaxBackward, {g, y}, {}, attributes),
               DecomposedSoftmaxBackward(g, y, dim), tolerance());
    const Tensor log_y = LogSoftmax(Data({3, 5, 7}, 2, dtype()), dim);
    ExpectNear(Dispatch1(OpId::kLogSoftmaxBackward, {g, log_y}, {}, attributes),
               DecomposedLogSoftmaxBackward(g, log_y, dim), 8 * tolerance());
  }
}

TEST_P(DecompositionTest, LayerNorm) {
  for (const bool with_weight : {true, false}) {
    const Tensor x = Data({6, 33}, 1, dtype()), g = Data({6, 33}, 2, dtype());
    const Tensor weight = with_weight ? Data({33}, 3, dtype()) : Tensor();
    LayerNormAttributes attributes;
    const TensorList forward =
        Dispatch({OpId::kLayerNorm, {x, weight, Tensor()}, {1e-5}, attributes});
    const TensorList fused = Dispatch(
        {OpId::kLayerNormBackward, {g, x, forward[1], forward[2], weight}, {}, attributes});
    const TensorList plain = DecomposedLayerNormBackward(g, x, forward[1], forward[2], weight, 1);
    for (int i = 0; i < 3; ++i) {
      SCOPED_TRACE(i);
      ExpectNear(fused[i], plain[i], 16 * tolerance());
    }
  }
}

TEST_P(DecompositionTest, CrossEntropy) {
  const Tensor target = FromVector<int64_t>({4, 0, -100, 10, 3}, {5});
  const Tensor logits = Mul(Data({5, 11}, 1, dtype()), 3.0);
  for (const Reduction reduction : {Reduction::kNone, Reduction::kMean, Reduction::kSum}) {
    for (const double smoothing : {0.0, 0.2}) {
      CrossEntropyAttributes attributes;
      attributes.reduction = reduction;
      const TensorList forward =
          Dispatch({OpId::kCrossEntropy, {logits, target}, {smoothing}, attributes});
      const Tensor g = Data(forward[0].shape(), 2, dtype());
      const TensorList fused = Dispatch(
          {OpId::kCrossEntropyBackward, {g, logits, target, forward[1]}, {smoothing}, attributes});
      ExpectNear(
          fused[0],
          DecomposedCrossEntropyBackward(g, logits, target, forward[1], attributes, smoothing),
          4 * tolerance());
    }
  }
}

TEST_P(DecompositionTest, Attention) {
  const Tensor bool_mask = Equal(Tril(Ones({70, 67}), 20), 1.0);
  for (const int variant : {0, 1, 2, 3, 4}) {
    SCOPED_TRACE(variant);
    const Tensor q = Data({2, 2, 70, 8}, 1, dtype()), k = Data({2, 2, 67, 8}, 2, dtype());
    const Tensor v = Data({2, 2, 67, 5}, 3, dtype()), g = Data({2, 2, 70, 5}, 4, dtype());
    Tensor mask;
    AttentionAttributes attributes;
    attributes.causal = variant == 1;
    if (variant == 2) mask = bool_mask;
    if (variant == 3) mask = Data({70, 67}, 5, dtype());
    const Scalars scalars = {0.35, variant == 4 ? 0.25 : 0.0, 3, 9, 64};
    const TensorList forward =
        Dispatch({OpId::kScaledDotProductAttention, {q, k, v, mask}, scalars, attributes});
    const TensorList fused = Dispatch({OpId::kScaledDotProductAttentionBackward,
                                       {g, q, k, v, mask, forward[0], forward[1]},
                                       scalars,
                                       attributes});
    const TensorList plain =
        DecomposedAttentionBackward(g, q, k, v, mask, forward[0], forward[1], attributes, scalars);
    for (int i = 0; i < 3; ++i) {
      SCOPED_TRACE(i);
      ExpectNear(fused[i], plain[i], 16 * tolerance());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, DecompositionTest,
                         testing::Values(Precision{DType::kFloat64, 1e-13},
                                         Precision{DType::kFloat32, 1e-6},
                                         Precision{DType::kBFloat16, 8e-3},
                                         Precision{DType::kFloat16, 1e-3}),
                         [](const auto& info) { return std::string(DTypeName(info.param.dtype)); });

}  // namespace
}  // namespace lockstep::autograd::gradients
