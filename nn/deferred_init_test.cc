// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/deferred_init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/init.h"
#include "lockstep/nn/layer_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A module whose contents the constructor is given.
class Bag : public Module {
 public:
  using Fill = std::function<void(Bag&)>;
  explicit Bag(const Fill& fill) { fill(*this); }

  const Tensor& Parameter(const std::string& name, Tensor value, bool requires_grad = true) {
    RegisterParameter(name, NewSlot(), std::move(value), requires_grad);
    return *slots_.back();
  }
  const Tensor& Buffer(const std::string& name, Tensor value, bool persistent = true) {
    RegisterBuffer(name, NewSlot(), std::move(value), persistent);
    return *slots_.back();
  }
  template <typename T, typename... Args>
  std::shared_ptr<T> Child(const std::string& name, Args&&... args) {
    return RegisterModule(name, std::make_shared<T>(std::forward<Args>(args)...));
  }
  Tensor& slot(size_t i) { return *slots_[i]; }

 private:
  Tensor* NewSlot() {
    slots_.push_back(std::make_unique<Tensor>());
    return slots_.back().get();
  }
  std::vector<std::unique_ptr<Tensor>> slots_;
};

std::shared_ptr<Bag> Deferred(const Bag::Fill& fill) {
  DeferredInitScope scope;
  return std::make_shared<Bag>(fill);
}

NamedTensors Contents(const Module& module) {
  NamedTensors all = module.NamedParameters();
  for (const auto& [name, buffer] : module.NamedBuffers()) all.Insert(name, buffer);
  return all;
}

void ExpectSame(const Tensor& actual, const Tensor& expected, const std::string& name) {
  ASSERT_EQ(actual.DebugString(), expected.DebugString()) << name;
  EXPECT_EQ(actual.strides(), expected.strides()) << name;
  EXPECT_EQ(actual.storage()->category(), expected.storage()->category()) << name;
  EXPECT_EQ(actual.ToVector<double>(), expected.ToVector<double>()) << name;
}

// Builds `fill` in the ordinary way and deferred, and compares all tensors: one by one in reverse
// order, then in place.
void ExpectAsOrdinary(const Bag::Fill& fill) {
  ManualSeed(77);
  const Bag ordinary(fill);
  const RandomStreams after = ThreadGenerators();
  ManualSeed(77);
  const std::shared_ptr<Bag> deferred = Deferred(fill);
  EXPECT_EQ(ThreadGenerators().parameters.key, after.parameters.key);
  EXPECT_EQ(ThreadGenerators().data.key, after.data.key);
  EXPECT_EQ(ThreadGenerators().dropout.key, after.dropout.key);
  EXPECT_EQ(CurrentDevice(), Cpu());

  const NamedTensors expected = Contents(ordinary);
  const NamedTensors meta = Contents(*deferred);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : expected) names.push_back(name);
  ASSERT_EQ(meta.size(), expected.size());
  for (size_t i = names.size(); i-- > 0;) {
    const Tensor& tensor = meta.At(names[i]);
    if (tensor.device() != kMeta) continue;
    ExpectSame(MaterializeTensor(tensor, Cpu()), expected.At(names[i]), names[i]);
    EXPECT_EQ(tensor.device(), kMeta);
  }
  MaterializeModule(*deferred, Cpu());
  for (const std::string& name : names) {
    ExpectSame(meta.At(name), expected.At(name), name);
    EXPECT_EQ(autograd::RequiresGrad(meta.At(name)), autograd::RequiresGrad(expected.At(name)));
  }
  EXPECT_EQ(ThreadGenerators().parameters.key, after.parameters.key);
}

// ---- Values ----

TEST(DeferredInit, EveryInitialiser) {
  ExpectAsOrdinary([](Bag& bag) {
    CategoryScope category(MemoryCategory::kParameter);
    bag.Parameter("zeros", init::Zeros(Empty({5})));
    bag.Parameter("ones", init::Ones(Empty({3, 1})));
    bag.Parameter("constant", init::Constant(Empty({2, 3}), -1.5));
    bag.Parameter("normal", init::Normal(Empty({7, 3}), 1, 0.5));
    bag.Parameter("uniform", init::Uniform(Empty({11}), -2, 3), /*requires_grad=*/false);
    bag.Parameter("kaiming", init::KaimingUniform(Empty({3, 5}), {.a = 2, .fan_out = true}));
    bag.Parameter("xavier", init::XavierUniform(Empty({4, 3, 3}), 1.3));
    bag.Parameter("half", init::Normal(Empty({9}, {.dtype = DType::kBFloat16})));
    bag.Parameter("none", init::Normal(Empty({0, 3})));
    bag.Parameter("scalar", init::Normal(Empty({})));
    Generator own{{5, kDataStream, 12}};
    bag.Parameter("own", init::Normal(Empty({6}), 0, 1, &own));
  });
}

TEST(DeferredInit, NestedModulesAndTies) {
  const Bag::Fill fill = [](Bag& bag) {
    auto tokens = bag.Child<Embedding>("tokens", 13, 6);
    auto body = bag.Child<Sequential>("body");
    body->Emplace<Linear>(6, 10);
    body->Emplace<Sequential>()->Emplace<Linear>(10, 6, LinearOptions{.bias = false});
    body->Emplace<LayerNorm>(ShapeArg({6}));
    auto head = bag.Child<Linear>("head", 6, 13, LinearOptions{.bias = false});
    init::Normal(tokens->weight, 0, 0.02);
    head->weight = tokens->weight;
  };
  ExpectAsOrdinary(fill);
  const std::shared_ptr<Bag> deferred = Deferred(fill);
  MaterializeModule(*deferred, Cpu(1));
  const NamedTensors state = deferred->StateDict();
  EXPECT_EQ(state.At("head.weight").device(), Cpu(1));
  EXPECT_EQ(state.At("head.weight").storage(), state.At("tokens.weight").storage());
}

TEST(DeferredInit, Buffers) {
  ExpectAsOrdinary([](Bag& bag) {
    bag.Buffer("positions", FromVector<int64_t>({3, 1, 4, 1, 5, 9}, {2, 3}));
    bag.Buffer("flags", FromVector<bool>({true, false, true}, {3}), /*persistent=*/false);
    bag.Buffer("narrow", FromVector<double>({0.1, -2.5}, {2}, {.dtype = DType::kFloat16}));
    bag.Buffer("full", Full({2, 2}, 7.5));
    bag.Buffer("range", Arange(2, 11, 3));
    bag.Buffer("mask", Tril(Ones({4, 4})));
    bag.Buffer("empty", FromVector<float>({}, {0}));
    bag.Buffer("named", FromVector<float>({1, 2}, {2}, {.device = Cpu(2)}));
    bag.Buffer("moved", To(FromVector<float>({1, 2}, {2}, {.device = Cpu(2)}), CurrentDevice()));
    bag.Buffer("frequencies", Exp(Arange(0, 8, 2, {.dtype = DType::kFloat32}) * -0.7));
  });
}

TEST(DeferredInit, TensorsMadeOfOthersAndWrittenInPlace) {
  ExpectAsOrdinary([](Bag& bag) {
    autograd::NoGradScope no_grad;
    const Tensor w = bag.Parameter("w", RandomNormal({5, 3}) * 0.02);
    const Tensor before = bag.Buffer("before", Clone(w));
    MulInPlace(w, 3.0);
    bag.Buffer("after", w + before);
    AddInPlace(w, before, 0.5);
    init::Zeros(Select(w, 0, 2));  // a padding row
    bag.Buffer("rows", Sum(w, {1}));
    FillInPlace(before, 9);  // "after" had the value before this
    AddInPlace(w, MatMul(w, RandomUniform({3, 3})));
    bag.Parameter("cast", To(w, DType::kBFloat16));
    bag.Parameter("odd", Slice(w, 0, 1, 5, 2));  // a view that keeps all of w's storage
    bag.Parameter("turned", Transpose(Empty({2, 3}), 0, 1));
    for (const Tensor& part : Split(bag.slot(6), 1, 0)) init::Normal(part);
    // Written whole over what an op has made.
    bag.Buffer("over", init::Uniform(Zeros({4}), 1, 2));
    // A copy into itself reads what it writes.
    const Tensor self = bag.Buffer("self", RandomNormal({6}));
    CopyInto(Slice(self, 0, 1, 6), Slice(self, 0, 0, 5));
    CopyInto(self, self);
  });
}

TEST(DeferredInit, SharedStorageStaysShared) {
  const std::shared_ptr<Bag> bag = Deferred([](Bag& bag) {
    const Tensor& w = bag.Parameter("w", init::Normal(Empty({3, 4})));
    bag.Buffer("alias", Detach(w));
    bag.Buffer("row", Select(Detach(w), 0, 1));
  });
  const Tensor alone = MaterializeTensor(bag->slot(2), Cpu());
  MaterializeModule(*bag, Cpu());
  EXPECT_EQ(bag->slot(0).storage(), bag->slot(1).storage());
  EXPECT_EQ(bag->slot(0).storage(), bag->slot(2).storage());
  EXPECT_NE(bag->slot(0).storage(), alone.storage());
  EXPECT_EQ(alone.ToVector<float>(), bag->slot(2).ToVector<float>());
  {
    autograd::NoGradScope no_grad;
    FillInPlace(bag->slot(0), 4);
  }
  EXPECT_THAT(bag->slot(2).ToVector<float>(), ::testing::Each(4));
}

TEST(DeferredInit, DTypeAndSetDataWithinTheScope) {
  ExpectAsOrdinary([](Bag& bag) { bag.Child<Linear>("layer", 3, 5)->To(DType::kFloat64); });
}

TEST(DeferredInit, ScopesInsideAreOneRecordingAndThreadsTakeItOver) {
  std::shared_ptr<Linear> first;
  std::shared_ptr<Bag> second;
  ManualSeed(3);
  {
    DeferredInitScope scope;
    {
      DeferredInitScope inner;
      first = std::make_shared<Linear>(3, 2);
    }
    EXPECT_EQ(CurrentDevice(), kMeta);
    std::thread worker([&, state = CurrentThreadState()] {
      ScopedThreadState taken(state);
      second = std::make_shared<Bag>([&](Bag& bag) { bag.Buffer("twice", first->weight * 2.0); });
    });
    worker.join();
  }
  ManualSeed(3);
  const Linear ordinary(3, 2);
  EXPECT_EQ(MaterializeTensor(second->slot(0), Cpu()).ToVector<float>(),
            (ordinary.weight * 2.0).ToVector<float>());
}

TEST(DeferredInit, LayersOfTheMaterialisingThreadDoNotMatter) {
  const std::shared_ptr<Bag> bag =
      Deferred([](Bag& bag) { bag.Buffer("x", RandomNormal({5}) * 3.0); });
  const std::vector<float> expected = MaterializeTensor(bag->slot(0), Cpu()).ToVector<float>();
  std::vector<float> inside;
  {
    DeferredInitScope another;
    CategoryScope category(MemoryCategory::kData);
    const Tensor made = MaterializeTensor(bag->slot(0), Cpu());
    EXPECT_EQ(made.storage()->category(), MemoryCategory::kOther);
    inside = made.ToVector<float>();
  }
  EXPECT_EQ(inside, expected);
}

// ---- In place ----

TEST(DeferredInit, ForwardAndLoadingBeforeAndAfter) {
  ManualSeed(5);
  std::shared_ptr<Linear> layer;
  {
    DeferredInitScope scope;
    layer = std::make_shared<Linear>(3, 2);
  }
  const Tensor weight = layer->weight;
  const Tensor out = (*layer)(Empty({4, 3}, {.device = kMeta}));
  EXPECT_EQ(out.DebugString(), "float32[4, 2] on meta");
  const NamedTensors state = {{"weight", Ones({2, 3})}, {"bias", Ones({2})}};
  EXPECT_THAT(MessageOf([&] { layer->LoadStateDict(state); }), HasSubstr("on the meta device"));
  autograd::SetGrad(weight, Empty({2, 3}, {.device = kMeta}));
  MaterializeModule(*layer, Cpu());
  EXPECT_TRUE(layer->weight.IsSame(weight));
  EXPECT_FALSE(autograd::Grad(weight).defined());
  autograd::Backward(Sum((*layer)(Ones({4, 3}))));
  EXPECT_EQ(autograd::Grad(weight).ToVector<float>(), std::vector<float>(6, 4));
  layer->LoadStateDict(state);
  EXPECT_EQ(weight.ToVector<float>(), std::vector<float>(6, 1));
  MaterializeModule(*layer, Cpu(1));  // nothing is left on meta
  EXPECT_EQ(weight.device(), Cpu());
}

TEST(DeferredInit, PeakIsOneParameter) {
  const int64_t before_all = GetMemoryStats(Cpu(3)).current_bytes;
  std::shared_ptr<Bag> bag;
  ResetPeakBytes(Cpu());
  const int64_t before = GetMemoryStats(Cpu()).current_bytes;
  bag = Deferred([](Bag& bag) {
    bag.Child<Linear>("a", 300, 500);
    bag.Child<Linear>("b", 500, 300);
    bag.Buffer("scaled", RandomNormal({1000}) * 2.0);
  });
  EXPECT_EQ(GetMemoryStats(Cpu()).peak_bytes, before);  // nothing at all
  for (const auto& [name, parameter] : bag->NamedParameters()) {
    ResetPeakBytes(Cpu(3));
    const Tensor made = MaterializeTensor(parameter, Cpu(3));
    const MemoryStats stats = GetMemoryStats(Cpu(3));
    EXPECT_EQ(stats.peak_bytes - before_all, made.bytes()) << name;
    EXPECT_EQ(stats.current[MemoryCategory::kParameter], made.bytes()) << name;
  }
  ResetPeakBytes(Cpu(3));
  const Tensor scaled = MaterializeTensor(bag->slot(0), Cpu(3));
  EXPECT_EQ(GetMemoryStats(Cpu(3)).peak_bytes - before_all, 2 * scaled.bytes());
}

TEST(DeferredInit, MemoryThatDoesNotSufficeLeavesTheModule) {
  std::shared_ptr<Linear> layer;
  {
    DeferredInitScope scope;
    layer = std::make_shared<Linear>(100, 10);
  }
  SetCapacityLimit(Cpu(4), 4010);
  EXPECT_EQ(ErrorOf([&] { MaterializeModule(*layer, Cpu(4)); }).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(layer->weight.device(), kMeta);
  EXPECT_EQ(layer->bias.device(), kMeta);
  SetCapacityLimit(Cpu(4), std::nullopt);
  MaterializeModule(*layer, Cpu(4));
  EXPECT_EQ(layer->bias.device(), Cpu(4));
}

// ---- Refused ----

TEST(DeferredInit, ReadingValuesIsRefusedWhereItHappens) {
  const Error error = ErrorOf([] {
    Deferred([](Bag& bag) {
      const Tensor w = bag.Parameter("w", RandomNormal({3}));
      if (Max(w).Item<float>() > 1) MulInPlace(w, 0.5);
    });
  });
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("Item: float32[] on meta has no bytes"));
  EXPECT_THAT(error.message(), HasSubstr("{.device = Cpu()}"));
  EXPECT_EQ(CurrentDevice(), Cpu());
  EXPECT_EQ(CurrentThreadState().meta_recorder, nullptr);
}

TEST(DeferredInit, ListsWhatCannotBeMadeAndChangesNothing) {
  const Tensor outside = Ones({3}, {.device = kMeta});
  Tensor real = Ones({2});
  const std::shared_ptr<Bag> bag = Deferred([&](Bag& bag) {
    bag.Parameter("good", init::Ones(Empty({2})));
    bag.Parameter("unwritten", Empty({2, 5}));
    bag.Parameter("of_unwritten", Empty({3}) * 2.0);
    bag.Buffer("outside", outside);
    bag.Buffer("of_outside", outside + 1.0);
    bag.Buffer("late", Zeros({4}));
    bag.Buffer("late_view", Zeros({4}));
    bag.Buffer("changed", To(real, kMeta));
  });
  init::Ones(bag->slot(5));
  init::Ones(Slice(bag->slot(6), 0, 1, 2));
  FillInPlace(real, 3);
  const Error error = ErrorOf([&] { MaterializeModule(*bag, Cpu()); });
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("7 of 8 parameters and buffers on meta cannot be made"),
                    HasSubstr("\n  unwritten (float32[2, 5] on meta): its values"),
                    HasSubstr("\n  of_unwritten (float32[3] on meta): its values"),
                    HasSubstr("\n  outside (float32[3] on meta): it was made on meta outside"),
                    HasSubstr("\n  of_outside (float32[3] on meta): AddScalar took float32[3] on "
                              "meta, which was made outside"),
                    HasSubstr("\n  late (float32[4] on meta): it was written after"),
                    HasSubstr("\n  late_view (float32[4] on meta): it was written after"),
                    HasSubstr("\n  changed (float32[2] on meta): CopyToDevice took float32[2] on "
                              "cpu:0, which has been changed since")));
  EXPECT_THAT(error.message(), Not(HasSubstr("good")));
  for (const auto& [name, tensor] : Contents(*bag)) EXPECT_EQ(tensor.device(), kMeta) << name;
  EXPECT_THAT(WhyNotMaterializable(bag->slot(0)), IsEmpty());
  EXPECT_THAT(MessageOf([&] { MaterializeTensor(bag->slot(1), Cpu()); }),
              HasSubstr("MaterializeTensor: float32[2, 5] on meta: its values"));
}

TEST(DeferredInit, AnotherScopeIsOutside) {
  const std::shared_ptr<Bag> first = Deferred([](Bag& bag) {
    bag.Buffer("read", Ones({2}));
    bag.Buffer("written", Ones({2}));
  });
  const std::shared_ptr<Bag> second = Deferred([&](Bag& bag) {
    bag.Buffer("copy", Clone(first->slot(0)));
    init::Zeros(first->slot(1));
  });
  EXPECT_THAT(WhyNotMaterializable(first->slot(0)), IsEmpty());
  EXPECT_THAT(WhyNotMaterializable(first->slot(1)), HasSubstr("or in another one"));
  EXPECT_THAT(WhyNotMaterializable(second->slot(0)), HasSubstr("Clone took float32[2] on meta"));
}

TEST(DeferredInit, BadArguments) {
  const std::shared_ptr<Bag> bag = Deferred([](Bag& bag) { bag.Buffer("x", Ones({2})); });
  EXPECT_THAT(MessageOf([&] { MaterializeTensor(bag->slot(0), kMeta); }),
              HasSubstr("name a device that has"));
  EXPECT_THAT(MessageOf([&] { MaterializeModule(*bag, kMeta); }),
              HasSubstr("MaterializeModule: tensors on meta have no bytes"));
  EXPECT_THAT(MessageOf([] { MaterializeTensor({}, Cpu()); }), HasSubstr("undefined"));
  const Error error = ErrorOf([] { MaterializeTensor(Ones({2}), Cpu()); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("it has bytes"));
}

struct PlaceAttributes : AttributesOf<PlaceAttributes> {
  Device place;
  template <typename V>
  void VisitFields(V&& v) {
    v("place", place);
  }
};

TEST(DeferredInit, OpsOfOthersWithADeviceOfTheirOwnAreNamed) {
  OpInfo info;
  info.name = "MakeThere";
  info.outputs = {"y"};
  info.kind = OpKind::kCreation;
  info.doc = "three numbers";
  info.shape_rule = [](const OpCall& call, SpecList& outputs) {
    TensorSpec& made = outputs.emplace_back();
    made.shape = {3};
    made.device = call.attributes.As<PlaceAttributes>().place;
  };
  const OpId op = RegisterOp(info);
  const std::shared_ptr<Bag> bag = Deferred([&](Bag& bag) {
    PlaceAttributes there;
    there.place = CurrentDevice();
    bag.Buffer("x", Dispatch1(op, {}, {}, there));
  });
  const Error error = ErrorOf([&] { MaterializeModule(*bag, Cpu()); });
  EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(error.message(), HasSubstr("the op MakeThere gave float32[3] on meta"));
}

}  // namespace
}  // namespace lockstep::nn
