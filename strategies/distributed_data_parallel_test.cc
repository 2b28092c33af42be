// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/distributed_data_parallel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

using autograd::Backward;
using autograd::Grad;
using comm::RankContext;
using comm::SpawnMode;
using Kind = ReducerEvent::Kind;

// Ranks may be other processes, where gtest's assertions go nowhere.
void Require(bool condition, absl::string_view text) {
  if (!condition) throw lockstep::InternalError(text);
}

void RequireValue(const Tensor& tensor, double expected, absl::string_view what) {
  const double value = tensor.Item<double>({});
  Require(value == expected, absl::StrCat(what, " is ", value, " and should be ", expected));
}

void RequireError(absl::StatusCode code, const std::vector<std::string>& parts,
                  const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    Require(error.code() == code, absl::StrCat("unexpected error: ", error.what()));
    for (const std::string& part : parts) {
      Require(absl::StrContains(error.message(), part),
              absl::StrCat("\"", part, "\" is missing in: ", error.message()));
    }
    return;
  }
  throw lockstep::InternalError("the call did not throw");
}

std::shared_ptr<comm::Communicator> World(const RankContext& context, std::string name = "world") {
  comm::ProcessGroupOptions options = context.group_options(std::move(name));
  options.timeout = absl::Seconds(60);
  return comm::InitProcessGroup(options);
}

void RunRanks(int ranks, comm::RankFunction function, const std::string& argument = "") {
  for (const SpawnMode mode : {SpawnMode::kThreads, SpawnMode::kProcesses}) {
    const comm::SpawnResult result =
        comm::Spawn(ranks, function, {.mode = mode, .argument = argument});
    for (const comm::RankExit& exit : result.ranks) EXPECT_TRUE(exit.ok()) << exit.ToString();
  }
}

// Scalar parameters by name, with given values.
class Scalars : public nn::Module {
 public:
  explicit Scalars(const std::vector<std::pair<std::string, float>>& values) {
    tensors_.resize(values.size());  // registered by address: must not move any more
    for (size_t i = 0; i < values.size(); ++i) {
      RegisterParameter(values[i].first, &tensors_[i], Full({}, values[i].second));
    }
  }
  const Tensor& operator[](size_t i) const { return tensors_[i]; }

 private:
  std::vector<Tensor> tensors_;
};

class Mlp : public nn::UnaryModule {
 public:
  Mlp()
      : a_(RegisterModule("a", std::make_shared<nn::Linear>(5, 7))),
        b_(RegisterModule("b", std::make_shared<nn::Linear>(7, 3))) {}
  Tensor Forward(const Tensor& x) override { return (*b_)(Tanh((*a_)(x))); }
  nn::Linear& first() { return *a_; }
  nn::Linear& last() { return *b_; }

 private:
  std::shared_ptr<nn::Linear> a_, b_;
};

std::string Bytes(const nn::Module& module) {
  std::string bytes;
  for (const Tensor& parameter : module.Parameters()) {
    for (const float value : parameter.ToVector<float>()) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  return bytes;
}

// Whether all ranks have the same bytes: through the store, not the communicator under test.
void RequireSameOnAllRanks(const RankContext& context, const std::string& what,
                           const std::string& bytes) {
  const Deadline deadline = Deadline::After(absl::Seconds(30));
  context.store->Set(absl::StrCat(what, "/", context.rank), bytes, deadline);
  Require(context.store->Get(absl::StrCat(what, "/0"), deadline) == bytes,
          absl::StrCat(what, " differs from rank 0"));
}

// ---- Values ----

// Field report CPP-1.
void ExactGradients(RankContext& context) {
  const auto world = World(context);
  Scalars model({{"w", 1}, {"b", 0}});
  DistributedDataParallel ddp(model, world);
  optim::Sgd optimizer(model.NamedParameters(), {.lr = 0.1});
  const Tensor x =
      context.rank == 0 ? FromVector<float>({1, 2}, {2}) : FromVector<float>({3, 4}, {2});
  const Tensor y = x * model[0] + model[1];
  Backward(Mean(y * y));
  RequireValue(Grad(model[0]), 15, "dw");
  RequireValue(Grad(model[1]), 5, "db");
  optimizer.Step();
  RequireValue(model[0], -0.5, "w");
  RequireValue(model[1], -0.5, "b");
  RequireSameOnAllRanks(context, "weights", Bytes(model));
}

TEST(ValueTest, ExactGradientsAtTwoRanks) { RunRanks(2, ExactGradients); }

Tensor Rows(int64_t first, int64_t count, int64_t columns, double scale) {
  std::vector<float> values;
  for (int64_t i = first * columns; i < (first + count) * columns; ++i) {
    values.push_back(static_cast<float>(std::sin(scale * static_cast<double>(i + 1))));
  }
  return FromVector<float>(values, {count, columns});
}

void Step(Mlp& model, optim::Sgd& optimizer, int step, int64_t first, int64_t count) {
  optimizer.ZeroGrad();
  const Tensor x = Rows(step * 12 + first, count, 5, 0.7);
  const Tensor target = Rows(step * 12 + first, count, 3, 0.3);
  Backward(MseLoss(model(x), target));
  optimizer.Step();
}

// Three steps on the split batch equal three steps of one rank on the whole one; the argument is a
// file that gets rank 0's weights.
void MatchLargeBatch(RankContext& context) {
  ManualSeed(7 + static_cast<uint64_t>(context.rank), context.rank);  // replicas start differently
  Mlp model;
  const auto world = World(context);
  DistributedDataParallel ddp(model, world);
  ManualSeed(7);
  Mlp reference;
  optim::Sgd optimizer(model.NamedParameters(), {.lr = 0.1, .momentum = 0.9});
  optim::Sgd reference_optimizer(reference.NamedParameters(), {.lr = 0.1, .momentum = 0.9});
  const int64_t rows = 12 / context.world_size;
  for (int step = 0; step < 3; ++step) {
    Step(model, optimizer, step, context.rank * rows, rows);
    Step(reference, reference_optimizer, step, 0, 12);
  }
  const std::vector<Tensor> mine = model.Parameters();
  const std::vector<Tensor> theirs = reference.Parameters();
  for (size_t p = 0; p < mine.size(); ++p) {
    const std::vector<float> a = mine[p].ToVector<float>();
    const std::vector<float> b = theirs[p].ToVector<float>();
    float largest = 0;
    for (const float value : b) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < a.size(); ++i) {
      Require(std::abs(a[i] - b[i]) <= 1e-6f * largest,
              absl::StrCat("parameter ", p, " element ", i, ": ", a[i], " against ", b[i]));
    }
  }
  RequireSameOnAllRanks(context, "weights", Bytes(model));
  if (context.rank == 0) std::ofstream(context.argument, std::ios::binary) << Bytes(model);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(ValueTest, EqualsOneRankOnTheWholeBatchInThreadsAndProcesses) {
  const std::string folder = testing::TempDir();
  for (const int ranks : {1, 2, 3, 4}) {
    std::vector<std::string> weights;
    for (const SpawnMode mode : {SpawnMode::kThreads, SpawnMode::kProcesses}) {
      const std::string path = absl::StrCat(folder, "/weights_", ranks, "_", weights.size());
      const comm::SpawnResult result = comm::Spawn(
          ranks, MatchLargeBatch, {.mode = mode, .argument = path, .threads_per_rank = 1});
      for (const comm::RankExit& exit : result.ranks) EXPECT_TRUE(exit.ok()) << exit.ToString();
      weights.push_back(ReadFile(path));
    }
    EXPECT_EQ(weights[0].size(), 4u * (5 * 7 + 7 + 7 * 3 + 3));
    EXPECT_EQ(weights[0], weights[1]) << "threads and processes differ at " << ranks << " ranks";
  }
}

void IgnoreBucketSizes(RankContext& context) {
  std::vector<std::string> results;
  for (const int64_t bytes : {int64_t{1}, int64_t{100}, int64_t{1} << 20}) {
    const auto world = World(context);
    ManualSeed(3);
    Mlp model;
    DistributedDataParallel ddp(model, world,
                                {.bucket_cap_bytes = bytes, .first_bucket_bytes = bytes});
    Require(ddp.plan().buckets.size() == (bytes == 1     ? 4u
                                          : bytes == 100 ? 2u
                                                         : 1u),
            ddp.plan().ToString());
    optim::Sgd optimizer(model.NamedParameters(), {.lr = 0.1});
    for (int step = 0; step < 2; ++step) Step(model, optimizer, step, context.rank * 4, 4);
    results.push_back(Bytes(model));
  }
  Require(results[0] == results[1] && results[1] == results[2], "bucket sizes change bits");
}

TEST(ValueTest, BucketSizesChangeNoBit) { RunRanks(3, IgnoreBucketSizes); }

void AverageOfHalves(RankContext& context) {
  const auto world = World(context);
  for (const double value : {40000.0, std::ldexp(1.0, -24)}) {
    Scalars model({{"w", 1}});
    model.To(DType::kFloat16);
    DistributedDataParallel ddp(model, world);
    Backward(model[0] * Full({}, value, {DType::kFloat16, {}}));
    RequireValue(Grad(model[0]), value, "the average of equal float16 gradients");
  }
}

// Field report D-7.
TEST(ValueTest, Float16NeitherOverflowsNorUnderflows) { RunRanks(4, AverageOfHalves); }

// ---- Structure ----

void OverlapAndOrder(RankContext& context) {
  const auto world = World(context);
  Mlp model;
  const int64_t before = world->sequence();
  DistributedDataParallel ddp(
      model, world, {.bucket_cap_bytes = 1, .first_bucket_bytes = 1, .record_events = true});
  // One comparison of the replicas, one broadcast a parameter.
  Require(world->sequence() == before + 1 + 4, "collectives of the construction");
  for (int backward = 0; backward < 2; ++backward) {
    model.ZeroGrad();
    Backward(Sum(model(Rows(context.rank, 2, 5, 0.7))));
  }
  Require(world->sequence() == before + 5 + 2 * 4, "one collective a bucket");
  const std::vector<ReducerEvent> events = ddp.events();
  Require(events.size() == 2 * (4 + 4 + 4 + 1), absl::StrCat(events.size(), " events"));
  for (size_t i = 0; i < events.size(); ++i) {
    Require(events[i].sequence == static_cast<int64_t>(i), "events are numbered");
  }
  const size_t half = events.size() / 2;
  for (size_t first : {size_t{0}, half}) {
    int64_t first_start = -1, last_ready = -1;
    std::vector<int> started, done;
    for (size_t i = first; i < first + half; ++i) {
      const ReducerEvent& event = events[i];
      if (event.kind == Kind::kGradientReady) last_ready = event.sequence;
      if (event.kind == Kind::kReductionStarted) {
        if (first_start < 0) first_start = event.sequence;
        started.push_back(event.index);
      }
      if (event.kind == Kind::kReductionDone) done.push_back(event.index);
    }
    Require(first_start >= 0 && first_start < last_ready,
            "no reduction started before the last gradient was ready");
    Require(started == std::vector<int>({0, 1, 2, 3}) && done == started, "order of buckets");
    Require(events[first + half - 1].kind == Kind::kBackwardEnded, "the last event");
  }
  const ReducerStatistics statistics = ddp.statistics();
  Require(statistics.reduced_backwards == 2 && statistics.collectives == 8, "statistics");
  Require(statistics.wait_seconds >= 0 && statistics.step_seconds >= statistics.wait_seconds &&
              statistics.communication_share() <= 1,
          "times");
  ddp.ResetStatistics();
  Require(ddp.statistics().collectives == 0, "reset statistics");
}

TEST(StructureTest, ReductionsStartBeforeTheLastGradientAndInOrder) {
  RunRanks(2, OverlapAndOrder);
  RunRanks(3, OverlapAndOrder);
}

// The strongest form of overlap: the last gradient is held back until the first bucket's average
// has been computed by all ranks.
void ReduceWhileBackwardRuns(RankContext& context) {
  const auto world = World(context);
  Mlp model;
  DistributedDataParallel ddp(
      model, world, {.bucket_cap_bytes = 1, .first_bucket_bytes = 1, .record_events = true});
  const int64_t issued = world->sequence();
  autograd::RegisterHook(model.first().weight, [&](const Tensor&) {
    Require(world->sequence() > issued, "nothing was reduced while backward ran");
    // Queued behind the reductions on the same group, so that it passes when they are done.
    world->Barrier().Wait();
    return Tensor();
  });
  Backward(Sum(model(Rows(context.rank, 2, 5, 0.7))));
}

TEST(StructureTest, CollectivesAreIssuedFromInsideBackward) {
  RunRanks(2, ReduceWhileBackwardRuns);
}

// Field report D-1, and nothing is communicated under NoSync.
void Accumulate(RankContext& context) {
  const auto world = World(context);
  Scalars model({{"w1", 1}, {"w2", 1}});
  DistributedDataParallel ddp(model, world);
  const float x = static_cast<float>(context.rank + 1);
  const int64_t before = world->sequence();
  {
    const auto no_sync = ddp.NoSync();
    Backward(model[0] * x);
    Require(world->sequence() == before, "a collective under NoSync");
    RequireValue(Grad(model[0]), x, "the local gradient under NoSync");
  }
  Backward(model[1] * x);
  Require(world->sequence() == before + 1, "one reduction for the window");
  RequireValue(Grad(model[0]), 1.5, "gradient of w1");
  RequireValue(Grad(model[1]), 1.5, "gradient of w2");
  // The sum of several backwards is reduced once.
  model.ZeroGrad();
  {
    const auto outer = ddp.NoSync();
    const auto inner = ddp.NoSync();
    Backward((model[0] + model[1]) * x);
  }
  Backward((model[0] + model[1]) * x);
  RequireValue(Grad(model[0]), 3, "the average of sums");
}

TEST(NoSyncTest, TheWholeWindowIsReduced) { RunRanks(2, Accumulate); }

// Field report D-2, on one rank and on all.
void MissGradient(RankContext& context) {
  for (const bool everywhere : {true, false}) {
    const auto world = World(context);
    Scalars model({{"a", 1}, {"b", 1}});
    DistributedDataParallel ddp(model, world, {.bucket_cap_bytes = 1, .first_bucket_bytes = 1});
    const bool misses = everywhere || context.rank == 1;
    const Tensor loss = misses ? model[0] * 3.0f : model[0] * 3.0f + model[1];
    if (misses) {
      RequireError(absl::StatusCode::kFailedPrecondition, {"1 of 2 parameters", "no gradient", "b"},
                   [&] { Backward(loss); });
    } else {
      RequireError(absl::StatusCode::kAborted, {"aborted by rank 1", "no gradient", "b"},
                   [&] { Backward(loss); });
    }
  }
}

TEST(UnusedParameterTest, IsAnErrorInThatBackwardOnEveryRank) { RunRanks(2, MissGradient); }

// Field report D-5.
void UseTwice(RankContext& context) {
  const auto world = World(context);
  Scalars model({{"w", 3}});
  DistributedDataParallel ddp(model, world);
  const float x = static_cast<float>(context.rank + 1);
  for (int iteration = 0; iteration < 2; ++iteration) {
    model.ZeroGrad();
    const int64_t before = world->sequence();
    Backward(model[0] * (model[0] * Full({}, x)));
    RequireValue(Grad(model[0]), 9, "gradient of a parameter used twice");
    Require(world->sequence() == before + 1, "one reduction");
  }
}

TEST(SharedParameterTest, IsReducedOnce) { RunRanks(2, UseTwice); }

// Field report D-10: the inner module, also after a round trip of its placement.
void CallInnerModule(RankContext& context) {
  const auto world = World(context);
  Scalars model({{"w", 1}});
  DistributedDataParallel ddp(model, world);
  auto& inner = static_cast<Scalars&>(ddp.module());
  const float x = context.rank == 0 ? 1 : 3;
  Backward(inner[0] * x);
  RequireValue(Grad(model[0]), 2, "gradient through the inner module");
  model.To(Cpu(1));
  model.To(Cpu(0));
  model.ZeroGrad();
  Backward(inner[0] * x);
  RequireValue(Grad(model[0]), 2, "gradient after a round trip");
}

TEST(InnerModuleTest, IsReducedToo) { RunRanks(2, CallInnerModule); }

void FrozenAndBuffers(RankContext& context) {
  class WithBuffer : public nn::Module {
   public:
    explicit WithBuffer(float value) {
      RegisterParameter("frozen", &frozen, Full({3}, value), false);
      RegisterParameter("w", &w, Full({3}, value));
      RegisterBuffer("mean", &mean, Full({2}, value));
    }
    Tensor frozen, w, mean;
  };
  const auto world = World(context);
  WithBuffer model(static_cast<float>(context.rank + 1));
  DistributedDataParallel ddp(model, world, {.source_rank = 1});
  for (const Tensor& tensor : {model.frozen, model.w, model.mean}) {
    Require(tensor.Item<float>({1}) == 2, "parameters and buffers come from the source rank");
  }
  Backward(Sum(model.w * model.frozen));
  Require(Grad(model.w).Item<float>({0}) == 2 && !Grad(model.frozen).defined(), "frozen");
}

TEST(ConstructionTest, BroadcastsFrozenParametersAndBuffers) { RunRanks(2, FrozenAndBuffers); }

// Field report D-11.
void DrawDropout(RankContext& context) {
  const auto world = World(context);
  std::vector<std::vector<float>> masks;
  for (int run = 0; run < 2; ++run) {
    ManualSeed(11, context.rank);
    Mlp model;
    RequireSameOnAllRanks(context, absl::StrCat("initial weights ", run), Bytes(model));
    masks.push_back(Dropout(Ones({1024}), 0.5).ToVector<float>());
  }
  Require(masks[0] == masks[1], "the same seed must give the same mask again");
  const Tensor all = Empty({2 * 1024});
  world->AllGather(FromVector<float>(masks[0], {1024}), all).Wait();
  const std::vector<float> both = all.ToVector<float>();
  int differences = 0;
  for (size_t i = 0; i < 1024; ++i) differences += both[i] != both[1024 + i] ? 1 : 0;
  Require(differences > 412 && differences < 612,
          absl::StrCat("masks differ in ", differences, " of 1024 places"));
}

TEST(DropoutTest, DiffersOverRanksWhileWeightsAgree) { RunRanks(2, DrawDropout); }

// ---- Errors ----

void DifferentReplicas(RankContext& context) {
  const auto world = World(context);
  const bool odd = context.rank == context.world_size - 1;
  const std::string last = absl::StrCat("rank ", context.world_size - 1);
  const auto refuse = [&](const std::vector<std::string>& parts, const auto& make) {
    RequireError(absl::StatusCode::kInvalidArgument, parts, [&] {
      auto model = make();
      DistributedDataParallel ddp(*model, world);
    });
  };
  refuse({"replicas differ", "rank 0 has parameter weight: float32[4, 3]",
          last + " has parameter weight: float32[5, 3]"},
         [&] { return std::make_unique<nn::Linear>(3, odd ? 5 : 4); });
  refuse(
      {"rank 0 has parameter weight: float32[4, 3]", last + " has parameter weight: float64[4, 3]"},
      [&] {
        auto linear = std::make_unique<nn::Linear>(3, 4);
        if (odd) linear->To(DType::kFloat64);
        return linear;
      });
  refuse({"rank 0 has parameter x: float32[]", last + " has parameter y: float32[]"}, [&] {
    return std::make_unique<Scalars>(
        std::vector<std::pair<std::string, float>>{{odd ? "y" : "x", 1}});
  });
  refuse({"rank 0 has nothing more", last + " has parameter y"}, [&] {
    std::vector<std::pair<std::string, float>> values = {{"x", 1}};
    if (odd) values.push_back({"y", 1});
    return std::make_unique<Scalars>(values);
  });
  refuse({"none of the 1 parameters requires a gradient"}, [&] {
    auto scalars = std::make_unique<Scalars>(std::vector<std::pair<std::string, float>>{{"x", 1}});
    scalars->SetRequiresGrad(false);
    return scalars;
  });
  Scalars model({{"x", 1}});
  RequireError(absl::StatusCode::kInvalidArgument, {"bucket_cap_bytes"},
               [&] { DistributedDataParallel ddp(model, world, {.bucket_cap_bytes = 0}); });
  RequireError(absl::StatusCode::kInvalidArgument, {"source_rank 9"},
               [&] { DistributedDataParallel ddp(model, world, {.source_rank = 9}); });
  RequireError(absl::StatusCode::kInvalidArgument, {"group is null"},
               [&] { DistributedDataParallel ddp(model, nullptr); });
}

TEST(ConstructionTest, RefusesReplicasThatDiffer) {
  RunRanks(2, DifferentReplicas);
  RunRanks(3, DifferentReplicas);
}

// A backward that throws on one rank ends on the others too.
void FailInBackward(RankContext& context) {
  const auto world = World(context);
  Scalars model({{"a", 1}, {"b", 1}});
  DistributedDataParallel ddp(model, world, {.bucket_cap_bytes = 1, .first_bucket_bytes = 1});
  const Tensor product = model[0] * 2.0f;
  if (context.rank == 1) {
    autograd::RegisterHook(product,
                           [](const Tensor&) -> Tensor { throw OutOfRangeError("planted"); });
  }
  // b's gradient comes first: its bucket is on its way when rank 1 fails.
  const Tensor loss = product + model[1];
  if (context.rank == 1) {
    RequireError(absl::StatusCode::kOutOfRange, {"planted"}, [&] { Backward(loss); });
  } else {
    RequireError(absl::StatusCode::kAborted, {"aborted by rank 1", "backward failed"},
                 [&] { Backward(loss); });
  }
}

TEST(FailureTest, OfOneBackwardEndsAll) { RunRanks(3, FailInBackward); }

// The object may go before the model: its hooks go with it.
void OutliveWrapper(RankContext& context) {
  const auto world = World(context);
  Scalars model({{"w", 1}});
  { DistributedDataParallel ddp(model, world); }
  const int64_t before = world->sequence();
  const float x = static_cast<float>(context.rank + 1);
  Backward(model[0] * x);
  RequireValue(Grad(model[0]), x, "the local gradient");
  Require(world->sequence() == before, "no reduction without a wrapper");
}

TEST(LifetimeTest, HooksGoWithTheWrapper) { RunRanks(2, OutliveWrapper); }

}  // namespace
}  // namespace lockstep::strategies

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
