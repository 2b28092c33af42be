// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Softmax, log-softmax, layer norm and cross entropy with their gradients, against double.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu/kernel_testing.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/neural.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double Tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-13;
    case DType::kFloat32:
      return 2e-6;
    case DType::kFloat16:
      return 2e-3;
    default:
      return 1e-2;
  }
}

std::vector<double> StoredNumbers(int64_t count, DType dtype, uint64_t seed, double low = -3,
                                  double high = 3) {
  return MakeTensor(Numbers(count, low, high, seed), {count}, dtype).ToVector<double>();
}

// Calls function(base, step) for each row along `dim` of `shape`.
template <typename Function>
void ForEachRow(const Shape& shape, int64_t dim, const Function& function) {
  int64_t inner = 1, outer = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (static_cast<int64_t>(d) < dim) outer *= shape[d];
    if (static_cast<int64_t>(d) > dim) inner *= shape[d];
  }
  const int64_t count = shape.empty() ? 1 : shape[dim];
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) function(o * count * inner + i, inner, count);
  }
}

struct SoftmaxReference {
  std::vector<double> y, log_y, dx, log_dx;
};

SoftmaxReference ComputeSoftmax(const std::vector<double>& x, const std::vector<double>& grad,
                                const Shape& shape, int64_t dim) {
  SoftmaxReference r;
  r.y = r.log_y = r.dx = r.log_dx = std::vector<double>(x.size());
  ForEachRow(shape, dim, [&](int64_t base, int64_t step, int64_t count) {
    double max = -kInfinity, sum = 0, dot = 0, grad_sum = 0;
    for (int64_t j = 0; j < count; ++j) max = std::max(max, x[base + j * step]);
    for (int64_t j = 0; j < count; ++j) sum += std::exp(x[base + j * step] - max);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t at = base + j * step;
      r.log_y[at] = x[at] - max - std::log(sum);
      r.y[at] = std::exp(r.log_y[at]);
      dot += r.y[at] * grad[at];
      grad_sum += grad[at];
    }
    for (int64_t j = 0; j < count; ++j) {
      const int64_t at = base + j * step;
      r.dx[at] = r.y[at] * (grad[at] - dot);
      r.log_dx[at] = grad[at] - r.y[at] * grad_sum;
    }
  });
  return r;
}

Tensor BackwardRow(OpId op, const Tensor& grad, const Tensor& y, int64_t dim) {
  DimAttributes attributes;
  attributes.dim = dim;
  const Tensor inputs[] = {grad, y};
  return Dispatch1(op, inputs, {}, attributes);
}

TEST(SoftmaxTest, AgreesWithDoubleAlongEveryDimensionInEveryLayout) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{3, 5}, Shape{2, 1, 33},
                             Shape{3, 4, 5}, Shape{5, 70, 2}}) {
    const int64_t count = NumElements(shape);
    for (int64_t dim = 0; dim < std::max<int64_t>(1, shape.size()); ++dim) {
      for (const DType dtype : kFloatDTypes) {
        const std::vector<double> x = StoredNumbers(count, dtype, 1);
        const std::vector<double> grad = StoredNumbers(count, dtype, 2);
        const SoftmaxReference r = ComputeSoftmax(x, grad, shape, dim);
        const std::vector<Tensor> xs = Layouts(MakeTensor(x, shape, dtype));
        const std::vector<Tensor> grads = Layouts(MakeTensor(grad, shape, dtype));
        for (size_t i = 0; i < xs.size(); ++i) {
          const std::string what = std::string(DTypeName(dtype)) + ToString(shape) + " dim " +
                                   std::to_string(dim) + " layout " + std::to_string(i);
          const Tensor y = Softmax(xs[i], dim);
          const Tensor log_y = LogSoftmax(xs[i], dim);
          ExpectClose(y, r.y, Tolerance(dtype), "Softmax " + what, 0.1);
          ExpectClose(log_y, r.log_y, Tolerance(dtype), "LogSoftmax " + what, 1);
          ExpectClose(BackwardRow(OpId::kSoftmaxBackward, grads[i], y, dim), r.dx,
                      2 * Tolerance(dtype), "SoftmaxBackward " + what, 1);
          ExpectClose(BackwardRow(OpId::kLogSoftmaxBackward, grads[i], log_y, dim), r.log_dx,
                      4 * Tolerance(dtype), "LogSoftmaxBackward " + what, 5);
        }
      }
    }
  }
}

TEST(SoftmaxTest, EmptyTensors) {
  for (const Shape& shape : {Shape{0}, Shape{0, 3}, Shape{3, 0}}) {
    for (int64_t dim = 0; dim < static_cast<int64_t>(shape.size()); ++dim) {
      const Tensor y = Softmax(Empty(shape), dim);
      EXPECT_EQ(y.shape(), shape);
      EXPECT_EQ(BackwardRow(OpId::kSoftmaxBackward, y, y, dim).shape(), shape);
    }
  }
}

TEST(SoftmaxTest, SpecialValues) {
  for (const DType dtype : kFloatDTypes) {
    const auto row = [&](std::vector<double> values) {
      const int64_t count = static_cast<int64_t>(values.size());
      return Softmax(MakeTensor(values, {count}, dtype), 0);
    };
    // Field report: softmax([0, -inf]) is [1, 0] with a finite gradient.
    const Tensor y = row({0, -kInfinity});
    ExpectClose(y, {1, 0}, 0, "one hidden");
    ExpectClose(BackwardRow(OpId::kSoftmaxBackward, MakeTensor({3, 5}, {2}, dtype), y, 0), {0, 0},
                0, "its gradient");
    ExpectClose(row({-kInfinity, -kInfinity}), {kNaN, kNaN}, 0, "all hidden, as in PyTorch");
    ExpectClose(row({1, kNaN, 2}), {kNaN, kNaN, kNaN}, 0, "NaN");
    ExpectClose(row({kInfinity, 0}), {kNaN, kNaN}, 0, "infinity");
    ExpectClose(row({60000, 60000}), {0.5, 0.5}, 0, "large");
  }
}

// Field report: 16-bit sums stall at 256.
TEST(SoftmaxTest, ManyEqualLogits) {
  for (const DType dtype : kFloatDTypes) {
    const Tensor y = Softmax(MakeTensor(std::vector<double>(512, 1.5), {512}, dtype), 0);
    ExpectClose(y, std::vector<double>(512, 0.001953125), 0, "1 / 512");
  }
}

TEST(SoftmaxTest, ThreadsChangeNoBit) {
  const Tensor x = MakeTensor(Numbers(300 * 77, -4, 4), {300, 77}, DType::kFloat32);
  ExpectSameForThreads("Softmax", [&] { return Softmax(x, 1); });
  ExpectSameForThreads("Softmax along 0", [&] { return Softmax(x, 0); });
  ExpectSameForThreads("LogSoftmax", [&] { return LogSoftmax(x, 1); });
}

// ---- LayerNorm ----

struct NormReference {
  std::vector<double> y, mean, rstd, dx, dweight, dbias;
};

NormReference ComputeNorm(const std::vector<double>& x, const std::vector<double>& grad,
                          const std::vector<double>& weight, const std::vector<double>& bias,
                          int64_t count, double epsilon) {
  NormReference r;
  const int64_t rows = static_cast<int64_t>(x.size()) / count;
  r.y = r.dx = std::vector<double>(x.size());
  r.dweight = r.dbias = std::vector<double>(count);
  for (int64_t i = 0; i < rows; ++i) {
    const double* row = x.data() + i * count;
    double mean = 0, variance = 0, mean_h = 0, mean_hn = 0;
    for (int64_t j = 0; j < count; ++j) mean += row[j] / count;
    for (int64_t j = 0; j < count; ++j) variance += (row[j] - mean) * (row[j] - mean) / count;
    const double rstd = 1 / std::sqrt(variance + epsilon);
    for (int64_t j = 0; j < count; ++j) {
      const double n = (row[j] - mean) * rstd, g = grad[i * count + j];
      const double w = weight.empty() ? 1 : weight[j];
      r.y[i * count + j] = n * w + (bias.empty() ? 0 : bias[j]);
      mean_h += g * w / count;
      mean_hn += g * w * n / count;
      r.dweight[j] += g * n;
      r.dbias[j] += g;
    }
    for (int64_t j = 0; j < count; ++j) {
      const double n = (row[j] - mean) * rstd;
      const double h = grad[i * count + j] * (weight.empty() ? 1 : weight[j]);
      r.dx[i * count + j] = rstd * (h - mean_h - n * mean_hn);
    }
    r.mean.push_back(mean);
    r.rstd.push_back(rstd);
  }
  return r;
}

void CheckNorm(const Shape& lead, const Shape& normalized, DType dtype, DType parameter_dtype,
               bool has_weight, bool has_bias) {
  Shape shape = lead;
  shape.insert(shape.end(), normalized.begin(), normalized.end());
  const int64_t count = NumElements(normalized), total = NumElements(shape);
  const std::vector<double> x = StoredNumbers(total, dtype, 1, 2, 5);
  const std::vector<double> grad = StoredNumbers(total, dtype, 2);
  std::vector<double> weight, bias;
  if (has_weight) weight = StoredNumbers(count, parameter_dtype, 3);
  if (has_bias) bias = StoredNumbers(count, parameter_dtype, 4);
  const NormReference r = ComputeNorm(x, grad, weight, bias, count, 1e-5);
  LayerNormAttributes attributes;
  attributes.normalized_rank = static_cast<int64_t>(normalized.size());
  const std::vector<Tensor> xs = Layouts(MakeTensor(x, shape, dtype));
  const std::vector<Tensor> grads = Layouts(MakeTensor(grad, shape, dtype));
  for (size_t i = 0; i < xs.size(); ++i) {
    Tensor w, b;
    if (has_weight) w = Layouts(MakeTensor(weight, normalized, parameter_dtype))[i];
    if (has_bias) b = Layouts(MakeTensor(bias, normalized, parameter_dtype))[i];
    const Tensor forward[] = {xs[i], w, b};
    const TensorList out = Dispatch({OpId::kLayerNorm, forward, {1e-5}, attributes});
    const Tensor backward[] = {grads[i], xs[i], out[1], out[2], w};
    const TensorList gradients = Dispatch({OpId::kLayerNormBackward, backward, {}, attributes});
    const std::string what = std::string(DTypeName(dtype)) + " layout " + std::to_string(i);
    const double tolerance = 3 * Tolerance(dtype);
    const double wide = std::max(IsReducedFloat(dtype) ? 3e-6 : tolerance, 1e-13);
    ExpectClose(out[0], r.y, tolerance, "y " + what, 1);
    ExpectClose(out[1], r.mean, wide, "mean " + what, 1);
    ExpectClose(out[2], r.rstd, wide, "rstd " + what, 1);
    ExpectClose(gradients[0], r.dx, tolerance, "dx " + what, 3);
    ExpectClose(gradients[1], r.dweight, tolerance, "dweight " + what, 10);
    ExpectClose(gradients[2], r.dbias, tolerance, "dbias " + what, 10);
  }
}

TEST(LayerNormTest, AgreesWithDouble) {
  for (const DType dtype : kFloatDTypes) {
    for (const bool has_weight : {false, true}) {
      for (const bool has_bias : {false, true}) {
        CheckNorm({3}, {5}, dtype, dtype, has_weight, has_bias);
        CheckNorm({}, {7}, dtype, dtype, has_weight, has_bias);
        CheckNorm({2, 3}, {4, 9}, dtype, dtype, has_weight, has_bias);
        CheckNorm({1000}, {9}, dtype, dtype, has_weight, has_bias);
      }
    }
    CheckNorm({5}, {128}, dtype, dtype, true, true);
    if (IsReducedFloat(dtype)) CheckNorm({3}, {37}, dtype, DType::kFloat32, true, true);
    CheckNorm({2}, {5000}, dtype, dtype, true, true);  // longer than what is converted once
  }
}

TEST(LayerNormTest, LargeMeanDoesNotCancel) {
  std::vector<double> x = Numbers(64, -1, 1);
  for (double& v : x) v = static_cast<float>(v + 4096);
  const NormReference r = ComputeNorm(x, x, {}, {}, 64, 1e-5);
  ExpectClose(LayerNorm(MakeTensor(x, {64}, DType::kFloat32)), r.y, 1e-3, "large mean", 1);
}

TEST(LayerNormTest, EmptyBatch) {
  const Tensor y = LayerNorm(Empty({0, 5}), MakeTensor({1, 2, 3, 4, 5}, {5}, DType::kFloat32));
  EXPECT_EQ(y.shape(), (Shape{0, 5}));
  LayerNormAttributes attributes;
  const Tensor inputs[] = {Empty({0, 5}), Empty({0, 5}), Empty({0}), Empty({0}), Tensor()};
  const TensorList out = Dispatch({OpId::kLayerNormBackward, inputs, {}, attributes});
  ExpectClose(out[1], std::vector<double>(5, 0), 0, "dweight of nothing");
  ExpectClose(out[2], std::vector<double>(5, 0), 0, "dbias of nothing");
}

TEST(LayerNormTest, ThreadsChangeNoBit) {
  const Tensor x = MakeTensor(Numbers(700 * 37, -4, 4), {700, 37}, DType::kFloat32);
  const Tensor grad = MakeTensor(Numbers(700 * 37, -1, 1, 9), {700, 37}, DType::kFloat32);
  LayerNormAttributes attributes;
  const Tensor forward[] = {x, Tensor(), Tensor()};
  const TensorList out = Dispatch({OpId::kLayerNorm, forward, {1e-5}, attributes});
  for (int i = 0; i < 3; ++i) {
    ExpectSameForThreads("LayerNorm", [&] {
      return Dispatch({OpId::kLayerNorm, forward, {1e-5}, attributes})[i];
    });
    ExpectSameForThreads("LayerNormBackward", [&] {
      const Tensor backward[] = {grad, x, out[1], out[2], Tensor()};
      return Dispatch({OpId::kLayerNormBackward, backward, {}, attributes})[i];
    });
  }
}

// ---- Cross entropy ----

struct LossReference {
  std::vector<double> losses, lse, dx;  // dx for a gradient of 1 a row
  int64_t counted = 0;
};

LossReference ComputeLoss(const std::vector<double>& x, const std::vector<int64_t>& target,
                          int64_t classes, int64_t ignore_index, double smoothing) {
  LossReference r;
  r.dx.assign(x.size(), 0);
  for (size_t i = 0; i < target.size(); ++i) {
    const double* row = x.data() + i * classes;
    double max = -kInfinity, sum = 0, mean = 0;
    for (int64_t j = 0; j < classes; ++j) max = std::max(max, row[j]);
    for (int64_t j = 0; j < classes; ++j) sum += std::exp(row[j] - max);
    for (int64_t j = 0; j < classes; ++j) mean += row[j] / classes;
    const double lse = max + std::log(sum);
    r.lse.push_back(lse);
    if (target[i] == ignore_index) {
      r.losses.push_back(0);
      continue;
    }
    ++r.counted;
    r.losses.push_back((1 - smoothing) * (lse - row[target[i]]) + smoothing * (lse - mean));
    for (int64_t j = 0; j < classes; ++j) {
      r.dx[i * classes + j] =
          std::exp(row[j] - lse) - smoothing / classes - (j == target[i] ? 1 - smoothing : 0);
    }
  }
  return r;
}

TEST(CrossEntropyTest, AgreesWithDouble) {
  const int64_t rows = 6, classes = 35;
  const std::vector<int64_t> target = {3, 0, 34, 7, -100, 12};
  for (const DType dtype : kFloatDTypes) {
    const std::vector<double> x = StoredNumbers(rows * classes, dtype, 1, -9, 9);
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      for (const int64_t ignore : {int64_t{-100}, int64_t{7}}) {
        std::vector<int64_t> t = target;
        if (ignore == 7) t[4] = 1;
        const LossReference r = ComputeLoss(x, t, classes, ignore, smoothing);
        for (const Reduction reduction : {Reduction::kNone, Reduction::kMean, Reduction::kSum}) {
          CrossEntropyAttributes attributes;
          attributes.reduction = reduction;
          attributes.ignore_index = ignore;
          std::vector<double> expected = r.losses, dx = r.dx;
          std::vector<double> grad = {2};
          if (reduction == Reduction::kNone) {
            grad = {1, -2, 3, 4, 5, 6};
          } else {
            double total = 0;
            for (const double loss : r.losses) total += loss;
            expected = {reduction == Reduction::kMean ? total / r.counted : total};
          }
          for (size_t i = 0; i < dx.size(); ++i) {
            dx[i] *= reduction == Reduction::kNone ? grad[i / classes] : grad[0];
            if (reduction == Reduction::kMean) dx[i] /= r.counted;
          }
          const Shape loss_shape = reduction == Reduction::kNone ? Shape{rows} : Shape{};
          for (const Tensor& logits : Layouts(MakeTensor(x, {rows, classes}, dtype))) {
            const Tensor targets = FromVector<int64_t>(t, {rows});
            const Tensor forward[] = {logits, targets};
            const TensorList out =
                Dispatch({OpId::kCrossEntropy, forward, {smoothing}, attributes});
            const std::string what = std::string(DTypeName(dtype)) + " smoothing " +
                                     std::to_string(smoothing) + " reduction " +
                                     std::to_string(static_cast<int>(reduction));
            ExpectClose(out[0], expected, Tolerance(dtype), "loss " + what, 1);
            ExpectClose(out[1], r.lse, std::min(Tolerance(dtype), 2e-6), "log_sum_exp", 1);
            const Tensor backward[] = {MakeTensor(grad, loss_shape, dtype), logits, targets,
                                       out[1]};
            const Tensor result =
                Dispatch1(OpId::kCrossEntropyBackward, backward, {smoothing}, attributes);
            ExpectClose(result, dx, Tolerance(dtype), "dlogits " + what, 1);
          }
        }
      }
    }
  }
}

TEST(CrossEntropyTest, AllIgnoredMeanIsNaNWithZeroGradient) {
  const Tensor logits = MakeTensor(Numbers(6, -1, 1), {2, 3}, DType::kFloat32);
  const Tensor target = FromVector<int64_t>({-100, -100}, {2});
  EXPECT_TRUE(std::isnan(CrossEntropy(logits, target).Item<double>()));
  CrossEntropyAttributes attributes;
  const Tensor inputs[] = {MakeTensor({1}, {}, DType::kFloat32), logits, target,
                           MakeTensor({1, 1}, {2}, DType::kFloat32)};
  ExpectClose(Dispatch1(OpId::kCrossEntropyBackward, inputs, {0.0}, attributes),
              std::vector<double>(6, 0), 0, "gradient");
}

TEST(CrossEntropyTest, BadTargetIsNamed) {
  const Tensor logits = MakeTensor(Numbers(6, -1, 1), {2, 3}, DType::kFloat32);
  for (const int64_t bad : {int64_t{3}, int64_t{-1}, int64_t{1} << 40}) {
    try {
      CrossEntropy(logits, FromVector<int64_t>({1, bad}, {2}));
      ADD_FAILURE() << "no error for " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kOutOfRange);
      EXPECT_NE(error.message().find("target[1] is " + std::to_string(bad)), std::string::npos)
          << error.message();
      EXPECT_NE(error.message().find("[0, 3)"), std::string::npos) << error.message();
    }
  }
}

TEST(CrossEntropyTest, EmptyBatch) {
  CrossEntropyOptions options;
  options.reduction = Reduction::kSum;
  EXPECT_EQ(CrossEntropy(Empty({0, 3}), FromVector<int64_t>({}, {0}), options).Item<double>(), 0);
}

TEST(CrossEntropyTest, LargeLogitsKeepTheirDigits) {
  const Tensor logits = MakeTensor({30000, 29999}, {1, 2}, DType::kFloat32);
  EXPECT_NEAR(CrossEntropy(logits, FromVector<int64_t>({0}, {1})).Item<double>(),
              std::log1p(std::exp(-1.0)), 1e-7);
}

TEST(CrossEntropyTest, ThreadsChangeNoBit) {
  const Tensor logits = MakeTensor(Numbers(900 * 65, -4, 4), {900, 65}, DType::kFloat32);
  std::vector<int64_t> target(900);
  for (size_t i = 0; i < target.size(); ++i) target[i] = static_cast<int64_t>(i * 7 % 65);
  const Tensor targets = FromVector<int64_t>(target, {900});
  ExpectSameForThreads("CrossEntropy", [&] { return CrossEntropy(logits, targets); });
}

}  // namespace
}  // namespace lockstep::cpu
