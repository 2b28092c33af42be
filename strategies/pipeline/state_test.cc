// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a pipeline has to do with the rest: thread state, autocast and loss scaling, checkpointing,
// clipping, states, replicas.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/base/testing.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/clip.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/strategies/pipeline/micro_batches.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::pipeline {
namespace {

using testing_util::CutEvenly;
using testing_util::GradientsOf;
using testing_util::Inputs;
using testing_util::MakeMlp;
using testing_util::MseOf;
using testing_util::OnRanks;
using testing_util::StagesOf;
using testing_util::Targets;
using Gradients = std::map<std::string, std::vector<float>>;

PipelineOptions Options(Schedule schedule = OneForwardOneBackward(3, 4)) {
  return {.schedule = std::move(schedule), .loss = MseOf, .threads_per_rank = 1};
}

StepResult StepOf(Pipeline& pipeline) { return pipeline.Step({Inputs(0, 9)}, {Targets(0, 9)}); }

// Gradients over ranks, each with options of its own making.
Gradients OverRanks(std::shared_ptr<nn::Sequential> (*model)(),
                    const std::function<void(int rank, Pipeline&)>& step) {
  Gradients all;
  std::mutex mutex;
  OnRanks(3, [&](int rank, auto world) {
    PipelineOptions options = Options();
    options.threads_per_rank = 0;
    Pipeline pipeline(StagesOf(options.schedule, rank, CutEvenly(*model(), 3)), world, options);
    step(rank, pipeline);
    std::lock_guard<std::mutex> lock(mutex);
    for (auto& [name, values] : GradientsOf(pipeline.module())) all[name] = values;
  });
  return all;
}

std::shared_ptr<nn::Sequential> Model() { return MakeMlp(8); }

// ---- Thread state ----

TEST(PipelineState, StagesRunUnderTheCallersThreadState) {
  std::mutex mutex;
  std::set<int> devices;
  std::vector<Stage> stages = CutEvenly(*MakeMlp(8), 3);
  for (Stage& stage : stages) {
    stage.forward = [&, inner = stage.forward](TensorSpan in) -> TensorList {
      std::lock_guard<std::mutex> lock(mutex);
      EXPECT_TRUE(amp::AutocastEnabled());
      EXPECT_TRUE(autograd::GradEnabled());
      EXPECT_EQ(IntraOpThreads(), 1);
      EXPECT_EQ(in[0].device(), CurrentDevice());
      EXPECT_EQ(ThreadGenerators().parameters.key.seed, 77u);
      devices.insert(CurrentDevice().index);
      return inner(in);
    };
  }
  Pipeline pipeline(std::move(stages), Options());
  ManualSeed(77);
  const RandomStreams before = ThreadGenerators();
  {
    const amp::Autocast autocast;
    StepOf(pipeline);
  }
  EXPECT_EQ(devices, (std::set<int>{0, 1, 2}));
  EXPECT_EQ(CurrentDevice(), Cpu(0));
  EXPECT_EQ(ThreadGenerators().data.key, before.data.key);
  EXPECT_EQ(ThreadGenerators().dropout.key.offset, uint64_t{12} << 32);
}

TEST(PipelineState, EvaluationRecordsNothingAndDropsNothingOut) {
  const auto model = MakeMlp(9, 7, 0.4);
  std::vector<Stage> stages = CutEvenly(*model, 3);
  stages[1].forward = [inner = stages[1].forward](TensorSpan in) -> TensorList {
    EXPECT_FALSE(autograd::GradEnabled());
    return inner(in);
  };
  Pipeline pipeline(std::move(stages), Options());
  pipeline.module().Eval();
  const auto whole = MakeMlp(9, 7, 0.4);
  whole->Eval();
  EXPECT_EQ(pipeline.Evaluate({Inputs(0, 9)}).outputs[0].ToVector<float>(),
            (*whole)(Inputs(0, 9)).ToVector<float>());
}

TEST(PipelineState, DropoutIsApartForEachMicroBatchAndTheSameAgain) {
  const auto masks = [](const Schedule& schedule) {
    std::vector<Stage> stages(2);
    stages[0].forward = [](TensorSpan in) -> TensorList { return {Dropout(in[0], 0.5)}; };
    stages[1].forward = [](TensorSpan in) -> TensorList {
      return {in[0], Dropout(OnesLike(in[0]), 0.5)};
    };
    Pipeline pipeline(std::move(stages), {.schedule = schedule});
    ManualSeed(5);
    std::vector<std::vector<float>> result;
    for (int run = 0; run < 2; ++run) {
      for (const Tensor& output : pipeline.Evaluate({Ones({3, 64})}).outputs) {
        for (int64_t m = 0; m < 3; ++m) result.push_back(Select(output, 0, m).ToVector<float>());
      }
    }
    return result;
  };
  const auto first = masks(GPipe(2, 3));
  const std::set<std::vector<float>> distinct(first.begin(), first.end());
  EXPECT_EQ(distinct.size(), 12u) << "2 runs, 2 stages, 3 micro-batches";
  EXPECT_EQ(masks(OneForwardOneBackward(2, 3)), first);
}

TEST(PipelineState, SavedTensorHooksOfTheCallerAreRefused) {
  Pipeline pipeline(CutEvenly(*MakeMlp(8), 3), Options());
  const autograd::SavedTensorHooksScope hooks(
      [](const Tensor& t) -> autograd::PackedTensor { return std::make_shared<Tensor>(t); },
      [](const autograd::PackedTensor& p) { return *static_cast<const Tensor*>(p.get()); });
  EXPECT_EQ(ErrorOf([&] { StepOf(pipeline); }).code(), absl::StatusCode::kFailedPrecondition);
}

// ---- Precision and checkpointing ----

TEST(PipelineState, AutocastIsThatOfAccumulation) {
  Gradients wanted;
  {
    SetIntraOpThreads(1);
    const auto model = MakeMlp(8);
    const auto x = SplitRows({Inputs(0, 9)}, 4, "input");
    const auto y = SplitRows({Targets(0, 9)}, 4, "target");
    for (size_t m = 0; m < 4; ++m) {
      Tensor loss;
      {
        const amp::Autocast autocast({.dtype = DType::kBFloat16});
        loss = MseLoss((*model)(x[m][0]), y[m][0]);
      }
      autograd::Backward(Mul(loss, static_cast<double>(x[m][0].size(0)) / 9));
    }
    wanted = GradientsOf(*model);
    SetIntraOpThreads(0);
  }
  const auto step = [](Pipeline& pipeline) {
    const amp::Autocast autocast({.dtype = DType::kBFloat16});
    StepOf(pipeline);
  };
  for (const Schedule& schedule : {OneForwardOneBackward(3, 4), ZeroBubbleH1(3, 4)}) {
    Pipeline pipeline(CutEvenly(*MakeMlp(8), 3), Options(schedule));
    step(pipeline);
    EXPECT_EQ(GradientsOf(pipeline.module()), wanted) << schedule.name;
  }
  EXPECT_EQ(OverRanks(Model, [&](int, Pipeline& pipeline) { step(pipeline); }), wanted);
}

TEST(PipelineState, CheckpointingInsideOfStagesChangesNothing) {
  for (const Schedule& schedule : {OneForwardOneBackward(3, 4), ZeroBubbleH1(3, 4)}) {
    std::vector<Gradients> gradients;
    for (const bool checkpointed : {false, true}) {
      const auto model = MakeMlp(9, 7, 0.4);
      std::vector<Stage> stages = CutEvenly(*model, 3);
      if (checkpointed) {
        checkpoint::ApplyCheckpointing(
            *model, {.choose = [](const std::string& name, auto&) { return !name.empty(); }});
      }
      Pipeline pipeline(std::move(stages), Options(schedule));
      ManualSeed(3);
      StepOf(pipeline);
      gradients.push_back(GradientsOf(pipeline.module()));
    }
    EXPECT_EQ(gradients[1], gradients[0]) << schedule.name;
  }
}

// A gradient that overflows in one stage is no step on any.
TEST(PipelineState, FoundInfIsSharedByAllStages) {
  const auto train = [](Pipeline& pipeline, std::shared_ptr<comm::Communicator> group,
                        std::vector<bool>& stepped) {
    optim::Sgd optimizer(pipeline.module().NamedParameters(), {.lr = 0.1});
    amp::GradScaler scaler({.init_scale = 1024, .group = std::move(group)});
    for (int step = 0; step < 3; ++step) {
      optimizer.ZeroGrad();
      StepOf(pipeline);
      if (step == 1 && pipeline.module().NamedParameters().Contains("4.weight")) {
        const Tensor gradient = autograd::Grad(pipeline.module().NamedParameters().At("4.weight"));
        const autograd::NoGradScope no_grad;
        MulInPlace(gradient, std::numeric_limits<float>::infinity());
      }
      stepped.push_back(scaler.Step(optimizer));
      scaler.Update();
    }
  };
  const std::vector<bool> wanted = {true, false, true};
  {
    std::vector<bool> stepped;
    Pipeline pipeline(CutEvenly(*MakeMlp(8), 3), Options());
    train(pipeline, nullptr, stepped);
    EXPECT_EQ(stepped, wanted);
  }
  OnRanks(3, [&](int rank, auto world) {
    PipelineOptions options = Options();
    options.threads_per_rank = 0;
    Pipeline pipeline(StagesOf(options.schedule, rank, CutEvenly(*MakeMlp(8), 3)), world, options);
    std::vector<bool> stepped;
    train(pipeline, world, stepped);
    EXPECT_EQ(stepped, wanted) << rank;
  });
}

TEST(PipelineState, TheLossIsScaled) {
  amp::GradScaler scaler({.init_scale = 1024});
  PipelineOptions options = Options();
  options.scale_loss = [&](const Tensor& loss) { return scaler.Scale(loss); };
  Pipeline scaled(CutEvenly(*MakeMlp(8), 3), options), plain(CutEvenly(*MakeMlp(8), 3), Options());
  const double loss = StepOf(scaled).loss;
  EXPECT_EQ(loss, StepOf(plain).loss);
  optim::Sgd optimizer(scaled.module().NamedParameters(), {.lr = 0.1});
  scaler.UnscaleGradients(optimizer);
  EXPECT_EQ(GradientsOf(scaled.module()), GradientsOf(plain.module()));
}

// ---- Clipping ----

TEST(PipelineState, ClippingHasOneNormOnAllRanksAndPlacements) {
  for (const NormKind kind : {NormKind::kTwo, NormKind::kInfinity}) {
    const auto whole = MakeMlp(8);
    autograd::Backward(MseLoss((*whole)(Inputs(0, 9)), Targets(0, 9)));
    const double wanted =
        optim::ClipGradNorm(whole->Parameters(), 1e-3, {.kind = kind}).Item<double>();
    std::vector<double> norms;
    Gradients clipped;
    for (const Schedule& schedule : {OneForwardOneBackward(3, 4), Interleaved(1, 3, 4)}) {
      Pipeline pipeline(CutEvenly(*MakeMlp(8), 3), Options(schedule));
      StepOf(pipeline);
      norms.push_back(pipeline.ClipGradNorm(1e-3, {.kind = kind}).Item<double>());
      clipped = GradientsOf(pipeline.module());
    }
    std::mutex mutex;
    const Gradients over_ranks = OverRanks(Model, [&](int, Pipeline& pipeline) {
      StepOf(pipeline);
      const double norm = pipeline.ClipGradNorm(1e-3, {.kind = kind}).Item<double>();
      std::lock_guard<std::mutex> lock(mutex);
      norms.push_back(norm);
    });
    ASSERT_EQ(norms.size(), 5u);
    for (const double norm : norms) {
      EXPECT_EQ(norm, norms[0]);
      EXPECT_NEAR(norm, wanted, 1e-6 * wanted);
    }
    EXPECT_EQ(over_ranks, clipped);
    for (const auto& [name, values] : GradientsOf(*whole)) {
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(clipped[name][i], values[i], 1e-7f) << name;
      }
    }
  }
}

TEST(PipelineState, ClippingCountsTiedParametersOnce) {
  ManualSeed(1);
  const auto a = std::make_shared<nn::Linear>(5, 5, nn::LinearOptions{.bias = false});
  const auto b = std::make_shared<nn::Linear>(5, 5, nn::LinearOptions{.bias = false});
  Pipeline pipeline({MakeStage("a", a), MakeStage("b", b)},
                    {.schedule = GPipe(2, 2),
                     .loss = [](TensorSpan out, TensorSpan) { return Mean(out[0]); },
                     .tied = {{{0, "a.weight"}, {1, "b.weight"}}}});
  pipeline.Step({Inputs(0, 4)}, {});
  const double once = GlobalNorm({autograd::Grad(a->weight)}).Item<double>();
  EXPECT_NEAR(pipeline.ClipGradNorm(once / 2).Item<double>(), once, 1e-6 * once);
  EXPECT_NEAR(GlobalNorm({autograd::Grad(b->weight)}).Item<double>(), once / 2, 1e-5 * once);
  EXPECT_EQ(autograd::Grad(a->weight).ToVector<float>(),
            autograd::Grad(b->weight).ToVector<float>());
  EXPECT_EQ(ErrorOf([&] { pipeline.ClipGradNorm(-1); }).code(), absl::StatusCode::kInvalidArgument);
  autograd::SetGrad(a->weight, FullLike(a->weight, std::nan("")));
  EXPECT_EQ(ErrorOf([&] { pipeline.ClipGradNorm(1, {.error_if_nonfinite = true}); }).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::isnan(pipeline.ClipGradNorm(1, {.kind = NormKind::kInfinity}).Item<double>()));
}

// ---- State ----

TEST(PipelineState, StatesAreThoseOfTheUnsplitModel) {
  const auto whole = MakeMlp(8, 1);
  Pipeline pipeline(CutEvenly(*MakeMlp(8, 2), 3), Options());
  EXPECT_EQ(pipeline.module().StateDict().Names(), whole->StateDict().Names());
  pipeline.LoadStateDict(whole->StateDict());
  const auto other = MakeMlp(8, 3);
  other->LoadStateDict(pipeline.module().StateDict());
  EXPECT_EQ(testing_util::ParametersOf(*other), testing_util::ParametersOf(*whole));
  NamedTensors more = whole->StateDict();
  more.Insert("8.weight", Ones({1}));
  EXPECT_EQ(ErrorOf([&] { pipeline.LoadStateDict(more); }).code(),
            absl::StatusCode::kInvalidArgument);
  OnRanks(3, [&](int rank, auto world) {
    PipelineOptions options = Options();
    options.threads_per_rank = 0;
    Pipeline part(StagesOf(options.schedule, rank, CutEvenly(*MakeMlp(8, 4), 3)), world, options);
    part.LoadStateDict(more);
    const NamedTensors state = part.module().StateDict();
    for (const auto& [name, tensor] : state) {
      EXPECT_EQ(tensor.template ToVector<float>(), more.At(name).template ToVector<float>());
    }
    const NamedTensors fewer = more.Filter(
        [&](const std::string& name, const Tensor&) { return name != state.Names()[0]; });
    EXPECT_EQ(ErrorOf([&] { part.LoadStateDict(fewer); }).code(),
              absl::StatusCode::kInvalidArgument);
  });
}

// ---- Replicas ----

TEST(PipelineState, TheHookRunsOnceAStageWhenItsGradientsAreComplete) {
  for (const Schedule& schedule :
       {OneForwardOneBackward(3, 4), ZeroBubbleH1(3, 4), Interleaved(2, 3, 4)}) {
    std::mutex mutex;
    std::map<int, std::vector<float>> seen;
    const int count = schedule.stage_count();
    const auto model = MakeMlp(8);
    const std::vector<Stage> stages = CutEvenly(*model, count);
    const auto gradient_of = [&](int stage) {
      for (const auto& part : stages[static_cast<size_t>(stage)].parts) {
        for (const Tensor& parameter : part.second->Parameters()) {
          return autograd::Grad(parameter).ToVector<float>();
        }
      }
      return std::vector<float>();
    };
    PipelineOptions options = Options(schedule);
    options.after_last_backward = [&](int stage) {
      std::lock_guard<std::mutex> lock(mutex);
      EXPECT_TRUE(seen.emplace(stage, gradient_of(stage)).second) << "twice";
    };
    Pipeline pipeline(stages, options);
    StepOf(pipeline);
    ASSERT_EQ(seen.size(), static_cast<size_t>(count));
    for (int stage = 0; stage < count; ++stage) EXPECT_EQ(seen[stage], gradient_of(stage));
  }
}

// The same by DistributedDataParallel around each stage, which averages in the last backward.
TEST(PipelineState, ReplicasAverageInTheLastBackward) {
  const auto whole = MakeMlp(8);
  autograd::Backward(MseLoss((*whole)(Inputs(0, 12)), Targets(0, 12)));
  const Gradients wanted = GradientsOf(*whole);
  for (const Schedule& schedule : {OneForwardOneBackward(2, 3), ZeroBubbleH1(2, 3)}) {
    OnRanks(4, [&](int, auto world) {
      comm::DeviceMesh mesh(world, {{"replicate", 2}, {"pipeline", 2}});
      const int replica = mesh.Coordinate("replicate"), rank = mesh.Coordinate("pipeline");
      const auto model = MakeMlp(8);
      std::map<int, Stage> own = StagesOf(schedule, rank, CutEvenly(*model, 2));
      const auto part = std::make_shared<nn::ModuleList<nn::Module>>();
      for (const auto& [path, module] : own.at(rank).parts) part->Append(module);
      strategies::DistributedDataParallel ddp(part, mesh.Group("replicate"));
      PipelineOptions options = Options(schedule);
      options.threads_per_rank = 0;
      options.no_sync = [&](int) {
        return std::make_shared<strategies::DistributedDataParallel::NoSync>(ddp);
      };
      Pipeline pipeline(std::move(own), mesh.Group("pipeline"), options);
      for (int step = 0; step < 2; ++step) {
        pipeline.module().ZeroGrad();
        const int64_t before = mesh.Group("replicate")->sequence();
        pipeline.Step({Inputs(replica * 6, 6)}, {Targets(replica * 6, 6)});
        EXPECT_EQ(mesh.Group("replicate")->sequence() - before, 1) << "one bucket, one average";
      }
      for (const auto& [name, values] : GradientsOf(pipeline.module())) {
        for (size_t i = 0; i < values.size(); ++i) {
          EXPECT_NEAR(values[i], wanted.at(name)[i], 1e-6) << name;
        }
      }
    });
  }
}

// Two pipelines of two stages on a mesh are one on the whole batch.
TEST(PipelineState, ReplicasAverageInTheHook) {
  const auto whole = MakeMlp(8);
  autograd::Backward(MseLoss((*whole)(Inputs(0, 12)), Targets(0, 12)));
  const Gradients wanted = GradientsOf(*whole);
  OnRanks(4, [&](int, auto world) {
    comm::DeviceMesh mesh(world, {{"replicate", 2}, {"pipeline", 2}});
    const int replica = mesh.Coordinate("replicate"), rank = mesh.Coordinate("pipeline");
    PipelineOptions options = Options(OneForwardOneBackward(2, 3));
    options.threads_per_rank = 0;
    std::map<int, Stage> own = StagesOf(options.schedule, rank, CutEvenly(*MakeMlp(8), 2));
    std::vector<Tensor> parameters;
    for (const auto& part : own.at(rank).parts) {
      for (const Tensor& parameter : part.second->Parameters()) parameters.push_back(parameter);
    }
    options.after_last_backward = [&](int) {
      for (const Tensor& parameter : parameters) {
        mesh.Group("replicate")
            ->AllReduce(autograd::Grad(parameter), {.op = comm::ReduceOp::kAverage})
            .Wait();
      }
    };
    Pipeline pipeline(std::move(own), mesh.Group("pipeline"), options);
    pipeline.Step({Inputs(replica * 6, 6)}, {Targets(replica * 6, 6)});
    for (const auto& [name, values] : GradientsOf(pipeline.module())) {
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(values[i], wanted.at(name)[i], 1e-6) << name;
      }
    }
  });
}

// ---- Statistics ----

TEST(PipelineState, SpansAreThoseOfTheSchedule) {
  Pipeline pipeline(CutEvenly(*MakeMlp(8), 3), Options());
  for (int step = 0; step < 2; ++step) {
    StepOf(pipeline);
    std::vector<std::vector<Action>> ranks(3);
    for (const Span& span : pipeline.spans()) {
      ranks[static_cast<size_t>(span.rank)].push_back(span.action);
      EXPECT_LE(0, span.start_seconds);
      EXPECT_LE(span.start_seconds, span.end_seconds);
    }
    EXPECT_EQ(ranks, pipeline.schedule().ranks);
    const Timeline timeline = pipeline.MeasuredTimeline();
    EXPECT_GT(timeline.bubble, 0);
    EXPECT_LT(timeline.bubble, 1);
  }
}

}  // namespace
}  // namespace lockstep::pipeline
