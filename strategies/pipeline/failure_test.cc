// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong in one stage is told on every rank, with the stage, the micro-batch and the
// action, and nothing hangs.
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/linear.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/pipeline_checks.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::pipeline {
namespace {

using testing_util::CutEvenly;
using testing_util::Gate;
using testing_util::Inputs;
using testing_util::MakeMlp;
using testing_util::MseOf;
using testing_util::RankOutcome;
using testing_util::RunRanks;
using testing_util::StagesOf;
using testing_util::Targets;

constexpr int kStages = 3;
// The timeout where a stage stalls: the others have to begin their actions within it, on any
// machine.
constexpr absl::Duration kStall = absl::Seconds(1);

// Runs `before` in front of a stage's n-th forward (from 0).
void Precede(Stage& stage, std::function<void(int)> before) {
  auto count = std::make_shared<std::atomic<int>>(0);
  stage.forward = [inner = stage.forward, before = std::move(before),
                   count](TensorSpan in) -> TensorList {
    before(count->fetch_add(1));
    return inner(in);
  };
}

// Throws in the n-th backward of a stage's output.
void ThrowInBackward(Stage& stage, int n) {
  auto count = std::make_shared<std::atomic<int>>(0);
  stage.forward = [inner = stage.forward, count, n](TensorSpan in) -> TensorList {
    TensorList outputs = inner(in);
    autograd::RegisterHook(outputs[0], [count, n](const Tensor&) -> Tensor {
      if (count->fetch_add(1) == n) throw FailedPreconditionError("planted in backward");
      return {};
    });
    return outputs;
  };
}

std::vector<Stage> Stages() { return CutEvenly(*MakeMlp(8), kStages); }

PipelineOptions Options(std::optional<absl::Duration> timeout = std::nullopt) {
  return {.schedule = OneForwardOneBackward(kStages, 4), .loss = MseOf, .timeout = timeout};
}

Error StepError(Pipeline& pipeline) {
  return ErrorOf([&] { pipeline.Step({Inputs(0, 9)}, {Targets(0, 9)}); });
}

void ExpectParts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_TRUE(absl::StrContains(message, part)) << part << " in: " << message;
  }
}

// That a pipeline which has failed trains as one that has not.
void ExpectUsable(Pipeline& pipeline) {
  pipeline.module().ZeroGrad();
  pipeline.Step({Inputs(0, 9)}, {Targets(0, 9)});
  Pipeline other(Stages(), Options());
  other.Step({Inputs(0, 9)}, {Targets(0, 9)});
  EXPECT_EQ(testing_util::GradientsOf(pipeline.module()),
            testing_util::GradientsOf(other.module()));
}

// ---- Threads ----

TEST(PipelineFailure, AThrowInForwardIsNamedAndThePipelineGoesOn) {
  for (int stage = 0; stage < kStages; ++stage) {
    std::vector<Stage> stages = Stages();
    Precede(stages[static_cast<size_t>(stage)], [](int n) {
      if (n == 2) throw ResourceExhaustedError("planted");
    });
    Pipeline pipeline(std::move(stages), Options());
    const Error error = StepError(pipeline);
    EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
    const std::string number = std::to_string(stage);
    ExpectParts(error.message(), {"rank " + number, "stage " + number, "micro-batch 2",
                                  "action " + number + "F2", "planted"});
    ExpectUsable(pipeline);
  }
}

TEST(PipelineFailure, AThrowInBackwardIsNamedAndThePipelineGoesOn) {
  for (const bool split : {false, true}) {
    std::vector<Stage> stages = Stages();
    ThrowInBackward(stages[1], 1);
    PipelineOptions options = Options();
    if (split) options.schedule = ZeroBubbleH1(kStages, 4);
    Pipeline pipeline(std::move(stages), options);
    const Error error = StepError(pipeline);
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
    ExpectParts(error.message(),
                {"rank 1, stage 1, micro-batch 1, action 1", "planted in backward"});
    ExpectUsable(pipeline);
  }
}

TEST(PipelineFailure, OtherExceptionsAreInternalErrors) {
  std::vector<Stage> stages = Stages();
  Precede(stages[1], [](int n) {
    if (n == 1) throw std::runtime_error("of the user");
    if (n == 3) throw 7;
  });
  Pipeline pipeline(std::move(stages), Options());
  Error error = StepError(pipeline);
  EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
  ExpectParts(error.message(), {"action 1F1", "of the user"});
  // The third forward is micro-batch 1 of this run, or of the next.
  pipeline.module().ZeroGrad();
  error = StepError(pipeline);
  EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
  ExpectParts(error.message(), {"no standard type"});
  ExpectUsable(pipeline);
}

TEST(PipelineFailure, MissingTargetsAndOutputsAreNamed) {
  {
    Pipeline pipeline(Stages(), Options());
    const Error error = ErrorOf([&] { pipeline.Step({Inputs(0, 9)}, {}); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    ExpectParts(error.message(), {"action 2F0", "undefined"});
    ExpectUsable(pipeline);
  }
  for (const int stage : {1, 2}) {
    std::vector<Stage> stages = Stages();
    stages[static_cast<size_t>(stage)].forward = [](TensorSpan) { return TensorList(); };
    Pipeline pipeline(std::move(stages), Options());
    const Error error = StepError(pipeline);
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    ExpectParts(error.message(),
                {"action " + std::to_string(stage) + "F0", "the stage returned no tensors"});
  }
}

TEST(PipelineFailure, OutputsThatDoNotJoinAreNamed) {
  std::vector<Stage> stages = Stages();
  stages[2].forward = [inner = stages[2].forward, count = 0](TensorSpan in) mutable -> TensorList {
    const Tensor all = inner(in)[0];
    return {count++ == 1 ? Slice(all, 1, 0, 2) : all};
  };
  Pipeline pipeline(std::move(stages), Options());
  const Error error = ErrorOf([&] { pipeline.Evaluate({Inputs(0, 9)}); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  ExpectParts(error.message(), {"outputs of the last stage, joined", "[2, 2]", "[3, 3]"});
}

TEST(PipelineFailure, TheFirstErrorCounts) {
  std::vector<Stage> stages = Stages();
  Precede(stages[0], [](int n) {
    if (n == 0) throw InvalidArgumentError("the first");
  });
  Precede(stages[2], [](int n) {
    if (n == 0) throw InvalidArgumentError("the last");
  });
  Pipeline pipeline(std::move(stages), Options());
  ExpectParts(StepError(pipeline).message(), {"stage 0", "the first"});
}

TEST(PipelineFailure, AHookThatThrowsIsNamed) {
  PipelineOptions options = Options();
  bool throws = true;
  options.after_last_backward = [&](int stage) {
    if (stage == 1 && throws) throw UnavailableError("the replicas are gone");
  };
  Pipeline pipeline(Stages(), options);
  const Error error = StepError(pipeline);
  EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable);
  ExpectParts(error.message(), {"stage 1, micro-batch 3", "the replicas are gone"});
  throws = false;
  ExpectUsable(pipeline);
}

TEST(PipelineFailure, AFailedStepLeavesTiedGradientsOfEarlierRounds) {
  ManualSeed(1);
  const auto a = std::make_shared<nn::Linear>(5, 5), b = std::make_shared<nn::Linear>(5, 5);
  bool throws = false;
  std::vector<Stage> stages = {MakeStage("a", a), MakeStage("b", b)};
  Precede(stages[1], [&](int) {
    if (throws) throw InvalidArgumentError("planted");
  });
  Pipeline pipeline(std::move(stages),
                    {.schedule = GPipe(2, 2),
                     .loss = [](TensorSpan out, TensorSpan) { return Mean(out[0]); },
                     .tied = {{{0, "a.weight"}, {1, "b.weight"}}}});
  pipeline.Step({Inputs(0, 4)}, {});
  const std::vector<float> before = autograd::Grad(a->weight).ToVector<float>();
  throws = true;
  EXPECT_EQ(ErrorOf([&] { pipeline.Step({Inputs(0, 4)}, {}); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(autograd::Grad(a->weight).ToVector<float>(), before);
  EXPECT_EQ(autograd::Grad(b->weight).ToVector<float>(), before);
}

// Steps until the pipeline no longer refuses because of a thread that has not come back.
void AwaitReturn(Pipeline& pipeline) {
  const Stopwatch watch;
  while (watch.ElapsedSeconds() < 60) {
    try {
      pipeline.Step({Inputs(0, 9)}, {Targets(0, 9)});
      return;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), absl::StatusCode::kFailedPrecondition) << error.message();
      std::this_thread::yield();
    }
  }
  FAIL() << "the thread has not come back";
}

TEST(PipelineFailure, AStallEndsAtTheDeadline) {
  Gate gate;
  std::vector<Stage> stages = Stages();
  Precede(stages[1], [&](int n) {
    if (n == 1) gate.Pass();
  });
  Pipeline pipeline(std::move(stages), Options(kStall));
  const Stopwatch watch;
  const Error error = StepError(pipeline);
  EXPECT_LT(watch.ElapsedSeconds(), 10);
  EXPECT_EQ(error.code(), absl::StatusCode::kDeadlineExceeded);
  ExpectParts(error.message(),
              {"rank 1, stage 1, micro-batch 1, action 1F1: did not come back", "within 1s",
               "rank 0 waits at 0B0", "rank 1 is at 1F1", "rank 2 waits at 2F1"});
  // The stage is still running: nothing else may use it.
  const Error again = StepError(pipeline);
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  ExpectParts(again.message(), {"rank 1 is at 1F1"});
  gate.Open();
  AwaitReturn(pipeline);
  ExpectUsable(pipeline);
}

// Where nobody waits for what the stage makes: only who waits for the end of the run can tell.
TEST(PipelineFailure, AStallForWhichNobodyWaitsEndsAtTheDeadline) {
  const auto expect = [](std::vector<Stage> stages, const Schedule& schedule, Gate& gate,
                         const std::string& place) {
    SCOPED_TRACE(place);
    Pipeline pipeline(std::move(stages), {.schedule = schedule, .loss = MseOf, .timeout = kStall});
    const Error error = StepError(pipeline);
    EXPECT_EQ(error.code(), absl::StatusCode::kDeadlineExceeded);
    ExpectParts(error.message(), {place + ": did not come back within 1s"});
    EXPECT_EQ(StepError(pipeline).code(), absl::StatusCode::kFailedPrecondition);
    gate.Open();
    AwaitReturn(pipeline);
  };
  {
    Gate gate;
    std::vector<Stage> stages = CutEvenly(*MakeMlp(8), 1);
    Precede(stages[0], [&](int n) {
      if (n == 2) gate.Pass();
    });
    expect(std::move(stages), GPipe(1, 4), gate,
           "pipeline: rank 0, stage 0, micro-batch 2, action 0F2");
  }
  {
    // Stage 0's last backward: all that the others do is done.
    Gate gate;
    std::vector<Stage> stages = Stages();
    auto count = std::make_shared<std::atomic<int>>(0);
    const NamedTensors parameters = stages[0].parts[0].second->NamedParameters();
    autograd::RegisterPostAccumulateGradHook(parameters[0].second, [&gate, count](const Tensor&) {
      if (count->fetch_add(1) == 3) gate.Pass();
    });
    expect(std::move(stages), OneForwardOneBackward(kStages, 4), gate,
           "pipeline: rank 0, stage 0, micro-batch 3, action 0B3");
  }
}

TEST(PipelineFailure, AStallOutlivesThePipeline) {
  Gate gate, is_gone;
  std::atomic<int> forwards = 0;
  std::atomic<bool> computed = false;
  {
    std::vector<Stage> stages = Stages();
    // The last of what the thread holds on to.
    const std::shared_ptr<int> witness(new int(0), [&](const int* value) {
      delete value;
      is_gone.Open();
    });
    stages[0].forward = [inner = stages[0].forward, &gate, &forwards, &computed,
                         witness](TensorSpan in) -> TensorList {
      if (forwards.fetch_add(1) == 1) {
        gate.Pass();
        TensorList outputs = inner(in);
        computed = true;
        return outputs;
      }
      return inner(in);
    };
    Pipeline pipeline(std::move(stages), Options(kStall));
    EXPECT_EQ(StepError(pipeline).code(), absl::StatusCode::kDeadlineExceeded);
  }
  gate.Open();
  is_gone.Pass();
  EXPECT_TRUE(computed) << "with parameters and inputs that were still there";
  EXPECT_EQ(forwards, 2) << "a run that has failed goes on with nothing";
}

TEST(PipelineFailure, AStepMayTakeLongerThanTheTimeout) {
  std::vector<Stage> stages = CutEvenly(*MakeMlp(8), 1);
  Precede(stages[0], [](int) { absl::SleepFor(absl::Milliseconds(100)); });
  Pipeline pipeline(std::move(stages),
                    {.schedule = GPipe(1, 12), .loss = MseOf, .timeout = absl::Seconds(1)});
  const Stopwatch watch;
  pipeline.Step({Inputs(0, 12)}, {Targets(0, 12)});
  EXPECT_GT(watch.ElapsedSeconds(), 1) << "else this shows nothing";
}

TEST(PipelineFailure, ThereIsATimeoutByDefault) {
  EXPECT_EQ(TimeoutInOneProcess(Options()), absl::Minutes(10));
  EXPECT_EQ(TimeoutInOneProcess(Options(absl::Seconds(3))), absl::Seconds(3));
}

// ---- Ranks of a communicator ----

std::vector<RankOutcome> StepOnRanks(const std::function<void(int rank, Stage& stage)>& spoil,
                                     const std::string& backend = "shm") {
  return RunRanks(
      kStages,
      [&](int rank, std::shared_ptr<comm::Communicator> world) {
        const PipelineOptions options = Options();
        std::map<int, Stage> own = StagesOf(options.schedule, rank, Stages());
        spoil(rank, own.at(rank));
        Pipeline pipeline(std::move(own), world, options);
        pipeline.Step({Inputs(0, 9)}, {Targets(0, 9)});
      },
      backend);
}

void ExpectAllKnow(const std::vector<RankOutcome>& outcomes, int culprit, absl::StatusCode code,
                   const std::vector<std::string>& parts) {
  for (int rank = 0; rank < kStages; ++rank) {
    const RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
    EXPECT_EQ(outcome.code, rank == culprit ? code : absl::StatusCode::kAborted) << outcome.message;
    ExpectParts(outcome.message, parts);
    ExpectParts(outcome.message, {"pipeline: rank " + std::to_string(rank), "action"});
  }
}

TEST(PipelineFailure, EveryRankKnowsOfAThrow) {
  for (const std::string backend : {"shm", "gloo"}) {
    SCOPED_TRACE(backend);
    const Stopwatch watch;
    ExpectAllKnow(StepOnRanks(
                      [](int rank, Stage& stage) {
                        if (rank != 1) return;
                        Precede(stage, [](int n) {
                          if (n == 2) throw ResourceExhaustedError("planted");
                        });
                      },
                      backend),
                  1, absl::StatusCode::kResourceExhausted,
                  {"stage 1, micro-batch 2, action 1F2", "planted"});
    ExpectAllKnow(StepOnRanks(
                      [](int rank, Stage& stage) {
                        if (rank == 1) ThrowInBackward(stage, 1);
                      },
                      backend),
                  1, absl::StatusCode::kFailedPrecondition,
                  {"stage 1, micro-batch 1, action 1B1", "planted in backward"});
    EXPECT_LT(watch.ElapsedSeconds(), 20) << "no deadline was waited for";
  }
}

TEST(PipelineFailure, EveryRankKnowsOfABatchThatIsRefused) {
  const auto outcomes = RunRanks(kStages, [&](int rank, auto world) {
    const PipelineOptions options = Options();
    Pipeline pipeline(StagesOf(options.schedule, rank, Stages()), world, options);
    const std::vector<Tensor> x =
        rank == 0 ? std::vector<Tensor>{Inputs(0, 3)} : std::vector<Tensor>{};
    const std::vector<Tensor> y =
        rank == 2 ? std::vector<Tensor>{Targets(0, 4)} : std::vector<Tensor>{};
    pipeline.Step(x, y);
  });
  EXPECT_EQ(outcomes[0].code, absl::StatusCode::kInvalidArgument);
  for (const RankOutcome& outcome : outcomes) {
    ExpectParts(outcome.message, {"3 rows", "4 micro-batches"});
  }
}

// Also where it is no Error, and is thrown beside the actions.
TEST(PipelineFailure, EveryRankKnowsOfWhatAFunctionOfTheUsersThrows) {
  const auto outcomes_of = [](const std::function<void(int, PipelineOptions&)>& spoil) {
    return RunRanks(
        kStages,
        [&](int rank, auto world) {
          PipelineOptions options = Options();
          options.tied = {{{0, "0.bias"}, {1, "2.bias"}}};
          spoil(rank, options);
          ManualSeed(1);
          std::vector<Stage> stages;
          for (int s = 0; s < kStages; ++s) {
            stages.push_back(MakeStage(std::to_string(2 * s), std::make_shared<nn::Linear>(5, 5)));
          }
          options.loss = [](TensorSpan outputs, TensorSpan) { return Mean(outputs[0]); };
          Pipeline pipeline(StagesOf(options.schedule, rank, std::move(stages)), world, options);
          // Ranks that had all they need of the first step learn of it in the second.
          for (int step = 0; step < 2; ++step) pipeline.Step({Inputs(0, 9)}, {Targets(0, 9)});
        },
        "shm", absl::Minutes(5));
  };
  const Stopwatch watch;
  const auto expect = [](const std::vector<RankOutcome>& outcomes, const std::string& place) {
    for (const RankOutcome& outcome : outcomes) {
      ExpectParts(outcome.message, {place, "not an Error of ours"});
    }
  };
  expect(outcomes_of([](int rank, PipelineOptions& options) {
           options.weight = [rank](TensorSpan) -> double {
             if (rank == 2) throw std::runtime_error("not an Error of ours");
             return 1;
           };
         }),
         "rank 2, PipelineOptions::weight of micro-batch 0");
  expect(outcomes_of([](int rank, PipelineOptions& options) {
           options.after_last_backward = [rank](int stage) {
             if (rank == 1 && stage == 1) throw std::runtime_error("not an Error of ours");
           };
         }),
         "stage 1, after_last_backward");
  EXPECT_LT(watch.ElapsedSeconds(), 60) << "no deadline was waited for";
}

TEST(PipelineFailure, ARankThatLeavesIsNoticed) {
  const Stopwatch watch;
  const auto outcomes = RunRanks(kStages, [&](int rank, auto world) {
    const PipelineOptions options = Options();
    Pipeline pipeline(StagesOf(options.schedule, rank, Stages()), world, options);
    pipeline.Step({Inputs(0, 9)}, {Targets(0, 9)});
    if (rank == 1) return;
    pipeline.Step({Inputs(0, 9)}, {Targets(0, 9)});
  });
  EXPECT_LT(watch.ElapsedSeconds(), 20) << "no deadline was waited for";
  for (const int rank : {0, 2}) {
    const RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
    EXPECT_NE(outcome.code, absl::StatusCode::kOk);
    ExpectParts(outcome.message, {"pipeline: rank " + std::to_string(rank), "action"});
  }
}

TEST(PipelineFailure, ARankThatStallsIsNoticedAtTheDeadline) {
  Gate gate;
  std::atomic<int> failed = 0;
  const auto outcomes = RunRanks(kStages, [&](int rank, auto world) {
    PipelineOptions options = Options(absl::Milliseconds(500));
    std::map<int, Stage> own = StagesOf(options.schedule, rank, Stages());
    if (rank == 1) {
      Precede(own.at(1), [&](int n) {
        if (n == 1) gate.Pass();
      });
    }
    Pipeline pipeline(std::move(own), world, options);
    try {
      pipeline.Step({Inputs(0, 9)}, {Targets(0, 9)});
    } catch (const Error&) {
      // The rank that stalls comes back when both others have given up.
      if (rank != 1 && failed.fetch_add(1) == 1) gate.Open();
      throw;
    }
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_NE(outcome.code, absl::StatusCode::kOk);
  const bool one_by_deadline = outcomes[0].code == absl::StatusCode::kDeadlineExceeded ||
                               outcomes[2].code == absl::StatusCode::kDeadlineExceeded;
  EXPECT_TRUE(one_by_deadline) << outcomes[0].message << "\n" << outcomes[2].message;
}

// ---- Construction ----

TEST(PipelineFailure, WrongOptionsAreRefusedWithTheNumbers) {
  const auto error_of = [](std::vector<Stage> stages, PipelineOptions options) {
    const Error error = ErrorOf([&] { Pipeline pipeline(std::move(stages), options); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    return error.message();
  };
  PipelineOptions four = Options();
  four.schedule = GPipe(4, 2);
  ExpectParts(error_of(Stages(), four), {"3 stages", "has 4"});
  PipelineOptions invalid = Options();
  invalid.schedule.ranks[0].pop_back();
  error_of(Stages(), invalid);
  PipelineOptions devices = Options();
  devices.devices = {Cpu(0), Cpu(1)};
  ExpectParts(error_of(Stages(), devices), {"2 devices", "3 ranks"});
  devices.devices = {Cpu(0), Cpu(1), Cpu(1)};
  error_of(Stages(), devices);
  PipelineOptions threads = Options();
  threads.threads_per_rank = -1;
  error_of(Stages(), threads);
  PipelineOptions timeout = Options(absl::ZeroDuration());
  error_of(Stages(), timeout);
  std::vector<Stage> empty = Stages();
  empty[1].forward = nullptr;
  ExpectParts(error_of(std::move(empty), Options()), {"stage 1 has no forward"});
  PipelineOptions many = Options();
  many.schedule = GPipe(9, 2);
  ExpectParts(error_of(std::vector<Stage>(9, Stages()[0]), many), {"9 ranks", "8 devices"});
}

// Takes the limits of devices away again.
class Limits {
 public:
  explicit Limits(const std::vector<int64_t>& bytes) : count_(static_cast<int>(bytes.size())) {
    for (int i = 0; i < count_; ++i) SetCapacityLimit(Cpu(i), bytes[static_cast<size_t>(i)]);
  }
  ~Limits() {
    for (int i = 0; i < count_; ++i) SetCapacityLimit(Cpu(i), std::nullopt);
  }
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;

 private:
  const int count_;
};

TEST(PipelineFailure, AScheduleThatDoesNotFitIntoTheDevicesIsRefused) {
  constexpr int64_t kMiB = 1 << 20;
  PipelineOptions options = Options();  // 3, 2 and 1 micro-batches in flight
  options.stage_costs.assign(kStages, {.activation_bytes = kMiB, .static_bytes = kMiB});
  const Limits limits({4 * kMiB, 3 * kMiB, 2 * kMiB});
  Pipeline(Stages(), options).Step({Inputs(0, 9)}, {Targets(0, 9)});
  options.schedule = GPipe(kStages, 4);
  const auto message = [&] {
    const Error error = ErrorOf([&] { Pipeline pipeline(Stages(), options); });
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    return error.message();
  };
  ExpectParts(message(), {"rank 0 has 4194304 bytes and keeps 5242880 bytes at 0F3", "more stages",
                          "checkpoint"});
  options.devices = {Cpu(3), Cpu(4), Cpu(1)};
  ExpectParts(message(), {"rank 2 has 3145728 bytes and keeps 5242880 bytes at 2F3"});
  options.devices = {Cpu(3), Cpu(4), Cpu(5)};  // without a limit
  Pipeline(Stages(), options).Step({Inputs(0, 9)}, {Targets(0, 9)});
  options.devices = {};
  options.stage_costs = {};  // unknown
  Pipeline(Stages(), options).Step({Inputs(0, 9)}, {Targets(0, 9)});

  // Rank 1 alone has a small device, and all are told.
  const auto outcomes = RunRanks(kStages, [&](int rank, auto world) {
    PipelineOptions own = options;
    own.stage_costs.assign(kStages, {.activation_bytes = kMiB});
    const DeviceScope device(Cpu(rank == 1 ? 2 : 3));
    Pipeline pipeline(StagesOf(own.schedule, rank, Stages()), world, own);
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, absl::StatusCode::kInvalidArgument);
    ExpectParts(outcome.message, {"rank 1 has 2097152 bytes and keeps 4194304 bytes at 1F3"});
  }
}

TEST(PipelineFailure, RanksWithTheWrongStagesAreRefused) {
  const auto outcomes = RunRanks(2, [&](int rank, auto world) {
    Pipeline pipeline(StagesOf(Options().schedule, rank, Stages()), world, Options());
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, absl::StatusCode::kInvalidArgument);
    ExpectParts(outcome.message, {"2 ranks", "has 3"});
  }
  const auto wrong = RunRanks(kStages, [&](int rank, auto world) {
    const int other = (rank + 1) % kStages;
    Pipeline pipeline(StagesOf(Options().schedule, other, Stages()), world, Options());
  });
  for (const RankOutcome& outcome : wrong) {
    EXPECT_EQ(outcome.code, absl::StatusCode::kInvalidArgument);
    ExpectParts(outcome.message, {"is given stages"});
  }
}

}  // namespace
}  // namespace lockstep::pipeline
