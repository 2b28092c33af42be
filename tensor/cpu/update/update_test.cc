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
  std::vector<double> p, m, v, x;  // x: the largest v so far
};

void AdamReference(Adam& a, const std::vector<double>& grad, const AdamStepOptions& o) {
  const double bias1 = 1 - std::pow(o.beta1, o.step), bias2 = 1 - std::pow(o.beta2, o.step);
  a.x.resize(grad.size());
  for (size_t i = 0; i < grad.size(); ++i) {
    double g = o.maximize ? -grad[i] : grad[i];
    if (o.decoupled_decay) {
      a.p[i] *= 1 - o.lr * o.weight_decay;
    } else {
      g += o.weight_decay * a.p[i];
    }
    a.m[i] += (g - a.m[i]) * (1 - o.beta1);
    a.v[i] = a.v[i] * o.beta2 + g * g * (1 - o.beta2);
    a.x[i] = std::max(a.x[i], a.v[i]);
    const double square = o.amsgrad ? a.x[i] : a.v[i];
    a.p[i] -= o.lr / bias1 * a.m[i] / (std::sqrt(square) / std::sqrt(bias2) + o.epsilon);
  }
}

void CheckAdam(DType dtype, DType state_dtype, AdamStepOptions options, size_t layout, int64_t rows,
               int64_t cols) {
  const int64_t count = rows * cols;
  const auto place = [&](const std::vector<double>& values, DType d) {
    return Layouts(MakeTensor(values, {rows, cols}, d))[layout];
  };
  const std::vector<double> zeros(count, 0);
  const Tensor p = place(Numbers(count, -1, 1, 1), dtype);
  const Tensor m = place(zeros, state_dtype), v = place(zeros, state_dtype);
  const Tensor x = place(zeros, state_dtype);
  Adam reference{p.ToVector<double>(), zeros, zeros, zeros};
  for (int64_t step = 1; step <= 3; ++step) {
    options.step = step;
    // Smaller from step to step, so that the largest square is not the last.
    const Tensor g = place(Numbers(count, -2.0 / step, 2.0 / step, 10 + step), dtype);
    AdamReference(reference, g.ToVector<double>(), options);
    const Tensor ps[] = {p}, gs[] = {g}, ms[] = {m}, vs[] = {v}, xs[] = {x};
    AdamStep(ps, gs, ms, vs, options.amsgrad ? TensorSpan(xs) : TensorSpan(), options);
  }
  const std::string what = std::string(DTypeName(dtype)) + " layout " + std::to_string(layout);
  // A decay of the gradient takes the parameter's rounding into the state.
  const double tolerance = 3 * Tolerance(options.decoupled_decay ? state_dtype : dtype);
  ExpectClose(p, reference.p, 3 * Tolerance(dtype), "parameter " + what, 1);
  ExpectClose(m, reference.m, tolerance, "exp_avg " + what, 1);
  ExpectClose(v, reference.v, tolerance, "exp_avg_sq " + what, 1);
  if (options.amsgrad) ExpectClose(x, reference.x, tolerance, "max_exp_avg_sq " + what, 1);
}

TEST(AdamStepTest, AgreesWithDouble) {
  AdamStepOptions options;
  options.lr = 0.01;
  options.weight_decay = 0.1;
  for (const double beta1 : {0.9, 0.3, 0.0}) {
    options.beta1 = beta1;
    for (const int form : {0, 1, 2, 3, 4, 5}) {
      options.maximize = form % 2 == 1;
      options.decoupled_decay = form < 3;
      options.amsgrad = form == 2 || form == 5;
      options.beta2 = options.amsgrad ? 0.5 : 0.999;
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

TEST(AdamStepTest, ANanStaysInTheLargestSquare) {
  for (const DType dtype : kFloatDTypes) {
    const Tensor p = MakeTensor({1, 1}, {2}, dtype), x = MakeTensor({4, 4}, {2}, dtype);
    const Tensor m = MakeTensor({0, 0}, {2}, dtype), v = MakeTensor({0, 0}, {2}, dtype);
    const Tensor g = MakeTensor({kNaN, 1}, {2}, dtype);
    const Tensor ps[] = {p}, gs[] = {g}, ms[] = {m}, vs[] = {v}, xs[] = {x};
    AdamStep(ps, gs, ms, vs, xs, {.amsgrad = true});
    ExpectClose(x, {kNaN, 4}, 0, "max_exp_avg_sq");
    EXPECT_TRUE(std::isnan(p.ToVector<double>()[0]));
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

TEST(AdamStepTest, AgreesWithPyTorchToTheLastDigits) {
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
    AdamStepOptions options;
    options.lr = 0.01;
    options.beta2 = 0.95;
    options.weight_decay = 0.1;
    options.decoupled_decay = true;
    for (options.step = 1; options.step <= 5; ++options.step) {
      const Tensor g = MakeTensor(
          NineOf([&](int64_t i) { return GoldenGradient(i, options.step); }), {9}, dtype);
      const Tensor ps[] = {p}, gs[] = {g}, ms[] = {m}, vs[] = {v};
      AdamStep(ps, gs, ms, vs, {}, options);
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

TEST(AdamStepTest, SmallGradientsDivideByEpsilonOutsideTheRoot) {
  const Tensor p = MakeTensor({1}, {1}, DType::kFloat64);
  const Tensor g = MakeTensor({1e-10}, {1}, DType::kFloat64);
  const Tensor m = MakeTensor({0}, {1}, DType::kFloat64), v = MakeTensor({0}, {1}, DType::kFloat64);
  const Tensor ps[] = {p}, gs[] = {g}, ms[] = {m}, vs[] = {v};
  AdamStepOptions options;
  options.lr = 0.1;
  options.weight_decay = 0;
  AdamStep(ps, gs, ms, vs, {}, options);
  // m^ / (sqrt(v^) + eps) = 1e-10 / (1e-10 + 1e-8).
  EXPECT_NEAR(p.Item<double>(), 1 - 0.1 / 101, 1e-12);
}

TEST(AdamStepTest, ManyTensorsAtOnceAndEmptyOnes) {
  std::vector<Tensor> ps, gs, ms, vs;
  std::vector<Adam> references;
  AdamStepOptions options;
  for (const int64_t count : {0, 1, 7, 40000, 3, 0, 16384}) {
    ps.push_back(MakeTensor(Numbers(count, -1, 1, count + 1), {count}, DType::kFloat32));
    gs.push_back(MakeTensor(Numbers(count, -1, 1, count + 2), {count}, DType::kFloat32));
    ms.push_back(MakeTensor(Numbers(count, -1, 1, count + 3), {count}, DType::kFloat32));
    vs.push_back(MakeTensor(Numbers(count, 0, 1, count + 4), {count}, DType::kFloat32));
    Adam a{ps.back().ToVector<double>(),
           ms.back().ToVector<double>(),
           vs.back().ToVector<double>(),
           {}};
    AdamReference(a, gs.back().ToVector<double>(), options);
    references.push_back(a);
  }
  AdamStep(ps, gs, ms, vs, {}, options);
  for (size_t i = 0; i < ps.size(); ++i) {
    ExpectClose(ps[i], references[i].p, 1e-6, "parameter", 1);
    ExpectClose(vs[i], references[i].v, 1e-6, "exp_avg_sq", 1);
  }
  AdamStep({}, {}, {}, {}, {}, options);
}

// Field report: small updates vanish in bfloat16 parameters; the float32 state keeps growing.
TEST(AdamStepTest, Float32StateOfBFloat16Parameters) {
  const Tensor p = MakeTensor({1}, {1}, DType::kBFloat16);
  const Tensor g = MakeTensor({0.0009765625}, {1}, DType::kBFloat16);
  const Tensor m = MakeTensor({0}, {1}, DType::kFloat32), v = MakeTensor({0}, {1}, DType::kFloat32);
  const Tensor ps[] = {p}, gs[] = {g}, ms[] = {m}, vs[] = {v};
  AdamStepOptions options;
  for (options.step = 1; options.step <= 100; ++options.step) AdamStep(ps, gs, ms, vs, {}, options);
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

struct Rmsprop {
  std::vector<double> p, s, b, a;
};

void RmspropReference(Rmsprop& r, const std::vector<double>& grad, const RmspropStepOptions& o) {
  for (size_t i = 0; i < grad.size(); ++i) {
    double g = o.maximize ? -grad[i] : grad[i];
    g += o.weight_decay * r.p[i];
    r.s[i] = r.s[i] * o.alpha + g * g * (1 - o.alpha);
    r.a[i] += (g - r.a[i]) * (1 - o.alpha);
    const double square = o.centered ? r.s[i] - r.a[i] * r.a[i] : r.s[i];
    const double direction = g / (std::sqrt(square) + o.epsilon);
    r.b[i] = r.b[i] * o.momentum + direction;
    r.p[i] -= o.lr * (o.momentum > 0 ? r.b[i] : direction);
  }
}

void CheckRmsprop(DType dtype, DType state_dtype, const RmspropStepOptions& options,
                  size_t layout) {
  const auto place = [&](const std::vector<double>& values, DType d) {
    return Layouts(MakeTensor(values, {3, 7}, d))[layout];
  };
  const std::vector<double> zeros(21, 0);
  const Tensor p = place(Numbers(21, -1, 1, 1), dtype), s = place(zeros, state_dtype);
  const Tensor b = place(zeros, state_dtype), a = place(zeros, state_dtype);
  Rmsprop reference{p.ToVector<double>(), zeros, zeros, zeros};
  for (int64_t step = 0; step < 3; ++step) {
    // Away from zero: there the variance of a centered step cancels.
    const Tensor g = place(Numbers(21, 0.5, 1.5, 5 + step), dtype);
    RmspropReference(reference, g.ToVector<double>(), options);
    const Tensor ps[] = {p}, gs[] = {g}, ss[] = {s}, bs[] = {b}, as[] = {a};
    RmspropStep(ps, gs, ss, options.momentum > 0 ? TensorSpan(bs) : TensorSpan(),
                options.centered ? TensorSpan(as) : TensorSpan(), options);
  }
  // A decay of the gradient takes the parameter's rounding into the state.
  const double tolerance = Tolerance(options.weight_decay == 0 ? state_dtype : dtype);
  ExpectClose(p, reference.p, 8 * Tolerance(dtype), "parameter", 1);
  ExpectClose(s, reference.s, 4 * tolerance, "square_avg", 1);
  if (options.momentum > 0) ExpectClose(b, reference.b, 16 * tolerance, "momentum", 1);
  if (options.centered) ExpectClose(a, reference.a, 4 * tolerance, "grad_avg", 1);
}

TEST(RmspropStepTest, AgreesWithDouble) {
  for (const int form : {0, 1, 2, 3, 4, 5, 6, 7}) {
    RmspropStepOptions options;
    options.alpha = form % 3 == 0 ? 0.25 : 0.75;
    options.momentum = form % 2 == 0 ? 0 : 0.9;
    options.centered = form / 2 % 2 == 1;
    options.weight_decay = form < 4 ? 0 : 0.05;
    options.maximize = form == 5;
    options.epsilon = 0.125;
    for (const DType dtype : kFloatDTypes) {
      for (size_t layout = 0; layout < 3; ++layout) {
        CheckRmsprop(dtype, dtype, options, layout);
        if (IsReducedFloat(dtype)) CheckRmsprop(dtype, DType::kFloat32, options, layout);
      }
    }
  }
}

TEST(AdagradStepTest, AgreesWithDouble) {
  for (const bool variant : {false, true}) {
    AdagradStepOptions options;
    options.lr = 0.1;
    options.lr_decay = variant ? 0.5 : 0;
    options.weight_decay = variant ? 0.05 : 0;
    options.maximize = variant;
    for (const DType dtype : kFloatDTypes) {
      for (size_t layout = 0; layout < 3; ++layout) {
        const auto place = [&](const std::vector<double>& values, DType d) {
          return Layouts(MakeTensor(values, {3, 7}, d))[layout];
        };
        const DType wide = IsReducedFloat(dtype) ? DType::kFloat32 : dtype;
        const Tensor p = place(Numbers(21, -1, 1, 1), dtype);
        const Tensor s = place(std::vector<double>(21, 0.25), wide);
        std::vector<double> rp = p.ToVector<double>(), rs = s.ToVector<double>();
        for (options.step = 1; options.step <= 3; ++options.step) {
          const Tensor g = place(Numbers(21, -1, 1, 5 + options.step), dtype);
          const std::vector<double> grad = g.ToVector<double>();
          for (size_t i = 0; i < grad.size(); ++i) {
            const double d = (variant ? -grad[i] : grad[i]) + options.weight_decay * rp[i];
            rs[i] += d * d;
            const double lr = options.lr / (1 + options.lr_decay * (options.step - 1));
            rp[i] -= lr * d / (std::sqrt(rs[i]) + options.epsilon);
          }
          const Tensor ps[] = {p}, gs[] = {g}, ss[] = {s};
          AdagradStep(ps, gs, ss, options);
        }
        ExpectClose(p, rp, 4 * Tolerance(dtype), "parameter", 1);
        ExpectClose(s, rs, 4 * Tolerance(variant ? dtype : wide), "sum", 1);
      }
    }
  }
}

TEST(LerpIntoTest, MovesTowardsTheSource) {
  for (const double weight : {0.0, 0.25, 0.75, 1.0}) {
    for (const DType dtype : kFloatDTypes) {
      const DType wide = IsReducedFloat(dtype) ? DType::kFloat32 : dtype;
      for (size_t layout = 0; layout < 3; ++layout) {
        const Tensor to = Layouts(MakeTensor(Numbers(21, -1, 1, 1), {3, 7}, wide))[layout];
        const Tensor from = Layouts(MakeTensor(Numbers(21, -1, 1, 2), {3, 7}, dtype))[layout];
        const std::vector<double> a = to.ToVector<double>(), b = from.ToVector<double>();
        std::vector<double> expected(21);
        for (size_t i = 0; i < 21; ++i) expected[i] = a[i] + weight * (b[i] - a[i]);
        const Tensor tos[] = {to}, froms[] = {from};
        LerpInto(tos, froms, weight);
        ExpectClose(to, expected, Tolerance(wide), "destination", 1);
        if (weight == 0) ExpectClose(to, a, 0, "unchanged");
        if (weight == 1) ExpectClose(to, b, 0, "the source");
      }
    }
  }
}

// The bits of an element depend neither on where it lies nor on the threads.
TEST(UpdateTest, PositionAndThreadsChangeNoBit) {
  constexpr int64_t kCount = 40003;
  const std::vector<double> numbers = Numbers(kCount, -1, 1, 1), grads = Numbers(kCount, -1, 1, 2);
  // The parameters after one step of every op, from memory that begins `shift` elements later.
  const auto run = [&](int64_t shift, DType dtype) {
    const auto shifted = [&](const std::vector<double>& values) {
      const Tensor whole = Zeros({kCount + shift}, {dtype});
      const Tensor part = Slice(whole, 0, shift, kCount + shift);
      const Tensor from[] = {MakeTensor(values, {kCount}, dtype)}, to[] = {part};
      LerpInto(to, from, 1);
      return part;
    };
    const std::vector<double> zeros(kCount, 0);
    const Tensor ps[] = {shifted(numbers)}, gs[] = {shifted(grads)}, s0[] = {shifted(zeros)};
    const Tensor s1[] = {shifted(zeros)}, s2[] = {shifted(zeros)};
    AdamStep(ps, gs, s0, s1, s2, {.weight_decay = 0.1, .amsgrad = true});
    RmspropStep(ps, gs, s0, s1, s2, {.alpha = 0.5, .momentum = 0.9, .centered = true});
    AdagradStep(ps, gs, s1, {.weight_decay = 0.1});
    LerpInto(s2, ps, 0.3);
    LerpInto(ps, s2, 0.7);
    return ps[0];
  };
  for (const DType dtype : kFloatDTypes) {
    const std::vector<uint64_t> bits = Bits(run(0, dtype));
    for (const int64_t shift : {1, 3, 8}) EXPECT_EQ(Bits(run(shift, dtype)), bits);
    ExpectSameForThreads("updates", [&] { return run(0, dtype); });
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

TEST(UnscaleAndCheckTest, ScalesAndFindsWhatIsNotFinite) {
  for (const DType dtype : kFloatDTypes) {
    for (const double bad : {1.0, kInfinity, -kInfinity, kNaN}) {
      // Long enough for whole vectors and a rest, and for two chunks.
      std::vector<double> numbers = Numbers(16384 + 37, -1, 1);
      numbers[16384 + 36] = bad;
      const int64_t count = static_cast<int64_t>(numbers.size());
      const Tensor list[] = {MakeTensor({4}, {}, dtype), MakeTensor({}, {0}, dtype),
                             MakeTensor(numbers, {count}, dtype)};
      const Tensor found = MakeTensor({0}, {}, DType::kFloat32);
      UnscaleAndCheck(list, found, 0.25);
      ExpectClose(found, {std::isfinite(bad) ? 0.0 : 1.0}, 0, "found");
      ExpectClose(list[0], {1}, 0, "scaled");
      for (double& x : numbers) x /= 4;
      ExpectClose(list[2], numbers, RoundingUnit(dtype), "scaled");
    }
  }
}

TEST(UnscaleAndCheckTest, KeepsAFlagAndEveryLayout) {
  for (const Tensor& g : Layouts(MakeTensor({8, -16, kNaN, 4}, {2, 2}, DType::kFloat16))) {
    const Tensor list[] = {g};
    const Tensor found = MakeTensor({0}, {}, DType::kFloat32);
    UnscaleAndCheck(list, found, 1.0 / 8);
    ExpectClose(g, {1, -2, kNaN, 0.5}, 0, "scaled");
    ExpectClose(found, {1}, 0, "found");
    const Tensor clean[] = {MakeTensor({1}, {1}, DType::kFloat32)};
    UnscaleAndCheck(clean, found, 1);
    ExpectClose(found, {1}, 0, "what an earlier list found stays");
  }
}

TEST(UpdateTest, MismatchedListsChangeNothing) {
  const Tensor p = MakeTensor({1, 2}, {2}, DType::kFloat32);
  const Tensor g = MakeTensor({1, 2, 3}, {3}, DType::kFloat32);
  const Tensor s = MakeTensor({0, 0}, {2}, DType::kFloat32);
  const Tensor ps[] = {p, p}, gs[] = {s, g}, ms[] = {s, s}, vs[] = {s, s};
  EXPECT_THROW(AdamStep(ps, gs, ms, vs, {}, {}), Error);
  EXPECT_THROW(SgdStep(ps, gs, {}, {}), Error);
  ExpectClose(p, {1, 2}, 0, "unchanged");
}

}  // namespace
}  // namespace lockstep::cpu
