// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/checkpoint.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::checkpoint {
namespace {

using autograd::Backward;
using autograd::Grad;
using autograd::Gradients;
using autograd::SavedBytes;
using autograd::SetGrad;
using autograd::SetRequiresGrad;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

Tensor Leaf(const Shape& shape, double scale = 0.1) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  Floats values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(scale * static_cast<double>((i * 7 + 3) % 11 - 5)));
  }
  return SetRequiresGrad(FromVector<float>(values, shape), true);
}

Floats ValuesOf(const Tensor& tensor) { return tensor.ToVector<float>(); }

// CPP-3: parameters inside get gradients whatever the inputs require.
TEST(CheckpointTest, ParametersGetGradientsFromInputsWithoutGradient) {
  for (const bool input_requires : {false, true}) {
    ManualSeed(3);
    nn::Linear first(4, 4), second(4, 1);
    const Tensor x = SetRequiresGrad(Ones({2, 4}), input_requires);
    const auto run = [&](const Tensor& in) { return second(Tanh(first(in))); };
    const std::vector<Tensor> leaves = {first.weight, first.bias, second.weight, second.bias, x};
    std::vector<Floats> plain;
    Backward(Sum(run(x)));
    for (const Tensor& leaf : leaves) {
      plain.push_back(Grad(leaf).defined() ? ValuesOf(Grad(leaf)) : Floats());
      SetGrad(leaf, {});
    }
    Backward(Sum(Checkpoint(run, x)));
    for (size_t i = 0; i < leaves.size(); ++i) {
      ASSERT_EQ(Grad(leaves[i]).defined(), i < 4 || input_requires);
      if (Grad(leaves[i]).defined()) {
        EXPECT_EQ(ValuesOf(Grad(leaves[i])), plain[i]);
      }
    }
  }
}

// CPP-3: 8 equal segments hold at most a quarter.
TEST(CheckpointTest, EightSegmentsHoldAQuarter) {
  nn::Sequential layers;
  for (int i = 0; i < 8; ++i) {
    nn::Sequential& block = *layers.Emplace<nn::Sequential>();
    for (int j = 0; j < 4; ++j) {
      block.Emplace<nn::Linear>(16, 16);
      block.Emplace<nn::Tanh>();
    }
  }
  const Tensor x = Leaf({8, 16});
  const int64_t before = SavedBytes();
  int64_t plain = 0;
  {
    const Tensor y = layers(x);
    plain = SavedBytes() - before;
  }
  const Tensor y = CheckpointSequential(layers, 8, x);
  // The inputs of the segments, the first of which is a leaf.
  EXPECT_EQ(SavedBytes() - before, 7 * x.bytes());
  EXPECT_LE(4 * (SavedBytes() - before), plain);
  Backward(Sum(y));
  EXPECT_EQ(SavedBytes(), before);
}

// K-1: the mask of the second run is that of the first, and the streams go on as without it.
TEST(CheckpointTest, DropoutMaskIsTheSameAndStreamsGoOn) {
  for (const int nesting : {1, 2}) {
    ManualSeed(11);
    const Tensor w = SetRequiresGrad(Ones({1000}), true);
    const Tensor x = Ones({1000});
    const auto region = [&](const Tensor& in) { return Dropout(Mul(in, w), 0.5); };
    const Tensor y =
        nesting == 1
            ? Checkpoint(region, x)
            : Checkpoint([&](const Tensor& in) { return Mul(Checkpoint(region, in), 1.0); }, x);
    const RandomStreams after = ThreadGenerators();
    Backward(Sum(y));
    EXPECT_EQ(ValuesOf(Grad(w)), ValuesOf(y));
    EXPECT_EQ(ThreadGenerators().dropout.key, after.dropout.key);
    ManualSeed(11);
    Dropout(Mul(x, w), 0.5);
    EXPECT_EQ(ThreadGenerators().dropout.key, after.dropout.key);
  }
}

TEST(CheckpointTest, OwnGeneratorsAreReplayed) {
  Generator own{{77, 5, 0}};
  const Tensor w = SetRequiresGrad(Ones({64}), true);
  const Tensor y = Checkpoint(
      [&](const Tensor& in) {
        return Mul(Mul(in, w), RandomUniform({64}, 0, 1, {.generator = &own}));
      },
      Ones({64}), {.verify_values = true, .generators = {&own}});
  const RandomKey after = own.key;
  Backward(Sum(y));
  EXPECT_EQ(own.key, after);
  EXPECT_EQ(ValuesOf(Grad(w)), ValuesOf(y));
}

// K-2, the part of thread state: device, intra-op threads and other layers' state are those of the
// forward pass, also on another thread.
class Marked : public LayerState {
 public:
  explicit Marked(int replays) : replays(replays) {}
  std::shared_ptr<const LayerState> ForReplay() const override {
    return std::make_shared<Marked>(replays + 1);
  }
  const int replays;
};

TEST(CheckpointTest, SecondRunHasTheThreadStateOfTheFirst) {
  constexpr int kSlot = static_cast<int>(DispatchLayer::kAutocast);
  struct Seen {
    int threads, replays;
    Device device;
    bool recording, recomputing;
  };
  std::vector<Seen> seen;
  const Tensor x = Leaf({3});
  Tensor y;
  {
    ThreadState state = CurrentThreadState();
    state.intra_op_threads = 3;
    state.device = Cpu(2);
    state.layer_state[kSlot] = std::make_shared<Marked>(0);
    ScopedThreadState scope(state);
    y = Checkpoint(
        [&](const Tensor& in) {
          const ThreadState& now = CurrentThreadState();
          const auto* mark = dynamic_cast<const Marked*>(now.layer_state[kSlot].get());
          seen.push_back({now.intra_op_threads, mark == nullptr ? -1 : mark->replays, now.device,
                          autograd::GradEnabled(), Recomputing()});
          return Exp(Mul(in, in));
        },
        x);
  }
  EXPECT_FALSE(Recomputing());
  const Tensor loss = Sum(y);
  std::thread([&] {
    autograd::NoGradScope no_grad;
    Backward(loss);
    EXPECT_FALSE(Recomputing());
    EXPECT_FALSE(autograd::GradEnabled());
    EXPECT_EQ(CurrentThreadState().layer_state[kSlot], nullptr);
  }).join();
  ASSERT_EQ(seen.size(), 2u);
  for (const Seen& run : seen) {
    EXPECT_EQ(run.threads, 3);
    EXPECT_EQ(run.device, Cpu(2));
    EXPECT_TRUE(run.recording);
  }
  EXPECT_EQ(seen[0].replays, 0);
  EXPECT_GE(seen[1].replays, 1);  // a state of its own: the first run's caches are not used
  EXPECT_FALSE(seen[0].recomputing);
  EXPECT_TRUE(seen[1].recomputing);
}

TEST(CheckpointTest, SeveralInputsAndOutputsSomeUndefined) {
  const Tensor a = Leaf({2, 3}), b = Leaf({3}, 0.3);
  const Tensor ids = FromVector<int64_t>({1, 0}, {2});
  const auto region = [](TensorSpan in) -> TensorList {
    EXPECT_FALSE(in[2].defined());
    const Tensor rows = IndexSelect(in[0], 0, in[3]);
    return {Mul(rows, in[1]), Exp(in[1]), in[3]};
  };
  const auto loss = [](const TensorList& out) { return Sum(Mul(out[0], out[1])); };
  const TensorList inputs = {a, b, {}, ids};
  const std::vector<Tensor> plain = Gradients({loss(region(inputs))}, {a, b});
  const TensorList out = Checkpoint(region, inputs);
  EXPECT_EQ(out[2].ToVector<int64_t>(), (std::vector<int64_t>{1, 0}));
  const std::vector<Tensor> checked = Gradients({loss(out)}, {a, b});
  for (int i : {0, 1}) EXPECT_EQ(ValuesOf(checked[i]), ValuesOf(plain[i]));
  EXPECT_FALSE(Grad(a).defined());
}

// Counts its runs.
struct Counted {
  int runs = 0;
  int ends = 0;
  Tensor operator()(const Tensor& x) {
    ++runs;
    Tensor y = Exp(Mul(x, x));
    y = Sum(Mul(y, x));
    ++ends;
    return y;
  }
};

TEST(CheckpointTest, EarlyStopEndsTheSecondRun) {
  for (const bool early : {true, false}) {
    Counted counted;
    const Tensor x = Leaf({4});
    Backward(Checkpoint([&](const Tensor& in) { return counted(in); }, x, {.early_stop = early}));
    EXPECT_EQ(counted.runs, 2);
    EXPECT_EQ(counted.ends, early ? 1 : 2);
  }
}

TEST(CheckpointTest, ARetainedGraphDoesNotRunAThirdTime) {
  Counted counted;
  const Tensor x = Leaf({4});
  const int64_t before = SavedBytes();
  const Tensor y = Checkpoint([&](const Tensor& in) { return counted(in); }, Mul(x, 2.0));
  EXPECT_EQ(SavedBytes() - before, x.bytes());
  Backward(y, {.retain_graph = true});
  const Floats once = ValuesOf(Grad(x));
  EXPECT_GT(SavedBytes() - before, x.bytes());  // now ordinary saved tensors
  SetGrad(x, {});
  Backward(y);
  EXPECT_EQ(ValuesOf(Grad(x)), once);
  EXPECT_EQ(counted.runs, 2);
  EXPECT_EQ(SavedBytes(), before);
  EXPECT_THAT(MessageOf([&] { Backward(y); }), HasSubstr("retain_graph"));
}

TEST(CheckpointTest, PartsOfTheGraphOneAfterTheOther) {
  const Tensor x = Leaf({4}), w = Leaf({4}, 0.7);
  int runs = 0;
  const TensorList out = Checkpoint(
      [&](TensorSpan in) -> TensorList {
        ++runs;
        return {Sum(Exp(Mul(in[0], w))), Sum(Tanh(Mul(in[0], in[0])))};
      },
      {x});
  Backward(out[0]);
  Backward(out[1]);
  EXPECT_EQ(runs, 2);
  const Floats both = ValuesOf(Grad(x));
  SetGrad(x, {});
  Backward(Sum(Exp(Mul(x, w))));
  Backward(Sum(Tanh(Mul(x, x))));
  EXPECT_EQ(ValuesOf(Grad(x)), both);
}

TEST(CheckpointTest, HigherOrderGradients) {
  const Tensor x = Leaf({5}), w = Leaf({5}, 0.4);
  const auto run = [&](bool checkpointed) {
    const auto region = [&](const Tensor& in) { return Tanh(Mul(Exp(Mul(in, w)), in)); };
    const Tensor y = Sum(checkpointed ? Checkpoint(region, x) : region(x));
    const std::vector<Tensor> first = Gradients({y}, {x, w}, {.create_graph = true});
    const Tensor z = Add(Sum(Mul(first[0], first[0])), Sum(first[1]));
    const std::vector<Tensor> second = Gradients({z}, {x, w}, {.create_graph = true});
    const std::vector<Tensor> third = Gradients({Sum(Mul(second[0], second[1]))}, {x, w});
    std::vector<Floats> all;
    for (const auto& list : {first, second, third}) {
      for (const Tensor& t : list) all.push_back(ValuesOf(t));
    }
    return all;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(CheckpointTest, ABackwardInsideTheRegion) {
  const Tensor x = Leaf({3}), w = Leaf({3}, 0.2);
  const auto region = [&](const Tensor& in) {
    const Tensor y = Sum(Mul(Exp(Mul(in, w)), in));
    const Tensor slope = Gradients({y}, {w}, {.create_graph = true})[0];
    return Mul(slope, slope);
  };
  const std::vector<Tensor> plain = Gradients({Sum(region(x))}, {x, w});
  const std::vector<Tensor> checked = Gradients({Sum(Checkpoint(region, x))}, {x, w});
  for (int i : {0, 1}) EXPECT_EQ(ValuesOf(checked[i]), ValuesOf(plain[i]));
}

TEST(CheckpointTest, NestedRegionsThreeDeep) {
  const Tensor x = Leaf({6});
  std::vector<Tensor> weights = {Leaf({6}, 0.2), Leaf({6}, 0.3), Leaf({6}, 0.5)};
  const std::function<Tensor(const Tensor&, size_t, bool)> level =
      [&](const Tensor& in, size_t depth, bool checkpointed) -> Tensor {
    if (depth == weights.size()) return Dropout(in, 0.5);
    const auto body = [&, depth, checkpointed](const Tensor& h) {
      return Tanh(Mul(level(Exp(Mul(h, weights[depth])), depth + 1, checkpointed), h));
    };
    return checkpointed ? Checkpoint(body, in) : body(in);
  };
  std::vector<Tensor> leaves = weights;
  leaves.push_back(x);
  ManualSeed(2);
  const std::vector<Tensor> plain = Gradients({Sum(level(x, 0, false))}, leaves);
  const RandomKey after = ThreadGenerators().dropout.key;
  ManualSeed(2);
  const int64_t before = SavedBytes();
  const Tensor y = Sum(level(x, 0, true));
  EXPECT_EQ(SavedBytes(), before);  // the only input outside of all regions is a leaf
  const std::vector<Tensor> checked = Gradients({y}, leaves);
  EXPECT_EQ(ThreadGenerators().dropout.key, after);
  for (size_t i = 0; i < leaves.size(); ++i) EXPECT_EQ(ValuesOf(checked[i]), ValuesOf(plain[i]));
  EXPECT_EQ(SavedBytes(), before);
}

TEST(CheckpointTest, TwoThreadsOverOneGraph) {
  const Tensor x = Leaf({257});
  int runs = 0;
  const Tensor y = Sum(Checkpoint(
      [&](const Tensor& in) {
        ++runs;
        return Exp(Tanh(Mul(in, in)));
      },
      x));
  const Floats expected = ValuesOf(Gradients({Sum(Exp(Tanh(Mul(x, x))))}, {x})[0]);
  std::vector<Floats> got(4);
  std::vector<std::thread> threads;
  for (Floats& result : got) {
    threads.emplace_back(
        [&] { result = ValuesOf(Gradients({y}, {x}, {.retain_graph = true})[0]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Floats& result : got) EXPECT_EQ(result, expected);
  EXPECT_EQ(runs, 2);
}

TEST(CheckpointTest, SeveralDevicesInOneRegion) {
  const Tensor x = Leaf({33});
  const auto region = [](const Tensor& in) {
    const Tensor there = Exp(To(Mul(in, in), Cpu(3)));
    return Tanh(To(Mul(there, there), Cpu(0)));
  };
  const Floats plain = ValuesOf(Gradients({Sum(region(x))}, {x})[0]);
  EXPECT_EQ(ValuesOf(Gradients({Sum(Checkpoint(region, x))}, {x})[0]), plain);
}

TEST(CheckpointTest, WithoutRecordingNothingIsKept) {
  const int64_t before = SavedBytes();
  const Tensor x = Leaf({4});
  int runs = 0;
  const auto region = [&](const Tensor& in) {
    ++runs;
    return Exp(in);
  };
  {
    autograd::NoGradScope no_grad;
    EXPECT_FALSE(autograd::RequiresGrad(Checkpoint(region, x)));
  }
  {
    autograd::InferenceScope inference;
    Checkpoint(region, x);
  }
  EXPECT_FALSE(autograd::RequiresGrad(Checkpoint(region, Ones({4}))));  // nothing to record
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(SavedBytes(), before);
}

TEST(CheckpointTest, ErrorsOfTheSecondRunComeOutAndCanBeRepaired) {
  const Tensor x = Leaf({4});
  bool fail = false;
  const Tensor y = Sum(Checkpoint(
      [&](const Tensor& in) {
        const Tensor h = Exp(in);
        if (fail) throw std::runtime_error("disk full");
        return Mul(h, Tanh(in));
      },
      x));
  fail = true;
  const RandomKey before = ThreadGenerators().dropout.key;
  EXPECT_THROW(Backward(y, {.retain_graph = true}), std::runtime_error);
  EXPECT_FALSE(Recomputing());
  EXPECT_TRUE(autograd::GradEnabled());
  EXPECT_EQ(ThreadGenerators().dropout.key, before);
  fail = false;
  Backward(y);
  EXPECT_EQ(ValuesOf(Grad(x)), ValuesOf(Gradients({Sum(Mul(Exp(x), Tanh(x)))}, {x})[0]));
}

TEST(CheckpointTest, ErrorsOfTheFirstRunLeaveTheStateRight) {
  const Tensor x = Leaf({4});
  EXPECT_THROW(Checkpoint([](const Tensor&) -> Tensor { throw std::runtime_error("first"); }, x,
                          {.policy = SaveContractions()}),
               std::runtime_error);
  const int64_t before = SavedBytes();
  const Tensor y = Exp(x);
  EXPECT_EQ(SavedBytes() - before, y.bytes());  // no hooks are left
  EXPECT_EQ(CurrentThreadState().layer_state[static_cast<int>(DispatchLayer::kCheckpoint)],
            nullptr);
}

TEST(CheckpointTest, ChangesInPlaceAreFound) {
  const Tensor x = Leaf({4}), w = Leaf({4}, 0.5);
  const auto region = [&](const Tensor& in) { return Exp(Mul(in, w)); };
  {
    const Tensor h = Mul(x, 2.0);
    const Tensor y = Sum(Checkpoint(region, h));
    autograd::NoGradScope no_grad;
    AddInPlace(h, h);
    const Error error = ErrorOf([&] { Backward(y); });
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(error.message(),
                HasSubstr("Checkpoint: input 0 (float32[4] on cpu:0) was modified"));
  }
  {
    const Tensor y = Sum(Checkpoint(region, x));
    autograd::NoGradScope no_grad;
    AddInPlace(w, w);
    EXPECT_THAT(MessageOf([&] { Backward(y); }),
                HasSubstr("Checkpoint: a leaf (float32[4] on cpu:0) that Mul saved was"));
  }
  {
    const Error error = ErrorOf(
        [&] { Checkpoint([](const Tensor& in) { return AddInPlace(in, in); }, Mul(x, 2.0)); });
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), HasSubstr("changed input 0 (float32[4] on cpu:0) in place"));
  }
  {
    // Found without checkpointing, and so with it.
    const Tensor y = Sum(Checkpoint(
        [](const Tensor& in) {
          const Tensor h = Mul(in, 2.0);
          const Tensor saved = Mul(h, h);
          AddInPlace(h, in);
          return Exp(Mul(saved, h));
        },
        x));
    EXPECT_THAT(MessageOf([&] { Backward(y); }),
                HasSubstr("Checkpoint: input 1 of Mul (float32[4] on cpu:0) was modified"));
  }
}

TEST(CheckpointTest, ADifferentSecondRunIsFoundAndTheOpNamed) {
  const Tensor x = Leaf({4});
  int run = 0;
  const auto differ = [&](const std::function<Tensor(const Tensor&, bool second)>& body,
                          const CheckpointOptions& options = {}) {
    run = 0;
    const Tensor y =
        Sum(Checkpoint([&](const Tensor& in) { return body(in, run++ > 0); }, x, options));
    const Error error = ErrorOf([&] { Backward(y); });
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    return error.message();
  };
  // Another op.
  EXPECT_THAT(differ([](const Tensor& in, bool second) {
                const Tensor h = Mul(in, 2.0);
                return second ? Tanh(h) : Exp(h);
              }),
              ::testing::AllOf(HasSubstr("output 0 of Exp (float32[4] on cpu:0)"),
                               HasSubstr("output 0 of Tanh")));
  // Another shape and another dtype.
  EXPECT_THAT(differ([](const Tensor& in, bool second) {
                return Exp(second ? Reshape(in, {2, 2}) : in);
              }),
              HasSubstr("float32[2, 2]"));
  EXPECT_THAT(differ([](const Tensor& in, bool second) {
                return Exp(second ? To(in, DType::kFloat64) : in);
              }),
              HasSubstr("float64[4]"));
  // Fewer, and (with the run to the end) more.
  EXPECT_THAT(differ([](const Tensor& in, bool second) {
                const Tensor h = Exp(in);
                return second ? h : Tanh(h);
              }),
              HasSubstr("saved 1 tensors and the first 2: output 0 of Tanh"));
  EXPECT_THAT(differ(
                  [](const Tensor& in, bool second) {
                    const Tensor h = Exp(in);
                    return second ? Tanh(h) : h;
                  },
                  {.early_stop = false}),
              HasSubstr("more tensors than the first (1): output 0 of Tanh"));
  // Other values: only a hash sees them.
  const auto other_values = [](const Tensor& in, bool second) {
    return Exp(Mul(in, second ? 2.0 : 3.0));
  };
  EXPECT_THAT(differ(other_values, {.verify_values = true}),
              HasSubstr("output 0 of Exp (float32[4] on cpu:0) (saved tensor 0) other values"));
  run = 0;
  Backward(Sum(Checkpoint([&](const Tensor& in) { return other_values(in, run++ > 0); }, x)));
}

TEST(CheckpointTest, WithoutTheCheckWhatFitsIsUsed) {
  const Tensor x = Leaf({4});
  int run = 0;
  Backward(Sum(Checkpoint([&](const Tensor& in) { return run++ > 0 ? Tanh(in) : Exp(in); }, x,
                          {.check_metadata = false})));
  EXPECT_EQ(ValuesOf(Grad(x)), ValuesOf(Tanh(x)));  // Exp's gradient with the other result
}

// Batch-norm-like: statistics once a step.
class RunningMean : public nn::UnaryModule {
 public:
  RunningMean() { RegisterBuffer("mean", &mean, Zeros({3})); }
  Tensor Forward(const Tensor& x) override {
    const Tensor batch = Mean(x, {0});
    if (training() && !Recomputing()) {
      autograd::NoGradScope no_grad;
      CopyInto(mean, Add(Mul(mean, 0.9), Mul(batch, 0.1)));
    }
    return Mul(x - batch, Exp(batch));
  }
  Tensor mean;
};

TEST(CheckpointTest, StatisticsAreUpdatedOnce) {
  RunningMean plain, checked;
  for (int step = 0; step < 3; ++step) {
    const Tensor x = Leaf({4, 3}, 0.1 * (step + 1));
    const Floats expected = ValuesOf(Gradients({Sum(Exp(plain(x)))}, {x})[0]);
    const Tensor y = Checkpoint([&](const Tensor& in) { return Exp(checked(in)); }, x);
    EXPECT_EQ(ValuesOf(Gradients({Sum(y)}, {x})[0]), expected);
    EXPECT_EQ(ValuesOf(checked.mean), ValuesOf(plain.mean));
  }
  EXPECT_NE(ValuesOf(plain.mean)[0], 0);
}

TEST(CheckpointTest, CapturedObjectsGoWithTheGraph) {
  auto layer = std::make_shared<nn::Linear>(3, 3);
  std::weak_ptr<nn::Linear> watch = layer;
  const Tensor x = Leaf({2, 3});
  Tensor y = Sum(Checkpoint([layer](const Tensor& in) { return Exp((*layer)(in)); }, x));
  layer.reset();
  EXPECT_FALSE(watch.expired());
  Backward(y);
  EXPECT_TRUE(watch.expired());
}

TEST(CheckpointSequentialTest, EverySplitGivesTheSame) {
  nn::Sequential layers;
  for (int i = 0; i < 5; ++i) {
    layers.Emplace<nn::Linear>(4, 4);
    layers.Emplace<nn::Dropout>(0.3);
  }
  const Tensor x = Leaf({3, 4});
  ManualSeed(4);
  const Tensor plain = layers(x);
  const Floats expected = ValuesOf(Gradients({Sum(Exp(plain))}, {x})[0]);
  for (const int64_t segments : {1, 3, 4, 10}) {
    ManualSeed(4);
    const Tensor y = CheckpointSequential(layers, segments, x);
    EXPECT_EQ(ValuesOf(y), ValuesOf(plain));
    EXPECT_EQ(ValuesOf(Gradients({Sum(Exp(y))}, {x})[0]), expected) << segments;
  }
}

TEST(CheckpointSequentialTest, SegmentsAreBalancedAndTheLastIsCheckpointed) {
  std::vector<int> runs(5, 0);
  std::vector<std::function<Tensor(const Tensor&)>> functions;
  for (int i = 0; i < 5; ++i) {
    functions.push_back([&runs, i](const Tensor& x) {
      ++runs[i];
      return Exp(Mul(x, 0.1));
    });
  }
  const Tensor x = Leaf({2});
  const int64_t before = SavedBytes();
  const Tensor y = CheckpointSequential(functions, 2, x);
  EXPECT_EQ(SavedBytes() - before, x.bytes());  // the input of the second segment
  Backward(Sum(y));
  EXPECT_EQ(runs, (std::vector<int>{2, 2, 2, 2, 2}));
}

TEST(CheckpointTest, BadArguments) {
  const Tensor x = Leaf({2});
  EXPECT_EQ(ErrorOf([&] { Checkpoint(CheckpointFunction(), {x}); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf([&] { Checkpoint(std::function<Tensor(const Tensor&)>(), x); }),
              HasSubstr("empty function"));
  EXPECT_THAT(MessageOf([&] {
                Checkpoint([](const Tensor& in) { return in; }, x, {.generators = {nullptr}});
              }),
              HasSubstr("null generator"));
  nn::Sequential layers;
  layers.Emplace<nn::Tanh>();
  for (const int64_t segments : {-1, 0, 2}) {
    EXPECT_THAT(MessageOf([&] { CheckpointSequential(layers, segments, x); }),
                HasSubstr("of 1 functions; give 1 to 1"));
  }
  EXPECT_THAT(MessageOf([&] {
                CheckpointSequential(std::vector<std::shared_ptr<nn::UnaryModule>>{nullptr}, 1, x);
              }),
              HasSubstr("function 0 is empty"));
}

}  // namespace
}  // namespace lockstep::checkpoint
