// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads here (and processes where the two are compared): values, and the number, order
// and timing of collectives.
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies {
namespace {

using autograd::Backward;
using autograd::Grad;

using testing_util::AllParameters;
using testing_util::Outcome;
using testing_util::RankBody;
using testing_util::Rows;
using testing_util::RunRanks;
using testing_util::TrainMlp;
using testing_util::ValueOf;
using testing_util::ValuesOf;
using testing_util::Weights;

TEST(DistributedDataParallelTest, AveragesExactly) {
  const auto result = ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<nn::Linear>(1, 1);
    FillInPlace(Detach(model->weight), 1);
    FillInPlace(Detach(model->bias), 0);
    DistributedDataParallel ddp(model, world, {.bucket_cap_bytes = 1, .first_bucket_bytes = 1});
    optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1});
    Tensor x = rank == 0 ? FromVector<float>({1, 2}, {2, 1}) : FromVector<float>({3, 4}, {2, 1});
    Tensor y = (*model)(x);
    Backward(Mean(y * y));
    std::vector<double> values = {Grad(model->weight).template Item<double>(),
                                  Grad(model->bias).template Item<double>()};
    optimizer.Step();
    values.push_back(model->weight.template Item<double>());
    values.push_back(model->bias.template Item<double>());
    return values;
  });
  EXPECT_EQ(result, (std::vector<double>{15, 5, -0.5, -0.5}));
}

TEST(DistributedDataParallelTest, ReducesInOrderWhileBackwardRuns) {
  ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {3, 7, 5, 2}});
    DistributedDataParallel ddp(model, world, {.bucket_cap_bytes = 64, .first_bucket_bytes = 1});
    EXPECT_GT(ddp.bucket_count(), 2);
    const NamedTensors batch = Rows(rank, 3);
    for (int step = 0; step < 3; ++step) {
      const int64_t before = world->sequence();
      Backward(MseLoss((*model)(batch.At("inputs")), batch.At("targets")));
      const ReductionStatistics statistics = ddp.statistics();
      // The order of the first step is agreed upon once.
      EXPECT_EQ(world->sequence() - before, statistics.collectives + (step == 0 ? 1 : 0))
          << "nothing but the buckets";
      const int64_t buckets = static_cast<int64_t>(statistics.buckets.size());
      EXPECT_EQ(statistics.collectives, buckets);
      std::vector<int64_t> issued, waited;
      size_t first_issue = statistics.events.size(), last_ready = 0, ready = 0;
      for (size_t i = 0; i < statistics.events.size(); ++i) {
        const ReducerEvent& event = statistics.events[i];
        switch (event.kind) {
          case ReducerEvent::Kind::kGradientReady:
            last_ready = i;
            ++ready;
            break;
          case ReducerEvent::Kind::kReduceIssued:
            first_issue = std::min(first_issue, i);
            issued.push_back(event.index);
            break;
          case ReducerEvent::Kind::kReduceWaited:
            waited.push_back(event.index);
            break;
        }
      }
      EXPECT_EQ(ready, model->Parameters().size());
      EXPECT_LT(first_issue, last_ready) << "the first reduce starts before the last gradient";
      std::vector<int64_t> ascending;
      for (int64_t i = 0; i < buckets; ++i) ascending.push_back(i);
      EXPECT_EQ(issued, ascending);
      EXPECT_EQ(waited, ascending);
    }
    return std::vector<double>{};
  });
}

TEST(DistributedDataParallelTest, RanksOnPartsEqualOneRankOnAllRows) {
  const std::vector<double> one =
      ValuesOf(1, [](int rank, auto world) { return TrainMlp(rank, world); });
  double largest = 0;
  for (size_t i = 3; i < one.size(); ++i) largest = std::max(largest, std::abs(one[i]));
  for (int ranks : {2, 3, 4}) {
    const std::vector<double> many =
        ValuesOf(ranks, [](int rank, auto world) { return TrainMlp(rank, world); });
    ASSERT_EQ(many.size(), one.size());
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(many[i], one[i], 1e-6 * one[i]) << "loss " << i;
    for (size_t i = 3; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 1e-5 * largest) << i;
  }
  EXPECT_GT(std::abs(one[0] - one[2]), 1e-3) << "the steps do something";
}

TEST(DistributedDataParallelTest, BucketSizesChangeNoBit) {
  std::vector<std::vector<double>> results;
  for (int64_t bytes : {int64_t{1}, int64_t{100}, int64_t{25} << 20}) {
    results.push_back(ValuesOf(3, [bytes](int rank, auto world) {
      return TrainMlp(rank, world, {.bucket_cap_bytes = bytes, .first_bucket_bytes = bytes});
    }));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// Micro-batch A, inside NoSync, uses the first parameter only, and B, which synchronises, the
// second.
// Field report D-1: with unused parameters allowed, the sums of those that only the passes inside
// NoSync had used were never reduced.
TEST(DistributedDataParallelTest, NoSyncSumIsReducedByTheNextBackward) {
  for (const bool find_unused : {false, true}) {
    for (const bool views : {false, true}) {
      SCOPED_TRACE(absl::StrCat("find_unused_parameters ", find_unused, ", views ", views));
      const auto result = ValuesOf(2, [&](int rank, auto world) {
        auto model = std::make_shared<Weights>(std::vector<double>{1, 1, 1});
        if (!find_unused) autograd::SetRequiresGrad((*model)[2], false);
        DistributedDataParallel ddp(
            model, world,
            {.find_unused_parameters = find_unused, .gradient_as_bucket_view = views});
        std::vector<double> values;
        for (int step = 0; step < 3; ++step) {
          model->ZeroGrad();
          const int64_t before = world->sequence();
          {
            DistributedDataParallel::NoSync no_sync(ddp);
            Backward(Sum((*model)[0] * (rank + 1)));
            EXPECT_EQ(world->sequence(), before) << "no collective inside";
            EXPECT_EQ(ValueOf(Grad((*model)[0])), rank + 1) << "local inside";
          }
          Backward(Sum((*model)[1] * (rank + 1)));
          // Unused in both passes: a map of what was used besides.
          EXPECT_EQ(world->sequence() - before, ddp.bucket_count() + (find_unused ? 1 : 0));
          values.push_back(ValueOf(Grad((*model)[0])));
          values.push_back(ValueOf(Grad((*model)[1])));
          EXPECT_EQ(ValueOf(Grad((*model)[2])), -1) << "used by none";
        }
        return values;
      });
      EXPECT_EQ(result, (std::vector<double>{1.5, 1.5, 1.5, 1.5, 1.5, 1.5}));
    }
  }
}

TEST(DistributedDataParallelTest, AccumulationEqualsTheWholeBatch) {
  const auto result = ValuesOf(3, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(std::vector<double>{1});
    DistributedDataParallel ddp(model, world);
    {
      DistributedDataParallel::NoSync outer(ddp);
      Backward(Sum((*model)[0] * (10 * rank)));
      {
        DistributedDataParallel::NoSync inner(ddp);
        Backward(Sum((*model)[0] * (rank + 1)));
      }
      Backward(Sum((*model)[0] * 1));
    }
    Backward(Sum((*model)[0] * 2));
    return std::vector<double>{ValueOf(Grad((*model)[0]))};
  });
  EXPECT_EQ(result, (std::vector<double>{10 + 2 + 1 + 2}));
}

// An unused parameter is an error in the same iteration, on every rank, that names it; and the
// group is as good as before.
TEST(DistributedDataParallelTest, UnusedParametersAreNamedOnEveryRank) {
  for (int rank_without_b : {0, 1, -1}) {
    const auto outcomes = RunRanks(2, [&](int rank, auto world) {
      auto model = std::make_shared<Weights>(std::vector<double>{1, 1});
      DistributedDataParallel ddp(model, world);
      const auto loss = [&](bool with_b) {
        Tensor y = (*model)[0] * (rank == 0 ? 1 : 3);
        return Sum(with_b ? y + (*model)[1] : y);
      };
      try {
        Backward(loss(/*with_b=*/rank_without_b != -1 && rank != rank_without_b));
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_TRUE(absl::StrContains(
            error.message(), rank_without_b == -1
                                 ? std::string("b (on 2 of 2 ranks: 0, 1)")
                                 : absl::StrCat("b (on 1 of 2 ranks: ", rank_without_b, ")")))
            << error.message();
      }
      model->ZeroGrad();
      Backward(loss(true));
      return std::vector<double>{ValueOf(Grad((*model)[0])), ValueOf(Grad((*model)[1]))};
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.message, "");
      EXPECT_EQ(outcome.values, (std::vector<double>{2, 1}));
    }
  }
}

TEST(DistributedDataParallelTest, FindUnusedParametersAveragesWhatSomeRanksHave) {
  const auto result = ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(std::vector<double>{1, 1, 1});
    DistributedDataParallel ddp(model, world, {.find_unused_parameters = true});
    std::vector<double> values;
    for (int step = 0; step < 2; ++step) {
      model->ZeroGrad();
      Tensor y = (*model)[0] * (rank == 0 ? 1 : 3);
      if (rank == 1) y = y + (*model)[1] * 8;
      Backward(Sum(y));
      for (size_t i = 0; i < 3; ++i) values.push_back(ValueOf(Grad((*model)[i])));
    }
    return values;
  });
  // -1: no gradient, on any rank, so left alone.
  EXPECT_EQ(result, (std::vector<double>{2, 4, -1, 2, 4, -1}));
}

TEST(DistributedDataParallelTest, AParameterUsedTwiceIsReducedOnce) {
  const auto result = ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(std::vector<double>{3});
    DistributedDataParallel ddp(model, world);
    std::vector<double> values;
    for (int step = 0; step < 2; ++step) {
      model->ZeroGrad();
      const Tensor& w = (*model)[0];
      Backward(Sum(w * (w * Full({1}, rank + 1.0))));
      EXPECT_EQ(ddp.statistics().collectives, 1);
      values.push_back(ValueOf(Grad(w)));
    }
    return values;
  });
  EXPECT_EQ(result, (std::vector<double>{9, 9}));
}

TEST(DistributedDataParallelTest, TheSixteenBitAverageNeitherOverflowsNorVanishes) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    // float32 holds four times the largest float16, but not four times the largest bfloat16.
    const double large = dtype == DType::kFloat16 ? 40000 : 6e37;
    const double small = dtype == DType::kFloat16 ? std::ldexp(1, -24) : std::ldexp(1, -133);
    for (double value : {large, small}) {
      const auto result = ValuesOf(4, [&](int, auto world) {
        auto model = std::make_shared<Weights>(std::vector<double>{0}, dtype);
        DistributedDataParallel ddp(model, world);
        Backward(Sum((*model)[0] * Full({1}, value, {.dtype = dtype})));
        return std::vector<double>{ValueOf(Grad((*model)[0]))};
      });
      EXPECT_EQ(result[0], FromVector<double>({value}, {}, {.dtype = dtype}).Item<double>());
    }
  }
}

TEST(DistributedDataParallelTest, FrozenParametersCostNothing) {
  ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(std::vector<double>{rank + 5.0, 1, 1});
    autograd::SetRequiresGrad((*model)[0], false);
    DistributedDataParallel ddp(model, world);
    EXPECT_EQ((*model)[0].template Item<double>(), 5) << "frozen ones are broadcast too";
    Backward(Sum((*model)[0] * (*model)[1] + (*model)[2]));
    EXPECT_EQ(ddp.statistics().bytes, 3 * 4) << "two gradients and the count of missing ones";
    EXPECT_FALSE(Grad((*model)[0]).defined());
    return std::vector<double>{};
  });
}

TEST(DistributedDataParallelTest, RanksStartWithRankZerosValues) {
  const auto result = ValuesOf(3, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(std::vector<double>{10.0 + rank, 20.0 + rank});
    DistributedDataParallel ddp(model, world);
    return AllParameters(*model);
  });
  EXPECT_EQ(result, (std::vector<double>{10, 20}));
}

TEST(DistributedDataParallelTest, DropoutDiffersOverRanksAndRepeats) {
  const RankBody body = [](int rank, std::shared_ptr<comm::Communicator>) {
    ManualSeed(42, rank);
    return Dropout(Ones({1024}), 0.5).ToVector<double>();
  };
  const std::vector<Outcome> first = RunRanks(2, body);
  const std::vector<Outcome> second = RunRanks(2, body);
  int differing = 0;
  for (size_t i = 0; i < 1024; ++i) differing += first[0].values[i] != first[1].values[i];
  EXPECT_NEAR(differing, 512, 100);
  for (size_t rank : {0u, 1u}) EXPECT_EQ(first[rank].values, second[rank].values);
}

TEST(DistributedDataParallelTest, DifferentModelsAreRefusedOnEveryRank) {
  struct Case {
    std::function<std::shared_ptr<nn::Module>(int)> make;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {[](int rank) { return std::make_shared<nn::Linear>(3, rank == 1 ? 4 : 2); },
       "'weight float32[2, 3]' on rank 0 and 'weight float32[4, 3]' on rank 1"},
      {[](int rank) {
         return std::make_shared<Weights>(std::vector<double>(rank == 1 ? 3u : 2u, 1.0));
       },
       "none on rank 0 and 'c float32[1]' on rank 1"},
      {[](int rank) {
         return std::make_shared<Weights>(std::vector<double>{1},
                                          rank == 1 ? DType::kFloat64 : DType::kFloat32);
       },
       "'a float32[1]' on rank 0 and 'a float64[1]' on rank 1"},
      {[](int rank) {
         auto model = std::make_shared<Weights>(std::vector<double>{1, 1});
         if (rank == 1) autograd::SetRequiresGrad((*model)[1], false);
         return model;
       },
       "'b float32[1] without gradient' on rank 1"},
  };
  for (const Case& c : cases) {
    const auto outcomes = RunRanks(3, [&](int rank, auto world) {
      DistributedDataParallel ddp(c.make(rank), world);
      return std::vector<double>{};
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.code, absl::StatusCode::kInvalidArgument);
      EXPECT_TRUE(absl::StrContains(outcome.message, c.expected)) << outcome.message;
    }
  }
}

// They would step by different averages, or wait for collectives that the others do not make.
TEST(DistributedDataParallelTest, DifferentOptionsAreRefusedOnEveryRank) {
  using Options = DistributedDataParallelOptions;
  const std::vector<std::pair<Options, std::string>> cases = {
      {{.staleness = 1}, "'staleness=0' on rank 0 and 'staleness=1' on rank 1"},
      {{.bucket_cap_bytes = 8},
       "'bucket_cap_bytes=26214400' on rank 0 and 'bucket_cap_bytes=8' on rank 1"},
      {{.find_unused_parameters = true}, "'find_unused_parameters=true' on rank 1"},
      {{.broadcast_buffers = false}, "'broadcast_buffers=false' on rank 1"},
  };
  for (const auto& [options, expected] : cases) {
    const auto outcomes = RunRanks(3, [&options = options](int rank, auto world) {
      auto model = std::make_shared<Weights>(std::vector<double>{1, 1});
      DistributedDataParallel ddp(model, world, rank == 1 ? options : Options());
      return std::vector<double>{};
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.code, absl::StatusCode::kInvalidArgument);
      EXPECT_TRUE(absl::StrContains(outcome.message, expected)) << outcome.message;
    }
  }
}

TEST(DistributedDataParallelTest, WrongArgumentsAreRefused) {
  const auto outcomes = RunRanks(2, [](int, auto world) {
    const auto code = [](const std::function<void()>& body) {
      try {
        body();
      } catch (const Error& error) {
        return static_cast<double>(error.code());
      }
      return 0.0;
    };
    auto frozen = std::make_shared<Weights>(std::vector<double>{1});
    autograd::SetRequiresGrad((*frozen)[0], false);
    auto good = std::make_shared<Weights>(std::vector<double>{1});
    return std::vector<double>{
        code([&] { DistributedDataParallel ddp(nullptr, world); }),
        code([&] { DistributedDataParallel ddp(good, nullptr); }),
        code([&] { DistributedDataParallel ddp(frozen, world); }),
        code([&] { DistributedDataParallel ddp(good, world, {.bucket_cap_bytes = 0}); }),
        code([&] { DistributedDataParallel ddp(good, world, {.first_bucket_bytes = -1}); })};
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.values,
              std::vector<double>(5, static_cast<double>(absl::StatusCode::kInvalidArgument)))
        << outcome.message;
  }
}

// A backward that throws half-way has reductions in flight that the peers wait for: they are freed
// at once, and this rank's next backward says why it cannot go on.
TEST(DistributedDataParallelTest, AFailedBackwardFreesThePeers) {
  const auto outcomes = RunRanks(3, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(std::vector<double>{1, 1});
    DistributedDataParallel ddp(model, world, {.bucket_cap_bytes = 1, .first_bucket_bytes = 1});
    const auto backward = [&](bool fails) {
      Tensor inner = (*model)[0] * 2;
      if (fails) {
        autograd::RegisterHook(
            inner, [](const Tensor&) -> Tensor { throw DataLossError("a hook failed"); });
      }
      // The second parameter's gradient comes first.
      Backward(Sum(inner * (*model)[1]));
    };
    if (rank == 1) {
      try {
        backward(true);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.message(), "a hook failed");
      }
    }
    backward(false);
    return std::vector<double>{};
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_NE(outcome.code, absl::StatusCode::kOk);
    EXPECT_NE(outcome.code, absl::StatusCode::kDeadlineExceeded) << outcome.message;
    EXPECT_TRUE(absl::StrContains(outcome.message, "backward failed on rank 1")) << outcome.message;
  }
}

TEST(DistributedDataParallelTest, GradientsAreLocalOnceItIsGone) {
  const auto outcomes = RunRanks(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(std::vector<double>{1});
    { DistributedDataParallel ddp(model, world); }
    Backward(Sum((*model)[0] * (rank + 1)));
    return std::vector<double>{ValueOf(Grad((*model)[0]))};
  });
  EXPECT_EQ(outcomes[0].values, std::vector<double>{1});
  EXPECT_EQ(outcomes[1].values, std::vector<double>{2});
}

std::string ResultPath(const std::string& folder, int rank) {
  return absl::StrCat(folder, "/rank", rank);
}

// The same training in processes; each rank leaves its numbers in a file.
void TrainInProcess(comm::RankContext& context) {
  const std::vector<double> result =
      TrainMlp(context.rank, comm::InitProcessGroup(context.group_options()));
  std::ofstream file(ResultPath(context.argument, context.rank), std::ios::binary);
  file.write(reinterpret_cast<const char*>(result.data()),
             static_cast<std::streamsize>(result.size() * sizeof(double)));
}

TEST(DistributedDataParallelTest, ThreadsAndProcessesAgreeBitForBit) {
  const std::vector<double> threads =
      ValuesOf(3, [](int rank, auto world) { return TrainMlp(rank, world); });
  const std::string folder = NewFolder();
  comm::SpawnOptions options;
  options.argument = folder;
  comm::Spawn(3, &TrainInProcess, options).ThrowIfFailed();
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<double> result(threads.size());
    std::ifstream file(ResultPath(folder, rank), std::ios::binary);
    file.read(reinterpret_cast<char*>(result.data()),
              static_cast<std::streamsize>(result.size() * sizeof(double)));
    EXPECT_EQ(file.gcount(), static_cast<std::streamsize>(result.size() * sizeof(double)));
    EXPECT_EQ(result, threads) << "rank " << rank;
  }
}

}  // namespace
}  // namespace lockstep::strategies

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
