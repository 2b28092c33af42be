// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Communication hooks: what they send, and how far their averages are from the true ones.
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/distributed_data_parallel/communication_hook.h"
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/power_sgd.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using autograd::Backward;
using autograd::Grad;
using ::testing::HasSubstr;
using testing_util::RunRanks;
using testing_util::TrainMlp;
using testing_util::ValueOf;
using testing_util::ValuesOf;
using testing_util::Weights;
using Values = std::vector<double>;

constexpr int64_t kRows = 96, kColumns = 70;

// A matrix and a vector, too large for the small messages of the shm backend.
class Matrices : public nn::Module {
 public:
  Matrices() {
    RegisterParameter("vector", &vector, Zeros({5001}));
    RegisterParameter("matrix", &matrix, Zeros({kRows, kColumns}));
  }
  Tensor vector, matrix;
};

// Numbers that tell rank, step and position, of several magnitudes.
Tensor Gradient(const Shape& shape, int rank, int step) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const double angle = 0.37 * static_cast<double>(i) + 1.3 * rank + 0.7 * step;
    values.push_back(static_cast<float>(std::sin(angle) * std::exp2(-static_cast<double>(i % 7))));
  }
  return FromVector<float>(values, shape);
}

// Gives the module these gradients.
void Make(const Matrices& model, const Tensor& vector, const Tensor& matrix) {
  Backward(Sum(model.vector * vector) + Sum(model.matrix * matrix));
}
void Make(const Matrices& model, int rank, int step) {
  Make(model, Gradient(model.vector.shape(), rank, step),
       Gradient(model.matrix.shape(), rank, step));
}

// What a step's buckets move on a rank with this hook: the mean over ranks, whose slices may differ
// by a few elements.
int64_t BytesOf(std::shared_ptr<CommunicationHook> hook, int rank,
                std::shared_ptr<comm::Communicator> world, int64_t* collectives = nullptr) {
  auto model = std::make_shared<Matrices>();
  DistributedDataParallel ddp(model, world, {.communication_hook = std::move(hook)});
  for (int step = 0; step < 3; ++step) Make(*model, rank, step);
  const ReductionStatistics statistics = ddp.statistics();
  if (collectives != nullptr) *collectives = statistics.collectives;
  EXPECT_EQ(statistics.buckets.size(), 1u);
  const Tensor sum = FromVector<int64_t>({statistics.bytes_received + statistics.bytes_sent}, {1});
  world->AllReduce(sum).Wait();
  return sum.Item<int64_t>() / world->size();
}

TEST(CompressionHookTest, SixteenBitsAreHalfTheBytes) {
  ValuesOf(2, [](int rank, auto world) {
    const int64_t elements = 5001 + kRows * kColumns;
    // Two ranks: each reads half a tensor and writes half; and one element that says "no reports".
    EXPECT_EQ(BytesOf(nullptr, rank, world), 4 * (elements + 1));
    int64_t collectives = 0;
    const int64_t report = 4;
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      EXPECT_EQ(BytesOf(std::make_shared<CompressionHook>(dtype), rank, world, &collectives),
                2 * elements + report);
      EXPECT_EQ(collectives, 2);
    }
    EXPECT_EQ(BytesOf(std::make_shared<NoOpHook>(), rank, world), report);
    return Values();
  });
}

TEST(CompressionHookTest, StaysWithinTwoRoundings) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    // Half a unit in the last place, relative; and of float16's smallest number.
    const double unit = dtype == DType::kFloat16 ? std::ldexp(1, -11) : std::ldexp(1, -8);
    const double least = dtype == DType::kFloat16 ? std::ldexp(1, -25) : 0;
    ValuesOf(3, [&](int rank, auto world) {
      auto model = std::make_shared<Matrices>();
      DistributedDataParallel ddp(model, world,
                                  {.bucket_cap_bytes = 1,
                                   .first_bucket_bytes = 1,
                                   .communication_hook = std::make_shared<CompressionHook>(dtype)});
      for (int step = 0; step < 3; ++step) {
        model->ZeroGrad();
        Make(*model, rank, step);
        EXPECT_EQ(ddp.statistics().collectives, 3) << "two buckets and the report";
        const Values result = Grad(model->matrix).template ToVector<double>();
        std::vector<Values> parts;
        for (int r = 0; r < 3; ++r) {
          parts.push_back(Gradient(model->matrix.shape(), r, step).template ToVector<double>());
        }
        bool rounded = false;
        for (size_t i = 0; i < result.size(); ++i) {
          const double mean = (parts[0][i] + parts[1][i] + parts[2][i]) / 3;
          const double size =
              (std::abs(parts[0][i]) + std::abs(parts[1][i]) + std::abs(parts[2][i])) / 3;
          EXPECT_NEAR(result[i], mean, 2.01 * (unit * size + least)) << i;
          rounded |= std::abs(result[i] - mean) > 1e-6 * size;
        }
        EXPECT_TRUE(rounded) << "something was compressed";
      }
      return Grad(model->vector).template ToVector<double>();
    });
  }
}

// Field report: a float16 sum overflows, or a quotient vanishes.
TEST(CompressionHookTest, NeitherOverflowsNorVanishesOnTheWay) {
  for (const double value : {40000.0, std::ldexp(1, -24)}) {
    const Values result = ValuesOf(4, [&](int, auto world) {
      auto model = std::make_shared<Weights>(Values{0});
      DistributedDataParallel ddp(
          model, world, {.communication_hook = std::make_shared<CompressionHook>(DType::kFloat16)});
      Backward(Sum((*model)[0] * value));
      return Values{ValueOf(Grad((*model)[0]))};
    });
    EXPECT_EQ(result, Values{value});
  }
  EXPECT_THAT(MessageOf([] { CompressionHook hook(DType::kFloat32); }),
              HasSubstr("CompressionHook: float32; gradients are compressed to float16"));
}

TEST(CommunicationHookTest, NoOpLeavesEachRankItsGradients) {
  const auto outcomes = RunRanks(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1});
    DistributedDataParallel ddp(model, world, {.communication_hook = std::make_shared<NoOpHook>()});
    for (int step = 0; step < 3; ++step) {
      model->ZeroGrad();
      Backward(Sum((*model)[0] * (rank + 1)));
    }
    return Values{ValueOf(Grad((*model)[0]))};
  });
  EXPECT_EQ(outcomes[0].values, Values{1});
  EXPECT_EQ(outcomes[1].values, Values{2});
}

// A user's own: sees every bucket in order and may do with it what it likes.
class Recorder : public CommunicationHook {
 public:
  comm::Work Reduce(GradientBucket& bucket, comm::Communicator& group) override {
    seen.push_back(bucket.names());
    last = bucket.is_last();
    if (fails) throw DataLossError("the hook failed");
    MulInPlace(bucket.gradients()[0], 10.0);
    return group.AllReduce(bucket.buffer(), {.op = comm::ReduceOp::kAverage});
  }
  void Finish(const std::vector<GradientBucket*>& buckets, comm::Communicator&) override {
    for (GradientBucket* bucket : buckets) AddInPlace(bucket->buffer(), 0.25);
  }
  std::vector<std::vector<std::string>> seen;
  bool last = false;
  bool fails = false;
};

TEST(CommunicationHookTest, AUsersOwn) {
  const Values result = ValuesOf(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 1});
    auto hook = std::make_shared<Recorder>();
    DistributedDataParallel ddp(
        model, world, {.bucket_cap_bytes = 1, .first_bucket_bytes = 1, .communication_hook = hook});
    Values values;
    for (int step = 0; step < 3; ++step) {
      model->ZeroGrad();
      Backward(Sum((*model)[0] * (rank + 1) * (*model)[1]));
      for (size_t i = 0; i < 2; ++i) values.push_back(ValueOf(Grad((*model)[i])));
    }
    EXPECT_EQ(hook->seen.size(), 6u);
    EXPECT_EQ(hook->seen[0], std::vector<std::string>{"b"});
    EXPECT_EQ(hook->seen[5], std::vector<std::string>{"a"});
    EXPECT_TRUE(hook->last);
    return values;
  });
  EXPECT_EQ(result, (Values{15.25, 15.25, 15.25, 15.25, 15.25, 15.25}));
}

TEST(CommunicationHookTest, ErrorsReachTheOtherRanksAndUnusedParametersAreFound) {
  const auto outcomes = RunRanks(2, [](int rank, auto world) {
    auto model = std::make_shared<Weights>(Values{1, 1});
    auto hook = std::make_shared<Recorder>();
    DistributedDataParallel ddp(model, world, {.communication_hook = hook});
    const Error error = ErrorOf([&] { Backward(Sum((*model)[0])); });
    EXPECT_THAT(error.message(), HasSubstr("b (on 2 of 2 ranks: 0, 1)"));
    hook->fails = rank == 1;
    Backward(Sum((*model)[0] + (*model)[1]));
    return Values();
  });
  EXPECT_THAT(outcomes[0].message, HasSubstr("backward failed on rank 1"));
  EXPECT_THAT(outcomes[1].message, HasSubstr("the hook failed"));
}

TEST(OrthogonalizeTest, ColumnsBecomeOrthonormalAndDependentOnesZero) {
  for (const int64_t columns : {1, 2, 4}) {
    const Tensor matrix = Contiguous(Gradient({33, columns}, 1, 2));
    Orthogonalize(matrix, 0);
    const Values products = MatMul(matrix, matrix, {.transpose_a = true}).ToVector<double>();
    for (int64_t i = 0; i < columns * columns; ++i) {
      EXPECT_NEAR(products[static_cast<size_t>(i)], i % (columns + 1) == 0 ? 1 : 0, 1e-6);
    }
  }
  const Tensor dependent = FromVector<float>({1, 2, 0, 2, 4, 0, 3, 6, 0}, {3, 3});
  Orthogonalize(dependent, 0);
  const Values values = dependent.ToVector<double>();
  EXPECT_NEAR(values[0], 1 / std::sqrt(14), 1e-7);
  for (const size_t i : {1u, 2u, 4u, 5u, 7u, 8u}) EXPECT_EQ(values[i], 0);
}

TEST(PowerSgdHookTest, SendsTwoThinMatricesByRank) {
  ValuesOf(2, [](int rank, auto world) {
    for (const int64_t k : {1, 2, 4}) {
      auto hook = std::make_shared<PowerSgdHook>(PowerSgdOptions{.rank = k, .start_step = 2});
      int64_t collectives = 0;
      // The vector goes whole. Messages of at most 16 KiB are read whole by each rank.
      const int64_t q = 4 * kColumns * k, report = 4;
      EXPECT_EQ(BytesOf(hook, rank, world, &collectives), 4 * (5001 + kRows * k) + q + report);
      EXPECT_EQ(collectives, 2);
      EXPECT_EQ(hook->steps(), 3);
    }
    return Values();
  });
}

// The average of the ranks' outer products with one vector has rank 1: nothing is lost.
TEST(PowerSgdHookTest, IsExactWhereTheAverageHasThatRank) {
  ValuesOf(3, [](int rank, auto world) {
    auto model = std::make_shared<Matrices>();
    auto hook = std::make_shared<PowerSgdHook>(PowerSgdOptions{.rank = 2, .start_step = 2});
    DistributedDataParallel ddp(model, world, {.communication_hook = hook});
    const Tensor row = Gradient({1, kColumns}, 0, 0);
    for (int step = 0; step < 5; ++step) {
      model->ZeroGrad();
      const Tensor matrix = MatMul(Gradient({kRows, 1}, rank, step), row);
      // Where the program calls Backward() under autocast, the factors are float32 all the same.
      std::optional<amp::Autocast> autocast;
      if (step == 4) autocast.emplace();
      Make(*model, Gradient(model->vector.shape(), rank, step), matrix);
      autocast.reset();
      Tensor mean = Zeros({kRows, 1});
      for (int r = 0; r < 3; ++r) mean = mean + Gradient({kRows, 1}, r, step) * (1.0 / 3);
      const double error =
          Sum(Abs(Grad(model->matrix) - MatMul(mean, row))).template Item<double>();
      EXPECT_LT(error, 1e-5 * Sum(Abs(MatMul(mean, row))).template Item<double>()) << step;
    }
    return Grad(model->vector).template ToVector<double>();
  });
}

// What is left out of a step is in the next ones: the sum of what was given over all steps differs
// from the sum of the true averages by the last step's errors only, which do not grow.
TEST(PowerSgdHookTest, ErrorFeedbackLosesNothing) {
  for (const bool warm_start : {true, false}) {
    ValuesOf(2, [&](int rank, auto world) {
      auto model = std::make_shared<Matrices>();
      auto hook = std::make_shared<PowerSgdHook>(
          PowerSgdOptions{.rank = 1, .start_step = 2, .warm_start = warm_start});
      DistributedDataParallel ddp(model, world, {.communication_hook = hook});
      Tensor given = Zeros({kRows, kColumns}), truth = given;
      double first_error = 0;
      for (int step = 0; step < 40; ++step) {
        model->ZeroGrad();
        Make(*model, rank, /*step=*/0);  // the same each time
        given = given + Detach(Grad(model->matrix));
        truth =
            truth + (Gradient({kRows, kColumns}, 0, 0) + Gradient({kRows, kColumns}, 1, 0)) * 0.5;
        Tensor left = hook->ErrorOf("matrix");
        EXPECT_EQ(left.defined(), step >= 2);
        if (step < 2) continue;
        left = Clone(left);
        world->AllReduce(left, {.op = comm::ReduceOp::kAverage}).Wait();
        const double scale = Sum(Abs(truth)).template Item<double>();
        EXPECT_LT(Sum(Abs(given + left - truth)).template Item<double>(), 1e-5 * scale);
        const double error = Sum(Abs(left)).template Item<double>();
        if (step == 2) first_error = error;
        EXPECT_LT(error, 30 * first_error) << "step " << step;
      }
      EXPECT_GT(first_error, 0) << "something was left out";
      return given.ToVector<double>();
    });
  }
}

TEST(PowerSgdHookTest, TrainsAsWithoutBeforeItStartsAndRefusesBadOptions) {
  const Values plain = ValuesOf(2, [](int rank, auto world) { return TrainMlp(rank, world); });
  const Values hooked = ValuesOf(2, [](int rank, auto world) {
    return TrainMlp(rank, world, {.communication_hook = std::make_shared<PowerSgdHook>()});
  });
  EXPECT_EQ(hooked, plain);
  const auto refused = [](const PowerSgdOptions& options, const char* part) {
    EXPECT_THAT(MessageOf([&] { PowerSgdHook hook(options); }), HasSubstr(part));
  };
  refused({.rank = 0}, "rank 0");
  refused({.start_step = 1}, "start_step 1; at least 2 with error_feedback or warm_start");
  refused({.start_step = -1, .error_feedback = false, .warm_start = false}, "start_step -1");
  refused({.min_compression_rate = 0}, "min_compression_rate 0");
  refused({.orthogonalization_epsilon = -1}, "orthogonalization_epsilon -1");
}

TEST(HookOptionsTest, WhatExcludesEachOtherIsRefused) {
  ValuesOf(1, [](int, auto world) {
    const auto refused = [&](const DistributedDataParallelOptions& options, const char* part) {
      auto model = std::make_shared<Weights>(Values{1});
      const Error error = ErrorOf([&] { DistributedDataParallel ddp(model, world, options); });
      EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
      EXPECT_THAT(error.message(), HasSubstr(part));
    };
    const auto hook = std::make_shared<CompressionHook>(DType::kFloat16);
    refused({.find_unused_parameters = true, .static_graph = true},
            "static_graph does not go with find_unused_parameters");
    refused({.static_graph = true, .staleness = 1}, "staleness does not go with static_graph");
    refused({.communication_hook = hook, .staleness = 1},
            "staleness does not go with this communication_hook");
    refused({.gradient_as_bucket_view = true, .staleness = 1},
            "staleness does not go with gradient_as_bucket_view");
    return Values();
  });
}

}  // namespace
}  // namespace lockstep::strategies
