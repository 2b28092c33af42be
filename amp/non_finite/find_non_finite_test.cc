// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/amp/non_finite/find_non_finite.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/non_finite/first_non_finite.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::amp {
namespace {

using Source = NonFiniteReport::Source;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// log(x), with a parameter that it does not use and a buffer.
class LogLayer : public nn::UnaryModule {
 public:
  LogLayer() {
    RegisterParameter("unused", &unused, Ones({2, 3}));
    RegisterBuffer("table", &table, Ones({4}));
  }
  Tensor Forward(const Tensor& x) override { return Log(x); }
  Tensor unused, table;
};

struct Model {
  // "0": doubles; "1": "0" relu, "1" log; "2": doubles.
  Model() {
    const auto scale = [] {
      auto linear = std::make_shared<nn::Linear>(3, 3);
      CopyInto(Detach(linear->weight), FromVector<float>({2, 0, 0, 0, 2, 0, 0, 0, 2}, {3, 3}));
      ZeroInPlace(Detach(linear->bias));
      return linear;
    };
    first = scale();
    log = std::make_shared<LogLayer>();
    auto inner = std::make_shared<nn::Sequential>();
    inner->Append(scale());
    inner->Append(log);
    model = std::make_shared<nn::Sequential>();
    model->Append(first);
    model->Append(inner);
    model->Append(scale());
  }
  Tensor operator()(const std::vector<float>& x) {
    return (*model)(FromVector<float>(x, {static_cast<int64_t>(x.size()) / 3, 3}));
  }
  std::shared_ptr<nn::Linear> first;
  std::shared_ptr<LogLayer> log;
  std::shared_ptr<nn::Sequential> model;
};

TEST(FindNonFiniteTest, NamesTheFirstOpAndItsModule) {
  Model model;
  const auto found = FindNonFinite([&] { model({1, 2, 3, 4, 0, 6}); }, model.model.get());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->source, Source::kOpOutput);
  EXPECT_EQ(found->name, "Log");
  EXPECT_EQ(found->position, 0);
  EXPECT_EQ(found->operand, "y");
  EXPECT_EQ(found->module, "1.1");
  EXPECT_EQ(found->element.index, (Shape{1, 1}));
  EXPECT_EQ(found->element.value, -kInf);
  EXPECT_EQ(found->inputs, Finiteness::kFinite);
  EXPECT_EQ(found->ToString(),
            "op Log, output 0 (y) in module \"1.1\": float32[2, 3] on cpu:0 has -inf at [1, 1]; "
            "its inputs were finite");
  EXPECT_FALSE(FindNonFinite([&] { model({1, 2, 3}); }, model.model.get()).has_value());
}

// As the second run of a checkpointed region does, which ends by an exception.
TEST(FindNonFiniteTest, AModuleThatAnExceptionLeftIsLeft) {
  Model model;
  const auto found = FindNonFinite(
      [&] {
        EXPECT_THROW((*model.model)(Ones({2, 7})), Error);
        Log(Zeros({2}));
      },
      model.model.get());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "Log");
  EXPECT_EQ(found->module, "");
}

TEST(FindNonFiniteTest, ParametersComeFirst) {
  Model model;
  model.log->unused = FromVector<float>({1, 2, 3, 4, static_cast<float>(kInf), 6}, {2, 3});
  bool ran = false;
  const auto found = FindNonFinite([&] { ran = true; }, model.model.get());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->source, Source::kParameter);
  EXPECT_EQ(found->ToString(),
            "parameter \"1.1.unused\": float32[2, 3] on cpu:0 has inf at [1, 1]");
  EXPECT_FALSE(ran);
}

TEST(FindNonFiniteTest, BuffersMayHoldInfinities) {
  Model model;
  model.log->table = FromVector<double>({0, kInf, kNan, kNan}, {4});
  const auto found = FindNonFinite([] {}, model.model.get());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->source, Source::kBuffer);
  EXPECT_EQ(found->ToString(), "buffer \"1.1.table\": float64[4] on cpu:0 has nan at [2]");
  model.log->table = FromVector<double>({0, kInf}, {2});
  EXPECT_FALSE(FindNonFinite([] {}, model.model.get()).has_value());
}

TEST(FindNonFiniteTest, ANanFromOutsideIsNamedWhereItEnters) {
  Model model;
  const auto found = FindNonFinite(
      [&] {
        model({1, 2, 3});
        model({1, static_cast<float>(kNan), 3});
      },
      model.model.get());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->source, Source::kOpInput);
  EXPECT_EQ(found->module, "0");
  EXPECT_EQ(found->ops_before, 4);
  EXPECT_EQ(found->ToString(),
            "input 0 (x) of op Linear in module \"0\": float32[1, 3] on cpu:0 has nan at [0, 1]; "
            "no op before made it");
}

TEST(FindNonFiniteTest, InfinitiesOnPurposeAreNoFinding) {
  const Tensor scores = FromVector<float>({1, 2, 3, 4}, {2, 2});
  const auto masked = [&](const std::vector<float>& mask) {
    return FindNonFinite([&] {
      const Tensor keep = FromVector<float>(mask, {2, 2});
      Softmax(Where(Equal(keep, 1.0), scores, -kInf), 1);
    });
  };
  EXPECT_FALSE(masked({1, 0, 1, 1}).has_value());
  const auto found = masked({1, 1, 0, 0});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ToString(),
            "op Softmax, output 0 (y): float32[2, 2] on cpu:0 has nan at [1, 0]; its inputs had "
            "infinities, but no nan");
  // A row of queries that may look at nothing.
  const Tensor q = Ones({1, 1, 2, 4});
  const Tensor mask = To(FromVector<float>({1, 1, 0, 0}, {1, 1, 2, 2}), DType::kBool);
  EXPECT_FALSE(
      FindNonFinite([&] { ScaledDotProductAttention(q, q, q, {.mask = mask}); }).has_value());
}

TEST(FindNonFiniteTest, LooksAtWhatIsWritten) {
  // What is overwritten may have been anything.
  EXPECT_FALSE(FindNonFinite([] {
                 const Tensor x = Full({3}, 1.0);
                 CopyInto(x, Full({3}, 2.0));
                 FillInPlace(x, 4.0);
               }).has_value());
  const Tensor garbage = Full({3}, kNan);
  EXPECT_FALSE(FindNonFinite([&] { CopyInto(garbage, Ones({3})); }).has_value());
  EXPECT_EQ(FindNonFinite([] { MulInPlace(Full({2}, 3e38), 10.0); })->name, "MulScalar");
  const auto found = FindNonFinite([] {
    const Tensor w = autograd::SetRequiresGrad(Full({2}, 3e38), true);
    optim::Sgd optimizer({{"w", w}}, {.lr = 1e38});
    autograd::SetGrad(w, FromVector<float>({0, -3e38f}, {2}));
    optimizer.Step();
  });
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ToString(),
            "op SgdStep, output 0 (parameters): float32[2] on cpu:0 has inf at [1]; its inputs "
            "were finite");
}

TEST(FindNonFiniteTest, SeesTheBackwardPass) {
  const Tensor x = autograd::SetRequiresGrad(FromVector<float>({4, 0, 9}, {3}), true);
  const auto found = FindNonFinite([&] { autograd::Backward(Sum(Sqrt(x))); });
  ASSERT_TRUE(found.has_value()) << "the derivative of sqrt at 0";
  EXPECT_EQ(found->name, "Div");
  EXPECT_EQ(found->element.index, (Shape{1}));
  EXPECT_EQ(found->element.value, kInf);
  EXPECT_EQ(found->module, "");
}

TEST(FindNonFiniteTest, SeesTheCastsOfAutocast) {
  Model model;
  const auto found = FindNonFinite(
      [&] {
        const Autocast autocast({.dtype = DType::kFloat16});
        model({1, 2, 1e5f});
      },
      model.model.get());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ToString(),
            "op Cast, output 0 (y) in module \"0\": float16[1, 3] on cpu:0 has inf at [0, 2]; its "
            "inputs were finite");
}

TEST(FindNonFiniteTest, SeesThreadsThatWorkForTheBody) {
  const auto found = FindNonFinite([] {
    std::thread worker([state = CurrentThreadState()] {
      const ScopedThreadState scope(state);
      Log(Zeros({2}));
    });
    worker.join();
  });
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "Log");
}

TEST(FindNonFiniteTest, LeavesNothingBehind) {
  Model model;
  ManualSeed(7);
  const RandomKey before = ThreadGenerators().dropout.key;
  Tensor kept;
  FindNonFinite(
      [&] {
        kept = Sum(model({1, 2, 3}));
        Dropout(Ones({9}), 0.5);
      },
      model.model.get());
  EXPECT_EQ(ThreadGenerators().dropout.key, before);
  // A graph that outlives the call, and ops and hooks after it.
  autograd::Backward(kept);
  EXPECT_FALSE(std::isfinite((*model.model)(Zeros({1, 3})).ToVector<double>()[0]));
}

TEST(FindNonFiniteTest, ErrorsPassUnlessTheyFollowAFinding) {
  Model model;
  EXPECT_EQ(MessageOf([&] {
              FindNonFinite([] { throw InvalidArgumentError("the body's"); }, model.model.get());
            }),
            "the body's");
  const auto found = FindNonFinite([&] {
    if (std::isinf(Log(Zeros({1})).Item<double>())) throw InternalError("a consequence");
  });
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "Log");
  // A module that an exception has left is not where later ops run.
  const auto later = FindNonFinite(
      [&] {
        try {
          (*model.model)(Ones({2, 5}));
        } catch (const Error&) {
        }
        model({1, 2, 0});
      },
      model.model.get());
  EXPECT_EQ(later->module, "1.1");
}

TEST(FindNonFiniteTest, NestsWithTheInnerOneWatching) {
  std::optional<NonFiniteReport> inner;
  const auto outer = FindNonFinite([&] {
    inner = FindNonFinite([] { Log(Zeros({1})); });
    Sqrt(Full({2}, -1.0));
  });
  ASSERT_TRUE(inner.has_value());
  EXPECT_EQ(inner->name, "Log");
  ASSERT_TRUE(outer.has_value());
  EXPECT_EQ(outer->name, "Sqrt");
}

}  // namespace
}  // namespace lockstep::amp
