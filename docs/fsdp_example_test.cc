// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of fsdp.md.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "lockstep/amp/training/training_step.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/huggingface.h"
#include "lockstep/models/huggingface_folder.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/strategies/engine/deepspeed_config.h"
#include "lockstep/strategies/engine/engine.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/memory_estimate.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharded_communication_hook.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharded_files.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep {
namespace {

const models::Gpt2Config config = {
    .layers = 2, .heads = 2, .width = 16, .block = 8, .vocabulary = 31};

Tensor Ids(int64_t first) { return To(Reshape(Arange(8.0), {1, 8}) + first, DType::kInt64); }

class Encoder : public nn::UnaryModule {
 public:
  Encoder() { RegisterParameter("table", &table_, Ones({3, 4})); }
  Tensor Forward(const Tensor& x) override { return Tanh(MatMul(x, table_)); }
  Tensor Embed(const Tensor& x) {
    return CallWithHooks(
        {x}, [this](TensorSpan in) -> TensorList { return {MatMul(in[0], table_)}; })[0];
  }

 private:
  Tensor table_;
};

void Functions(comm::RankContext& context) {
  std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(context.group_options());
  auto encoder = std::make_shared<Encoder>();
  strategies::FullyShardedDataParallel fsdp(encoder, world);
  const Tensor y = encoder->Embed(Ones({2, 3}));
  if (y.Item<float>({1, 2}) != 3) throw InternalError("not gathered");
  autograd::Backward(Sum(y));
}

void Training(comm::RankContext& context) {
  std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(context.group_options());
  ManualSeed(1234, world->rank());
  auto model = std::make_shared<models::Gpt2>(config);
  strategies::FullyShardedDataParallel fsdp(
      model, world, {.wrap_policy = strategies::WrapByType<models::Gpt2Block>()});
  optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});

  const Tensor ids = Ids(world->rank()), targets = Ids(world->rank() + 1);
  const Tensor more_ids = Ids(5), more_targets = Ids(6);
  double first = 0, last = 0;
  for (int step = 0; step < 5; ++step) {
    optimizer.ZeroGrad();
    autograd::Backward(model->Loss(ids, targets));
    fsdp.ClipGradNorm(1.0);
    optimizer.Step();

    last = model->Loss(ids, targets).Item<double>();
    if (step == 0) first = last;
  }
  if (last >= first) throw InternalError("nothing was learnt");

  for (int step = 0; step < 1; ++step) {
    optimizer.ZeroGrad();
    {
      strategies::FullyShardedDataParallel::NoSync no_sync(fsdp);
      autograd::Backward(model->Loss(ids, targets) * 0.5);
    }
    autograd::Backward(model->Loss(more_ids, more_targets) * 0.5);
    optimizer.Step();
  }

  const auto& block = model->transformer()->h()[0];
  {
    strategies::FullyShardedDataParallel::SummonFullParameters full(fsdp);
    autograd::NoGradScope no_grad;
    MulInPlace(block->mlp()->c_proj()->weight, 0.5);  // all elements; kept
  }

  NamedTensors weights = fsdp.FullStateDict();                         // on rank 0
  optim::OptimizerState moments = fsdp.FullOptimizerState(optimizer);  // on rank 0
  std::vector<strategies::FullyShardedDataParallel::Piece> mine = fsdp.Pieces();
  if (weights.empty() != (world->rank() != 0) || mine.empty()) throw InternalError("states");

  const std::string folder = std::getenv("TEST_TMPDIR");
  strategies::SaveFullState(fsdp, folder + "/model.safetensors");  // one parameter at a time
  strategies::LoadFullState(fsdp, folder + "/model.safetensors");  // on any number of ranks

  const Tensor x = Ones({2, 64});
  Tensor y = fsdp.CallMethod(*block, {x}, [&](TensorSpan in) -> TensorList {
    return {block->mlp()->c_proj()->Forward(in[0])};
  })[0];
  autograd::Backward(Sum(y));
}

// As save_pretrained() writes it.
std::string Pretrained() {
  const std::string folder = NewFolder();
  std::ofstream(folder + "/config.json")
      << R"({"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 8,
             "vocab_size": 31})";
  state::WriteSafetensors(folder + "/model.safetensors",
                          models::Gpt2ToHuggingFace(models::Gpt2(config).StateDict()));
  return folder;
}

void Given(comm::RankContext& context) {
  std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(context.group_options());
  const std::string folder = context.argument;
  models::HuggingFaceGpt2 theirs = models::OpenHuggingFaceGpt2(folder);  // reads config.json
  auto given = std::make_shared<models::Gpt2>(theirs.config);
  strategies::FullyShardedDataParallel sharded(given, world);
  strategies::LoadFullState(sharded, *theirs.weights);
}

void Hybrid(comm::RankContext& context) {
  std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(context.group_options());
  auto model = std::make_shared<models::Gpt2>(config);
  comm::DeviceMesh mesh(world, {{"replicate", 2}, {"shard", 2}});
  strategies::FullyShardedDataParallel fsdp(
      model, mesh,
      {.sharding_strategy = strategies::ShardingStrategy::kHybridShard,
       .wrap_policy = strategies::WrapByType<models::Gpt2Block>()});
  const Tensor ids = Ids(world->rank()), targets = Ids(world->rank() + 1);
  const Tensor more_ids = Ids(5), more_targets = Ids(6);
  {
    strategies::FullyShardedDataParallel::NoAllReduce no_all_reduce(fsdp);
    autograd::Backward(model->Loss(ids, targets) * 0.5);
  }
  autograd::Backward(model->Loss(more_ids, more_targets) * 0.5);
}

void Compressed(comm::RankContext& context) {
  std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(context.group_options());
  auto model = std::make_shared<models::Gpt2>(config);
  strategies::FullyShardedDataParallel fsdp(
      model, world,
      {.wrap_policy = strategies::WrapByType<models::Gpt2Block>(),
       .communication_hook =
           std::make_shared<strategies::ShardedCompressionHook>(DType::kBFloat16)});
  autograd::Backward(model->Loss(Ids(world->rank()), Ids(world->rank() + 1)));
}

void Thawing(comm::RankContext& context) {
  std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(context.group_options());
  auto model = std::make_shared<models::Gpt2>(config);
  model->SetRequiresGrad(false);
  model->transformer()->h()[1]->SetRequiresGrad(true);
  const auto wrap = [&] {
    return std::make_unique<strategies::FullyShardedDataParallel>(
        model, world,
        strategies::FullyShardedDataParallelOptions{
            .wrap_policy = strategies::WrapByType<models::Gpt2Block>()});
  };
  auto fsdp = wrap();
  auto optimizer = std::make_unique<optim::AdamW>(model->NamedParameters());
  autograd::Backward(model->Loss(Ids(world->rank()), Ids(world->rank() + 1)));
  optimizer->Step();

  optim::OptimizerState learnt = fsdp->FullOptimizerState(*optimizer, /*rank0_only=*/false);
  fsdp->Unwrap();
  model->SetRequiresGrad(true);
  fsdp = wrap();  // a new FullyShardedDataParallel
  optimizer = std::make_unique<optim::AdamW>(model->NamedParameters());
  fsdp->LoadFullOptimizerState(*optimizer, learnt);

  autograd::Backward(model->Loss(Ids(world->rank()), Ids(world->rank() + 1)));
  optimizer->Step();
}

void Estimate() {
  std::shared_ptr<models::Gpt2> model;
  {
    nn::DeferredInitScope deferred;
    model = std::make_shared<models::Gpt2>(models::Gpt2Config{
        .layers = 12, .heads = 12, .width = 768, .block = 64, .vocabulary = 256});
  }
  strategies::MemoryEstimate bytes = strategies::EstimateMemory(
      *model, {.wrap_policy = strategies::WrapByType<models::Gpt2Block>()}, {.ranks = 8});
  // The table of the page, in 0.1 MB.
  const auto row = [&](strategies::ShardingStrategy strategy, bool zero, bool offload) {
    const strategies::MemoryEstimate of =
        strategies::EstimateMemory(*model,
                                   {.sharding_strategy = strategy,
                                    .wrap_policy = strategies::WrapByType<models::Gpt2Block>(),
                                    .cpu_offload = offload},
                                   {.ranks = 8, .zero_optimizer = zero});
    std::string text;
    for (const int64_t part :
         {of.parameters, of.gradients, of.optimizer, of.state(), of.gathered}) {
      absl::StrAppendFormat(&text, " %.1f |", 1e-6 * static_cast<double>(part));
    }
    return text;
  };
  std::ifstream file("docs/fsdp.md");
  std::stringstream page;
  page << file.rdbuf();
  using enum strategies::ShardingStrategy;
  for (const std::string& line :
       {"| `kNoShard` |" + row(kNoShard, false, false),
        "| `kNoShard`, `zero_optimizer` |" + row(kNoShard, true, false),
        "| `kShardGradOp` |" + row(kShardGradOp, false, false),
        "| `kFullShard` |" + row(kFullShard, false, false),
        "| `kFullShard`, `cpu_offload` |" + row(kFullShard, false, true)}) {
    EXPECT_TRUE(absl::StrContains(page.str(), line)) << line;
  }
  EXPECT_GT(bytes.gathered, 0);
}

void Deferred(comm::RankContext& context) {
  std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(context.group_options());
  std::shared_ptr<models::Gpt2> model;
  {
    nn::DeferredInitScope deferred;
    model = std::make_shared<models::Gpt2>(config);
  }
  strategies::FullyShardedDataParallel fsdp(
      model, world,
      {.wrap_policy = strategies::WrapByType<models::Gpt2Block>(), .cpu_offload = true});
  autograd::Backward(model->Loss(Ids(world->rank()), Ids(world->rank() + 1)));
}

void Configured(comm::RankContext& context) {
  std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(context.group_options());
  auto model = std::make_shared<models::Gpt2>(config);
  const Tensor ids = Ids(world->rank()), targets = Ids(world->rank() + 1);
  const std::string json = R"({"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 3}})";
  engine::DeepSpeedConfig settings = engine::ParseDeepSpeedConfig(json, world->size());
  engine::Engine engine(model, world, settings,
                        {.wrap_policy = strategies::WrapByType<models::Gpt2Block>()});
  amp::StepReport report =
      engine.Step([&](int64_t /*micro_batch*/) { return model->Loss(ids, targets); });
  if (!report.stepped) throw InternalError("no step");
}

TEST(FsdpPageTest, ExamplesRun) {
  comm::SpawnThreads(2, &Configured).ThrowIfFailed();
  comm::SpawnThreads(2, &Functions).ThrowIfFailed();
  comm::SpawnThreads(2, &Training).ThrowIfFailed();
  comm::SpawnThreads(4, &Hybrid).ThrowIfFailed();
  comm::SpawnThreads(2, &Compressed).ThrowIfFailed();
  comm::SpawnThreads(2, &Thawing).ThrowIfFailed();
  comm::SpawnThreads(2, &Deferred).ThrowIfFailed();
  comm::SpawnOptions options;
  options.argument = Pretrained();
  comm::SpawnThreads(2, &Given, options).ThrowIfFailed();
}

TEST(FsdpPageTest, TheTableOfEstimates) { Estimate(); }

TEST(FsdpPageTest, ShowsThisCode) {
  docs::ExpectSnippetsCompiled("docs/fsdp.md", "docs/fsdp_example_test.cc");
}

}  // namespace
}  // namespace lockstep
