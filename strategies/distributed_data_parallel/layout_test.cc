// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which parameters are reduced, in which buckets and when. Ranks are threads.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/work.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/distributed_data_parallel/communication_hook.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/gradient_bucket.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using autograd::Backward;
using autograd::Grad;
using ::testing::HasSubstr;
using testing_util::Outcome;
using testing_util::RunRanks;
using testing_util::TrainMlp;
using testing_util::ValueOf;
using testing_util::ValuesOf;
using testing_util::Weights;
using Values = std::vector<double>;
using Kind = ReducerEvent::Kind;

// The product of x and the weights, in this order: the last one's gradient is ready first.
Tensor Chain(const Weights& weights, const std::vector<size_t>& order, double x) {
  Tensor y = Full({1}, x);
  for (const size_t i : order) y = y * weights[i];
  return Sum(y);
}

std::vector<std::vector<int64_t>> Members(const DistributedDataParallel& ddp) {
  std::vector<std::vector<int64_t>> members;
  for (const BucketSpec& bucket : ddp.buckets()) members.push_back(bucket.gradients);
  return members;
}

TEST(LayoutTest, FollowsRankZerosReadyOrderAfterTheFirstStep) {
  ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 1, 1, 1});
    DistributedDataParallel ddp(model, world, {.bucket_cap_bytes = 1, .first_bucket_bytes = 1});
    EXPECT_EQ(Members(ddp), (std::vector<std::vector<int64_t>>{{3}, {2}, {1}, {0}}));
    const std::vector<size_t> order =
        rank == 0 ? std::vector<size_t>{1, 3, 0, 2} : std::vector<size_t>{0, 1, 2, 3};
    Values values;
    for (int step = 0; step < 3; ++step) {
      model->ZeroGrad();
      const int64_t before = world->sequence();
      Backward(Chain(*model, order, rank + 1));
      EXPECT_EQ(world->sequence() - before, step == 0 ? 5 : 4) << "the order is told once";
      EXPECT_EQ(Members(ddp), (std::vector<std::vector<int64_t>>{{2}, {0}, {3}, {1}}));
      for (size_t i = 0; i < 4; ++i) values.push_back(ValueOf(Grad((*model)[i])));
      if (rank == 0 && step > 0) {
        std::vector<ReducerEvent> events = ddp.statistics().events;
        events.resize(8);
        const std::vector<ReducerEvent> expected = {
            {Kind::kGradientReady, 2}, {Kind::kReduceIssued, 0},  {Kind::kGradientReady, 0},
            {Kind::kReduceIssued, 1},  {Kind::kGradientReady, 3}, {Kind::kReduceIssued, 2},
            {Kind::kGradientReady, 1}, {Kind::kReduceIssued, 3}};
        EXPECT_TRUE(events == expected) << "each is sent as soon as it is ready";
      }
    }
    EXPECT_EQ(values, Values(12, 1.5));
    return values;
  });
}

TEST(LayoutTest, ViewsOfBucketsChangeNoBitAndCopyNothing) {
  for (const int64_t micro_batches : {1, 2}) {
    const auto train = [&](bool views) {
      return ValuesOf(2, [&](int rank, auto world) {
        return TrainMlp(
            rank, world,
            {.bucket_cap_bytes = 60, .first_bucket_bytes = 1, .gradient_as_bucket_view = views},
            micro_batches);
      });
    };
    EXPECT_EQ(train(true), train(false));
  }
}

TEST(LayoutTest, AGradientIsItsPlaceInTheBucket) {
  const Values result = ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 1, 1});
    DistributedDataParallel ddp(model, world, {.gradient_as_bucket_view = true});
    Values values;
    for (int step = 0; step < 4; ++step) {
      if (step == 1) model->ZeroGrad(/*set_to_none=*/false);
      if (step == 2) model->ZeroGrad();
      Backward(Chain(*model, {0, 1, 2}, rank + 1));  // the fourth adds to the third
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(Grad((*model)[i]).storage().get(), Grad((*model)[0]).storage().get());
        values.push_back(ValueOf(Grad((*model)[i])));
      }
    }
    return values;
  });
  EXPECT_EQ(result, (Values{1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 3, 3, 3}));
}

TEST(LayoutTest, ViewsOfBucketsAreTheOnlyGradients) {
  for (const bool views : {false, true}) {
    ValuesOf(1, [&](int, auto world) {
      auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {200, 300, 200}});
      DistributedDataParallel ddp(model, world, {.gradient_as_bucket_view = views});
      const int64_t gradients = 4 * model->ParameterCount(), largest = 4 * 200 * 300;
      for (int step = 0; step < 3; ++step) {
        model->ZeroGrad();
        ResetPeakBytes(Cpu());
        Backward(Sum((*model)(Ones({2, 200}))));
        const int64_t peak = GetMemoryStats(Cpu()).peak[MemoryCategory::kGradient];
        const int64_t expected = gradients + (views ? largest : gradients);
        EXPECT_NEAR(static_cast<double>(peak), static_cast<double>(expected), 4096) << step;
      }
      return Values();
    });
  }
}

// Buckets of two gradients, of which the observed order puts none beside its old neighbour: each
// old bucket is needed for long.
TEST(LayoutTest, TheNewLayoutNeedsNoSecondSetOfBuckets) {
  constexpr int64_t kCount = 8, kNumel = 16 << 10, kBytes = 4 * kNumel;
  class Wide : public nn::Module {
   public:
    Wide() {
      for (int64_t i = 0; i < kCount; ++i) {
        RegisterParameter(absl::StrCat("w", i), &weights[static_cast<size_t>(i)],
                          Full({kNumel}, 1.0));
      }
    }
    std::array<Tensor, kCount> weights;
  };
  for (const bool views : {false, true}) {
    ValuesOf(1, [&](int, auto world) {
      auto model = std::make_shared<Wide>();
      DistributedDataParallel ddp(model, world,
                                  {.bucket_cap_bytes = 2 * kBytes,
                                   .first_bucket_bytes = 2 * kBytes,
                                   .gradient_as_bucket_view = views});
      const auto before = Members(ddp);
      Tensor y = Full({kNumel}, 1.0);
      for (const size_t i : {0, 4, 2, 6, 1, 5, 3, 7}) y = y * model->weights[i];
      const Tensor loss = Sum(y);
      ResetPeakBytes(Cpu());
      Backward(loss);
      EXPECT_NE(Members(ddp), before);
      const MemoryStats stats = GetMemoryStats(Cpu());
      const int64_t gradients = kCount * kBytes;
      const int64_t held = stats.current[MemoryCategory::kGradient];
      const int64_t peak = stats.peak[MemoryCategory::kGradient];
      EXPECT_NEAR(static_cast<double>(held), static_cast<double>((views ? 1 : 2) * gradients),
                  4096);
      // One bucket's gradients are outside of it for a moment.
      EXPECT_LE(peak, held + (views ? 2 * kBytes : 0) + 4096);
      Values values;
      for (const Tensor& weight : model->weights) {
        values.push_back(Max(Grad(weight)).template Item<double>());
        values.push_back(Min(Grad(weight)).template Item<double>());
      }
      EXPECT_EQ(values, Values(2 * kCount, 1)) << "the gradients came along";
      return values;
    });
  }
}

TEST(LayoutTest, WithoutItsBucketsItSaysSo) {
  class NoMemory : public CommunicationHook {
   public:
    comm::Work Reduce(GradientBucket& bucket, comm::Communicator& group) override {
      return group.AllReduce(bucket.buffer(), {.op = comm::ReduceOp::kAverage});
    }
    void OnNewBuckets(const std::vector<GradientBucket*>&) override {
      if (++calls_ == 2) throw ResourceExhaustedError("no memory is left");
    }

   private:
    int calls_ = 0;
  };
  ValuesOf(1, [](int, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 1});
    DistributedDataParallel ddp(model, world,
                                {.bucket_cap_bytes = 1,
                                 .first_bucket_bytes = 1,
                                 .communication_hook = std::make_shared<NoMemory>()});
    EXPECT_THAT(MessageOf([&] {
                  Backward(Chain(*model, {0, 1}, 1));
                }),
                HasSubstr("no memory is left"));
    const Error error = ErrorOf([&] { Backward(Chain(*model, {0, 1}, 1)); });
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), HasSubstr("could not be laid out anew"));
    EXPECT_THAT(error.message(), HasSubstr("no memory is left"));
    return Values();
  });
}

TEST(LayoutTest, EachDTypeAndDeviceHasItsBuckets) {
  class Mixed : public nn::Module {
   public:
    Mixed() {
      RegisterParameter("a", &a, Full({2}, 1.0));
      RegisterParameter("b", &b, Full({2}, 1.0, {.device = Cpu(1)}));
      RegisterParameter("c", &c, Full({3}, 1.0, {.dtype = DType::kFloat64}));
      RegisterParameter("d", &d, Full({2}, 1.0, {.device = Cpu(1)}));
      RegisterParameter("e", &e, Full({2}, 1.0, {.dtype = DType::kBFloat16}));
    }
    Tensor a, b, c, d, e;
  };
  for (const bool views : {false, true}) {
    ValuesOf(3, [&](int rank, auto world) {
      auto model = std::make_shared<Mixed>();
      DistributedDataParallel ddp(model, world, {.gradient_as_bucket_view = views});
      for (const BucketSpec& bucket : ddp.buckets()) {
        for (const int64_t i : bucket.gradients) {
          const Tensor& parameter = ddp.reduced_parameters()[static_cast<size_t>(i)].second;
          EXPECT_EQ(parameter.dtype(), bucket.dtype);
          EXPECT_EQ(parameter.device(), bucket.device);
        }
      }
      EXPECT_EQ(ddp.bucket_count(), 4);
      Values values;
      for (int step = 0; step < 3; ++step) {
        model->ZeroGrad();
        const double x = 3 * (rank + 1);
        const Tensor there = To(model->a * x, Cpu(1)) * model->b * model->d;
        const Tensor rest = Sum(model->c * x) + Sum(To(model->e * x, DType::kFloat64));
        Backward(To(Sum(To(there, Cpu())), DType::kFloat64) + rest);
        EXPECT_EQ(ddp.statistics().collectives, 4);
        for (const Tensor& parameter : model->Parameters()) {
          EXPECT_EQ(Grad(parameter).device(), parameter.device());
          for (const double value : Grad(parameter).ToVector<double>()) values.push_back(value);
        }
      }
      EXPECT_EQ(values, Values(33, 6));
      return values;
    });
  }
}

// b, on rank 0, and c, on rank 1, are in the first buckets and not used.
TEST(LayoutTest, UnusedParametersHoldNothingUp) {
  ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 1, 1});
    DistributedDataParallel ddp(
        model, world,
        {.bucket_cap_bytes = 1, .first_bucket_bytes = 1, .find_unused_parameters = true});
    Values values;
    for (int step = 0; step < 3; ++step) {
      model->ZeroGrad();
      Backward(Chain(*model, {0, rank == 0 ? size_t{2} : size_t{1}}, rank + 1));
      const std::vector<ReducerEvent> events = ddp.statistics().events;
      const auto issued =
          std::find(events.begin(), events.end(), ReducerEvent{Kind::kReduceIssued, 0});
      const auto last =
          std::find(events.begin(), events.end(), ReducerEvent{Kind::kGradientReady, 0});
      EXPECT_LT(issued - events.begin(), last - events.begin());
      EXPECT_EQ(ddp.statistics().collectives, 4) << "three buckets and who misses what";
      for (size_t i = 0; i < 3; ++i) values.push_back(ValueOf(Grad((*model)[i])));
    }
    EXPECT_EQ(values, (Values{1.5, 1, 0.5, 1.5, 1, 0.5, 1.5, 1, 0.5}));
    return values;
  });
}

// A gradient of before, which nobody cleared, counts where the parameter is used elsewhere, and
// stays bit for bit where it is not.
TEST(LayoutTest, EarlierGradientsOfUnusedParameters) {
  for (const bool views : {false, true}) {
    ValuesOf(3, [&](int rank, auto world) {
      auto model = std::make_shared<Weights>(Values{1, 1});
      DistributedDataParallel ddp(
          model, world, {.find_unused_parameters = true, .gradient_as_bucket_view = views});
      Backward(Chain(*model, {0, 1}, 0.247 * (rank + 1)));
      const double before = ValueOf(Grad((*model)[1]));
      model->ZeroGrad(/*set_to_none=*/false);
      Backward(Chain(*model, {0, 1}, 0.247 * (rank + 1)));
      EXPECT_EQ(ValueOf(Grad((*model)[1])), before);
      Backward(Chain(*model, {0}, 1));
      EXPECT_EQ(ValueOf(Grad((*model)[1])), before) << "untouched";
      Backward(rank == 0 ? Chain(*model, {1}, 3) : Chain(*model, {0}, 1));
      EXPECT_FLOAT_EQ(ValueOf(Grad((*model)[1])), before + 1);
      return Values{ValueOf(Grad((*model)[1]))};
    });
  }
}

TEST(StaticGraphTest, LearnsWhatIsUnusedWithoutASearch) {
  for (const bool views : {false, true}) {
    const Values result = ValuesOf(2, [&](int rank, auto world) {
      auto model = std::make_shared<Weights>(Values{1, 1, 1, 1});
      DistributedDataParallel ddp(model, world,
                                  {.bucket_cap_bytes = 1,
                                   .first_bucket_bytes = 1,
                                   .static_graph = true,
                                   .gradient_as_bucket_view = views});
      Values values;
      for (int step = 0; step < 3; ++step) {
        model->ZeroGrad();
        {
          DistributedDataParallel::NoSync no_sync(ddp);
          Backward(Chain(*model, {3}, 2 * (rank + 1)));
        }
        Backward(Chain(*model, {0, rank == 0 ? size_t{1} : size_t{0}}, rank + 1));
        EXPECT_EQ(ddp.statistics().collectives, step == 0 ? 5 : 4);
        for (size_t i = 0; i < 4; ++i) values.push_back(ValueOf(Grad((*model)[i])));
      }
      return values;
    });
    const Values step = {2.5, 0.5, -1, 3};  // rank 1's is x a^2
    Values expected;
    for (int i = 0; i < 3; ++i) expected.insert(expected.end(), step.begin(), step.end());
    EXPECT_EQ(result, expected);
  }
}

TEST(StaticGraphTest, AnotherGraphIsAnErrorThatNamesParameters) {
  // Less than in the first step: every rank says so, and the group goes on.
  auto outcomes = RunRanks(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 1});
    DistributedDataParallel ddp(model, world, {.static_graph = true});
    Backward(Chain(*model, {0, 1}, 1));
    model->ZeroGrad();
    const Error error = ErrorOf([&] {
      Backward(Chain(*model, rank == 0 ? std::vector<size_t>{0} : std::vector<size_t>{0, 1}, 1));
    });
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(error.message(), HasSubstr("static_graph: parameters without a gradient"));
    EXPECT_THAT(error.message(), HasSubstr("b (on 1 of 2 ranks: 0)"));
    model->ZeroGrad();
    Backward(Chain(*model, {0, 1}, rank + 1));
    return Values{ValueOf(Grad((*model)[1]))};
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.values, Values{1.5}) << outcome.message;
  // More: the rank that does it says so, and frees the others.
  outcomes = RunRanks(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 1});
    DistributedDataParallel ddp(model, world, {.static_graph = true});
    Backward(Chain(*model, {0}, 1));
    Backward(Chain(*model, rank == 0 ? std::vector<size_t>{0, 1} : std::vector<size_t>{0}, 1));
    return Values();
  });
  EXPECT_EQ(outcomes[0].code, absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(outcomes[0].message, HasSubstr("static_graph: b got 1 gradients in this backward"));
  EXPECT_THAT(outcomes[1].message, HasSubstr("backward failed on rank 0"));
}

// A backward within the backward adds to the same parameter: a second gradient.
TEST(StaticGraphTest, CountsGradientsOfABackwardInside) {
  const auto run = [](bool static_graph, int steps) {
    return RunRanks(2, [&, steps](int rank, auto world) {
      auto model = std::make_shared<Weights>(Values{1, 1});
      DistributedDataParallel ddp(
          model, world,
          {.bucket_cap_bytes = 1, .first_bucket_bytes = 1, .static_graph = static_graph});
      Values values;
      for (int step = 0; step < steps; ++step) {
        model->ZeroGrad();
        const Tensor inner = Chain(*model, {1}, 10);
        Tensor y = (*model)[0] * (rank + 1.0);
        autograd::RegisterHook(y, [&](const Tensor&) {
          Backward(inner);
          return Tensor();
        });
        Backward(Sum(y * (*model)[1]));
        EXPECT_EQ(ddp.statistics().collectives, 2);
        values.push_back(ValueOf(Grad((*model)[0])));
        values.push_back(ValueOf(Grad((*model)[1])));
      }
      return values;
    });
  };
  for (const Outcome& outcome : run(true, 3)) {
    EXPECT_EQ(outcome.values, (Values{1.5, 11.5, 1.5, 11.5, 1.5, 11.5})) << outcome.message;
  }
  bool named = false;
  for (const Outcome& outcome : run(false, 1)) {
    EXPECT_NE(outcome.code, absl::StatusCode::kOk);
    named |= outcome.message.find("b got a second gradient in one backward") != std::string::npos;
  }
  EXPECT_TRUE(named);
}

TEST(IgnoredTest, AreLeftAlone) {
  const auto outcomes = RunRanks(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{rank + 1.0, rank + 1.0});
    DistributedDataParallel ddp(model, world, {.ignored_parameters = {"b"}});
    EXPECT_EQ(ddp.reduced_parameters().Names(), std::vector<std::string>{"a"});
    Backward(Sum((*model)[0] * (rank + 1) + (*model)[1] * (rank + 1)));
    return Values{(*model)[0].template Item<double>(), (*model)[1].template Item<double>(),
                  ValueOf(Grad((*model)[0])), ValueOf(Grad((*model)[1]))};
  });
  EXPECT_EQ(outcomes[0].values, (Values{1, 1, 1.5, 1}));
  EXPECT_EQ(outcomes[1].values, (Values{1, 2, 1.5, 2}));
}

// y = w * scale * x, counting its training passes in the buffer.
class Scaled : public nn::UnaryModule {
 public:
  explicit Scaled(double scale_value) {
    RegisterParameter("w", &w, Full({1}, 1.0));
    RegisterBuffer("scale", &scale, Full({1}, scale_value));
  }
  Tensor Forward(const Tensor& x) override { return w * scale * x; }
  Tensor w, scale;
};

TEST(BuffersTest, ComeFromRankZeroOnceAfterEachSynchronisedBackward) {
  ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Scaled>(rank + 1);
    DistributedDataParallel ddp(model, world);
    EXPECT_EQ(model->scale.template Item<double>(), 1) << "at construction";
    const Tensor x = Full({1}, 1.0);
    Values broadcasts;
    const auto forward = [&] {
      const int64_t before = world->sequence();
      const Tensor y = (*model)(x);
      broadcasts.push_back(static_cast<double>(world->sequence() - before));
      return Sum(y);
    };
    Backward(forward());
    for (int step = 0; step < 2; ++step) {
      FillInPlace(model->scale, rank + 3 + step);
      model->Eval();
      forward();
      model->Train();
      {
        const autograd::NoGradScope no_grad;
        forward();
      }
      {
        DistributedDataParallel::NoSync no_sync(ddp);
        Backward(forward());
      }
      EXPECT_EQ(model->scale.template Item<double>(), rank + 3 + step) << "not yet";
      const Tensor first = forward();
      EXPECT_EQ(model->scale.template Item<double>(), 3 + step);
      Backward(first + forward());  // the second must not change what the first has saved
    }
    EXPECT_EQ(broadcasts, (Values{0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}));
    return Values();
  });
}

TEST(BuffersTest, StayWhereBroadcastsAreOff) {
  const auto outcomes = RunRanks(2, [](int rank, auto world) {
    auto model = std::make_shared<Scaled>(1);
    DistributedDataParallel ddp(model, world, {.broadcast_buffers = false, .init_sync = false});
    EXPECT_EQ(world->sequence(), 0) << "init_sync is off";
    for (int step = 0; step < 2; ++step) {
      FillInPlace(model->scale, rank + 1);
      Backward(Sum((*model)(Full({1}, 1.0))));
    }
    const double kept = model->scale.template Item<double>();
    ddp.BroadcastBuffers();
    return Values{kept, model->scale.template Item<double>()};
  });
  EXPECT_EQ(outcomes[0].values, (Values{1, 1}));
  EXPECT_EQ(outcomes[1].values, (Values{2, 1}));
}

TEST(RefusalTest, WrappingTwice) {
  ValuesOf(2, [](int, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 1});
    {
      DistributedDataParallel ddp(model, world);
      const Error error = ErrorOf([&] { DistributedDataParallel again(model, world); });
      EXPECT_EQ(error.code(), absl::StatusCode::kAlreadyExists);
      EXPECT_THAT(error.message(), HasSubstr("the gradient of a is averaged by another strategy"));
      Backward(Chain(*model, {0, 1}, 1));
    }
    DistributedDataParallel again(model, world);
    return Values();
  });
}

TEST(RefusalTest, DeviceIdsAndNamesThatDoNotFit) {
  ValuesOf(2, [](int, auto world) {
    auto spread = std::make_shared<Weights>(Values{1, 1});
    (*spread)[1].SetData(Full({1}, 1.0, {.device = Cpu(1)}));
    const auto refused = [&](const DistributedDataParallelOptions& options, const char* part) {
      const Error error = ErrorOf([&] { DistributedDataParallel ddp(spread, world, options); });
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(error.message(), HasSubstr(part));
    };
    refused({.device_ids = {Cpu()}}, "device_ids is cpu:0 and parameter b is on cpu:1");
    refused({.device_ids = {Cpu(), Cpu(1)}}, "device_ids has 2 devices");
    refused({.ignored_parameters = {"c"}}, "ignored_parameters names c");
    refused({.staleness = -1}, "staleness -1");
    DistributedDataParallel ddp(spread, world);
    return Values();
  });
}

TEST(RefusalTest, AModuleThatChanged) {
  class Growing : public Weights {
   public:
    Growing() : Weights({1, 1}) {}
    void Grow() { RegisterParameter("new", &fresh, Full({1}, 1.0)); }
    Tensor fresh;
  };
  struct Case {
    std::function<void(Growing&)> change;
    const char* expected;
  };
  const std::vector<Case> cases = {
      {[](Growing& m) { m.Grow(); }, "parameter new is new"},
      {[](Growing& m) { autograd::SetRequiresGrad(m[1], false); }, "parameter b was frozen"},
      {[](Growing& m) { m.To(DType::kFloat64); },
       "parameter a was float32[1] on cpu:0 and is float64[1] on cpu:0"},
      {[](Growing& m) { m.To(Cpu(1)); }, "and is float32[1] on cpu:1"}};
  for (const Case& c : cases) {
    const auto outcomes = RunRanks(2, [&](int, auto world) {
      auto model = std::make_shared<Growing>();
      DistributedDataParallel ddp(model, world);
      Backward(Chain(*model, {0, 1}, 1));
      c.change(*model);
      model->ZeroGrad();
      Tensor y = Sum((*model)[0]) * 2.0;
      Backward(y);
      return Values();
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_THAT(outcome.message, HasSubstr("changed since it was wrapped"));
      EXPECT_THAT(outcome.message, HasSubstr(c.expected));
    }
  }
  // Away and back is no change.
  ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1});
    DistributedDataParallel ddp(model, world, {.gradient_as_bucket_view = true});
    Values values;
    for (int step = 0; step < 2; ++step) {
      model->ZeroGrad();
      Backward(Chain(*model, {0}, 1 + 2 * rank));
      values.push_back(ValueOf(Grad((*model)[0])));
      model->To(Cpu(1));
      model->To(Cpu());
    }
    EXPECT_EQ(values, (Values{2, 2}));
    return values;
  });
}

TEST(CheckFiniteTest, NamesParameterAndRank) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    ValuesOf(3, [&](int rank, auto world) {
      auto model = std::make_shared<Weights>(Values{1, 1});
      DistributedDataParallel ddp(model, world, {.check_finite = true});
      Values values;
      for (int step = 0; step < 3; ++step) {
        model->ZeroGrad();
        const double factor = step == 1 && rank == 2 ? bad : 1;
        const auto backward = [&] { Backward(Sum((*model)[0]) + Sum((*model)[1] * factor)); };
        if (step == 1) {
          const Error error = ErrorOf(backward);
          EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
          EXPECT_THAT(error.message(), HasSubstr("before averaging: b (on 1 of 3 ranks: 2)"));
        } else {
          backward();
          values.push_back(ValueOf(Grad((*model)[1])));
        }
      }
      EXPECT_EQ(values, (Values{1, 1}));
      return values;
    });
  }
}

}  // namespace
}  // namespace lockstep::strategies
