// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of ddp.md.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

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
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/distributed_data_parallel/join.h"
#include "lockstep/strategies/distributed_data_parallel/loss_factors.h"
#include "lockstep/strategies/local_sgd/local_sgd.h"
#include "lockstep/tensor/dtype.h"
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

  const std::vector<double> counts =
      world->rank() == 0 ? std::vector<double>{1} : std::vector<double>{2, 1};
  optimizer.ZeroGrad();
  const std::vector<double> factors = strategies::LossFactors(counts, *world);
  for (size_t i = 0; i < factors.size(); ++i) {
    std::optional<strategies::DistributedDataParallel::NoSync> no_sync;
    if (i + 1 < factors.size()) no_sync.emplace(ddp);
    Tensor mean_loss = MseLoss((*model)(first.At("inputs")), first.At("targets"));
    autograd::Backward(mean_loss * factors[i]);
  }

  const int batches_of_this_rank = world->rank() + 1;
  strategies::Join join({&ddp});
  for (int batch = 0; batch < batches_of_this_rank; ++batch) {
    optimizer.ZeroGrad();
    autograd::Backward(MseLoss((*model)(first.At("inputs")), first.At("targets")));
    optimizer.Step();
  }
  join.Finish();

  auto other = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {2, 8, 1}});
  optim::Sgd other_optimizer(other->NamedParameters(), {.lr = 0.1});
  strategies::DistributedDataParallel compressed(
      other, world,
      {.communication_hook = std::make_shared<strategies::CompressionHook>(DType::kBFloat16)});
  strategies::LocalSgd local(compressed, {.period = 2, .warmup_steps = 1});
  for (int step = 0; step < 4; ++step) {
    other_optimizer.ZeroGrad();
    {
      const auto scope = local.BackwardScope();
      autograd::Backward(MseLoss((*other)(first.At("inputs")), first.At("targets")));
    }
    other_optimizer.Step();
    local.AfterStep();
  }
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
