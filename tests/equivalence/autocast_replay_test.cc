// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// A checkpointed region is recomputed under the autocast it ran under, wherever the backward is:
// the same ops in the same dtypes, and the same gradients, bit for bit.

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::equivalence {
namespace {

using autograd::Backward;
using autograd::Grad;
using autograd::SetRequiresGrad;

Tensor Numbers(const Shape& shape, double scale) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return Reshape(Sub(Mul(Arange(static_cast<double>(count)), scale), 0.7), shape);
}

struct Parameters {
  Tensor w = SetRequiresGrad(Numbers({6, 6}, 0.031), true);
  Tensor b = SetRequiresGrad(Numbers({6}, 0.17), true);
  Tensor x = SetRequiresGrad(Numbers({3, 6}, 0.09), true);
};

// "Linear bfloat16" for each call of the region that computes, in both of its runs.
class Log {
 public:
  void Add(const char* what, const Tensor& result) {
    (checkpoint::Recomputing() ? second : first)
        .push_back(absl::StrCat(what, " ", DTypeName(result.dtype())));
  }
  std::vector<std::string> first, second;
};

// One weight used twice, a sum, and an inner region in float32.
Tensor Region(const Parameters& p, const Tensor& x, Log* log) {
  const auto logged = [log](const char* what, const Tensor& result) {
    if (log != nullptr) log->Add(what, result);
    return result;
  };
  Tensor y = logged("Linear", Linear(x, p.w, p.b));
  y = logged("Gelu", Gelu(y));
  {
    const amp::Autocast off({.enabled = false});
    y = logged("MatMul", MatMul(To(y, DType::kFloat32), p.w));
  }
  y = logged("Linear", Linear(y, p.w));
  return logged("Add", Add(x, y));
}

struct Outcome {
  std::vector<std::vector<float>> gradients;
  Log log;
};

Outcome RunRegion(const amp::AutocastOptions& options, bool checkpointed, bool inside,
                  bool other_thread) {
  const Parameters p;
  Outcome run;
  Tensor loss;
  const auto backward = [&] { Backward(loss); };
  {
    const amp::Autocast autocast(options);
    const Tensor y =
        checkpointed
            ? checkpoint::Checkpoint([&](const Tensor& x) { return Region(p, x, &run.log); }, p.x)
            : Region(p, p.x, &run.log);
    loss = Sum(Mul(y, y));
    if (inside) backward();
  }
  if (!inside && other_thread) std::thread(backward).join();
  if (!inside && !other_thread) backward();
  for (const Tensor& leaf : {p.w, p.b, p.x}) {
    run.gradients.push_back(Grad(leaf).ToVector<float>());
  }
  return run;
}

TEST(AutocastReplay, RecomputesInTheSameDTypes) {
  const std::vector<std::string> low = {"Linear bfloat16", "Gelu bfloat16", "MatMul float32",
                                        "Linear bfloat16", "Add float32"};
  for (const bool cache : {true, false}) {
    const amp::AutocastOptions options{.cache_enabled = cache};
    for (const bool inside : {true, false}) {
      for (const bool other_thread : {true, false}) {
        const Outcome plain = RunRegion(options, false, inside, other_thread);
        const Outcome again = RunRegion(options, true, inside, other_thread);
        EXPECT_EQ(plain.log.first, low);
        EXPECT_EQ(again.log.first, low);
        // It stops where the last op that saves anything, the second Linear, has its inputs.
        EXPECT_EQ(again.log.second, std::vector<std::string>(low.begin(), low.end() - 2));
        EXPECT_EQ(again.gradients, plain.gradients) << cache << inside << other_thread;
      }
    }
  }
}

// A region that switched autocast off itself, and one outside of any, in a backward inside a scope.
TEST(AutocastReplay, ABackwardInsideOfAScopeDoesNotLendIt) {
  const Parameters p, q;
  Log log;
  const Tensor y = checkpoint::Checkpoint([&](const Tensor& x) { return Region(p, x, &log); }, p.x);
  const Tensor loss = Sum(Mul(y, y));
  const Tensor plain = Region(q, q.x, nullptr);
  Backward(Sum(Mul(plain, plain)));
  {
    const amp::Autocast autocast;
    Backward(loss);
  }
  EXPECT_EQ(log.second[0], "Linear float32");
  EXPECT_EQ(Grad(p.w).ToVector<float>(), Grad(q.w).ToVector<float>());
}

}  // namespace
}  // namespace lockstep::equivalence
