// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/engine.h"

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/custom_function.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::autograd {
namespace {

using Values = std::vector<double>;

Tensor Leaf(const Values& values, Device device = {}) {
  return SetRequiresGrad(
      FromVector<double>(values, {static_cast<int64_t>(values.size())}, {.device = device}), true);
}

// ---- Buffers ----

TEST(BufferTest, ASoleGradientIsTakenOverWithoutACopy) {
  const Tensor w = Leaf({1, 2, 3}), x = FromVector<double>({4, 5, 6}, {3});
  const void* buffer = nullptr;
  RegisterHook(w, [&](const Tensor& g) {
    buffer = g.storage().get();
    EXPECT_EQ(g.storage()->category(), MemoryCategory::kBackward);
    return Tensor();
  });
  Backward(Sum(Mul(w, x)));
  EXPECT_EQ(Grad(w).storage().get(), buffer);
  EXPECT_EQ(Grad(w).storage()->category(), MemoryCategory::kGradient);
}

TEST(BufferTest, AViewOrAnExpandedGradientIsCopied) {
  const Tensor a = Leaf({1, 2}), b = Leaf({3, 4, 5});
  Backward(Sum(Concat({a, b})));  // expanded from one element, then cut into pieces
  EXPECT_TRUE(Grad(a).is_contiguous());
  EXPECT_TRUE(Grad(b).is_contiguous());
  EXPECT_EQ(Grad(b).storage()->bytes(), b.bytes());
  EXPECT_NE(Grad(a).storage(), Grad(b).storage());
}

TEST(BufferTest, AccumulationGoesIntoABucket) {
  const Tensor bucket = Zeros({5}, {.dtype = DType::kFloat64});
  const Tensor w = Leaf({1, 2, 3});
  SetGrad(w, Slice(bucket, 0, 1, 4));
  Backward(Sum(Mul(w, w)));
  EXPECT_EQ(bucket.ToVector<double>(), (Values{0, 2, 4, 6, 0}));
  EXPECT_EQ(bucket.storage()->category(), MemoryCategory::kGradient);
}

TEST(BufferTest, ContributionsAreAddedInPlace) {
  const Tensor w = SetRequiresGrad(Ones({1024}), true);
  Tensor y = Mul(w, 2.0);
  for (int i = 0; i < 20; ++i) y = Add(y, Mul(w, 2.0));
  const Tensor loss = Sum(y);
  ResetPeakBytes(Cpu(0));
  const int64_t before = GetMemoryStats(Cpu(0)).current_bytes;
  Backward(loss);
  EXPECT_EQ(Grad(w).Item<float>({1023}), 42);
  // The sum, one product, and small change: not twenty products.
  EXPECT_LT(GetMemoryStats(Cpu(0)).peak_bytes - before, 5 * w.bytes());
}

TEST(CategoryTest, ActivationsBackwardAndGradients) {
  const Tensor w = Leaf({1, 2, 3});
  const Tensor y = Mul(w, 2.0);
  EXPECT_EQ(y.storage()->category(), MemoryCategory::kActivation);
  EXPECT_EQ(Zeros({2}).storage()->category(), MemoryCategory::kOther);
  {
    CategoryScope data(MemoryCategory::kData);
    EXPECT_EQ(Mul(w, 2.0).storage()->category(), MemoryCategory::kData);
  }
  MemoryCategory seen = MemoryCategory::kOther;
  RegisterHook(y, [&](const Tensor&) {
    seen = Zeros({2}).storage()->category();
    return Tensor();
  });
  Backward(Sum(y));
  EXPECT_EQ(seen, MemoryCategory::kBackward);
  EXPECT_EQ(CurrentThreadState().category, MemoryCategory::kOther);
  EXPECT_EQ(Grad(w).storage()->category(), MemoryCategory::kGradient);
}

// ---- Long graphs ----

TEST(LongGraphTest, DroppedWithoutRecursion) {
  const Tensor x = Leaf({1});
  Tensor y = x;
  for (int i = 0; i < 100000; ++i) y = Add(y, 1.0);
  y = Tensor();
  y = x;
  for (int i = 0; i < 100000; ++i) y = Mul(y, x);  // every node saves the one before
  const Tensor shared = y;
  y = Tensor();
}

TEST(LongGraphTest, RunsBackward) {
  const Tensor x = Leaf({1});
  Tensor y = x;
  for (int i = 0; i < 100000; ++i) y = Add(y, x);
  Backward(y);
  EXPECT_EQ(Grad(x).Item<double>(), 100001);
}

TEST(LongGraphTest, NoCycleKeepsTheGraph) {
  const int64_t before = GetMemoryStats(Cpu(0)).current_bytes;
  {
    const Tensor w = Leaf({1, 2}), h = Mul(w, 3.0);
    const Tensor y = Exp(Mul(w, h));
    AddInPlace(h, y);  // the node that saved h is now part of h's own history
    const Tensor z = Exp(h);
    MulInPlace(z, z);
    const Tensor kept = Mul(z, 1.0);
    RetainGrad(kept);
  }
  EXPECT_EQ(GetMemoryStats(Cpu(0)).current_bytes, before);
}

// ---- Several devices ----

struct Chain {
  Tensor a = Leaf({1, 2, 3}, Cpu(0));
  Tensor b = Leaf({4, 5, 6}, Cpu(1));
  Tensor c = Leaf({7, 8, 9}, Cpu(2));
  Tensor on_one, on_two, loss;
  Chain() {
    on_one = Mul(To(a, Cpu(1)), b);
    on_two = Mul(To(on_one, Cpu(2)), c);
    loss = Sum(To(on_two, Cpu(0)));
  }
};

TEST(DevicesTest, NodesRunOnTheThreadOfTheirDevice) {
  Chain chain;
  std::thread::id on_one, on_two, on_loss, on_leaf;
  const auto record = [](std::thread::id& id) {
    return [&id](const Tensor&) {
      id = std::this_thread::get_id();
      return Tensor();
    };
  };
  RegisterHook(chain.on_one, record(on_one));
  RegisterHook(chain.on_two, record(on_two));
  RegisterHook(chain.loss, record(on_loss));
  RegisterHook(chain.b, record(on_leaf));
  Backward(chain.loss);
  EXPECT_EQ(Grad(chain.a).ToVector<double>(), (Values{28, 40, 54}));
  EXPECT_EQ(Grad(chain.b).ToVector<double>(), (Values{7, 16, 27}));
  EXPECT_EQ(Grad(chain.c).ToVector<double>(), (Values{4, 10, 18}));
  EXPECT_EQ(Grad(chain.c).device(), Cpu(2));
  EXPECT_NE(on_one, on_two);
  EXPECT_NE(on_one, on_loss);
  EXPECT_EQ(on_one, on_leaf);
}

TEST(DevicesTest, OneDeviceStaysOnTheCallingThread) {
  const Tensor w = Leaf({1, 2}, Cpu(1));
  std::thread::id id;
  RegisterPostAccumulateGradHook(w, [&](const Tensor&) { id = std::this_thread::get_id(); });
  Backward(Sum(Mul(w, w)));
  EXPECT_EQ(id, std::this_thread::get_id());
}

// Nothing computes on the host: leaves there (offloaded shards) are the calling thread's, as those
// of the one device beside them, and in the same order as without.
TEST(DevicesTest, LeavesOnTheHostStayOnTheCallingThread) {
  for (const Device home : {kHost, Cpu(0)}) {
    const Tensor a = Leaf({1, 2}, Cpu(0));
    const Tensor b = Leaf({3, 4}, home);
    const Tensor c = Leaf({5, 6}, home);
    std::vector<std::string> order;
    const std::thread::id here = std::this_thread::get_id();
    const auto note = [&](const Tensor& leaf, const std::string& name) {
      RegisterPostAccumulateGradHook(leaf, [&order, here, name](const Tensor&) {
        EXPECT_EQ(std::this_thread::get_id(), here);
        order.push_back(name);
      });
    };
    note(a, "a");
    note(b, "b");
    note(c, "c");
    const Tensor x = Mul(a, To(b, Cpu(0)));
    Backward(Sum(Mul(x, To(c, Cpu(0)))));
    EXPECT_EQ(order, (std::vector<std::string>{"c", "a", "b"}));
    EXPECT_EQ(Grad(a).ToVector<double>(), (Values{15, 24}));
    EXPECT_EQ(Grad(b).device(), home);
    EXPECT_EQ(Grad(b).ToVector<double>(), (Values{5, 12}));
    EXPECT_EQ(Grad(c).ToVector<double>(), (Values{3, 8}));
  }
}

// Many contributions from four devices to one leaf: the same bits every time.
TEST(DevicesTest, SumsDoNotDependOnTiming) {
  std::vector<std::vector<float>> results;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Tensor w = SetRequiresGrad(Full({257}, 0.1), true);
    std::vector<Tensor> parts;
    for (int device = 0; device < 4; ++device) {
      for (int i = 0; i < 3; ++i) {
        const Tensor x = Mul(To(w, Cpu(device)), 1.0 / (3 + device * 7 + i));
        parts.push_back(To(Sum(Exp(x)), Cpu(0)));
      }
    }
    Backward(Sum(Stack(parts)));
    results.push_back(Grad(w).ToVector<float>());
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(DevicesTest, TheFirstExceptionReachesTheCaller) {
  Chain chain;
  RegisterHook(chain.on_one, [](const Tensor&) -> Tensor { throw std::out_of_range("device 1"); });
  EXPECT_THROW(Backward(chain.loss), std::out_of_range);
  EXPECT_FALSE(Grad(chain.a).defined());
  Chain again;  // everything still works
  Backward(again.loss);
  EXPECT_EQ(Grad(again.a).ToVector<double>(), (Values{28, 40, 54}));
}

TEST(DevicesTest, BackwardsInsideOfBackwards) {
  Chain outer;
  Chain inner;
  std::atomic<int> ends{0};
  RegisterHook(outer.on_one, [&](const Tensor&) {
    QueueEndOfBackward([&] { ++ends; });
    Backward(inner.loss);
    EXPECT_EQ(ends, 0);
    return Tensor();
  });
  Backward(outer.loss);
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(Grad(inner.a).ToVector<double>(), (Values{28, 40, 54}));
  EXPECT_EQ(Grad(outer.a).ToVector<double>(), (Values{28, 40, 54}));
}

TEST(DevicesTest, GradientsForInputsOnly) {
  Chain chain;
  const auto gradients = Gradients({chain.loss}, {chain.a, chain.on_one}, {.retain_graph = true});
  EXPECT_EQ(gradients[0].ToVector<double>(), (Values{28, 40, 54}));
  EXPECT_EQ(gradients[1].ToVector<double>(), (Values{7, 8, 9}));
  EXPECT_FALSE(Grad(chain.b).defined());
}

// ---- Threads ----

TEST(ThreadsTest, GraphsThatShareLeaves) {
  const Tensor w = Leaf({1, 2, 3});
  std::atomic<int> hooks{0};
  RegisterPostAccumulateGradHook(w, [&](const Tensor&) { ++hooks; });
  constexpr int kThreads = 4, kRounds = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&w, t] {
      for (int i = 0; i < kRounds; ++i) Backward(Sum(Mul(w, static_cast<double>(t + 1))));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Grad(w).ToVector<double>(), Values(3, kRounds * 10.0));
  EXPECT_EQ(hooks, kThreads * kRounds);
}

TEST(ThreadsTest, OneRetainedGraph) {
  const Tensor w = Leaf({1, 2, 3});
  const Tensor y = Sum(Exp(Mul(w, 0.0)));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&y] {
      for (int i = 0; i < 20; ++i) Backward(y, {.retain_graph = true});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Grad(w).ToVector<double>(), Values(3, 0.0));
}

TEST(ThreadsTest, RecordedGradientsOfSharedLeaves) {
  const Tensor w = Leaf({2});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&w] {
      for (int i = 0; i < 20; ++i) Backward(Mul(w, w), {.create_graph = true});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Grad(w).Item<double>(), 240);
  SetGrad(w, {});  // its history holds w
}

TEST(ThreadsTest, ForwardOnOneBackwardOnAnother) {
  const Tensor w = Leaf({1, 2, 3});
  const Tensor y = Sum(Mul(w, w));
  std::thread([&] { Backward(y); }).join();
  EXPECT_EQ(Grad(w).ToVector<double>(), (Values{2, 4, 6}));
}

// ---- Thread state ----

struct Mark : LayerState {};

TEST(StateTest, BackwardRunsUnderTheForwardsState) {
  const Tensor w = Leaf({1, 2});
  const auto mark = std::make_shared<Mark>();
  const int slot = static_cast<int>(DispatchLayer::kAutocast);
  Tensor y;
  {
    ThreadState state = CurrentThreadState();
    state.layer_state[slot] = mark;
    state.intra_op_threads = 1;
    state.device = Cpu(3);
    ScopedThreadState scope(state);
    y = Mul(w, 2.0);
  }
  const Tensor z = Mul(y, 3.0);
  std::vector<const LayerState*> marks;
  std::vector<int> threads;
  std::vector<Device> devices;
  for (const Tensor& tensor : {z, y}) {
    RegisterHook(tensor, [&](const Tensor&) {
      marks.push_back(CurrentThreadState().layer_state[slot].get());
      threads.push_back(CurrentThreadState().intra_op_threads);
      devices.push_back(CurrentDevice());
      return Tensor();
    });
  }
  SetIntraOpThreads(2);
  const Tensor loss = Sum(z);
  Backward(loss);
  EXPECT_EQ(marks, (std::vector<const LayerState*>{nullptr, mark.get()}));
  EXPECT_EQ(threads, (std::vector<int>{0, 1}));
  EXPECT_EQ(devices, (std::vector<Device>{Cpu(0), Cpu(3)}));
  EXPECT_EQ(CurrentThreadState().intra_op_threads, 2);
  EXPECT_EQ(CurrentThreadState().layer_state[slot], nullptr);
  SetIntraOpThreads(0);
}

TEST(StateTest, HooksAdvanceTheCallersGenerators) {
  const Tensor w = Leaf({1, 2});
  ManualSeed(3);
  RegisterHook(w, [](const Tensor& g) { return Dropout(g, 0.5); });
  const uint64_t before = ThreadGenerators().dropout.key.offset;
  Backward(Sum(w));
  EXPECT_EQ(ThreadGenerators().dropout.key.offset, before + 4);
}

TEST(StateTest, RestoredAfterAnError) {
  const Tensor w = Leaf({1, 2});
  RegisterHook(w, [](const Tensor&) -> Tensor { throw std::runtime_error("hook"); });
  EXPECT_THROW(Backward(Sum(w)), std::runtime_error);
  EXPECT_TRUE(GradEnabled());
  EXPECT_EQ(CurrentThreadState().category, MemoryCategory::kOther);
  EXPECT_FALSE(InBackward());
}

TEST(StateTest, AThreadStartedInABackwardDoesNotOutliveItsRun) {
  const Tensor w = Leaf({1, 2});
  ThreadState inside;
  RegisterHook(w, [&](const Tensor&) {
    inside = CurrentThreadState();
    return Tensor();
  });
  Backward(Sum(w));
  ScopedThreadState scope(inside);
  EXPECT_FALSE(InBackward());
  EXPECT_THROW(QueueEndOfBackward([] {}), Error);
}

}  // namespace
}  // namespace lockstep::autograd
