// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of zero.md.
#include <gtest/gtest.h>

#include <memory>

#include "lockstep/autograd/backward.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/nn/optim/schedule.h"
#include "lockstep/nn/optim/schedules/cosine.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/zero_optimizer/zero_optimizer.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

void RankMain(comm::RankContext& context) {
  std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(context.group_options());
  auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {2, 8, 1}});
  strategies::DistributedDataParallel ddp(model, world, {.gradient_as_bucket_view = true});
  auto optimizer = strategies::MakeZeroOptimizer<optim::AdamW>(ddp, model->NamedParameters(),
                                                               optim::AdamWOptions{.lr = 0.01});
  optim::Schedule schedule(optimizer.get(), optim::WarmupCosine({.total_steps = 4}));
  auto& inner = static_cast<optim::AdamW&>(optimizer->inner());
  inner.options(/*group=*/0).weight_decay = 0.05;

  const Tensor inputs = Full({3, 2}, 0.5 + world->rank());
  const Tensor targets = Ones({3, 1});
  for (int step = 0; step < 4; ++step) {
    optimizer->ZeroGrad();
    autograd::Backward(MseLoss((*model)(inputs), targets));
    optim::ClipGradNorm(model->Parameters(), 1.0);
    optimizer->Step();
    schedule.Step();
  }

  optim::OptimizerState state = optimizer->ConsolidateState();  // empty on other ranks
  if (world->rank() == 0) {
    optim::AdamW alone(model->NamedParameters());
    alone.LoadState(state);
  }
}

TEST(ZeroExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/zero.md", "docs/zero_example_test.cc");
}

TEST(ZeroExample, TrainsOnTwoProcesses) {
  comm::SpawnResult result = comm::Spawn(2, RankMain);
  result.ThrowIfFailed();
  EXPECT_EQ(result.ranks.size(), 2u);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
