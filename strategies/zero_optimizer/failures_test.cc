// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a ZeroOptimizer refuses, and what happens when a rank does not come to a gather. Ranks are
// threads.
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/zero_optimizer/testing.h"
#include "lockstep/strategies/zero_optimizer/zero_optimizer.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_util::Outcome;
using testing_util::RunRanks;
using testing_util::ValuesOf;
using testing_util::Weights;
using Values = std::vector<double>;

std::unique_ptr<ZeroOptimizer> MakeSgd(const DistributedDataParallel& ddp) {
  return MakeZeroOptimizer<optim::Sgd>(ddp, ddp.module()->NamedParameters(),
                                       optim::SgdOptions{.lr = 1});
}

// A layer-wise rate, as LARS has: not elementwise.
class Layerwise : public optim::Sgd {
 public:
  using Sgd::Sgd;
  bool is_elementwise() const override { return false; }
};

// Rank 1 comes to its gather when rank 0's Step() has returned.
class StepInTurn {
 public:
  void operator()(int rank, std::shared_ptr<comm::Communicator> world) {
    auto model = std::make_shared<Weights>(Values{1, 2});
    DistributedDataParallel ddp(model, world);
    auto optimizer = MakeSgd(ddp);
    autograd::Backward(Sum((*model)[0] + (*model)[1]));
    if (rank == 1) {
      EXPECT_EQ(stepped_.wait_for(std::chrono::minutes(1)), std::future_status::ready);
    }
    optimizer->Step();
    if (rank == 0) returned_.set_value();
    EXPECT_EQ((*model)[0].Item<double>(), 0);
    EXPECT_EQ((*model)[1].Item<double>(), 1);
  }

 private:
  std::promise<void> returned_;
  std::shared_future<void> stepped_ = returned_.get_future().share();
};

TEST(ZeroFailuresTest, StepDoesNotWaitForOtherRanks) {
  StepInTurn over_shm;
  ValuesOf(2, [&](int rank, auto world) {
    over_shm(rank, world);
    return Values();
  });
  for (const bool flat : {false, true}) {
    StepInTurn over_gloo;
    testing_util::OverGloo(2, flat, [&](int rank, std::shared_ptr<comm::Communicator> world) {
      over_gloo(rank, world);
    });
  }
}

// Leaves pieces of no elements alone.
class SkipsEmpty : public optim::Sgd {
 public:
  using Sgd::Sgd;
  void Step() override {
    if (parameters()[0].second.numel() > 0) Sgd::Step();
  }
};

// Graphs and caches of casts notice a step on each rank, also where no op writes to the bucket.
TEST(ZeroFailuresTest, EachStepIsANewVersion) {
  ValuesOf(2, [](int, auto world) {
    auto model = std::make_shared<Weights>(Values{1});
    DistributedDataParallel ddp(model, world);
    auto optimizer =
        MakeZeroOptimizer<SkipsEmpty>(ddp, model->NamedParameters(), optim::SgdOptions{.lr = 1});
    autograd::Backward(Sum((*model)[0]));
    const int64_t version = (*model)[0].version();
    optimizer->Step();
    EXPECT_GT((*model)[0].version(), version);
    return Values{(*model)[0].template Item<double>()};
  });
}

TEST(ZeroFailuresTest, AFailedGatherIsThrownWhereItsParametersAreUsed) {
  std::promise<void> returned;
  std::shared_future<void> stepped = returned.get_future().share();
  const std::vector<Outcome> outcomes = RunRanks(2, [&](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 2});
    DistributedDataParallel ddp(model, world);
    auto optimizer = MakeSgd(ddp);
    autograd::Backward(Sum((*model)[0] + (*model)[1]));
    if (rank == 1) {
      stepped.wait();
      world->Abort("the test gives up");
      EXPECT_THAT(MessageOf([&] { optimizer->Step(); }), HasSubstr("the test gives up"));
      return Values();
    }
    optimizer->Step();
    returned.set_value();
    for (int i = 0; i < 2; ++i) {
      const auto explains = AllOf(HasSubstr("the parameters \"a\" to \"b\" could not be gathered"),
                                  HasSubstr("AllGather(float32 x 16)"),
                                  HasSubstr("rank 0 of group"), HasSubstr("the test gives up"));
      EXPECT_THAT(MessageOf([&] { (*model)[1] + 1.0; }), explains);
      EXPECT_THAT(MessageOf([&] { (*model)[0].template Item<double>(); }), explains);
      EXPECT_THAT(MessageOf([&] { optimizer->Synchronize(); }), explains);
    }
    return Values();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, absl::StatusCode::kOk) << outcome.message;
  }
}

// The end of the optimizer, of DDP and of the group, in any order, leaves nobody waiting.
TEST(ZeroFailuresTest, WhatIsDestroyedBeforeItsGathersFailsThem) {
  std::promise<void> returned;
  std::shared_future<void> stepped = returned.get_future().share();
  RunRanks(2, [&](int rank, std::shared_ptr<comm::Communicator> world) {
    auto model = std::make_shared<Weights>(Values{1, 2});
    auto ddp = std::make_unique<DistributedDataParallel>(model, world);
    auto optimizer = MakeSgd(*ddp);
    autograd::Backward(Sum((*model)[0] + (*model)[1]));
    if (rank == 1) {
      stepped.wait();
      return Values();
    }
    optimizer->Step();
    optimizer.reset();
    ddp.reset();
    world.reset();
    EXPECT_THAT(MessageOf([&] { (*model)[0] + 1.0; }), HasSubstr("could not be gathered"));
    returned.set_value();
    return Values();
  });
}

TEST(ZeroFailuresTest, MissingGradientsAreCompared) {
  // On every rank other ones: both say which.
  ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 2});
    DistributedDataParallel ddp(model, world);
    auto optimizer = MakeSgd(ddp);
    autograd::Backward(Sum((*model)[0] + (*model)[1]));
    autograd::SetGrad((*model)[static_cast<size_t>(rank)], {});
    EXPECT_THAT(MessageOf([&] { optimizer->Step(); }),
                HasSubstr("\"a\" has no gradient on rank 0 and one on rank 1"));
    return Values{(*model)[0].Item<double>(), (*model)[1].Item<double>()};
  });
  // On one rank only: the other is at its gathers.
  RunRanks(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 2});
    DistributedDataParallel ddp(model, world);
    auto optimizer = MakeSgd(ddp);
    autograd::Backward(Sum((*model)[0] + (*model)[1]));
    if (rank == 0) {
      autograd::SetGrad((*model)[1], {});
      EXPECT_THAT(MessageOf([&] { optimizer->Step(); }),
                  AllOf(HasSubstr("\"b\" has no gradient on rank 0, and asking the others"),
                        HasSubstr("AllGather(uint8 x 2)"), HasSubstr("AllGather(float32 x 16)")));
    } else {
      optimizer->Step();
      EXPECT_THAT(MessageOf([&] { optimizer->Synchronize(); }),
                  AllOf(HasSubstr("could not be gathered"), HasSubstr("AllGather(uint8 x 2)")));
    }
    return Values();
  });
  // None anywhere: nothing happens, as with other optimizers.
  ValuesOf(2, [](int, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 2});
    DistributedDataParallel ddp(model, world);
    auto optimizer = MakeSgd(ddp);
    const int64_t before = world->sequence();
    optimizer->Step();
    EXPECT_EQ(world->sequence() - before, 1);
    EXPECT_EQ((*model)[0].template Item<double>(), 1);
    return Values();
  });
}

TEST(ZeroFailuresTest, RanksWithOtherParametersOrOptions) {
  const auto outcomes = RunRanks(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 2});
    DistributedDataParallel ddp(model, world);
    NamedTensors some;
    some.Insert(rank == 0 ? "a" : "b", (*model)[static_cast<size_t>(rank)]);
    MakeZeroOptimizer<optim::Sgd>(ddp, some, optim::SgdOptions());
    return Values();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(outcome.message, AllOf(HasSubstr("ZeroOptimizer: the ranks' parameters differ"),
                                       HasSubstr("a float32[1]"), HasSubstr("b float32[1]")));
  }
  const auto sizes = RunRanks(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 2});
    DistributedDataParallel ddp(model, world);
    MakeZeroOptimizer<optim::Sgd>(ddp, model->NamedParameters(), optim::SgdOptions(),
                                  {.bucket_bytes = 100 + rank});
    return Values();
  });
  EXPECT_THAT(sizes[1].message,
              AllOf(HasSubstr("bucket_bytes 100"), HasSubstr("bucket_bytes 101")));
}

TEST(ZeroFailuresTest, Constructor) {
  ValuesOf(2, [](int, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 2});
    DistributedDataParallel ddp(model, world, {.ignored_parameters = {"b"}});
    const NamedTensors a = {{"a", (*model)[0]}};
    const auto refused = [&](const std::vector<NamedTensors>& groups,
                             const ZeroOptimizer::Factory& make, const char* part) {
      EXPECT_THAT(MessageOf([&] { ZeroOptimizer(ddp, groups, make); }), HasSubstr(part));
    };
    const ZeroOptimizer::Factory sgd = [](const std::vector<NamedTensors>& pieces) {
      return std::make_unique<optim::Sgd>(pieces[0]);
    };
    refused(
        {a}, [](const auto&) { return nullptr; }, "the factory returned no optimizer");
    refused(
        {a}, [](const auto& pieces) { return std::make_unique<Layerwise>(pieces[0]); },
        "not elementwise");
    refused(
        {a}, [&](const auto&) { return std::make_unique<optim::Sgd>(a); },
        "not the 1 pieces in 1 groups");
    refused({a, NamedTensors()}, sgd, "1 parameters in 1 groups, and not the 1 pieces in 2 groups");
    refused({model->NamedParameters()}, sgd,
            "the gradient of \"b\" is not averaged by the DistributedDataParallel");
    refused({a, a}, sgd, "\"a\" is given twice");
    refused({}, sgd, "there are no parameters");
    refused({{{"x", Ones({3})}}}, sgd, "\"x\" is not a parameter of the");
    EXPECT_THAT(MessageOf([&] {
                  MakeZeroOptimizer<optim::Sgd>(ddp, a, optim::SgdOptions(), {.bucket_bytes = 0});
                }),
                HasSubstr("bucket_bytes 0"));

    auto stepped = std::make_shared<Weights>(Values{1, 2});
    optim::Sgd inside(stepped->NamedParameters());
    DistributedDataParallel in_backward(stepped, world, {.optimizer_in_backward = &inside});
    EXPECT_THAT(MessageOf([&] { MakeSgd(in_backward); }), HasSubstr("has optimizer_in_backward"));

    auto shared = std::make_shared<Weights>(Values{1, 2});
    (*shared)[1].SetData(View((*shared)[0], {1}));
    DistributedDataParallel over_shared(shared, world);
    EXPECT_THAT(MessageOf([&] { MakeSgd(over_shared); }),
                HasSubstr("\"a\" and \"b\" share elements"));
    return Values();
  });
}

TEST(ZeroFailuresTest, Use) {
  ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 2});
    DistributedDataParallel ddp(model, world);
    auto optimizer =
        MakeZeroOptimizer<optim::AdamW>(ddp, model->NamedParameters(), optim::AdamWOptions());
    autograd::Backward(Sum((*model)[0] + (*model)[1]));
    EXPECT_THAT(MessageOf([&] { optimizer->StepOnly({(*model)[0]}); }),
                HasSubstr("updated together"));
    optimizer->Step();
    EXPECT_THAT(MessageOf([&] { optimizer->SaveState(); }),
                HasSubstr(rank == 0 ? "rank 0 of 2 has a part" : "rank 1 of 2 has a part"));
    EXPECT_THAT(MessageOf([&] { optimizer->ConsolidateState(2); }), HasSubstr("rank 2 of 2"));

    optim::OptimizerState state;
    state.tensors = {{"a.exp_avg", Ones({2})}};
    EXPECT_THAT(MessageOf([&] { optimizer->LoadState(state); }),
                HasSubstr("a.exp_avg has shape [2] and the parameter [1]"));
    state.tensors = {{"c.exp_avg", Ones({1})}, {"a.momentum", Ones({1})}};
    EXPECT_THAT(MessageOf([&] { optimizer->LoadState(state); }),
                AllOf(HasSubstr("c.exp_avg is unknown"), HasSubstr("a.momentum is unknown")));

    auto& options = static_cast<optim::AdamW&>(optimizer->inner()).options();
    options.lr = -1;
    EXPECT_THAT(MessageOf([&] { optimizer->Step(); }), HasSubstr("lr"));
    options.lr = 1;
    (*model)[1].SetData(Clone((*model)[1]));
    EXPECT_THAT(MessageOf([&] { optimizer->Step(); }),
                HasSubstr("\"b\" has been moved, converted or given other memory"));
    return Values();
  });
}

}  // namespace
}  // namespace lockstep::strategies
