// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a program may do wrong, and models with next to nothing in them: an error that says what to
// do, or the right numbers; no hang, and what goes on is right.
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/join.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/strategy_state.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using autograd::Backward;
using autograd::Grad;
using ::testing::HasSubstr;
using testing_util::ValueOf;
using testing_util::ValuesOf;
using testing_util::Weights;
using Values = std::vector<double>;

// Parameters without elements, and nothing else where `only_empty`.
class Hollow : public nn::Module {
 public:
  explicit Hollow(bool only_empty) {
    RegisterParameter("empty", &empty, Zeros({0, 3}));
    if (!only_empty) RegisterParameter("full", &full, Full({2}, 1.0));
  }
  Tensor empty, full;
};

TEST(SmallModelsTest, ParametersWithoutElements) {
  for (const bool views : {false, true}) {
    for (const bool only_empty : {false, true}) {
      ValuesOf(2, [&](int rank, auto world) {
        auto model = std::make_shared<Hollow>(only_empty);
        DistributedDataParallel ddp(
            model, world,
            {.bucket_cap_bytes = 1, .first_bucket_bytes = 1, .gradient_as_bucket_view = views});
        Values values;
        for (int step = 0; step < 3; ++step) {
          model->ZeroGrad();
          Tensor y = Sum(model->empty * 2.0);
          if (!only_empty) y = y + Sum(model->full * (rank + 1.0));
          Backward(y);
          EXPECT_EQ(Grad(model->empty).shape(), (Shape{0, 3}));
          if (!only_empty) values.push_back(Grad(model->full).template ToVector<double>()[1]);
        }
        EXPECT_EQ(values, only_empty ? Values() : Values(3, 1.5));
        return values;
      });
    }
  }
}

TEST(SmallModelsTest, BatchesWithoutRows) {
  const auto run = [](int rank, auto world) {
    auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {3, 4, 2}});
    DistributedDataParallel ddp(model, world);
    Values values;
    for (int step = 0; step < 2; ++step) {
      model->ZeroGrad();
      Backward(Sum((*model)(Ones({rank == 0 ? 0 : 2, 3}))));  // rank 0 has none
      values.push_back(Sum(Grad(model->Parameters()[1])).template Item<double>());
    }
    return values;
  };
  const Values values = ValuesOf(2, run);
  EXPECT_NE(values[0], 0);
}

TEST(MisuseTest, AHookThatKeepsSomethingIsOfOneModule) {
  ValuesOf(1, [](int, auto world) {
    auto hook = std::make_shared<CompressionHook>(DType::kFloat16);
    auto first = std::make_shared<Weights>(Values{1});
    auto second = std::make_shared<Weights>(Values{1, 1});
    {
      DistributedDataParallel ddp(first, world, {.communication_hook = hook});
      const Error error = ErrorOf(
          [&] { DistributedDataParallel again(second, world, {.communication_hook = hook}); });
      EXPECT_EQ(error.code(), absl::StatusCode::kAlreadyExists);
      EXPECT_THAT(error.message(), HasSubstr("make a hook for each"));
      Backward(Sum((*first)[0]));  // as if nothing had been tried
      EXPECT_EQ(ValueOf(Grad((*first)[0])), 1);
    }
    DistributedDataParallel ddp(second, world, {.communication_hook = hook});
    Backward(Sum((*second)[0] + (*second)[1]));
    EXPECT_EQ(ValueOf(Grad((*second)[1])), 1);
    // One that keeps nothing may serve several.
    auto none = std::make_shared<NoOpHook>();
    auto third = std::make_shared<Weights>(Values{1}),
         fourth = std::make_shared<Weights>(Values{1});
    DistributedDataParallel of_third(third, world, {.communication_hook = none});
    DistributedDataParallel of_fourth(fourth, world, {.communication_hook = none});
    return Values();
  });
}

TEST(MisuseTest, OneJoinAtATime) {
  ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1});
    auto other = std::make_shared<Weights>(Values{1});
    DistributedDataParallel ddp(model, world), ddp_other(other, world);
    Join join({&ddp});
    const Error error = ErrorOf([&] { Join again({&ddp_other, &ddp}); });
    EXPECT_EQ(error.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(error.message(), HasSubstr("module 1 is in another Join"));
    for (int step = 0; step <= rank; ++step) {
      model->ZeroGrad();
      Backward(Sum((*model)[0] * 2.0));
    }
    join.Finish();
    Backward(Sum((*other)[0]));  // is in none
    return Values{ValueOf(Grad((*other)[0]))};
  });
}

TEST(MisuseTest, AStateTakesThePlaceOfWhatIsUnderWay) {
  ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1});
    DistributedDataParallel ddp(model, world, {.staleness = 1});
    Backward(Sum((*model)[0] * (rank + 1.0)));
    StrategyState state;
    const StrategyState kept = ddp.SaveState();  // shares memory with the buckets
    for (const auto& [name, tensor] : kept.shared) state.shared.Insert(name, Clone(tensor));
    model->ZeroGrad();
    Backward(Sum((*model)[0] * 5.0));
    EXPECT_EQ(ValueOf(Grad((*model)[0])), 1.5);
    ddp.LoadState(state);
    model->ZeroGrad();
    Backward(Sum((*model)[0] * 7.0));
    EXPECT_EQ(ValueOf(Grad((*model)[0])), 1.5) << "not 5, which was under way";
    ddp.FinishPending();
    return Values();
  });
}

// An exception in the forward pass, on every rank, in the middle of an accumulation.
TEST(MisuseTest, AForwardThatThrowsLeavesAllAsItWas) {
  for (const bool views : {false, true}) {
    const Values result = ValuesOf(2, [&](int rank, auto world) {
      auto model = std::make_shared<Weights>(Values{1, 1});
      DistributedDataParallel ddp(model, world, {.gradient_as_bucket_view = views});
      Values values;
      for (int step = 0; step < 3; ++step) {
        model->ZeroGrad();
        try {
          DistributedDataParallel::NoSync no_sync(ddp);
          Backward(Sum((*model)[0] * (rank + 1.0) + (*model)[1]));
          MatMul((*model)[0], Ones({3, 3}));
          ADD_FAILURE() << "nothing was thrown";
        } catch (const Error&) {
        }
        Backward(Sum((*model)[0] * (rank + 1.0) + (*model)[1]));
        values.push_back(ValueOf(Grad((*model)[0])));
        values.push_back(ValueOf(Grad((*model)[1])));
      }
      return values;
    });
    EXPECT_EQ(result, (Values{3, 2, 3, 2, 3, 2}));
  }
}

// The average of w^3's gradients is 18, and that of its derivatives; views of buckets have no
// history.
TEST(MisuseTest, GradientsOfAverages) {
  for (const bool views : {false, true}) {
    ValuesOf(2, [&](int rank, auto world) {
      auto model = std::make_shared<Weights>(Values{2});
      DistributedDataParallel ddp(model, world, {.gradient_as_bucket_view = views});
      const Tensor& w = (*model)[0];
      Backward(Sum(w * w * w * (rank + 1.0)), {.create_graph = true});
      const Tensor average = Grad(w);
      EXPECT_EQ(ValueOf(average), 18);
      if (views) {
        EXPECT_THAT(MessageOf([&] { Backward(Sum(average * average)); }),
                    HasSubstr("does not require a gradient"));
        return Values();
      }
      const Tensor penalty = Sum(average * average);
      autograd::SetGrad(w, {});
      Backward(penalty);
      EXPECT_EQ(ValueOf(Grad(w)), 2 * 18 * 18);
      return Values();
    });
  }
}

}  // namespace
}  // namespace lockstep::strategies
