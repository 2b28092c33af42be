// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/average_gradients.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using ::testing::HasSubstr;
using testing_util::RunRanks;
using testing_util::ValuesOf;
using testing_util::Weights;
using Values = std::vector<double>;

Tensor Parameter(int64_t elements, DType dtype = DType::kFloat32) {
  return autograd::SetRequiresGrad(Zeros({elements}, {.dtype = dtype}), true);
}

// Element i of parameter p on a rank.
void SetGradient(const Tensor& parameter, int p, int rank) {
  autograd::SetGrad(parameter, To(Arange(parameter.numel(), {.dtype = DType::kFloat32}) * 3 +
                                      (100 * p + 7 * rank),
                                  parameter.dtype()));
}

TEST(AverageGradientsTest, AveragesWhatAnyRankHasInBucketsOfOneDtype) {
  for (const int64_t bucket_bytes : {int64_t{1}, int64_t{32}, int64_t{25} << 20}) {
    const auto outcomes = RunRanks(3, [&](int rank, auto world) {
      const std::vector<Tensor> parameters = {
          Parameter(5), Parameter(0), Parameter(3), Parameter(1), Parameter(4, DType::kFloat64),
          Parameter(3)};
      for (int p = 0; p < 5; ++p) {
        // The third is rank 1's alone, the last nobody's.
        if (p != 2 || rank == 1) SetGradient(parameters[static_cast<size_t>(p)], p, rank);
      }
      const int64_t before = world->sequence();
      AverageGradients(parameters, *world, {.bucket_bytes = bucket_bytes});
      Values values = {static_cast<double>(world->sequence() - before)};
      for (const Tensor& parameter : parameters) {
        const Tensor gradient = autograd::Grad(parameter);
        if (!gradient.defined()) continue;
        const Values elements = gradient.ToVector<double>();
        values.insert(values.end(), elements.begin(), elements.end());
      }
      return values;
    });
    // One says what there is. 5, 0, 3 and 1 floats, and 4 doubles.
    const double collectives = bucket_bytes == 1 ? 1 + 5 : bucket_bytes == 32 ? 1 + 3 : 1 + 2;
    for (const auto& outcome : outcomes) {
      ASSERT_EQ(outcome.message, "");
      const Values& values = outcome.values;
      ASSERT_EQ(values.size(), 1u + 5 + 3 + 1 + 4);
      EXPECT_EQ(values[0], collectives) << bucket_bytes;
      for (int i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(values[1 + i], 3 * i + 7);
      for (int i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(values[6 + i], (3 * i + 207) / 3.0);
      EXPECT_FLOAT_EQ(values[9], 307);
      for (int i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(values[10 + i], 3 * i + 407);
    }
  }
}

TEST(AverageGradientsTest, TrainsAsDistributedDataParallelDoes) {
  for (const int ranks : {2, 3}) {
    const auto train = [&](bool ddp) {
      return ValuesOf(ranks, [ddp](int rank, auto world) {
        auto model = std::make_shared<Weights>(Values{1.3, -0.7, 2.9});
        std::unique_ptr<DistributedDataParallel> wrapped;
        if (ddp) wrapped = std::make_unique<DistributedDataParallel>(model, world);
        optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1});
        Values values;
        for (int step = 0; step < 4; ++step) {
          optimizer.ZeroGrad();
          const Tensor y = (*model)[0] * (0.3 + rank) - (*model)[1] * (*model)[2] * (step - 1.7);
          autograd::Backward(Sum(y * y) * 0.1);
          if (!ddp) AverageGradients(model->Parameters(), *world);
          optimizer.Step();
          for (int i = 0; i < 3; ++i)
            values.push_back((*model)[static_cast<size_t>(i)].template Item<double>());
        }
        return values;
      });
    };
    EXPECT_EQ(train(false), train(true));
  }
}

TEST(AverageGradientsTest, AParameterThatIsListedTwiceCountsOnce) {
  const auto outcomes = RunRanks(3, [](int rank, auto world) {
    const Tensor tied = Parameter(5), other = Parameter(3);
    SetGradient(tied, 0, rank);
    SetGradient(other, 1, rank);
    AverageGradients({tied, other, tied}, *world);
    Values values = autograd::Grad(tied).template ToVector<double>();
    const Values more = autograd::Grad(other).template ToVector<double>();
    values.insert(values.end(), more.begin(), more.end());
    return values;
  });
  for (const auto& outcome : outcomes) {
    ASSERT_EQ(outcome.message, "");
    ASSERT_EQ(outcome.values.size(), 5u + 3);
    for (int i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(outcome.values[i], 3 * i + 7);
    for (int i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(outcome.values[5 + i], 3 * i + 107);
  }
}

TEST(AverageGradientsTest, OneRankAndBadOptions) {
  const auto outcomes = RunRanks(2, [](int, auto world) {
    const Tensor parameter = Parameter(3);
    EXPECT_THAT(MessageOf([&] { AverageGradients({parameter}, *world, {.bucket_bytes = 0}); }),
                HasSubstr("bucket_bytes is 0"));
    AverageGradients({}, *world);
    EXPECT_EQ(world->sequence(), 0);
    return Values{};
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.message, "");
}

}  // namespace
}  // namespace lockstep::strategies
