// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Optimizer steps, norms and clipping against the formulas in double.
#include "lockstep/tensor/ops/update.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/cpu/kernel_testing.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/creation.h"
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
      return 1e-14;
    case DType::kFloat32:
      return 4e-7;
    case DType::kFloat16:
      return 2e-3;
    default:
      return 1.6e-2;
  }
}

struct Adam {
  std::vector<double> p, m, v;
};

void AdamReference(Adam& a, const std::vector<double>& grad, const AdamWStepOptions& o) {
  const double bias1 = 1 - std::pow(o.beta1, o.step), bias2 = 1 - std::pow(o.beta2, o.step);
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = o.maximize ? -grad[i] : grad[i];
    a.p[i] *= 1 - o.lr * o.weight_decay;
    a.m[i] += (g - a.m[i]) * (1 - o.beta1);
    a.v[i] = a.v[i] * o.beta2 + g * g * (1 - o.beta2);
    a.p[i] -= o.lr / bias1 * a.m[i] / (std::sqrt(a.v[i]) / std::sqrt(bias2) + o.epsilon);
  }
}

void CheckAdam(DType dtype, DType state_dtype, AdamWStepOptions options, size_t layout,
               int64_t rows, int64_t cols) {
  const int64_t count = rows * cols;
  const auto place = [&](const std::vector<double>& values, DType d) {
    return Layouts(MakeTensor(values, {rows, cols}, d))[layout];
  };
  const Tensor p = place(Numbers(count, -1, 1, 1), dtype);
  const Tensor m = place(std::vector<double>(count, 0), state_dtype);
  const Tensor v = place(std::vector<double>(count, 0), state_dtype);
  Adam reference{p.ToVector<double>(), m.ToVector<double>(), v.ToVector<double>()};
  for (int64_t step = 1; step <= 3; ++step) {
    options.step = step;
    const Tensor g = place(Numbers(count, -2, 2, 10 + step), dtype);
    AdamReference(reference, g.ToVector<double>(), options);
    const Tensor ps[] = {p}, gs[] = {g}, ms[] = {m}, vs[] = {v};
    AdamWStep(ps, gs, ms, vs, options);
  }
  const std::string what = std::string(DTypeName(dtype)) + " layout " + std::to_string(layout);
  ExpectClose(p, reference.p, 3 * Tolerance(dtype), "parameter " + what, 1);
  ExpectClose(m, reference.m, 3 * Tolerance(state_dtype), "exp_avg " + what, 1);
  ExpectClose(v, reference.v, 3 * Tolerance(state_dtype), "exp_avg_sq " + what, 1);
}

TEST(AdamWStepTest, AgreesWithDouble) {
  AdamWStepOptions options;
  options.lr = 0.01;
  options.weight_decay = 0.1;
  for (const double beta1 : {0.9, 0.3, 0.0}) {
    options.beta1 = beta1;
    for (const bool maximize : {false, true}) {
      options.maximize = maximize;
      for (const DType dtype : kFloatDTypes) {
        for (size_t layout = 0; layout < 3; ++layout) {
          CheckAdam(dtype, dtype, options, layout, 3, 5);
          CheckAdam(dtype, dtype, options, layout, 1, 1);
          if (IsReducedFloat(dtype)) CheckAdam(dtype, DType::kFloat32, options, layout, 5, 7);
        }
      }
    }
  }
}

// What torch.optim.AdamW and torch.optim.SGD (PyTorch 2.15, AVX2) give after five steps from the
// same numbers: lr 0.01, betas 0.9 and 0.95, weight decay 0.1; momentum 0.9 with Nesterov.
double GoldenParameter(int64_t i) { return (static_cast<double>(i) - 3.5) / 4; }
double GoldenGradient(int64_t i, int64_t step) {
  return static_cast<double>((i * 5 + step * 3) % 7 - 3) / 8 + 0.015625 * static_cast<double>(i);
}
std::vector<double> NineOf(const std::function<double(int64_t)>& value) {
  std::vector<double> values(9);
  for (int64_t i = 0; i < 9; ++i) values[i] = value(i);
  return values;
}

TEST(AdamWStepTest, AgreesWithPyTorchToTheLastDigits) {
  const std::vector<double> in_float32 = {-0x1.c6d662p-1, -0x1.332b4ap-1, -0x1.9ad502p-2,
                                          -0x1.13239ap-3, 0x1.015c8ap-3,  0x1.82ecb6p-2,
                                          0x1.3421a2p-1,  0x1.aa4b4ep-1,  0x1.1f9904p+0};
  const std::vector<double> in_float64 = {
      -0x1.c6d660d33a16bp-1, -0x1.332b48c5c17f0p-1, -0x1.9ad504a7febafp-2,
      -0x1.1323994564682p-3, 0x1.015c8a1453924p-3,  0x1.82ecb700d3ffdp-2,
      0x1.3421a03467368p-1,  0x1.aa4b4ce9c985cp-1,  0x1.1f9903736f86ep+0};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Tensor p = MakeTensor(NineOf(GoldenParameter), {9}, dtype);
    const Tensor m = Zeros({9}, {dtype}), v = Zeros({9}, {dtype});
    AdamWStepOptions options;
    options.lr = 0.01;
    options.beta2 = 0.95;
    options.weight_decay = 0.1;
    for (options.step = 1; options.step <= 5; ++options.step) {
      const Tensor g = MakeTensor(
          NineOf([&](int64_t i) { return GoldenGradient(i, options.step); }), {9}, dtype);
      const Tensor ps[] = {p}, gs[] = {g}, ms[] = {m}, vs[] = {v};
      AdamWStep(ps, gs, ms, vs, options);
    }
    const bool is_double = dtype == DType::kFloat64;
    ExpectClose(p, is_double ? in_float64 : in_float32, is_double ? 4e-16 : 1.2e-7, "parameter");
  }
}

TEST(SgdStepTest, AgreesWithPyTorchToTheLastDigits) {
  const Tensor p = MakeTensor(NineOf(GoldenParameter), {9}, DType::kFloat32);
  const Tensor b = Zeros({9});
  SgdStepOptions options;
  options.lr = 0.01;
  options.momentum = 0.9;
  options.weight_decay = 0.1;
  options.nesterov = true;
  for (int64_t step = 1; step <= 5; ++step) {
    options.first_step = step == 1;
    const Tensor g = MakeTensor(NineOf([&](int64_t i) { return GoldenGradient(i, step); }), {9},
                                DType::kFloat32);
    const Tensor ps[] = {p}, gs[] = {g}, bs[] = {b};
    SgdStep(ps, gs, bs, options);
  }
  ExpectClose(p,
              {-0x1.bf26f8p-1, -0x1.35b236p-1, -0x1.8fdabap-2, -0x1.0855bep-3, 0x1.ed0976p-4,
               0x1.6f7342p-2, 0x1.34dacap-1, 0x1.a8718p-1, 0x1.18f32p+0},
              1.2e-7, "parameter");
}

TEST(AdamWStepTest, SmallGradientsDivideByEpsilonOutsideTheRoot) {
  const Tensor p = MakeTensor({1}, {1}, DType::kFloat64);
  const Tensor g = MakeTensor({1e-10}, {1}, DType::kFloat64);
  const Tensor m = MakeTensor({0}, {1}, DType::kFloat64), v = MakeTensor({0}, {1}, DType::kFloat64);
  const Tensor ps[] = {p}, gs[] = {g}, ms[] = {m}, vs[] = {v};
  AdamWStepOptions options;
  options.lr = 0.1;
  options.weight_decay = 0;
  AdamWStep(ps, gs, ms, vs, options);
  // m^ / (sqrt(v^) + eps) = 1e-10 / (1e-10 + 1e-8).
  EXPECT_NEAR(p.Item<double>(), 1 - 0.1 / 101, 1e-12);
}

TEST(AdamWStepTest, ManyTensorsAtOnceAndEmptyOnes) {
  std::vector<Tensor> ps, gs, ms, vs;
  std::vector<Adam> references;
  AdamWStepOptions options;
  for (const int64_t count : {0, 1, 7, 40000, 3, 0, 16384}) {
    ps.push_back(MakeTensor(Numbers(count, -1, 1, count + 1), {count}, DType::kFloat32));
    gs.push_back(MakeTensor(Numbers(count, -1, 1, count + 2), {count}, DType::kFloat32));
    ms.push_back(MakeTensor(Numbers(count, -1, 1, count + 3), {count}, DType::kFloat32));
    vs.push_back(MakeTensor(Numbers(count, 0, 1, count + 4), {count}, DType::kFloat32));
    Adam a{ps.back().ToVector<double>(), ms.back().ToVector<double>(),
           vs.back().ToVector<double>()};
    AdamReference(a, gs.back().ToVector<double>(), options);
    references.push_back(a);
  }
  AdamWStep(ps, gs, ms, vs, options);
  for (size_t i = 0; i < ps.size(); ++i) {
    ExpectClose(ps[i], references[i].p, 1e-6, "parameter", 1);
    ExpectClose(vs[i], references[i].v, 1e-6, "exp_avg_sq", 1);
  }
  AdamWStep({}, {}, {}, {}, options);
}

// Field report: small updates vanish in bfloat16 parameters; the float32 state keeps growing.
TEST(AdamWStepTest, Float32StateOfBFloat16Parameters) {
  const Tensor p = MakeTensor({1}, {1}, DType::kBFloat16);
  const Tensor g = MakeTensor({0.0009765625}, {1}, DType::kBFloat16);
  const Tensor m = MakeTensor({0}, {1}, DType::kFloat32), v = MakeTensor({0}, {1}, DType::kFloat32);
  const Tensor ps[] = {p}, gs[] = {g}, ms[] = {m}, vs[] = {v};
  AdamWStepOptions options;
  for (options.step = 1; options.step <= 100; ++options.step) AdamWStep(ps, gs, ms, vs, options);
  EXPECT_NEAR(m.Item<double>(), 0.0009765625 * (1 - std::pow(0.9, 100)), 1e-9);
  EXPECT_NEAR(v.Item<double>(), std::pow(0.0009765625, 2) * (1 - std::pow(0.999, 100)), 1e-12);
}

struct Sgd {
  std::vector<double> p, b;
};

void SgdReference(Sgd& s, const std::vector<double>& grad, const SgdStepOptions& o) {
  for (size_t i = 0; i < grad.size(); ++i) {
    double g = o.maximize ? -grad[i] : grad[i];
    g += o.weight_decay * s.p[i];
    if (o.momentum != 0) {
      s.b[i] = o.first_step ? g : o.momentum * s.b[i] + (1 - o.dampening) * g;
      g = o.nesterov ? g + o.momentum * s.b[i] : s.b[i];
    }
    s.p[i] -= o.lr * g;
  }
}

TEST(SgdStepTest, AgreesWithDouble) {
  SgdStepOptions options;
  options.lr = 0.1;
  for (const double momentum : {0.0, 0.9}) {
    for (const double decay : {0.0, 0.05}) {
      for (const int form : {0, 1, 2}) {  // plain, dampening, Nesterov
        options.momentum = momentum;
        options.weight_decay = decay;
        options.dampening = form == 1 && momentum != 0 ? 0.25 : 0;
        options.nesterov = form == 2 && momentum != 0;
        options.maximize = form == 1;
        for (const DType dtype : kFloatDTypes) {
          for (size_t layout = 0; layout < 3; ++layout) {
            const auto place = [&](const std::vector<double>& values) {
              return Layouts(MakeTensor(values, {3, 7}, dtype))[layout];
            };
            const Tensor p = place(Numbers(21, -1, 1, 1)), b = place(Numbers(21, -1, 1, 2));
            Sgd reference{p.ToVector<double>(), b.ToVector<double>()};
            for (int64_t step = 0; step < 3; ++step) {
              options.first_step = step == 0;
              const Tensor g = place(Numbers(21, -1, 1, 5 + step));
              SgdReference(reference, g.ToVector<double>(), options);
              const Tensor ps[] = {p}, gs[] = {g}, bs[] = {b};
              SgdStep(ps, gs, momentum == 0 ? TensorSpan() : TensorSpan(bs), options);
            }
            ExpectClose(p, reference.p, 4 * Tolerance(dtype), "parameter", 1);
            if (momentum != 0) ExpectClose(b, reference.b, 4 * Tolerance(dtype), "momentum", 1);
          }
        }
      }
    }
  }
}

TEST(GlobalNormTest, TwoAndInfinity) {
  const Tensor a = MakeTensor({3, 0, 0}, {3}, DType::kFloat32);
  const Tensor b = MakeTensor({0, -4}, {2, 1}, DType::kBFloat16);
  const Tensor both[] = {a, b};
  EXPECT_EQ(GlobalNorm(both).Item<double>(), 5);
  EXPECT_EQ(GlobalNorm(both).dtype(), DType::kFloat32);
  EXPECT_EQ(GlobalNorm(both, NormKind::kInfinity).Item<double>(), 4);
  EXPECT_EQ(GlobalNorm({}).Item<double>(), 0);
  EXPECT_EQ(GlobalNorm({}, NormKind::kInfinity).Item<double>(), 0);
}

TEST(GlobalNormTest, AgreesWithDoubleInEveryLayout) {
  for (const DType dtype : kFloatDTypes) {
    const Tensor packed = MakeTensor(Numbers(20 * 1777, -2, 2), {20, 1777}, dtype);
    double squares = 0, largest = 0;
    for (const double x : packed.ToVector<double>()) {
      squares += x * x;
      largest = std::max(largest, std::abs(x));
    }
    for (const Tensor& x : Layouts(packed)) {
      const Tensor list[] = {x, MakeTensor({0.5}, {}, dtype)};
      EXPECT_NEAR(GlobalNorm(list).Item<double>(), std::sqrt(squares + 0.25), 1e-4);
      EXPECT_EQ(GlobalNorm(list, NormKind::kInfinity).Item<double>(), largest);
    }
  }
}

// Field report: 16-bit accumulators stall; here a million ones have norm 1000 in every dtype.
TEST(GlobalNormTest, ManyOnes) {
  for (const DType dtype : kFloatDTypes) {
    const Tensor list[] = {Ones({1000000}, {dtype})};
    EXPECT_EQ(GlobalNorm(list).Item<double>(), 1000);
  }
}

TEST(GlobalNormTest, NanAndInfinity) {
  for (const DType dtype : kFloatDTypes) {
    for (const NormKind kind : {NormKind::kTwo, NormKind::kInfinity}) {
      const Tensor with_nan[] = {MakeTensor({1, kNaN, kInfinity, 2}, {4}, dtype),
                                 MakeTensor({9}, {1}, dtype)};
      EXPECT_TRUE(std::isnan(GlobalNorm(with_nan, kind).Item<double>()));
      const Tensor with_infinity[] = {MakeTensor({1, -kInfinity, 2}, {3}, dtype)};
      EXPECT_EQ(GlobalNorm(with_infinity, kind).Item<double>(), kInfinity);
    }
  }
}

TEST(GlobalNormTest, ThreadsChangeNoBit) {
  const Tensor list[] = {MakeTensor(Numbers(100000, -1, 1), {100000}, DType::kFloat64),
                         MakeTensor(Numbers(50001, -1, 1, 2), {50001}, DType::kFloat64)};
  ExpectSameForThreads("GlobalNorm", [&] { return GlobalNorm(list); });
}

TEST(ClipByNormTest, ScalesAsTorch) {
  for (const DType dtype : kFloatDTypes) {
    for (const Tensor& g : Layouts(MakeTensor({3, 0, 0, 4}, {2, 2}, dtype))) {
      const Tensor list[] = {g};
      const Tensor norm = GlobalNorm(list);
      ClipByNorm(list, norm, 10);
      ExpectClose(g, {3, 0, 0, 4}, 0, "below the limit nothing changes");
      ClipByNorm(list, norm, 1);
      ExpectClose(g, {3 / (5 + 1e-6), 0, 0, 4 / (5 + 1e-6)}, Tolerance(dtype), "clipped");
    }
  }
}

TEST(ClipByNormTest, NanNormGoesToTheGradients) {
  const Tensor g = MakeTensor({1, 2}, {2}, DType::kFloat32);
  const Tensor list[] = {g};
  ClipByNorm(list, MakeTensor({kNaN}, {}, DType::kFloat32), 1);
  ExpectClose(g, {kNaN, kNaN}, 0, "NaN norm");
  const Tensor h = MakeTensor({1, kInfinity}, {2}, DType::kFloat32);
  const Tensor other[] = {h};
  ClipByNorm(other, MakeTensor({kInfinity}, {}, DType::kFloat32), 1);
  ExpectClose(h, {0, kNaN}, 0, "infinite norm");
}

TEST(UpdateTest, MismatchedListsChangeNothing) {
  const Tensor p = MakeTensor({1, 2}, {2}, DType::kFloat32);
  const Tensor g = MakeTensor({1, 2, 3}, {3}, DType::kFloat32);
  const Tensor s = MakeTensor({0, 0}, {2}, DType::kFloat32);
  const Tensor ps[] = {p, p}, gs[] = {s, g}, ms[] = {s, s}, vs[] = {s, s};
  EXPECT_THROW(AdamWStep(ps, gs, ms, vs, {}), Error);
  EXPECT_THROW(SgdStep(ps, gs, {}, {}), Error);
  ExpectClose(p, {1, 2}, 0, "unchanged");
}

}  // namespace
}  // namespace lockstep::cpu
