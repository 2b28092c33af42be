// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/saved_tensor_hooks.h"

#include <cmath>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd {
namespace {

using Values = std::vector<double>;

Tensor Leaf(const Values& values) {
  return SetRequiresGrad(FromVector<double>(values, {static_cast<int64_t>(values.size())}), true);
}

PackedTensor Keep(const Tensor& tensor) { return std::make_shared<Tensor>(tensor); }
const Tensor& Kept(const PackedTensor& packed) { return *static_cast<const Tensor*>(packed.get()); }

TEST(SavedTensorHooksTest, PackAndUnpackEverything) {
  const Tensor x = Leaf({1, 2});
  int packed = 0, unpacked = 0;
  Tensor y;
  {
    SavedTensorHooksScope scope(
        [&](const Tensor& t) {
          ++packed;
          EXPECT_FALSE(GradEnabled());
          return Keep(Mul(t, 1.0));
        },
        [&](const PackedTensor& p) {
          ++unpacked;
          return Kept(p);
        });
    y = Sum(Exp(Mul(x, x)));
  }
  EXPECT_EQ(packed, 3);  // both inputs of Mul, the output of Exp
  EXPECT_EQ(unpacked, 0);
  Backward(y, {.retain_graph = true});
  EXPECT_EQ(unpacked, 3);
  Backward(y);
  EXPECT_EQ(unpacked, 6);
  EXPECT_NEAR(Grad(x).Item<double>({1}), 2 * 4 * std::exp(4.0), 1e-9);
}

TEST(SavedTensorHooksTest, LeavesComeAsThemselvesAndTheInnermostScopeCounts) {
  const Tensor w = Leaf({1, 2});
  int leaves = 0, others = 0;
  SavedTensorHooksScope outer(
      [](const Tensor& t) { return Keep(t); },
      [](const PackedTensor&) -> Tensor { throw std::logic_error("outer"); });
  {
    SavedTensorHooksScope inner(
        [&](const Tensor& t) {
          (RequiresGrad(t) && t.IsSame(w) ? leaves : others) += 1;
          EXPECT_TRUE(IsLeaf(t));
          return Keep(t);
        },
        [](const PackedTensor& p) { return Kept(p); });
    const Tensor h = Mul(w, 2.0);
    Backward(Sum(Mul(h, w)));
  }
  EXPECT_EQ(leaves, 1);
  EXPECT_EQ(others, 1);
  EXPECT_THROW(Backward(Sum(Exp(w))), std::logic_error);
}

TEST(SavedTensorHooksTest, OffloadToTheHost) {
  const Tensor x = SetRequiresGrad(Add(Zeros({64}), 0.5), true);
  const int64_t before = SavedBytes(Cpu(0));
  Tensor y;
  {
    SavedTensorHooksScope scope([](const Tensor& t) { return Keep(To(t, kHost)); },
                                [](const PackedTensor& p) { return To(Kept(p), Cpu(0)); });
    y = Exp(Mul(x, 2.0));
    y = Sum(Mul(y, y));
  }
  EXPECT_EQ(SavedBytes(Cpu(0)), before);
  Backward(y);
  EXPECT_NEAR(Grad(x).Item<float>({63}), 4 * std::exp(2.0), 1e-3);
}

// K-1: a recomputed dropout uses the same key.
TEST(SavedTensorHooksTest, RecomputedDropoutHasTheSameMask) {
  ManualSeed(5);
  const Tensor w = SetRequiresGrad(Ones({1000}), true);
  const Tensor x = Ones({1000});
  Tensor y;
  {
    SavedTensorHooksScope scope([](const Tensor& t) { return Keep(t); },
                                [](const PackedTensor& p) { return Clone(Kept(p)); });
    y = Dropout(Mul(x, w), 0.5);
  }
  const Tensor next = RandomUniform({4}, 0, 1, {.generator = &ThreadGenerators().dropout});
  Backward(Sum(y));
  EXPECT_EQ(Grad(w).ToVector<float>(), y.ToVector<float>());
  ManualSeed(5);
  Dropout(Mul(x, w), 0.5);
  const Tensor again = RandomUniform({4}, 0, 1, {.generator = &ThreadGenerators().dropout});
  EXPECT_EQ(next.ToVector<float>(), again.ToVector<float>());
}

TEST(SavedTensorHooksTest, HigherOrderThroughHooks) {
  const Tensor x = Leaf({2});
  SavedTensorHooksScope scope([](const Tensor& t) { return Keep(Clone(t)); },
                              [](const PackedTensor& p) { return Kept(p); });
  const Tensor y = Mul(Mul(x, x), x);
  const Tensor first = Gradients({y}, {x}, {.create_graph = true})[0];
  EXPECT_EQ(first.Item<double>(), 12);
  EXPECT_EQ(Gradients({first}, {x})[0].Item<double>(), 12);
}

TEST(SavedTensorHooksTest, Refusals) {
  EXPECT_THROW(SavedTensorHooksScope(nullptr, [](const PackedTensor&) { return Tensor(); }), Error);
  EXPECT_THROW(SavedTensorHooksScope([](const Tensor& t) { return Keep(t); }, nullptr), Error);
  const Tensor x = Leaf({1, 2});
  Tensor y;
  {
    SavedTensorHooksScope scope([](const Tensor& t) { return Keep(t); },
                                [](const PackedTensor&) { return Zeros({3}); });
    y = Sum(Exp(x));
  }
  try {
    Backward(y);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(error.message().find("Exp"), std::string::npos) << error.what();
    EXPECT_NE(error.message().find("float32[3]"), std::string::npos) << error.what();
  }
}

// Other threads save at the same time; each scope has its own thread's.
TEST(SavedBytesTest, AScopeCountsItsThreadAlone) {
  const Tensor x = SetRequiresGrad(Ones({3, 5}), true);
  Tensor y, other;
  {
    const SavedBytesScope scope;
    y = Exp(x);  // saves its result
    EXPECT_EQ(scope.bytes(), y.bytes());
    std::thread([&] {
      const SavedBytesScope own;
      other = Exp(Exp(x));
      EXPECT_EQ(own.bytes(), 2 * other.bytes());
    }).join();
    EXPECT_EQ(scope.bytes(), y.bytes());
    {
      const SavedBytesScope inner;
      const Tensor z = Exp(y);
      EXPECT_EQ(inner.bytes(), z.bytes());
    }
    EXPECT_EQ(scope.bytes(), y.bytes());
    Backward(Sum(y));
    EXPECT_EQ(scope.bytes(), 0);
  }
  Backward(Sum(other));  // after its scope
}

// Inputs are saved before the op runs: a hook that throws then leaves what the op would write.
TEST(SavedTensorHooksTest, InputsComeBeforeTheOpAndResultsAfter) {
  const Tensor x = Leaf({1, 2});
  const Tensor h = Mul(x, 2.0);
  std::vector<Values> packed;
  const auto pack = [&](const Tensor& t) -> PackedTensor {
    packed.push_back(t.ToVector<double>());
    if (packed.size() == 2) throw std::runtime_error("enough");
    return Keep(t);
  };
  SavedTensorHooksScope scope(pack, [](const PackedTensor& p) { return Kept(p); });
  Exp(h);
  EXPECT_EQ(packed.back(), (Values{std::exp(2.0), std::exp(4.0)}));
  const int64_t version = h.version();
  EXPECT_THROW(MulInPlace(h, x), std::runtime_error);
  EXPECT_EQ(packed.back(), (Values{2, 4}));  // h as it was
  EXPECT_EQ(h.version(), version);
  EXPECT_EQ(h.ToVector<double>(), (Values{2, 4}));
}

TEST(SavedBytesTest, PeakOfADevice) {
  const Tensor x = Leaf(Values(16, 1.0));
  const int64_t before = SavedBytes(Cpu(0));
  ResetPeakSavedBytes(Cpu(0));
  EXPECT_EQ(PeakSavedBytes(Cpu(0)), before);
  Backward(Sum(Exp(Exp(x))));
  EXPECT_EQ(SavedBytes(Cpu(0)), before);
  EXPECT_EQ(PeakSavedBytes(Cpu(0)), before + 2 * x.bytes());
  EXPECT_EQ(PeakSavedBytes(Cpu(5)), 0);
  ResetPeakSavedBytes(Cpu(0));
  EXPECT_EQ(PeakSavedBytes(Cpu(0)), before);
}

TEST(SavedBytesTest, EachStorageOnceAndOnlyWhileHeld) {
  const int64_t before = SavedBytes();
  const Tensor w = Leaf(Values(8, 1.0));
  {
    const Tensor h = Mul(w, 2.0);                  // saves nothing for a scalar
    const Tensor y = Sum(Mul(Exp(h), Mul(h, h)));  // h once, Exp's output once, h * h
    EXPECT_EQ(SavedBytes() - before, 3 * h.bytes());
    EXPECT_EQ(SavedBytes(Cpu(3)), 0);
    Backward(y, {.retain_graph = true});
    EXPECT_EQ(SavedBytes() - before, 3 * h.bytes());
    Backward(y);
    EXPECT_EQ(SavedBytes(), before);
  }
  {
    const Tensor y = Exp(Mul(w, 2.0));
    EXPECT_EQ(SavedBytes() - before, y.bytes());
  }
  EXPECT_EQ(SavedBytes(), before);  // dropped with the graph
  NoGradScope no_grad;
  const Tensor y = Exp(w);
  EXPECT_EQ(SavedBytes(), before);
}

}  // namespace
}  // namespace lockstep::autograd
