// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Stages with skip connections, several inputs and outputs, tensors that want no gradient, and tied
// parameters: in threads and over a communicator they train as one graph does.
#include "lockstep/strategies/pipeline/wiring.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/pipeline/micro_batches.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/random_schedule.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/testing.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::pipeline {
namespace {

using testing_util::GradientsOf;
using Gradients = std::map<std::string, std::vector<float>>;

// Stages, their wiring, a batch, and a loss.
struct Case {
  std::vector<Stage> stages;
  Wiring wiring;
  std::vector<Tensor> inputs, targets;
  LossFunction loss = testing_util::MseOf;
  std::vector<std::vector<StageParameter>> tied = {};
};
using MakeCase = std::function<Case()>;

Schedule ScheduleOf(const Case& c, int micro_batches) {
  const auto stages = static_cast<int>(c.stages.size());
  Schedule schedule = OneForwardOneBackward(stages, micro_batches);
  if (!c.wiring.empty()) schedule.edges = EdgesOf(c.wiring);
  return schedule;
}

// All stages in one graph on this device, micro-batch after micro-batch.
Gradients Alone(const MakeCase& make, int micro_batches, int rounds = 1) {
  SetIntraOpThreads(1);
  Case c = make();
  const auto inputs = SplitRows(c.inputs, micro_batches, "input");
  const auto targets = SplitRows(c.targets, micro_batches, "target");
  const auto rows = static_cast<double>(RowCount(c.targets));
  for (int run = 0; run < rounds * micro_batches; ++run) {
    const auto m = static_cast<size_t>(run % micro_batches);
    std::vector<TensorList> outputs;
    for (size_t s = 0; s < c.stages.size(); ++s) {
      TensorList in;
      if (c.wiring.empty()) {
        in = s == 0 ? TensorList(inputs[m].begin(), inputs[m].end()) : outputs.back();
      } else {
        for (const InputSource& source : c.wiring[s]) {
          const auto i = static_cast<size_t>(source.index);
          in.push_back(source.stage == kBatch ? inputs[m][i]
                                              : outputs[static_cast<size_t>(source.stage)][i]);
        }
      }
      outputs.push_back(c.stages[s].forward(in));
    }
    const Tensor loss = c.loss(outputs.back(), targets[m]);
    autograd::Backward(Mul(loss, static_cast<double>(targets[m][0].size(0)) / rows));
  }
  SetIntraOpThreads(0);
  Gradients all;
  for (const Stage& stage : c.stages) {
    for (const auto& [path, module] : stage.parts) {
      for (auto& [name, values] : GradientsOf(*module)) all[path + "." + name] = values;
    }
  }
  return all;
}

PipelineOptions OptionsOf(const Case& c, const Schedule& schedule) {
  return {.schedule = schedule, .loss = c.loss, .wiring = c.wiring, .tied = c.tied};
}

Gradients InThreads(const MakeCase& make, Schedule schedule, int rounds = 1) {
  Case c = make();
  PipelineOptions options = OptionsOf(c, schedule);
  options.threads_per_rank = 1;
  Pipeline pipeline(std::move(c.stages), options);
  for (int round = 0; round < rounds; ++round) pipeline.Step(c.inputs, c.targets);
  return GradientsOf(pipeline.module());
}

Gradients OverRanks(const MakeCase& make, Schedule schedule, int rounds = 1) {
  Gradients all;
  std::mutex mutex;
  testing_util::OnRanks(schedule.rank_count(), [&](int rank, auto world) {
    Case c = make();
    const PipelineOptions options = OptionsOf(c, schedule);
    Pipeline pipeline(testing_util::StagesOf(schedule, rank, std::move(c.stages)), world, options);
    for (int round = 0; round < rounds; ++round) pipeline.Step(c.inputs, c.targets);
    std::lock_guard<std::mutex> lock(mutex);
    for (auto& [name, values] : GradientsOf(pipeline.module())) all[name] = values;
  });
  return all;
}

void ExpectAsAlone(const MakeCase& make, const Schedule& schedule) {
  const Gradients wanted = Alone(make, schedule.micro_batches);
  EXPECT_EQ(InThreads(make, schedule), wanted) << ToText(schedule);
  EXPECT_EQ(OverRanks(make, schedule), wanted) << ToText(schedule);
}

std::shared_ptr<nn::Linear> Layer(uint64_t seed, int64_t inputs, int64_t outputs) {
  ManualSeed(seed);
  return std::make_shared<nn::Linear>(inputs, outputs);
}

// Stage 2 adds what stage 0 made, and takes the second input of the batch; stage 1 has two outputs.
Case SkipCase() {
  const auto a = Layer(1, 5, 7), b = Layer(2, 7, 7), c = Layer(3, 7, 3);
  Case result;
  result.stages = {{{{"a", a}}, [a](TensorSpan in) -> TensorList { return {Tanh((*a)(in[0]))}; }},
                   {{{"b", b}},
                    [b](TensorSpan in) -> TensorList {
                      const Tensor h = (*b)(in[0]);
                      return {Tanh(h), Mul(h, 0.5)};
                    }},
                   {{{"c", c}}, [c](TensorSpan in) -> TensorList {
                      return {(*c)(Add(Add(Mul(in[0], in[1]), in[2]), in[3]))};
                    }}};
  // The same output twice, and in another order.
  result.wiring = {{{kBatch, 0}}, {{0, 0}}, {{1, 1}, {0, 0}, {1, 0}, {kBatch, 1}}};
  result.inputs = {testing_util::Inputs(0, 7), Reshape(Arange(49.0) * 0.01, {7, 7})};
  result.targets = {testing_util::Targets(0, 7)};
  return result;
}

TEST(PipelineWiring, SkipConnectionsTrainAsOneGraph) {
  for (const int micro_batches : {1, 3}) {
    ExpectAsAlone(SkipCase, ScheduleOf(SkipCase(), micro_batches));
    Schedule split = ZeroBubbleH1(3, micro_batches);
    split.edges = EdgesOf(SkipCase().wiring);
    ExpectAsAlone(SkipCase, split);
  }
}

// One output to three stages: three gradients are added as in one graph.
Case FanOutCase() {
  Case result;
  std::vector<std::shared_ptr<nn::Linear>> layers;
  for (uint64_t s = 0; s < 4; ++s) layers.push_back(Layer(s + 1, 5, 5));
  result.stages.push_back(MakeStage("0", layers[0]));
  for (size_t s = 1; s < 4; ++s) {
    const auto layer = layers[s];
    result.stages.push_back({{{absl::StrCat(s), layer}}, [layer](TensorSpan in) -> TensorList {
                               return {Tanh((*layer)(in.size() > 1 ? Add(in[0], in[1]) : in[0]))};
                             }});
  }
  result.wiring = {{{kBatch, 0}}, {{0, 0}}, {{0, 0}, {1, 0}}, {{0, 0}, {2, 0}}};
  result.inputs = {testing_util::Inputs(0, 5)};
  result.targets = {testing_util::Inputs(9, 5)};
  return result;
}

TEST(PipelineWiring, GradientsOfOneOutputAreAddedAsInOneGraph) {
  ExpectAsAlone(FanOutCase, ScheduleOf(FanOutCase(), 2));
}

// Random edges, placements and orders. Each stage adds what it gets.
// A small transformer of two halves: the encoder reads one sequence, the decoder another of another
// length, and each of its layers attends to what the encoder has made.
constexpr int64_t kWidth = 12;

// [B, T, width] -> [B, heads, T, width / heads].
Tensor Heads(const Tensor& x) {
  return Transpose(Reshape(x, {x.size(0), x.size(1), 3, kWidth / 3}), 1, 2);
}

class Attend : public nn::Module {
 public:
  Attend(uint64_t seed, bool causal)
      : causal_(causal),
        query_(RegisterModule("query", Layer(seed, kWidth, kWidth))),
        memory_(RegisterModule("memory", Layer(seed + 1, kWidth, 2 * kWidth))),
        out_(RegisterModule("out", Layer(seed + 2, kWidth, kWidth))) {}

  // x plus what it finds in `memory`, which is used once: the gradients of several uses in a stage
  // are added up before those of other stages, and in one graph in another order.
  Tensor operator()(const Tensor& x, const Tensor& memory) {
    const Tensor both = (*memory_)(memory);
    const Tensor found =
        ScaledDotProductAttention(Heads((*query_)(x)), Heads(Slice(both, 2, 0, kWidth)),
                                  Heads(Slice(both, 2, kWidth, 2 * kWidth)), {.causal = causal_});
    const Tensor joined = Reshape(Transpose(found, 1, 2), {x.size(0), x.size(1), kWidth});
    return x + Tanh((*out_)(joined));
  }

 private:
  const bool causal_;
  std::shared_ptr<nn::Linear> query_, memory_, out_;
};

Case EncoderDecoderCase() {
  ManualSeed(4);
  const auto source_tokens = std::make_shared<nn::Embedding>(13, kWidth);
  const auto target_tokens = std::make_shared<nn::Embedding>(11, kWidth);
  const auto encode1 = std::make_shared<Attend>(20, false);
  const auto encode2 = std::make_shared<Attend>(30, false);
  const auto self1 = std::make_shared<Attend>(40, true),
             cross1 = std::make_shared<Attend>(50, false);
  const auto self2 = std::make_shared<Attend>(60, true),
             cross2 = std::make_shared<Attend>(70, false);
  const auto head = Layer(80, kWidth, 11);
  Case result;
  result.stages = {
      {{{"source", source_tokens}, {"encoder.0", encode1}},
       [=](TensorSpan in) -> TensorList {
         const Tensor x = (*source_tokens)(in[0]);
         return {(*encode1)(x, x)};
       }},
      {{{"encoder.1", encode2}},
       [=](TensorSpan in) -> TensorList { return {(*encode2)(in[0], in[0])}; }},
      {{{"target", target_tokens}, {"decoder.0.self", self1}, {"decoder.0.cross", cross1}},
       [=](TensorSpan in) -> TensorList {
         const Tensor y = (*target_tokens)(in[1]);
         return {(*cross1)((*self1)(y, y), in[0])};
       }},
      {{{"decoder.1.self", self2}, {"decoder.1.cross", cross2}, {"head", head}},
       [=](TensorSpan in) -> TensorList {
         return {(*head)((*cross2)((*self2)(in[0], in[0]), in[1]))};
       }}};
  // The encoder's memory goes to both layers of the decoder.
  result.wiring = {{{kBatch, 0}}, {{0, 0}}, {{1, 0}, {kBatch, 1}}, {{2, 0}, {1, 0}}};
  const auto ids = [](int64_t rows, int64_t length, int64_t step, int64_t tokens) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < rows * length; ++i) values.push_back((step * i + i / 7) % tokens);
    return FromVector<int64_t>(values, {rows, length});
  };
  result.inputs = {ids(7, 6, 5, 13), ids(7, 4, 3, 11)};
  result.targets = {ids(7, 4, 2, 11)};
  result.loss = [](TensorSpan out, TensorSpan target) {
    return CrossEntropy(Reshape(out[0], {-1, 11}), Reshape(target[0], {-1}));
  };
  return result;
}

TEST(PipelineWiring, AnEncoderAndADecoderTrainAsOneGraph) {
  const std::vector<StageEdge> edges = EdgesOf(EncoderDecoderCase().wiring);
  EXPECT_EQ(edges, (std::vector<StageEdge>{{0, 1}, {1, 2}, {1, 3}, {2, 3}}));
  for (const int micro_batches : {1, 3, 7}) {
    for (Schedule schedule : {OneForwardOneBackward(4, micro_batches), GPipe(4, micro_batches),
                              ZeroBubbleH1(4, micro_batches)}) {
      schedule.edges = edges;
      ExpectAsAlone(EncoderDecoderCase, schedule);
    }
  }
}

TEST(PipelineWiring, RandomEdgesTrainAsOneGraph) {
  std::mt19937 random(5);
  const int runs = testing_util::IsSoakRun() ? 200 : 8;
  for (int run = 0; run < runs; ++run) {
    const int stages = 3 + run % 3;
    const std::vector<StageEdge> edges = RandomEdges(stages, random);
    const auto make = [&] {
      Case result;
      result.wiring.resize(static_cast<size_t>(stages));
      result.wiring[0] = {{kBatch, 0}};
      for (const StageEdge& edge : edges) {
        result.wiring[static_cast<size_t>(edge.to)].push_back({edge.from, 0});
      }
      for (int s = 0; s < stages; ++s) {
        const auto layer = Layer(static_cast<uint64_t>(s + 1), 5, 5);
        result.stages.push_back({{{absl::StrCat(s), layer}}, [layer](TensorSpan in) -> TensorList {
                                   Tensor sum = in[0];
                                   for (size_t i = 1; i < in.size(); ++i) sum = Add(sum, in[i]);
                                   return {Tanh((*layer)(sum))};
                                 }});
      }
      result.inputs = {testing_util::Inputs(0, 7)};
      result.targets = {testing_util::Inputs(9, 7)};
      return result;
    };
    const Schedule schedule = RandomSchedule(
        {.stages = stages, .ranks = 1 + run % stages, .micro_batches = 1 + run % 4, .edges = edges},
        random);
    ExpectAsAlone(make, schedule);
  }
}

// Embedding of integers; integer and frozen tensors travel with the activations.
Case IntegerCase() {
  ManualSeed(3);
  const auto embedding = std::make_shared<nn::Embedding>(11, 5);
  const auto middle = Layer(4, 5, 5), last = Layer(5, 5, 3);
  Case result;
  result.stages = {
      {{{"embedding", embedding}},
       [embedding](TensorSpan in) -> TensorList {
         // A leaf that passes, an integer, a float without gradient, an output that nobody uses.
         return {(*embedding)(in[0]), in[0], To(in[0], DType::kFloat32), Ones({2, 2})};
       }},
      {{{"middle", middle}},
       [middle](TensorSpan in) -> TensorList {
         return {Add((*middle)(in[0]), Unsqueeze(in[2], -1) * 0.1), in[0], in[1]};
       }},
      {{{"last", last}}, [last](TensorSpan in) -> TensorList {
         return {(*last)(Add(in[0], Mul(in[1], To(Unsqueeze(in[2], -1), DType::kFloat32))))};
       }}};
  result.inputs = {To(Reshape(Arange(9.0), {9}), DType::kInt64)};
  result.targets = {testing_util::Targets(0, 9)};
  return result;
}

TEST(PipelineWiring, IntegersAndTensorsWithoutGradientTravel) {
  for (const Schedule& schedule : {OneForwardOneBackward(3, 4), ZeroBubbleH1(3, 4)}) {
    ExpectAsAlone(IntegerCase, schedule);
  }
}

// A frozen first stage has no backward, and an output that a stage ignores no gradient.
Case FrozenCase() {
  Case result = SkipCase();
  result.stages[0].parts[0].second->SetRequiresGrad(false);
  return result;
}
Case UnusedCase() {
  const auto a = Layer(1, 5, 7), b = Layer(2, 7, 3);
  Case result;
  result.stages = {{{{"a", a}},
                    [a](TensorSpan in) -> TensorList {
                      const Tensor h = (*a)(in[0]);
                      return {h, Tanh(h)};
                    }},
                   {{{"b", b}}, [b](TensorSpan in) -> TensorList { return {(*b)(in[1])}; }}};
  result.inputs = {testing_util::Inputs(0, 7)};
  result.targets = {testing_util::Targets(0, 7)};
  return result;
}

TEST(PipelineWiring, FrozenStagesAndUnusedOutputsHaveNoGradient) {
  ExpectAsAlone(FrozenCase, ScheduleOf(FrozenCase(), 3));
  ExpectAsAlone(UnusedCase, OneForwardOneBackward(2, 3));
  ExpectAsAlone(UnusedCase, ZeroBubbleH1(2, 3));
}

// Shapes and dtypes that change with the micro-batch.
TEST(PipelineWiring, ShapesMayChangeWithEachMicroBatch) {
  const auto make = [] {
    const auto a = Layer(1, 5, 5), b = Layer(2, 5, 3);
    Case result;
    result.stages = {
        {{{"a", a}},
         [a](TensorSpan in) -> TensorList {
           const Tensor h = (*a)(in[0]);
           return h.size(0) == 2 ? TensorList{h} : TensorList{To(h, DType::kFloat64), Ones({1, 3})};
         }},
        {{{"b", b}},
         [b](TensorSpan in) -> TensorList { return {(*b)(To(in[0], DType::kFloat32))}; }}};
    result.inputs = {testing_util::Inputs(0, 5)};  // 2, 2, 1
    result.targets = {testing_util::Targets(0, 5)};
    return result;
  };
  ExpectAsAlone(make, OneForwardOneBackward(2, 3));
}

// ---- Tied parameters ----

// The head of the last stage is the embedding of the first.
Case TiedCase() {
  ManualSeed(3);
  const auto embedding = std::make_shared<nn::Embedding>(7, 5);
  const auto middle = Layer(4, 5, 5),
             head = std::make_shared<nn::Linear>(5, 7, nn::LinearOptions{.bias = false});
  Case result;
  result.stages = {MakeStage("wte", embedding), MakeStage("middle", middle),
                   MakeStage("head", head)};
  result.inputs = {To(Reshape(Arange(6.0), {6}), DType::kInt64)};
  result.targets = {To(Reshape(Arange(6.0), {6}), DType::kInt64)};
  result.loss = [](TensorSpan out, TensorSpan target) { return CrossEntropy(out[0], target[0]); };
  result.tied = {{{0, "wte.weight"}, {2, "head.weight"}}};
  return result;
}
// The same with one tensor.
Case OneTensorCase() {
  Case result = TiedCase();
  auto& embedding = dynamic_cast<nn::Embedding&>(*result.stages[0].parts[0].second);
  auto& head = dynamic_cast<nn::Linear&>(*result.stages[2].parts[0].second);
  head.weight = embedding.weight;
  result.tied.clear();
  return result;
}

void ExpectNear(const Gradients& got, const Gradients& wanted, float bound) {
  for (const auto& [name, values] : wanted) {
    ASSERT_EQ(got.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(got.at(name)[i], values[i], bound) << name << " " << i;
    }
  }
}

TEST(PipelineWiring, TiedCopiesHaveTheSumOfTheirGradients) {
  const Schedule schedule = OneForwardOneBackward(3, 3);
  for (const int rounds : {1, 3}) {
    const Gradients wanted = Alone(OneTensorCase, 3, rounds);
    const Gradients threads = InThreads(TiedCase, schedule, rounds);
    ExpectNear(threads, wanted, 1e-6f);
    EXPECT_EQ(threads.at("wte.weight"), threads.at("head.weight"));
    EXPECT_EQ(OverRanks(TiedCase, schedule, rounds), threads);
  }
}

// The same with two tensors of one value: each has the gradients of its own use.
Case ApartCase() {
  Case result = TiedCase();
  const Tensor first = result.stages[0].parts[0].second->Parameters()[0];
  const autograd::NoGradScope no_grad;
  CopyInto(result.stages[2].parts[0].second->Parameters()[0], first);
  result.tied.clear();
  return result;
}

std::vector<float> Sum(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> sum;
  for (size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i]);
  return sum;
}

// Each use is accumulated over the micro-batches of a step, then both are added, then that to what
// earlier steps have left: bit for bit, for any number of micro-batches.
TEST(PipelineWiring, TiedCopiesHaveTheSumOfBothUsesBitForBit) {
  for (const int micro_batches : {1, 2, 3, 6}) {
    const Gradients step = Alone(ApartCase, micro_batches);
    const std::vector<float> both = Sum(step.at("wte.weight"), step.at("head.weight"));
    for (const int rounds : {1, 3}) {
      Gradients wanted = Alone(ApartCase, micro_batches, rounds);
      std::vector<float> sum = both;
      for (int round = 1; round < rounds; ++round) sum = Sum(sum, both);
      wanted["wte.weight"] = wanted["head.weight"] = sum;
      for (const Schedule& schedule :
           {GPipe(3, micro_batches), OneForwardOneBackward(3, micro_batches),
            ZeroBubbleH1(3, micro_batches)}) {
        SCOPED_TRACE(absl::StrCat(schedule.name, ", ", micro_batches, ", ", rounds));
        EXPECT_EQ(InThreads(TiedCase, schedule, rounds), wanted);
        EXPECT_EQ(OverRanks(TiedCase, schedule, rounds), wanted);
      }
    }
  }
}

TEST(PipelineWiring, TiedCopiesBeginAsTheFirst) {
  Case c = TiedCase();
  const std::vector<float> first = c.stages[0].parts[0].second->Parameters()[0].ToVector<float>();
  const auto head = c.stages[2].parts[0].second;
  EXPECT_NE(head->Parameters()[0].ToVector<float>(), first);
  Pipeline pipeline(std::move(c.stages), {.schedule = GPipe(3, 2), .loss = c.loss, .tied = c.tied});
  EXPECT_EQ(head->Parameters()[0].ToVector<float>(), first);
}

TEST(PipelineWiring, ATensorInTwoStagesIsRefused) {
  Case c = OneTensorCase();
  const Error error =
      ErrorOf([&] { Pipeline pipeline(c.stages, {.schedule = GPipe(3, 2), .loss = c.loss}); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(error.message(), "\"head.weight\" of stage 2")) << error.message();
}

TEST(PipelineWiring, WrongTiesAreRefused) {
  const auto error_of = [](std::vector<std::vector<StageParameter>> tied) {
    Case c = TiedCase();
    return ErrorOf([&] {
      Pipeline pipeline(c.stages, {.schedule = GPipe(3, 2), .loss = c.loss, .tied = tied});
    });
  };
  EXPECT_EQ(error_of({{{0, "wte.weight"}}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error_of({{{2, "head.weight"}, {0, "wte.weight"}}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error_of({{{0, "wte.weight"}, {3, "head.weight"}}}).code(),
            absl::StatusCode::kInvalidArgument);
  const Error unknown = error_of({{{0, "wte.weight"}, {2, "no.weight"}}});
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(unknown.message(), "\"no.weight\" is no parameter of stage 2"));
  const Error shapes = error_of({{{0, "wte.weight"}, {1, "middle.weight"}}});
  EXPECT_TRUE(absl::StrContains(shapes.message(), "[7, 5]")) << shapes.message();
}

// ---- Refusals ----

TEST(PipelineWiring, WrongWiringIsRefused) {
  const auto error_of = [](Wiring wiring, std::vector<StageEdge> edges) {
    Case c = SkipCase();
    Schedule schedule = GPipe(3, 2);
    schedule.edges = std::move(edges);
    return ErrorOf([&] {
      Pipeline pipeline(c.stages,
                        {.schedule = schedule, .loss = c.loss, .wiring = std::move(wiring)});
    });
  };
  const Wiring skip = SkipCase().wiring;
  const Error missing = error_of(skip, ChainEdges(3));
  EXPECT_TRUE(absl::StrContains(missing.message(), "0>1,0>2,1>2")) << missing.message();
  EXPECT_EQ(error_of({}, EdgesOf(skip)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error_of({{{kBatch, 0}}, {{0, 0}}}, ChainEdges(3)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error_of({{{kBatch, 0}}, {{0, -1}}, {{1, 0}}}, ChainEdges(3)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PipelineWiring, AnOutputThatIsNotThereIsNamed) {
  Case c = SkipCase();
  c.wiring[1] = {{0, 4}};
  Schedule schedule = GPipe(3, 2);
  schedule.edges = EdgesOf(c.wiring);
  Pipeline pipeline(c.stages, OptionsOf(c, schedule));
  const Error error = ErrorOf([&] { pipeline.Step(c.inputs, c.targets); });
  EXPECT_TRUE(absl::StrContains(error.message(), "output 4 is not there")) << error.message();
  EXPECT_TRUE(absl::StrContains(error.message(), "stage 0")) << error.message();
}

}  // namespace
}  // namespace lockstep::pipeline
