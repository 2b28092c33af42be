// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of ddp.md.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/autograd/backward.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sampler.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep {
namespace {

std::shared_ptr<data::Dataset> MakeRows() {
  return std::make_shared<data::TensorDataset>(
      NamedTensors{{"inputs", Reshape(Arange(24.0), {12, 2}) * 0.1},
                   {"targets", Reshape(Arange(12.0), {12, 1}) * 0.05}});
}

void RankMain(comm::RankContext& context) {
  std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(context.group_options());
  ManualSeed(1234, world->rank());
  auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {2, 8, 1}});
  strategies::DistributedDataParallel ddp(model, world);
  optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1});

  auto rows = MakeRows();
  auto sampler = std::make_shared<data::DistributedSampler>(
      rows->size(), data::SamplerOptions{.rank = world->rank(), .world_size = world->size()});
  data::DataLoader loader(rows, sampler, {.batch_size = 2});
  while (std::optional<NamedTensors> batch = loader.Next()) {
    optimizer.ZeroGrad();
    Tensor loss = MseLoss((*model)(batch->At("inputs")), batch->At("targets"));
    autograd::Backward(loss);
    optimizer.Step();
  }

  NamedTensors first = {{"inputs", Ones({1, 2})}, {"targets", Ones({1, 1})}};
  NamedTensors second = first;
  optimizer.ZeroGrad();
  {
    strategies::DistributedDataParallel::NoSync no_sync(ddp);
    Tensor loss = MseLoss((*model)(first.At("inputs")), first.At("targets"));
    autograd::Backward(loss * 0.5);
  }
  Tensor loss = MseLoss((*model)(second.At("inputs")), second.At("targets"));
  autograd::Backward(loss * 0.5);
  optimizer.Step();

  strategies::ReductionStatistics statistics = ddp.statistics();
  if (statistics.collectives != ddp.bucket_count()) throw InternalError("unexpected collectives");
}

TEST(DdpExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/ddp.md", "docs/ddp_example_test.cc");
}

TEST(DdpExample, TrainsOnThreeProcesses) {
  comm::SpawnResult result = comm::Spawn(3, RankMain);
  result.ThrowIfFailed();
  EXPECT_EQ(result.ranks.size(), 3u);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
