// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// A checkpointed region is recomputed under the autocast it ran under, wherever the backward is:
// the same ops in the same dtypes, and the same gradients, bit for bit.

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/op_policy.h"
#include "lockstep/tensor/memory.h"
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

// What a region casts once more goes with its second run: memory does not grow with the steps.
TEST(AutocastReplay, StepsLeaveNothingBehind) {
  const checkpoint::OpPolicy policies[] = {nullptr, checkpoint::SaveContractions()};
  for (const checkpoint::OpPolicy& policy : policies) {
    for (const bool scope_in_region : {false, true}) {
      const Parameters p;
      const checkpoint::CheckpointOptions options{.policy = policy};
      const auto inner = [&](const Tensor& x) {
        std::optional<amp::Autocast> scope;
        if (scope_in_region) scope.emplace();
        return Region(p, x, nullptr);
      };
      const auto outer = [&](const Tensor& x) { return checkpoint::Checkpoint(inner, x, options); };
      std::vector<int64_t> bytes;
      for (int step = 0; step < 4; ++step) {
        Tensor loss;
        {
          const amp::Autocast autocast;
          loss = Sum(outer(checkpoint::Checkpoint(outer, p.x, options)));
        }
        Backward(loss);
        loss = Tensor();
        bytes.push_back(GetMemoryStats(Cpu()).current_bytes);
      }
      EXPECT_EQ(bytes[3], bytes[1]) << scope_in_region << (policy != nullptr);
    }
  }
}

// A weight that the scope has cast before is cast in the second run only, and the input, a leaf
// there, once for both uses; a policy that saves casts has those that the region calls.
TEST(AutocastReplay, APolicyMaySaveCasts) {
  const checkpoint::OpPolicy policies[] = {
      nullptr, checkpoint::SaveOps({OpId::kCast}),
      [](const checkpoint::OpContext&) { return checkpoint::OpDecision::kMustSave; },
      [](const checkpoint::OpContext&) { return checkpoint::OpDecision::kPreferSave; }};
  const auto train = [](bool checkpointed, const checkpoint::OpPolicy& policy) {
    const Tensor w = SetRequiresGrad(Numbers({6, 6}, 0.031), true);
    const Tensor x = SetRequiresGrad(Numbers({6, 6}, 0.09), true);
    // The casts: of x, of the weight where it is not cast yet, and two that are written here.
    const auto region = [&w](const Tensor& in) {
      const Tensor y = To(Tanh(Linear(Linear(in, w) + Linear(in, w), w)), DType::kFloat32);
      return Linear(Exp(To(Mul(y, y), DType::kBFloat16)), w);
    };
    std::vector<std::vector<float>> seen;
    for (int step = 0; step < 3; ++step) {
      const amp::Autocast autocast;
      Tensor y = To(region(x), DType::kFloat32);  // the weight is cast from here on
      y = checkpointed ? checkpoint::Checkpoint(region, y, {.policy = policy}) : region(y);
      Backward(Sum(To(y, DType::kFloat32)));
      for (const Tensor& leaf : {w, x}) seen.push_back(Grad(leaf).ToVector<float>());
    }
    return seen;
  };
  const auto plain = train(false, nullptr);
  for (const checkpoint::OpPolicy& policy : policies) EXPECT_EQ(train(true, policy), plain);
}

}  // namespace
}  // namespace lockstep::equivalence
