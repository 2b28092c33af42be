// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Each stage of 1F1B keeps the activations of as many micro-batches as there are stages from it to
// the end, and GPipe of all, by the devices' byte counters.
#include "lockstep/tensor/memory.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::pipeline {
namespace {

constexpr int kStages = 3;
constexpr int kLayers = 12;  // of a stage
constexpr int64_t kWidth = 33;
constexpr int64_t kRows = 200;  // of a micro-batch: activations outweigh parameters

// The most bytes of each device in a step beyond those before it.
std::vector<int64_t> PeakBytes(const Schedule& schedule) {
  nn::Sequential model;
  for (int i = 0; i < kStages * kLayers / 2; ++i) {
    model.Emplace<nn::Linear>(kWidth, kWidth);
    model.Emplace<nn::Tanh>();
  }
  Pipeline pipeline(testing_util::CutEvenly(model, kStages),
                    {.schedule = schedule, .loss = testing_util::MseOf, .threads_per_rank = 1});
  const Tensor x = Ones({kRows * schedule.micro_batches, kWidth});
  pipeline.Step({x}, {x});  // gradients exist from here on
  std::vector<int64_t> before, bytes;
  for (int s = 0; s < kStages; ++s) {
    before.push_back(GetMemoryStats(Cpu(s)).current_bytes);
    ResetPeakBytes(Cpu(s));
  }
  pipeline.Step({x}, {x});
  for (int s = 0; s < kStages; ++s) {
    bytes.push_back(GetMemoryStats(Cpu(s)).peak_bytes - before[static_cast<size_t>(s)]);
    EXPECT_EQ(GetMemoryStats(Cpu(s)).current_bytes, before[static_cast<size_t>(s)])
        << "a step leaves nothing behind";
  }
  return bytes;
}

TEST(PipelineMemory, InFlightActivationsAreAtTheBound) {
  // GPipe's micro-batches are all in flight: what eight more of them take is eight times one's.
  const std::vector<int64_t> one = PeakBytes(GPipe(kStages, 1));
  const std::vector<int64_t> nine = PeakBytes(GPipe(kStages, 9));
  constexpr double kTensor = kRows * kWidth * 4;
  for (const int micro_batches : {4, 9}) {
    const std::vector<int64_t> peak = PeakBytes(OneForwardOneBackward(kStages, micro_batches));
    for (int s = 0; s < kStages; ++s) {
      const auto i = static_cast<size_t>(s);
      const double each = static_cast<double>(nine[i] - one[i]) / 8;
      EXPECT_GE(each, 6 * kTensor) << "the results of six tanh, and the input: the measure itself";
      const double in_flight = 1 + static_cast<double>(peak[i] - one[i]) / each;
      // Half of one for what has arrived and waits.
      EXPECT_LE(in_flight, std::min(kStages - s, micro_batches) + 0.5)
          << "stage " << s << ", " << micro_batches << " micro-batches";
    }
  }
}

}  // namespace
}  // namespace lockstep::pipeline
