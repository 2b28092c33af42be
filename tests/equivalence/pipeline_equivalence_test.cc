// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GPT-2 in stages made by hand, the head tied to the embedding across the first and the last: it
// trains as the model in one piece, and states go from one to the other.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/layer_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"
#include "lockstep/tests/equivalence/expect_near.h"

namespace lockstep::equivalence {
namespace {

using pipeline::Pipeline;
using pipeline::PipelineOptions;
using pipeline::Schedule;
using pipeline::Stage;
using Values = std::map<std::string, std::vector<double>>;

constexpr int kSteps = 3;
constexpr int64_t kRows = 7;
constexpr int64_t kTokens = 8;
constexpr int64_t kVocabulary = 31;

models::Gpt2Config Config(bool tied) {
  return {.layers = 4,
          .heads = 2,
          .width = 16,
          .block = kTokens,
          .vocabulary = kVocabulary,
          .tie_head = tied};
}

Tensor Tokens(int64_t step, int64_t shift) {
  std::vector<int64_t> ids;
  for (int64_t row = step * kRows; row < (step + 1) * kRows; ++row) {
    for (int64_t i = 0; i < kTokens; ++i) {
      ids.push_back((row * row + 3 * (i + shift)) % kVocabulary);
    }
  }
  return FromVector<int64_t>(ids, {kRows, kTokens}, {.device = Cpu()});
}

Tensor TokenLoss(TensorSpan outputs, TensorSpan targets) {
  return CrossEntropy(Reshape(outputs[0], {-1, kVocabulary}), Reshape(targets[0], {-1}));
}

// Adds `f` after what the stage does.
void Then(Stage& stage, std::function<Tensor(const Tensor&)> f) {
  if (stage.forward == nullptr) {
    stage.forward = [f](TensorSpan in) -> TensorList { return {f(in[0])}; };
    return;
  }
  stage.forward = [inner = stage.forward, f](TensorSpan in) -> TensorList {
    return {f(inner(in)[0])};
  };
}

// Embeddings before the first blocks, norm and head after the last.
std::vector<Stage> GptStages(const models::Gpt2Config& config, int count) {
  std::vector<Stage> stages(static_cast<size_t>(count));
  const auto wte = std::make_shared<nn::Embedding>(config.vocabulary, config.width);
  const auto wpe = std::make_shared<nn::Embedding>(config.block, config.width);
  stages[0].parts = {{"transformer.wte", wte}, {"transformer.wpe", wpe}};
  Then(stages[0], [=](const Tensor& ids) {
    const Tensor positions =
        Arange(ids.size(1), TensorOptions{.dtype = DType::kInt64, .device = ids.device()});
    return (*wte)(ids) + (*wpe)(positions);
  });
  for (int64_t i = 0; i < config.layers; ++i) {
    Stage& stage = stages[static_cast<size_t>(i * count / config.layers)];
    const auto block = std::make_shared<models::Gpt2Block>(config);
    stage.parts.emplace_back(absl::StrCat("transformer.h.", i), block);
    Then(stage, [block](const Tensor& x) { return (*block)(x); });
  }
  const auto norm = std::make_shared<nn::LayerNorm>(
      Shape{config.width}, nn::LayerNormOptions{config.layer_norm_epsilon});
  const auto head = std::make_shared<nn::Linear>(config.width, config.vocabulary,
                                                 nn::LinearOptions{.bias = false});
  stages.back().parts.emplace_back("transformer.ln_f", norm);
  stages.back().parts.emplace_back("lm_head", head);
  Then(stages.back(), [=](const Tensor& x) { return (*head)((*norm)(x)); });
  return stages;
}

PipelineOptions Options(const Schedule& schedule, bool tied) {
  PipelineOptions options = {.schedule = schedule, .loss = TokenLoss};
  if (tied) {
    options.tied = {
        {{0, "transformer.wte.weight"}, {schedule.stage_count() - 1, "lm_head.weight"}}};
  }
  return options;
}

Values ValuesOf(nn::Module& module) {
  Values values;
  for (const auto& [name, tensor] : module.StateDict()) values[name] = tensor.ToVector<double>();
  return values;
}

std::shared_ptr<models::Gpt2> MakeGpt(bool tied) {
  ManualSeed(11);
  return std::make_shared<models::Gpt2>(Config(tied));
}

// How the model in one piece has its head: of its own, the embedding, or a copy of the embedding
// with which it shares the sum of their gradients.
enum class Head { kOwn, kEmbedding, kCopy };

std::shared_ptr<models::Gpt2> MakeWhole(Head head) {
  if (head != Head::kCopy) return MakeGpt(head == Head::kEmbedding);
  const auto model = MakeGpt(/*tied=*/false);
  NamedTensors state = MakeGpt(/*tied=*/true)->StateDict();
  state.Set("lm_head.weight", Clone(state.At("transformer.wte.weight")));
  model->LoadStateDict(state);
  return model;
}

void AddCopies(const models::Gpt2& model) {
  const NamedTensors parameters = model.NamedParameters();
  const Tensor first = parameters.At("transformer.wte.weight");
  const Tensor copy = parameters.At("lm_head.weight");
  const autograd::NoGradScope no_grad;
  const Tensor sum = autograd::Grad(first) + autograd::Grad(copy);
  autograd::SetGrad(first, sum);
  autograd::SetGrad(copy, Clone(sum));
}

// The model in one piece, micro-batch after micro-batch.
Values TrainWhole(int micro_batches, Head head, std::vector<double>& losses) {
  SetIntraOpThreads(1);
  const auto model = MakeWhole(head);
  optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < kSteps; ++step) {
    optimizer.ZeroGrad();
    double sum = 0;
    int64_t begin = 0;
    for (int m = 0; m < micro_batches; ++m) {
      const int64_t rows = kRows / micro_batches + (m < kRows % micro_batches ? 1 : 0);
      const Tensor loss = model->Loss(Slice(Tokens(step, 0), 0, begin, begin + rows),
                                      Slice(Tokens(step, 1), 0, begin, begin + rows));
      const double share = static_cast<double>(rows) / kRows;
      autograd::Backward(share == 1 ? loss : Mul(loss, share));
      sum += share * loss.Item<double>();
      begin += rows;
    }
    if (head == Head::kCopy) AddCopies(*model);
    optimizer.Step();
    losses.push_back(sum);
  }
  SetIntraOpThreads(0);
  return ValuesOf(*model);
}

std::vector<double> TrainPipeline(Pipeline& pipeline, bool tied) {
  pipeline.LoadStateDict(MakeGpt(tied)->StateDict());
  optim::Sgd optimizer(pipeline.module().NamedParameters(), {.lr = 0.1, .momentum = 0.9});
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.ZeroGrad();
    losses.push_back(pipeline.Step({Tokens(step, 0)}, {Tokens(step, 1)}).loss);
    optimizer.Step();
  }
  return losses;
}

void ExpectAsWhole(const Schedule& schedule, bool tied) {
  SCOPED_TRACE(absl::StrCat(schedule.name, tied ? ", tied" : ""));
  const models::Gpt2Config config = Config(tied);
  const int stages = schedule.stage_count();
  std::vector<double> wanted_losses;
  const Values wanted =
      TrainWhole(schedule.micro_batches, tied ? Head::kCopy : Head::kOwn, wanted_losses);
  PipelineOptions options = Options(schedule, tied);
  options.threads_per_rank = 1;
  Pipeline pipeline(GptStages(config, stages), options);
  EXPECT_EQ(TrainPipeline(pipeline, tied), wanted_losses);
  const Values threads = ValuesOf(pipeline.module());
  EXPECT_EQ(threads, wanted);
  if (tied) {
    // One tensor adds the gradients of its uses in another order.
    std::vector<double> near_losses;
    for (const auto& [name, values] :
         TrainWhole(schedule.micro_batches, Head::kEmbedding, near_losses)) {
      ExpectNear(threads.at(name), values, 1e-5, name);
    }
    for (size_t i = 0; i < near_losses.size(); ++i) {
      EXPECT_NEAR(wanted_losses[i], near_losses[i], 1e-6 * near_losses[i]);
    }
  }
  // The model in one piece takes what was trained in stages.
  const auto whole = MakeGpt(tied);
  whole->LoadStateDict(pipeline.module().StateDict());
  EXPECT_EQ(ValuesOf(*whole), threads);

  Values ranks;
  std::mutex mutex;
  comm::SpawnThreads(schedule.rank_count(),
                     [&](comm::RankContext& context) {
                       comm::ProcessGroupOptions group = context.group_options();
                       group.timeout = absl::Seconds(30);
                       const auto world = comm::InitProcessGroup(group);
                       std::map<int, Stage> own;
                       std::vector<Stage> all = GptStages(config, stages);
                       for (int s = 0; s < stages; ++s) {
                         const auto at = static_cast<size_t>(s);
                         if (schedule.rank_of_stage[at] == context.rank)
                           own.emplace(s, std::move(all[at]));
                       }
                       Pipeline part(std::move(own), world, Options(schedule, tied));
                       EXPECT_EQ(TrainPipeline(part, tied), wanted_losses);
                       std::lock_guard<std::mutex> lock(mutex);
                       for (auto& [name, values] : ValuesOf(part.module())) ranks[name] = values;
                     },
                     {.threads_per_rank = 1})
      .ThrowIfFailed();
  EXPECT_EQ(ranks, threads);
}

TEST(PipelineEquivalence, GptInStagesTrainsAsInOnePiece) {
  for (const Schedule& schedule :
       {pipeline::OneForwardOneBackward(3, 3), pipeline::ZeroBubbleH1(2, 4),
        pipeline::Interleaved(2, 2, 2), pipeline::GPipe(4, 1)}) {
    for (const bool tied : {false, true}) ExpectAsWhole(schedule, tied);
  }
}

}  // namespace
}  // namespace lockstep::equivalence
