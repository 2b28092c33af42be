// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Attention and its gradient against plain sums in double.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/philox.h"
#include "lockstep/tensor/cpu/kernel_testing.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/neural.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Problem {
  int64_t b, h, t, s, d, e;
  bool causal = false;
  double scale = 0.3;
  double p = 0;
  RandomKey key{7, 65536, 8};
  // Added to the scores, [t, s]; minus infinity hides a key. Empty: no mask.
  std::vector<double> mask = {};
};

struct Values {
  std::vector<double> q, k, v, grad;
};

Values MakeValues(const Problem& p) {
  const int64_t heads = p.b * p.h;
  return {Numbers(heads * p.t * p.d, -1, 1, 1), Numbers(heads * p.s * p.d, -1, 1, 2),
          Numbers(heads * p.s * p.e, -1, 1, 3), Numbers(heads * p.t * p.e, -1, 1, 4)};
}

struct Reference {
  std::vector<double> y, lse, dq, dk, dv;
};

double Kept(const Problem& p, int64_t index) {
  if (p.p == 0) return 1;
  const uint64_t word = p.key.offset + static_cast<uint64_t>(index);
  const uint32_t bits = Philox4x32(p.key.seed, p.key.stream, word / 4)[word % 4];
  return UniformFloat(bits) >= p.p ? 1 / (1 - p.p) : 0;
}

Reference Compute(const Problem& p, const Values& x) {
  const int64_t heads = p.b * p.h;
  Reference r;
  r.y.assign(heads * p.t * p.e, 0);
  r.lse.assign(heads * p.t, -kInfinity);
  r.dq.assign(x.q.size(), 0);
  r.dk.assign(x.k.size(), 0);
  r.dv.assign(x.v.size(), 0);
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < p.t; ++i) {
      const double* q = x.q.data() + (head * p.t + i) * p.d;
      std::vector<double> score(p.s), prob(p.s), keep(p.s), dp(p.s);
      double sum = 0, max = -kInfinity;
      for (int64_t j = 0; j < p.s; ++j) {
        const double* k = x.k.data() + (head * p.s + j) * p.d;
        for (int64_t c = 0; c < p.d; ++c) score[j] += q[c] * k[c];
        score[j] *= p.scale;
        if (!p.mask.empty()) score[j] += p.mask[i * p.s + j];
        if (p.causal && j > i) score[j] = -kInfinity;
        max = std::max(max, score[j]);
      }
      if (max == -kInfinity) continue;
      for (int64_t j = 0; j < p.s; ++j) sum += prob[j] = std::exp(score[j] - max);
      r.lse[head * p.t + i] = max + std::log(sum);
      double delta = 0;
      const double* grad = x.grad.data() + (head * p.t + i) * p.e;
      for (int64_t j = 0; j < p.s; ++j) {
        prob[j] /= sum;
        keep[j] = Kept(p, (head * p.t + i) * p.s + j);
        for (int64_t c = 0; c < p.e; ++c) {
          const double v = x.v[(head * p.s + j) * p.e + c];
          r.y[(head * p.t + i) * p.e + c] += prob[j] * keep[j] * v;
          r.dv[(head * p.s + j) * p.e + c] += prob[j] * keep[j] * grad[c];
          dp[j] += keep[j] * grad[c] * v;
        }
        delta += prob[j] * dp[j];
      }
      for (int64_t j = 0; j < p.s; ++j) {
        const double ds = prob[j] * (dp[j] - delta) * p.scale;
        for (int64_t c = 0; c < p.d; ++c) {
          r.dq[(head * p.t + i) * p.d + c] += ds * x.k[(head * p.s + j) * p.d + c];
          r.dk[(head * p.s + j) * p.d + c] += ds * q[c];
        }
      }
    }
  }
  return r;
}

struct Results {
  Tensor y, lse, dq, dk, dv;
};

Results RunOps(const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v,
               const Tensor& grad, const Tensor& mask = {}) {
  AttentionAttributes attributes;
  attributes.causal = p.causal;
  const Scalars scalars = {p.scale, p.p, static_cast<int64_t>(p.key.seed),
                           static_cast<int64_t>(p.key.stream), static_cast<int64_t>(p.key.offset)};
  const Tensor forward[] = {q, k, v, mask};
  const TensorList out = Dispatch({OpId::kScaledDotProductAttention, forward, scalars, attributes});
  const Tensor backward[] = {grad, q, k, v, mask, out[0], out[1]};
  const TensorList gradients =
      Dispatch({OpId::kScaledDotProductAttentionBackward, backward, scalars, attributes});
  return {out[0], out[1], gradients[0], gradients[1], gradients[2]};
}

double Tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-13;
    case DType::kFloat32:
      return 3e-6;
    case DType::kFloat16:
      return 4e-3;
    default:
      return 3e-2;
  }
}

void ExpectAll(const Results& r, const Reference& x, DType dtype, const std::string& what) {
  const double tolerance = Tolerance(dtype);
  ExpectClose(r.y, x.y, tolerance, what + " y", 1);
  ExpectClose(r.lse, x.lse, tolerance, what + " log_sum_exp", 1);
  ExpectClose(r.dq, x.dq, tolerance, what + " dq", 1);
  ExpectClose(r.dk, x.dk, tolerance, what + " dk", 1);
  ExpectClose(r.dv, x.dv, tolerance, what + " dv", 1);
}

// Values as the dtype stores them, so that the reference sees the same inputs.
std::vector<double> Stored(const std::vector<double>& values, DType dtype) {
  return MakeTensor(values, {static_cast<int64_t>(values.size())}, dtype).ToVector<double>();
}

Values StoredValues(const Problem& p, DType dtype) {
  Values x = MakeValues(p);
  for (auto* values : {&x.q, &x.k, &x.v, &x.grad}) *values = Stored(*values, dtype);
  return x;
}

Results RunPacked(const Problem& p, const Values& x, DType dtype, const Tensor& mask = {}) {
  return RunOps(p, MakeTensor(x.q, {p.b, p.h, p.t, p.d}, dtype),
                MakeTensor(x.k, {p.b, p.h, p.s, p.d}, dtype),
                MakeTensor(x.v, {p.b, p.h, p.s, p.e}, dtype),
                MakeTensor(x.grad, {p.b, p.h, p.t, p.e}, dtype), mask);
}

TEST(AttentionTest, AgreesWithDouble) {
  const Problem problems[] = {{1, 1, 1, 1, 1, 1},   {2, 3, 5, 7, 3, 4},   {1, 2, 64, 64, 32, 32},
                              {1, 1, 65, 66, 5, 9}, {2, 1, 130, 3, 8, 8}, {1, 2, 3, 130, 8, 5}};
  for (Problem p : problems) {
    for (const bool causal : {false, true}) {
      p.causal = causal;
      for (const DType dtype : kFloatDTypes) {
        const Values x = StoredValues(p, dtype);
        ExpectAll(RunPacked(p, x, dtype), Compute(p, x), dtype,
                  std::string(DTypeName(dtype)) + (causal ? " causal" : "") + " T " +
                      std::to_string(p.t));
      }
    }
  }
}

TEST(AttentionTest, EmptySizes) {
  for (const Problem& p :
       {Problem{0, 2, 3, 3, 2, 2}, Problem{1, 2, 0, 3, 2, 2}, Problem{1, 2, 3, 0, 2, 2},
        Problem{1, 2, 3, 3, 0, 2}, Problem{1, 2, 3, 3, 2, 0}}) {
    const Values x = MakeValues(p);
    ExpectAll(RunPacked(p, x, DType::kFloat32), Compute(p, x), DType::kFloat32, "empty");
  }
}

TEST(AttentionTest, NegativeScale) {
  const Problem p{1, 2, 9, 17, 4, 4, true, -0.7};
  const Values x = MakeValues(p);
  ExpectAll(RunPacked(p, x, DType::kFloat64), Compute(p, x), DType::kFloat64, "negative scale");
}

TEST(AttentionTest, AnyNumberOfLeadingDimensions) {
  const Problem p{1, 6, 5, 7, 3, 4};
  const Values x = MakeValues(p);
  const Reference reference = Compute(p, x);
  const DType dtype = DType::kFloat32;
  for (const Shape& lead : {Shape{6}, Shape{1, 2, 3}, Shape{3, 1, 2}}) {
    const auto shape = [&](int64_t rows, int64_t cols) {
      Shape result = lead;
      result.push_back(rows);
      result.push_back(cols);
      return result;
    };
    ExpectAll(RunOps(p, MakeTensor(x.q, shape(5, 3), dtype), MakeTensor(x.k, shape(7, 3), dtype),
                     MakeTensor(x.v, shape(7, 4), dtype), MakeTensor(x.grad, shape(5, 4), dtype)),
              reference, dtype, "leading");
  }
}

TEST(AttentionTest, StridedOperands) {
  const Problem p{2, 3, 70, 66, 5, 4, true};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    const Values x = StoredValues(p, dtype);
    const Reference reference = Compute(p, x);
    const std::vector<Tensor> q = Layouts(MakeTensor(x.q, {2, 3, 70, 5}, dtype));
    const std::vector<Tensor> k = Layouts(MakeTensor(x.k, {2, 3, 66, 5}, dtype));
    const std::vector<Tensor> v = Layouts(MakeTensor(x.v, {2, 3, 66, 4}, dtype));
    const std::vector<Tensor> grad = Layouts(MakeTensor(x.grad, {2, 3, 70, 4}, dtype));
    const auto packed = RunOps(p, q[0], k[0], v[0], grad[0]);
    for (size_t i = 1; i < q.size(); ++i) {
      const auto strided = RunOps(p, q[i], k[i], v[i], grad[i]);
      ExpectAll(strided, reference, dtype, "layout " + std::to_string(i));
      EXPECT_EQ(Bits(strided.y), Bits(packed.y));
      EXPECT_EQ(Bits(strided.dk), Bits(packed.dk));
    }
  }
}

// [B, T, H, D] permuted, as models make it: the result comes back in that order without a copy.
TEST(AttentionTest, PermutedOperandsGiveTheirOrderBack) {
  const Problem p{2, 3, 9, 9, 4, 4, true};
  const Values x = MakeValues(p);
  const auto permuted = [](const std::vector<double>& values, int64_t rows) {
    const Tensor logical = MakeTensor(values, {2, 3, rows, 4}, DType::kFloat32);
    Tensor stored = Empty({2, rows, 3, 4});
    const Tensor source[] = {Permute(stored, {0, 2, 1, 3}), logical};
    Dispatch({OpId::kCopyInto, source, {}, EmptyAttributes()});
    return Permute(stored, {0, 2, 1, 3});
  };
  const Results r =
      RunOps(p, permuted(x.q, 9), permuted(x.k, 9), permuted(x.v, 9), permuted(x.grad, 9));
  ExpectAll(r, Compute(p, x), DType::kFloat32, "permuted");
  EXPECT_TRUE(Permute(r.y, {0, 2, 1, 3}).is_contiguous());
  EXPECT_TRUE(Permute(r.dq, {0, 2, 1, 3}).is_contiguous());
}

std::vector<double> HiddenKeys(int64_t t, int64_t s) {
  std::vector<double> mask(t * s, 0);
  for (int64_t i = 0; i < t; ++i) {
    for (int64_t j = 0; j < s; ++j) {
      if ((i * 5 + j * 3) % 7 == 0 || i == 2) mask[i * s + j] = -kInfinity;  // row 2: nothing
    }
  }
  return mask;
}

// Field report: fully masked rows turn to NaN. Here they are zeros with zero gradient.
TEST(AttentionTest, MasksAndRowsThatAttendToNothing) {
  Problem p{2, 2, 70, 9, 4, 5};
  p.mask = HiddenKeys(p.t, p.s);
  for (const DType dtype : kFloatDTypes) {
    const Values x = StoredValues(p, dtype);
    const Reference reference = Compute(p, x);
    std::vector<double> attend(p.mask.size());
    for (size_t i = 0; i < attend.size(); ++i) attend[i] = p.mask[i] == 0;
    const Tensor as_bool = MakeTensor(attend, {p.t, p.s}, DType::kBool);
    const Tensor as_number = MakeTensor(p.mask, {p.t, p.s}, dtype);
    ExpectAll(RunPacked(p, x, dtype, as_bool), reference, dtype, "bool mask");
    ExpectAll(RunPacked(p, x, dtype, as_number), reference, dtype, "additive mask");
    for (const Tensor& layout : Layouts(as_number)) {
      ExpectAll(RunPacked(p, x, dtype, layout), reference, dtype, "strided mask");
    }
    const Results r = RunPacked(p, x, dtype, as_bool);
    for (int64_t c = 0; c < p.e; ++c) EXPECT_EQ(r.y.Item<double>({1, 1, 2, c}), 0);
    for (int64_t c = 0; c < p.d; ++c) EXPECT_EQ(r.dq.Item<double>({1, 1, 2, c}), 0);
  }
}

TEST(AttentionTest, MaskBroadcasts) {
  Problem p{2, 3, 5, 7, 4, 4};
  const Values x = MakeValues(p);
  // One row for all queries: [1, 7].
  std::vector<double> row(7, 0);
  row[1] = row[6] = -kInfinity;
  row[2] = -1.5;
  for (int64_t i = 0; i < p.t; ++i) p.mask.insert(p.mask.end(), row.begin(), row.end());
  ExpectAll(RunPacked(p, x, DType::kFloat32, MakeTensor(row, {7}, DType::kFloat32)), Compute(p, x),
            DType::kFloat32, "row mask");
  ExpectAll(RunPacked(p, x, DType::kFloat32, MakeTensor(row, {1, 1, 1, 7}, DType::kFloat32)),
            Compute(p, x), DType::kFloat32, "row mask of rank 4");
  // One mask a batch entry: entry 0 as a problem of its own.
  std::vector<double> per_batch(2 * 7, 0);
  std::copy(row.begin(), row.end(), per_batch.begin());
  const Results r =
      RunPacked(p, x, DType::kFloat32, MakeTensor(per_batch, {2, 1, 1, 7}, DType::kFloat32));
  Reference masked = Compute(p, x);
  p.mask.clear();
  const Reference plain = Compute(p, x);
  std::copy(plain.y.begin() + plain.y.size() / 2, plain.y.end(),
            masked.y.begin() + masked.y.size() / 2);
  ExpectClose(r.y, masked.y, 3e-6, "mask a batch entry", 1);
}

// -65504 - 16 is minus infinity in float16; scores are float32, so the row stays a softmax.
TEST(AttentionTest, LowestFiniteFloat16AsMask) {
  const Problem p{1, 1, 1, 2, 1, 1, false, 1.0};
  const DType f16 = DType::kFloat16;
  const Results r =
      RunOps(p, MakeTensor({4}, {1, 1, 1, 1}, f16), MakeTensor({-4, -4}, {1, 1, 2, 1}, f16),
             MakeTensor({1, 3}, {1, 1, 2, 1}, f16), MakeTensor({1}, {1, 1, 1, 1}, f16),
             MakeTensor({-65504, -65504}, {1, 2}, f16));
  EXPECT_EQ(r.y.Item<double>({0, 0, 0, 0}), 2.0);
  // At 65520 a float32 log-sum-exp has steps of 0.004.
  ExpectClose(r.dv, {0.5, 0.5}, 4e-3, "dv");
  EXPECT_TRUE(std::isfinite(r.dq.Item<double>({0, 0, 0, 0})));
}

TEST(AttentionTest, NanIsNotHidden) {
  const Problem p{1, 1, 2, 3, 2, 2};
  Values x = MakeValues(p);
  x.q[0] = std::numeric_limits<double>::quiet_NaN();
  const Results r = RunPacked(p, x, DType::kFloat32);
  EXPECT_TRUE(std::isnan(r.y.Item<double>({0, 0, 0, 0})));
  EXPECT_TRUE(std::isnan(r.dq.Item<double>({0, 0, 0, 0})));
  EXPECT_FALSE(std::isnan(r.y.Item<double>({0, 0, 1, 0})));
}

TEST(AttentionTest, DropoutFollowsTheLogicalIndex) {
  for (Problem p : {Problem{2, 2, 70, 71, 4, 4, true}, Problem{1, 3, 5, 3, 4, 6}}) {
    p.p = 0.4;
    for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
      const Values x = StoredValues(p, dtype);
      ExpectAll(RunPacked(p, x, dtype), Compute(p, x), dtype, "dropout");
    }
  }
  Problem all{1, 1, 3, 3, 2, 2};
  all.p = 1;
  for (const double y : RunPacked(all, MakeValues(all), DType::kFloat32).y.ToVector<double>()) {
    EXPECT_EQ(y, 0);
  }
}

// One head on several threads takes the way by query and key blocks; many heads go head by head.
TEST(AttentionTest, ThreadsChangeNoBit) {
  for (Problem p : {Problem{1, 1, 150, 300, 8, 8}, Problem{1, 1, 300, 300, 8, 8, true},
                    Problem{1, 5, 80, 90, 8, 8, true}}) {
    for (const double dropout : {0.0, 0.3}) {
      p.p = dropout;
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        const Values x = MakeValues(p);
        std::vector<std::vector<uint64_t>> first;
        for (const int threads : {1, 2, 4}) {
          ThreadState state = CurrentThreadState();
          state.intra_op_threads = threads;
          const ScopedThreadState scope(state);
          const Results r = RunPacked(p, x, dtype);
          const std::vector<std::vector<uint64_t>> bits = {Bits(r.y), Bits(r.lse), Bits(r.dq),
                                                           Bits(r.dk), Bits(r.dv)};
          if (first.empty()) first = bits;
          EXPECT_EQ(bits, first) << threads << " threads, T " << p.t << " " << DTypeName(dtype);
        }
      }
    }
  }
}

int64_t PeakGrowth(int64_t t) {
  const Problem p{1, 2, t, t, 8, 8, true};
  const Values x = MakeValues(p);
  const Tensor q = MakeTensor(x.q, {1, 2, t, 8}, DType::kFloat32);
  const Tensor k = MakeTensor(x.k, {1, 2, t, 8}, DType::kFloat32);
  const Tensor v = MakeTensor(x.v, {1, 2, t, 8}, DType::kFloat32);
  const Tensor grad = MakeTensor(x.grad, {1, 2, t, 8}, DType::kFloat32);
  ResetPeakBytes(Cpu(0));
  const int64_t before = GetMemoryStats(Cpu(0)).current_bytes;
  RunOps(p, q, k, v, grad);
  return GetMemoryStats(Cpu(0)).peak_bytes - before;
}

TEST(AttentionTest, MemoryGrowsLinearlyInT) {
  const int64_t at_512 = PeakGrowth(512), at_1024 = PeakGrowth(1024), at_2048 = PeakGrowth(2048);
  EXPECT_LT(at_2048, 2048LL * 2048 * 4) << "less than one matrix of scores";
  // Twice the increment for twice the length (four times it if a [T, T] matrix were kept).
  EXPECT_LT(at_2048 - at_1024, 2.2 * static_cast<double>(at_1024 - at_512))
      << at_512 << " " << at_1024 << " " << at_2048;
}

TEST(AttentionTest, PublicFunction) {
  const Problem p{1, 2, 5, 5, 4, 4, true, 0.5};
  const Values x = MakeValues(p);
  AttentionOptions options;
  options.causal = true;
  const Tensor y =
      ScaledDotProductAttention(MakeTensor(x.q, {1, 2, 5, 4}, DType::kFloat32),
                                MakeTensor(x.k, {1, 2, 5, 4}, DType::kFloat32),
                                MakeTensor(x.v, {1, 2, 5, 4}, DType::kFloat32), options);
  ExpectClose(y, Compute(p, x).y, 3e-6, "scale 1 / sqrt(4)", 1);
}

}  // namespace
}  // namespace lockstep::cpu
