// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions that DataParallel is made of, each alone.

#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/data_parallel/gather.h"
#include "lockstep/strategies/data_parallel/parallel_apply.h"
#include "lockstep/strategies/data_parallel/replicate.h"
#include "lockstep/strategies/data_parallel/scatter.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_tree.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

using autograd::Backward;
using autograd::Grad;
using autograd::SetRequiresGrad;
using Sizes = std::vector<int64_t>;
using Values = std::vector<double>;

Tensor Numbers(std::initializer_list<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return Reshape(Arange(static_cast<double>(count)), Shape(shape));
}

TEST(DeviceListTest, NamesWhatIsWrong) {
  EXPECT_EQ(CpuDevices(3), (std::vector<Device>{Cpu(0), Cpu(1), Cpu(2)}));
  EXPECT_EQ(MessageOf([] { CpuDevices(0); }),
            "CpuDevices: 0 devices; give 1 to 8, for cpu:0 to cpu:7");
  EXPECT_EQ(MessageOf([] { CpuDevices(9); }),
            "CpuDevices: 9 devices; give 1 to 8, for cpu:0 to cpu:7");
  EXPECT_EQ(MessageOf([] { CheckDevices({}, "F"); }),
            "F: no devices; give them, for example CpuDevices(2)");
  const std::vector<Device> twice = {Cpu(1), Cpu(0), Cpu(1)};
  EXPECT_EQ(MessageOf([&] { CheckDevices(twice, "F"); }),
            "F: device cpu:1 is given twice, as 0 and as 2; give each device once");
  const std::vector<Device> meta = {Cpu(1), kMeta};
  EXPECT_EQ(MessageOf([&] { CheckDevices(meta, "F"); }),
            "F: nothing is computed on meta; give cpu:0 to cpu:7");
}

TEST(ScatterTest, SizesAreAsEqualAsCanBe) {
  EXPECT_EQ(ScatterSizes(7, 3), (Sizes{3, 2, 2}));
  EXPECT_EQ(ScatterSizes(6, 3), (Sizes{2, 2, 2}));
  EXPECT_EQ(ScatterSizes(5, 4), (Sizes{2, 1, 1, 1}));
  EXPECT_EQ(ScatterSizes(2, 3), (Sizes{1, 1}));
  EXPECT_EQ(ScatterSizes(1, 3), (Sizes{1}));
  EXPECT_EQ(ScatterSizes(0, 3), (Sizes{0}));
  EXPECT_EQ(ScatterSizes(4, 1), (Sizes{4}));
  EXPECT_EQ(ErrorOf([] { ScatterSizes(-1, 1); }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MessageOf([] { ScatterSizes(2, 0); }),
            "ScatterSizes: 2 rows over 0 devices; give at least 0 rows and 1 device");
}

TEST(ScatterTest, DividesRowsAndReturnsGradients) {
  const Tensor x = SetRequiresGrad(Numbers({5, 2}), true);
  const std::vector<Tensor> pieces = Scatter(x, CpuDevices(3));
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].ToVector<double>(), (Values{0, 1, 2, 3}));
  EXPECT_EQ(pieces[1].ToVector<double>(), (Values{4, 5, 6, 7}));
  EXPECT_EQ(pieces[2].ToVector<double>(), (Values{8, 9}));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pieces[static_cast<size_t>(i)].device(), Cpu(i));
  EXPECT_EQ(pieces[0].storage(), x.storage());
  Tensor loss = Sum(pieces[0] * 2.0);
  loss = loss + To(Sum(pieces[1] * 3.0), Cpu(0)) + To(Sum(pieces[2] * pieces[2]), Cpu(0));
  Backward(loss);
  EXPECT_EQ(Grad(x).ToVector<double>(), (Values{2, 2, 2, 2, 3, 3, 3, 3, 16, 18}));
}

TEST(ScatterTest, AnyDimensionOfTensorsOfATree) {
  const Tensor a = Numbers({2, 3}), b = Numbers({3});
  const std::vector<TensorTree> pieces =
      Scatter({a, TensorTree::Dict{{"b", b}, {"k", 4}}}, CpuDevices(2), -1);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0][0].tensor().ToVector<double>(), (Values{0, 1, 3, 4}));
  EXPECT_EQ(pieces[1][0].tensor().ToVector<double>(), (Values{2, 5}));
  EXPECT_EQ(pieces[1][1].At("b").tensor().ToVector<double>(), (Values{2}));
  EXPECT_EQ(pieces[0][1].At("k").integer(), 4);
  EXPECT_EQ(pieces[1][1].At("k").integer(), 4);
}

TEST(ScatterTest, FewerRowsThanDevicesAndNone) {
  EXPECT_EQ(Scatter(Numbers({2, 2}), CpuDevices(3)).size(), 2u);
  const std::vector<Tensor> one = Scatter(Numbers({1, 2}), CpuDevices(3));
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].ToVector<double>(), (Values{0, 1}));
  const std::vector<Tensor> none = Scatter(Empty({0, 2}), CpuDevices(3));
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0].shape(), (Shape{0, 2}));
}

TEST(ScatterTest, NamesWhatIsWrong) {
  const std::vector<Device> devices = CpuDevices(2);
  EXPECT_EQ(
      MessageOf([&] {
        Scatter({Numbers({4, 2}), Numbers({3})}, devices);
      }),
      "Scatter: input [0] (float32[4, 2] on cpu:0) and input [1] (float32[3] on cpu:0) have 4 "
      "and 3 rows along dimension 0; inputs are divided together");
  EXPECT_EQ(MessageOf([&] {
              Scatter(TensorTree::List{3, "a"}, devices);
            }),
            "Scatter: no tensor to divide in [3, \"a\"]; give at least one");
  EXPECT_TRUE(
      absl::StrContains(MessageOf([&] { Scatter(TensorTree::List{Full({}, 1.0)}, devices); }),
                        "input [0] (float32[] on cpu:0) has no dimension to divide"));
  const Error range = ErrorOf([&] { Scatter(Numbers({4, 2}), devices, 2); });
  EXPECT_EQ(range.code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(absl::StrContains(range.message(), "Scatter: input (float32[4, 2] on cpu:0)"))
      << range.message();
  EXPECT_TRUE(absl::StrContains(MessageOf([&] { Scatter(Tensor(), devices); }), "no tensor"));
  const std::vector<Device> twice = {Cpu(0), Cpu(0)};
  EXPECT_TRUE(absl::StrContains(MessageOf([&] { Scatter(Numbers({4, 2}), twice); }), "twice"));
}

TEST(GatherTest, JoinsRowsAndDividesGradients) {
  const Tensor a = SetRequiresGrad(To(Numbers({2, 2}), Cpu(1)), true);
  const Tensor b = SetRequiresGrad(To(Numbers({1, 2}) + 10.0, Cpu(2)), true);
  const Tensor pieces[] = {a, b};
  const Tensor joined = Gather(pieces, Cpu(0));
  EXPECT_EQ(joined.device(), Cpu(0));
  EXPECT_EQ(joined.ToVector<double>(), (Values{0, 1, 2, 3, 10, 11}));
  Backward(Sum(joined * Numbers({3, 2})));
  EXPECT_EQ(Grad(a).ToVector<double>(), (Values{0, 1, 2, 3}));
  EXPECT_EQ(Grad(a).device(), Cpu(1));
  EXPECT_EQ(Grad(b).ToVector<double>(), (Values{4, 5}));
}

TEST(GatherTest, LossesBecomeAVector) {
  const Tensor a = SetRequiresGrad(Full({}, 2.0), true);
  const Tensor b = SetRequiresGrad(Full({}, 3.0, {.device = Cpu(1)}), true);
  const Tensor both[] = {a, b};
  const Tensor losses = Gather(both, Cpu(1));
  EXPECT_EQ(losses.device(), Cpu(1));
  EXPECT_EQ(losses.ToVector<double>(), (Values{2, 3}));
  Backward(Sum(losses * To(FromVector<float>({5, 7}, {2}), Cpu(1))));
  EXPECT_EQ(Grad(a).Item<double>(), 5);
  EXPECT_EQ(Grad(b).Item<double>(), 7);
  const Tensor one[] = {a};
  EXPECT_EQ(Gather(one, Cpu(0)).shape(), (Shape{1}));
}

TEST(GatherTest, TreesOfOneStructure) {
  const auto output = [](int k) {
    return TensorTree{To(Numbers({2, 1 + k}), Cpu(k)),
                      TensorTree::Dict{{"name", "x"}, {"n", Tensor()}, {"s", Full({}, 1.0 * k)}}};
  };
  const std::vector<TensorTree> outputs = {output(0), output(1)};
  const TensorTree joined = Gather(absl::MakeConstSpan(outputs), Cpu(0), 1);
  EXPECT_EQ(joined[0].tensor().ToVector<double>(), (Values{0, 0, 1, 1, 2, 3}));
  EXPECT_EQ(joined[1].At("name").text(), "x");
  EXPECT_TRUE(joined[1].At("n").is_nothing());
  EXPECT_EQ(joined[1].At("s").tensor().ToVector<double>(), (Values{0, 1}));
}

TEST(GatherTest, NamesWhatDiffers) {
  const auto message = [](const TensorTree& a, const TensorTree& b, int64_t dim = 0) {
    const std::vector<TensorTree> outputs = {a, b};
    return MessageOf([&] { Gather(absl::MakeConstSpan(outputs), Cpu(0), dim); });
  };
  const Tensor x = Numbers({2, 2});
  EXPECT_EQ(message({x, x}, TensorTree{x}),
            "Gather: outputs of replicas 0 and 1 differ in structure: a list of 2 and a list of 1; "
            "return the same structure on each");
  EXPECT_EQ(message(TensorTree{TensorTree::Dict{{"a", x}}}, TensorTree{TensorTree::Dict{{"b", x}}}),
            "Gather: outputs at [0] of replicas 0 and 1 differ in structure: a dictionary of a and "
            "a dictionary of b; return the same structure on each");
  EXPECT_EQ(message(TensorTree{x, x}, TensorTree{x, Tensor()}),
            "Gather: outputs at [1] of replicas 0 and 1 differ in structure: a tensor and nothing; "
            "return the same structure on each");
  EXPECT_EQ(message(TensorTree::Dict{{"k", 3}}, TensorTree::Dict{{"k", 4}}),
            "Gather: outputs at k of replicas 0 and 1 differ: 3 and 4; return what differs as a "
            "tensor");
  EXPECT_EQ(message(x, Numbers({2, 3})),
            "Gather: outputs of replicas 0 and 1 differ: float32[2, 2] on cpu:0 and float32[2, 3] "
            "on cpu:0; only sizes along dimension 0 may");
  EXPECT_TRUE(absl::StrContains(message(x, To(x, DType::kFloat64)), "float64[2, 2]"));
  EXPECT_TRUE(absl::StrContains(message(x, Full({}, 1.0)), "float32[]"));
  EXPECT_TRUE(absl::StrContains(message(x, x, 2), "Gather: output (float32[2, 2] on cpu:0)"));
  EXPECT_EQ(MessageOf([] { Gather(absl::Span<const Tensor>(), Cpu(0)); }),
            "Gather: no pieces; give at least one");
  const Tensor undefined[] = {x, Tensor()};
  EXPECT_EQ(MessageOf([&] { Gather(undefined, Cpu(0)); }), "Gather: piece 1 is undefined");
}

TEST(ReplicateTest, CopiesAndAddsGradients) {
  const Tensor w = SetRequiresGrad(FromVector<float>({1, 2}, {2}), true);
  const Tensor frozen = FromVector<float>({5}, {1});
  const std::vector<Tensor> tensors = {w, frozen};
  const auto copies = Replicate(tensors, CpuDevices(3));
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_TRUE(copies[0][0].IsSame(w));
  EXPECT_EQ(copies[2][0].ToVector<double>(), (Values{1, 2}));
  EXPECT_EQ(copies[2][1].device(), Cpu(2));
  EXPECT_FALSE(autograd::RequiresGrad(copies[1][1]));
  Tensor loss = Sum(copies[0][0] * 1.0);
  loss = loss + To(Sum(copies[1][0] * copies[1][0] * 10.0), Cpu(0));
  loss = loss + To(Sum(copies[2][0] * 100.0), Cpu(0));
  Backward(loss);
  EXPECT_EQ(Grad(w).ToVector<double>(), (Values{121, 141}));
  EXPECT_EQ(Grad(w).device(), Cpu(0));
}

TEST(ReplicateTest, OnlyWhatChangedIsCopied) {
  const Tensor w = SetRequiresGrad(FromVector<float>({1, 2}, {2}), true);
  const Tensor buffer = FromVector<float>({5}, {1});
  const std::vector<Tensor> tensors = {w, buffer};
  Replicas replicas(CpuDevices(3));
  auto copies = replicas.Update(tensors);
  EXPECT_EQ(replicas.statistics().copied_tensors, 4);
  EXPECT_EQ(replicas.statistics().copied_bytes, 2 * (8 + 4));
  EXPECT_EQ(replicas.statistics().made_tensors, 4);
  copies = replicas.Update(tensors);
  EXPECT_EQ(replicas.statistics().copied_tensors, 0);
  {
    autograd::NoGradScope no_grad;
    AddInPlace(w, 1.0);
    AddInPlace(copies[2][1], 7.0);  // as a forward pass writes to a buffer of its replica
  }
  EXPECT_EQ(copies[2][1].Item<double>({0}), 12);
  copies = replicas.Update(tensors);
  EXPECT_EQ(replicas.statistics().copied_tensors, 3);
  EXPECT_EQ(replicas.statistics().copied_bytes, 8 + 8 + 4);
  EXPECT_EQ(copies[1][0].ToVector<double>(), (Values{2, 3}));
  EXPECT_EQ(copies[2][1].Item<double>({0}), 5);
  EXPECT_EQ(replicas.statistics().made_tensors, 4);

  // Other memory under the same tensor, as Module::To() makes it.
  w.SetData(To(FromVector<float>({8, 9, 10}, {3}), DType::kFloat64));
  copies = replicas.Update(tensors);
  EXPECT_EQ(replicas.statistics().copied_tensors, 2);
  EXPECT_EQ(copies[1][0].ToVector<double>(), (Values{8, 9, 10}));
}

TEST(ReplicateTest, KeepsTheCategoryAndDropsWhatIsGone) {
  const int64_t before = GetMemoryStats(Cpu(2)).current[MemoryCategory::kParameter];
  Tensor w;
  {
    CategoryScope category(MemoryCategory::kParameter);
    w = Full({1000}, 1.0);
  }
  const Tensor other = Full({10}, 1.0);
  Replicas replicas(CpuDevices(3));
  const std::vector<Tensor> both = {w, other}, one = {other};
  replicas.Update(both);
  EXPECT_EQ(GetMemoryStats(Cpu(2)).current[MemoryCategory::kParameter] - before, 4000);
  replicas.Update(one);
  EXPECT_EQ(GetMemoryStats(Cpu(2)).current[MemoryCategory::kParameter], before);
}

TEST(ReplicateTest, AnUpdateAfterTheForwardIsNoticed) {
  const Tensor w = SetRequiresGrad(FromVector<float>({1, 2}, {2}), true);
  const std::vector<Tensor> tensors = {w};
  Replicas replicas(CpuDevices(2));
  const Tensor copy = replicas.Update(tensors)[1][0];
  const Tensor loss = Sum(copy * copy);
  {
    autograd::NoGradScope no_grad;
    AddInPlace(w, 1.0);
  }
  replicas.Update(tensors);
  const Error error = ErrorOf([&] { Backward(loss); });
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(error.message(), "in place")) << error.message();
}

TEST(ReplicateTest, WithoutGradientsTheKeptCopiesAreReturned) {
  const Tensor w = SetRequiresGrad(FromVector<float>({1, 2}, {2}), true);
  const std::vector<Tensor> tensors = {w};
  Replicas replicas(CpuDevices(2));
  {
    autograd::InferenceScope inference;
    EXPECT_FALSE(autograd::RequiresGrad(replicas.Update(tensors)[1][0]));
  }
  // What an inference scope made can be used in training.
  const Tensor copy = replicas.Update(tensors)[1][0];
  EXPECT_EQ(replicas.statistics().copied_tensors, 0);
  Backward(Sum(copy * copy));
  EXPECT_EQ(Grad(w).ToVector<double>(), (Values{2, 4}));
}

TEST(ReplicateTest, NamesWhatIsWrong) {
  Replicas replicas(CpuDevices(2));
  const std::vector<Tensor> elsewhere = {Full({2}, 1.0), Full({2}, 1.0, {.device = Cpu(1)})};
  EXPECT_EQ(MessageOf([&] { replicas.Update(elsewhere); }),
            "Replicate: tensor 1 is float32[2] on cpu:1; move it to cpu:0, the first device");
  const std::vector<Tensor> undefined = {Tensor()};
  EXPECT_EQ(MessageOf([&] { replicas.Update(undefined); }),
            "Replicate: tensor 0 is undefined; move it to cpu:0, the first device");
  EXPECT_EQ(MessageOf([&] { replicas.Update({}, 3); }),
            "Replicate: 3 replicas on 2 devices; give 1 to 2");
  EXPECT_EQ(ErrorOf([] { Replicas none({}); }).code(), absl::StatusCode::kInvalidArgument);
}

std::vector<TensorTree> ApplyToAll(const ReplicaFunction& fn, const std::vector<TensorTree>& inputs,
                                   const ParallelApplyOptions& options = {}) {
  const std::vector<ReplicaFunction> functions(inputs.size(), fn);
  return ParallelApply(functions, inputs, CpuDevices(static_cast<int>(inputs.size())), options);
}

TEST(ParallelApplyTest, EachOnItsDeviceWithTheCallersState) {
  std::atomic<int> threads{0};
  const auto fn = [&](const TensorTree& input) {
    threads += IntraOpThreads();
    EXPECT_FALSE(autograd::GradEnabled());
    return TensorTree{Full({1}, input.number()), static_cast<int64_t>(CurrentDevice().index)};
  };
  const int before = CurrentThreadState().intra_op_threads;
  SetIntraOpThreads(7);
  const autograd::NoGradScope no_grad;
  const std::vector<TensorTree> outputs = ApplyToAll(fn, {4.0, 5.0, 6.0});
  ASSERT_EQ(outputs.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(outputs[i][0].tensor().device(), Cpu(static_cast<int>(i)));
    EXPECT_EQ(outputs[i][0].tensor().Item<double>({0}), 4.0 + static_cast<double>(i));
    EXPECT_EQ(outputs[i][1].integer(), static_cast<int64_t>(i));
  }
  EXPECT_EQ(threads, 3 * 2);
  threads = 0;
  ApplyToAll(fn, {4.0, 5.0, 6.0}, {.threads_per_device = 3});
  EXPECT_EQ(threads, 3 * 3);
  threads = 0;
  ApplyToAll(fn, {4.0});
  EXPECT_EQ(threads, 7);
  EXPECT_EQ(CurrentDevice(), Cpu(0));
  SetIntraOpThreads(before);
}

// What three calls in a row draw.
std::vector<Values> Draws(size_t count, int64_t rank) {
  ManualSeed(11, rank);
  std::vector<Values> all;
  for (int call = 0; call < 3; ++call) {
    const std::vector<TensorTree> inputs(count, TensorTree(0));
    const auto outputs = ApplyToAll(
        [](const TensorTree&) {
          const Tensor mask = Dropout(Full({8}, 1.0), 0.5);
          return TensorTree{mask, RandomUniform({3})};
        },
        inputs);
    for (const TensorTree& output : outputs) {
      Values values = output[0].tensor().ToVector<double>();
      for (const double value : output[1].tensor().ToVector<double>()) values.push_back(value);
      all.push_back(values);
    }
  }
  return all;
}

TEST(ParallelApplyTest, RandomStreamsDifferAndRepeat) {
  const std::vector<Values> draws = Draws(3, 0);
  ASSERT_EQ(draws.size(), 9u);
  for (size_t i = 0; i < draws.size(); ++i) {
    for (size_t k = 0; k < i; ++k) EXPECT_NE(draws[i], draws[k]) << i << " and " << k;
  }
  EXPECT_EQ(Draws(3, 0), draws);
  EXPECT_NE(Draws(3, 1), draws);
  // Alone it draws what the caller would.
  const std::vector<Values> alone = Draws(1, 0);
  ManualSeed(11);
  for (const Values& values : alone) {
    Values expected = Dropout(Full({8}, 1.0), 0.5).ToVector<double>();
    for (const double value : RandomUniform({3}).ToVector<double>()) expected.push_back(value);
    EXPECT_EQ(values, expected);
  }
}

TEST(ParallelApplyTest, DropoutIsThatOfARankOfTheSameNumber) {
  const std::vector<Values> draws = Draws(3, 0);
  for (size_t rank = 0; rank < 3; ++rank) {
    ManualSeed(11, static_cast<int64_t>(rank));
    for (size_t call = 0; call < 3; ++call) {
      const Values values = draws[3 * call + rank];
      EXPECT_EQ(Values(values.begin(), values.begin() + 8),
                Dropout(Full({8}, 1.0), 0.5).ToVector<double>());
    }
  }
}

TEST(ParallelApplyTest, GeneratorsGoOnFromTheFurthest) {
  ManualSeed(1);
  ApplyToAll(
      [](const TensorTree& input) {
        Dropout(Full({input.integer()}, 1.0), 0.5);
        return TensorTree();
      },
      {8, 20, 4});
  EXPECT_EQ(ThreadGenerators().dropout.key.offset, 20u);
  EXPECT_EQ(ThreadGenerators().dropout.key.stream, kDropoutStreamBase);
  EXPECT_EQ(ThreadGenerators().data.key.offset, 0u);
}

TEST(ParallelApplyTest, TheFirstExceptionComesWithItsDevice) {
  std::atomic<int> finished{0};
  const auto fn = [&](const TensorTree& input) {
    if (input.integer() == 1) throw OutOfRangeError("too far");
    if (input.integer() == 2) throw std::runtime_error("other");
    ++finished;
    return TensorTree();
  };
  const Error error = ErrorOf([&] { ApplyToAll(fn, {0, 1, 2}); });
  EXPECT_EQ(error.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(error.message(), "replica 1 of 3 on cpu:1: too far");
  EXPECT_EQ(finished, 1);
  // Also from the calling thread, and of other kinds.
  EXPECT_EQ(MessageOf([&] { ApplyToAll(fn, {1, 0}); }), "replica 0 of 2 on cpu:0: too far");
  try {
    ApplyToAll(fn, {0, 2});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& wrapped) {
    EXPECT_EQ(wrapped.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(wrapped.message(), "replica 1 of 2 on cpu:1: other");
    EXPECT_THROW(std::rethrow_if_nested(wrapped), std::runtime_error);
  }
  EXPECT_EQ(CurrentDevice(), Cpu(0));
  EXPECT_EQ(ApplyToAll(fn, {0, 0, 0}).size(), 3u);
}

TEST(ParallelApplyTest, NamesWhatIsWrong) {
  const ReplicaFunction fn = [](const TensorTree& input) { return input; };
  const std::vector<TensorTree> inputs = {1, 2};
  EXPECT_EQ(MessageOf([&] { ParallelApply({fn}, inputs, CpuDevices(2)); }),
            "ParallelApply: 1 functions, 2 inputs and 2 devices; give one function and input a "
            "device");
  EXPECT_EQ(MessageOf([&] {
              ParallelApply({fn, nullptr}, inputs, CpuDevices(2));
            }),
            "ParallelApply: function 1 is empty");
  EXPECT_EQ(
      MessageOf([&] {
        ParallelApply({fn, fn}, inputs, CpuDevices(2), {.threads_per_device = -1});
      }),
      "ParallelApply: threads_per_device is -1; give at least 1, or 0 to divide the caller's");
}

}  // namespace
}  // namespace lockstep::strategies
