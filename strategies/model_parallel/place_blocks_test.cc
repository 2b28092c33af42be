// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/model_parallel/place_blocks.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/testing.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PlaceBlocks, PartsInOrderTheCostliestAsCheapAsItCanBe) {
  EXPECT_THAT(PlaceBlocks(std::vector<double>(5, 1), CpuDevices(3)),
              ElementsAre(Cpu(0), Cpu(0), Cpu(1), Cpu(1), Cpu(2)));
  EXPECT_THAT(PlaceBlocks({1, 1, 1, 1, 4}, CpuDevices(2)),
              ElementsAre(Cpu(0), Cpu(0), Cpu(0), Cpu(0), Cpu(1)));
  const std::vector<Device> backwards = {Cpu(3), Cpu(1)};
  EXPECT_THAT(PlaceBlocks({1, 1}, backwards), ElementsAre(Cpu(3), Cpu(1)));
}

void ExpectRefused(const std::vector<double>& costs, const std::vector<Device>& devices,
                   const std::string& message) {
  const Error error = ErrorOf([&] { PlaceBlocks(costs, devices); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr(message));
}

TEST(PlaceBlocks, RefusesWithTheNumbers) {
  ExpectRefused({1, 1, 1}, CpuDevices(5), "5 devices for 3 blocks");
  ExpectRefused({}, CpuDevices(1), "1 devices for 0 blocks");
  ExpectRefused({1, 1}, {}, "PlaceBlocks: no devices");
  ExpectRefused({1, 1}, {Cpu(1), Cpu(1)}, "cpu:1 is given twice, as 0 and as 1");
  ExpectRefused({1, 1}, {Cpu(1), kMeta}, "nothing is computed on meta");
  ExpectRefused({1, -1}, CpuDevices(2), "block 1 of 2 is -1");
  ExpectRefused({1, std::numeric_limits<double>::infinity()}, CpuDevices(2), "is inf");
}

TEST(BlockBytes, CountsWhatIsSharedForTheFirst) {
  nn::ModuleList<nn::Linear> list;
  list.Emplace(3, 4);
  list.Emplace(4, 3, nn::LinearOptions{.bias = false});
  list.Emplace(3, 4, nn::LinearOptions{.weight = list[0]->weight});
  EXPECT_THAT(BlockBytes(BlocksOf(list)), ElementsAre(4 * (12 + 4), 4 * 12, 4 * 4));
  EXPECT_THAT(MessageOf([] { BlockBytes({nullptr}); }), HasSubstr("block 0 of 1 is null"));
}

// Counts its calls and takes at least this long.
class Slow : public nn::UnaryModule {
 public:
  explicit Slow(double seconds) : seconds_(seconds) {
    RegisterParameter("scale", &scale, Ones({1}));
    RegisterBuffer("calls", &calls, Zeros({1}));
  }
  Tensor Forward(const Tensor& x) override {
    ++count;
    AddInPlace(calls, 1.0);
    const Stopwatch watch;
    while (watch.ElapsedSeconds() < seconds_) {
    }
    return Mul(x, scale);
  }
  Tensor scale, calls;
  int count = 0;

 private:
  double seconds_;
};

TEST(MeasureBlocks, TellsSlowBlocksAndLeavesNothingBehind) {
  ManualSeed(1);
  nn::Sequential net;
  const auto fast = net.Emplace<Slow>(0);
  net.Emplace<nn::Dropout>(0.5);
  const auto slow = net.Emplace<Slow>(0.05);
  const Tensor x = autograd::SetRequiresGrad(Ones({2}), true);
  autograd::Backward(Sum(Mul(slow->scale, 3.0)));
  const RandomStreams before = ThreadGenerators();
  const std::vector<double> seconds = MeasureBlocks(BlocksOf(net), x, {.repeats = 3, .warmups = 2});
  ASSERT_EQ(seconds.size(), 3u);
  EXPECT_GE(seconds[2], 0.05);
  EXPECT_GT(seconds[0], 0);
  EXPECT_EQ(fast->count, 5);
  EXPECT_EQ(fast->calls.Item<double>(), 0);
  EXPECT_EQ(autograd::Grad(slow->scale).Item<double>(), 3);
  EXPECT_FALSE(autograd::Grad(fast->scale).defined());
  EXPECT_FALSE(autograd::Grad(x).defined());
  EXPECT_EQ(ThreadGenerators().dropout.key.offset, before.dropout.key.offset);
}

TEST(MeasureBlocks, TakesIntegersAndFrozenBlocks) {
  nn::Sequential net;
  net.Emplace<Slow>(0)->SetRequiresGrad(false);
  EXPECT_EQ(MeasureBlocks(BlocksOf(net), Ones({2})).size(), 1u);
  EXPECT_TRUE(MeasureBlocks({}, Ones({2})).empty());
}

TEST(MeasureBlocks, RefusesWithTheNumbers) {
  nn::Sequential net;
  net.Emplace<Slow>(0);
  const BlockList blocks = BlocksOf(net);
  EXPECT_THAT(MessageOf([&] { MeasureBlocks(blocks, Ones({2}), {.repeats = 0}); }),
              HasSubstr("0 repeats and 1 warmups"));
  EXPECT_THAT(MessageOf([&] { MeasureBlocks(blocks, Tensor()); }), HasSubstr("no input"));
  EXPECT_THAT(MessageOf([&] {
                MeasureBlocks({blocks[0], nullptr}, Ones({2}));
              }),
              HasSubstr("block 1 of 2 is null"));
  const autograd::NoGradScope no_grad;
  EXPECT_EQ(ErrorOf([&] { MeasureBlocks(blocks, Ones({2})); }).code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lockstep::strategies
