// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Uneven inputs, and losses that count differently. Ranks are threads.
#include "lockstep/strategies/distributed_data_parallel/join.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/loss_factors.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using autograd::Backward;
using autograd::Grad;
using ::testing::HasSubstr;
using testing_util::Outcome;
using testing_util::RunRanks;
using testing_util::ValueOf;
using testing_util::ValuesOf;
using testing_util::Weights;
using Values = std::vector<double>;

// loss = w, and a buffer that counts forward passes.
class Counted : public nn::UnaryModule {
 public:
  Counted() {
    RegisterParameter("w", &w, Zeros({1}));
    RegisterBuffer("count", &count, Zeros({1}));
  }
  Tensor Forward(const Tensor& x) override {
    AddInPlace(count, 1.0);
    return w * x;
  }
  Tensor w, count;
};

// Field report: rank 0 has 3 batches and rank 1 has 5.
TEST(JoinTest, RanksWithFewerBatchesKeepUp) {
  for (const bool by_initial : {true, false}) {
    for (const bool hook : {true, false}) {
      for (const bool views : {true, false}) {
        const Values result = ValuesOf(2, [&](int rank, auto world) {
          auto model = std::make_shared<Counted>();
          DistributedDataParallelOptions options{.gradient_as_bucket_view = views};
          if (hook) options.communication_hook = std::make_shared<CompressionHook>(DType::kFloat16);
          DistributedDataParallel ddp(model, world, options);
          optim::Sgd optimizer(model->NamedParameters(), {.lr = 1});
          Values values;
          for (int epoch = 0; epoch < 2; ++epoch) {
            FillInPlace(Detach(model->w), 0.0);
            Join join({&ddp}, {.divide_by_initial_world_size = by_initial});
            for (int step = 0; step < (rank == 0 ? 3 : 5); ++step) {
              optimizer.ZeroGrad();
              Backward(Sum((*model)(Ones({1}))));
              optimizer.Step();
            }
            EXPECT_EQ(join.Finish(), 1) << "whose model it is";
            values.push_back(model->w.template Item<double>());
            values.push_back(model->count.template Item<double>());
          }
          return values;
        });
        const double w = by_initial ? -4 : -5;
        EXPECT_EQ(result, (Values{w, 5, w, 10}));
      }
    }
  }
}

TEST(JoinTest, AnyNumbersOfBatchesAndSeveralModules) {
  for (const std::vector<int>& batches :
       {std::vector<int>{0, 0, 0}, {0, 2, 1}, {4, 0, 0}, {3, 3, 3}, {1, 2, 3}}) {
    const Values result = ValuesOf(3, [&](int rank, auto world) {
      auto one = std::make_shared<Weights>(Values{0, 0, 0});
      auto two = std::make_shared<Weights>(Values{0, 0});
      DistributedDataParallel first(
          one, world,
          {.bucket_cap_bytes = 1, .first_bucket_bytes = 1, .find_unused_parameters = true});
      DistributedDataParallel second(two, world, {.static_graph = true});
      optim::Sgd optimizer(one->NamedParameters(), {.lr = 1});
      optim::Sgd other(two->NamedParameters(), {.lr = 1});
      Join join({&first, &second});
      for (int step = 0; step < batches[static_cast<size_t>(rank)]; ++step) {
        optimizer.ZeroGrad();
        other.ZeroGrad();
        Backward(Sum((*one)[0] * 3 + (rank == 1 ? (*one)[1] * 3 : (*one)[0])));
        Backward(Sum((*two)[0] * 6 + (*two)[1]));
        optimizer.Step();
        other.Step();
      }
      join.Finish();
      return Values{(*one)[0].template Item<double>(), (*one)[1].template Item<double>(),
                    (*one)[2].template Item<double>(), (*two)[0].template Item<double>()};
    });
    const double all = batches[0] + batches[1] + batches[2];
    EXPECT_NEAR(result[0], -(4 * all - batches[1]) / 3, 1e-5);
    EXPECT_NEAR(result[1], -batches[1], 1e-5);
    EXPECT_EQ(result[2], 0);
    EXPECT_NEAR(result[3], -2 * all, 1e-5);
  }
}

// What a rank has accumulated when its inputs end is part of the others' next average.
TEST(JoinTest, AccumulatedGradientsAreSentByTheShadow) {
  const Values result = ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{0});
    DistributedDataParallel ddp(model, world);
    Join join({&ddp});
    const auto backward = [&](double x) { Backward(Sum((*model)[0] * x)); };
    if (rank == 0) {
      DistributedDataParallel::NoSync no_sync(ddp);
      backward(100);
    } else {
      backward(1);
      EXPECT_EQ(ValueOf(Grad((*model)[0])), 50.5);
      model->ZeroGrad();
      backward(1);
      EXPECT_EQ(ValueOf(Grad((*model)[0])), 0.5) << "once";
    }
    join.Finish();
    return Values();
  });
}

// A rank without inputs steps in its shadow passes too: its moments stay those of the others, and
// training together goes on from there.
TEST(JoinTest, OptimizersInBackwardStepTogether) {
  for (const bool by_initial : {true, false}) {
    const auto train = [&](bool fused, bool afterwards) {
      return ValuesOf(3, [&](int rank, auto world) {
        auto model = std::make_shared<Weights>(Values{1, -2, 3});
        optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.1});
        DistributedDataParallel ddp(model, world,
                                    {.bucket_cap_bytes = 1,
                                     .first_bucket_bytes = 1,
                                     .optimizer_in_backward = fused ? &optimizer : nullptr});
        const auto step = [&](int number) {
          const Tensor &a = (*model)[0], &b = (*model)[1], &c = (*model)[2];
          Backward(Sum(a * a * (rank + 1.0) + a * b * number + b * c * (rank - number)));
          if (fused) return;
          optimizer.Step();
          optimizer.ZeroGrad();
        };
        for (int epoch = 0; epoch < 2; ++epoch) {
          Join join({&ddp}, {.divide_by_initial_world_size = by_initial});
          for (int i = 0; i < (rank == 2 ? 5 : 2 + rank); ++i) step(i);
          EXPECT_EQ(join.Finish(), 2);
          if (!afterwards) break;
          for (int i = 0; i < 2; ++i) step(i);
        }
        EXPECT_EQ(ddp.bucket_count(), 3);
        const Tensor moment = optimizer.SaveState().tensors.At("a.exp_avg");
        Values result = testing_util::AllParameters(*model);
        if (fused) result.push_back(moment.template Item<double>());
        return result;
      });
    };
    Values fused = train(true, false);
    fused.pop_back();
    EXPECT_EQ(fused, train(false, false)) << "what rank 2 learnt";
    train(true, true);  // the ranks' parameters and moments stay the same
  }
}

TEST(JoinTest, EarlyTerminationIsAnErrorOnEveryRankWhereAskedFor) {
  ValuesOf(3, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{0});
    DistributedDataParallel ddp(model, world);
    const auto train = [&](int steps) {
      Join join({&ddp}, {.throw_on_early_termination = true});
      for (int step = 0; step < steps; ++step) Backward(Sum((*model)[0]));
      join.Finish();
    };
    train(2);
    const Error error = ErrorOf([&] { train(rank == 1 ? 2 : 3); });
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(error.message(),
                HasSubstr("Join: rank 1 has no inputs left and 2 of 3 ranks have"));
    train(1);
    return Values();
  });
}

TEST(JoinTest, LeavingWithoutFinishFreesTheOthers) {
  const auto outcomes = RunRanks(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{0});
    DistributedDataParallel ddp(model, world);
    Join join({&ddp});
    if (rank == 1) throw DataLossError("no more data");
    Backward(Sum((*model)[0]));
    return Values();
  });
  EXPECT_THAT(outcomes[0].message, HasSubstr("rank 1 left a Join without Finish()"));
  EXPECT_EQ(outcomes[1].message, "no more data");
}

// Rank 0 has no batches and takes part in a step of rank 1's that fails: what it hears then, and
// from its own backwards, is why.
TEST(JoinTest, AStepThatFailsIsToldToTheShadow) {
  const auto outcomes = RunRanks(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 1});
    DistributedDataParallel ddp(model, world, {.bucket_cap_bytes = 1, .first_bucket_bytes = 1});
    {
      Join join({&ddp});
      if (rank == 0) {
        EXPECT_THAT(MessageOf([&] { join.Finish(); }), HasSubstr("backward failed on rank 1"));
      } else {
        const Tensor inner = (*model)[0] * 2.0;
        autograd::RegisterHook(inner, [](const Tensor&) -> Tensor { throw DataLossError("bad"); });
        EXPECT_EQ(MessageOf([&] { Backward(Sum(inner * (*model)[1])); }), "bad");
      }
    }
    Backward(Sum((*model)[0] * (*model)[1]));
    return Values();
  });
  for (const auto& outcome : outcomes) {
    EXPECT_THAT(outcome.message, HasSubstr("backward failed on rank 1"));
  }
}

TEST(JoinTest, Refusals) {
  ValuesOf(1, [](int, auto world) {
    auto model = std::make_shared<Weights>(Values{0});
    const auto refused = [](std::vector<DistributedDataParallel*> modules, const char* part) {
      EXPECT_THAT(MessageOf([&] { Join join(modules); }), HasSubstr(part));
    };
    {
      DistributedDataParallel stale(model, world, {.staleness = 1});
      refused({&stale}, "module 0 has staleness");
    }
    DistributedDataParallel ddp(model, world);
    refused({}, "give the modules");
    refused({&ddp, nullptr}, "module 1 is null");
    refused({&ddp, &ddp}, "module 1 is given twice");
    Join join({&ddp});
    join.Finish();
    EXPECT_THAT(MessageOf([&] { join.Finish(); }), HasSubstr("this Join is over"));
    return Values();
  });
}

// Field report: rank 0 has one token with gradient 4, rank 1 three with gradient 0: the mean is 1.
TEST(LossFactorsTest, MeansOverAllTokens) {
  const Values result = ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{0});
    DistributedDataParallel ddp(model, world);
    Values values;
    const auto train = [&](const Values& counts) {
      model->ZeroGrad();
      const Values factors = LossFactors(counts, *world);
      for (size_t i = 0; i < factors.size(); ++i) {
        std::optional<DistributedDataParallel::NoSync> no_sync;
        if (i + 1 < factors.size()) no_sync.emplace(ddp);
        Backward(Sum((*model)[0] * (rank == 0 ? 4.0 : 0.0)) * factors[i]);
      }
      values.push_back(ValueOf(Grad((*model)[0])));
    };
    train(rank == 0 ? Values{1} : Values{3});
    train(rank == 0 ? Values{1} : Values{1, 2, 0});
    train({0});
    return values;
  });
  EXPECT_EQ(result, (Values{1, 1, 0}));
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const auto outcomes = RunRanks(
        2, [&](int rank, auto world) { return LossFactors({rank == 1 ? bad : 1.0}, *world); });
    EXPECT_THAT(outcomes[0].message, HasSubstr("those of another rank are not"));
    EXPECT_THAT(outcomes[1].message, HasSubstr("those of rank 1 are"));
    EXPECT_EQ(outcomes[0].code, absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace lockstep::strategies
