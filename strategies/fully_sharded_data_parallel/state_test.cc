// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// All elements of sharded parameters, and of optimizer state: to and from unsharded modules, other
// numbers of ranks, and for a while in place.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies {
namespace {

using testing_util::FullParameters;
using testing_util::LossOf;
using testing_util::MakeMlp;
using testing_util::OnRanks;
using testing_util::Rows;
using testing_util::ValuesOf;
using Options = FullyShardedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;
using Values = std::vector<double>;
using Summon = FullyShardedDataParallel::SummonFullParameters;

Options Units(Options options = {}) {
  options.wrap_policy = WrapByType<nn::Linear>();
  return options;
}

std::vector<Options> Settings() {
  return {{},
          Units(),
          Units({.sharding_strategy = ShardingStrategy::kShardGradOp}),
          Units({.sharding_strategy = ShardingStrategy::kNoShard}),
          Units({.cpu_offload = true}),
          Units({.mixed_precision = {.param_dtype = DType::kBFloat16}})};
}

Values Join(const NamedTensors& tensors) {
  Values values;
  for (const auto& [name, tensor] : tensors) {
    for (const double value : tensor.ToVector<double>()) values.push_back(value);
  }
  return values;
}

// ---- Pieces ----

TEST(StateTest, PiecesOfAllRanksAreTheWhole) {
  for (const int ranks : {1, 2, 3, 4}) {
    OnRanks(ranks, [&](int, Group world) {
      auto model = MakeMlp(0);
      const Values wanted = testing_util::AllParameters(*model);
      const std::vector<std::string> names = model->NamedParameters().Names();
      FullyShardedDataParallel fsdp(model, world, Units());
      EXPECT_EQ(FullParameters(fsdp, *model), wanted);
      EXPECT_EQ(model->NamedParameters().Names(), names);
      int64_t mine = 0;
      for (const auto& piece : fsdp.Pieces()) {
        EXPECT_EQ(piece.tensor.shape(), (Shape{piece.end - piece.begin})) << piece.name;
        EXPECT_EQ(piece.shape.size(), piece.name.ends_with("weight") ? 2u : 1u);
        mine += piece.tensor.numel();
      }
      const Tensor sum = FromVector<int64_t>({mine}, {1});
      world->AllReduce(sum).Wait();
      EXPECT_EQ(sum.Item<int64_t>(), static_cast<int64_t>(wanted.size()));
    });
  }
}

// ---- Summon ----

TEST(StateTest, SummonShowsAllAndWritesBack) {
  for (const Options& options : Settings()) {
    OnRanks(3, [&](int, Group world) {
      auto model = MakeMlp(0);
      const NamedTensors named = model->NamedParameters();
      std::vector<Shape> shapes;
      for (const Tensor& parameter : model->Parameters()) shapes.push_back(parameter.shape());
      const Values wanted = testing_util::AllParameters(*model);
      FullyShardedDataParallel fsdp(model, world, options);
      for (int i = 0; i < 3; ++i) {
        {
          Summon summon(fsdp);
          EXPECT_EQ(testing_util::AllParameters(*model), wanted);
          for (size_t k = 0; k < shapes.size(); ++k) {
            EXPECT_EQ(named[k].second.shape(), shapes[k]);
            EXPECT_EQ(named[k].second.dtype(), DType::kFloat32);
          }
        }
        for (const auto& [name, parameter] : named) EXPECT_EQ(parameter.rank(), 1);
        EXPECT_EQ(FullParameters(fsdp, *model), wanted);
      }
      // What is not written back is not kept; what is, is, to the last bit.
      for (const bool writeback : {false, true}) {
        {
          Summon summon(fsdp, {.writeback = writeback});
          const autograd::NoGradScope no_grad;
          for (const auto& [name, parameter] : named) MulInPlace(parameter, 1.0 / 3);
        }
        Values now = wanted;
        if (writeback) {
          for (double& value : now) value = static_cast<float>(value) * (1.0f / 3);
        }
        const Values values = FullParameters(fsdp, *model);
        for (size_t k = 0; k < now.size(); ++k) EXPECT_FLOAT_EQ(values[k], now[k]);
        if (!writeback) {
          EXPECT_EQ(values, wanted);
        }
      }
    });
  }
}

TEST(StateTest, SummonOnRank0OrOnTheHost) {
  OnRanks(2, [](int rank, Group world) {
    auto model = MakeMlp(0);
    const Values wanted = testing_util::AllParameters(*model);
    for (const bool on_host : {false, true}) {
      FullyShardedDataParallel fsdp(model, world, Units());
      {
        Summon summon(fsdp, {.writeback = false, .rank0_only = true, .offload_to_cpu = on_host});
        if (rank == 0) {
          EXPECT_EQ(testing_util::AllParameters(*model), wanted);
        }
        for (const Tensor& parameter : model->Parameters()) {
          EXPECT_EQ(parameter.device(), rank == 0 && on_host ? kHost : Cpu());
          if (rank != 0) {
            EXPECT_EQ(parameter.rank(), 1);
          }
        }
        ExpectError(absl::StatusCode::kFailedPrecondition,
                    "was called inside SummonFullParameters with rank0_only",
                    [&] { (*model)(Rows(0, 2).At("inputs")); });
      }
      EXPECT_EQ(FullParameters(fsdp, *model), wanted);
      model = MakeMlp(0);
    }
  });
}

// To generate without gathering each time.
TEST(StateTest, ModulesCanBeCalledInsideSummon) {
  for (const Options& options : Settings()) {
    OnRanks(2, [&](int rank, Group world) {
      auto model = MakeMlp(0);
      const Tensor x = Rows(0, 3).At("inputs");
      const Values wanted = (*model)(x).ToVector<double>();
      FullyShardedDataParallel fsdp(model, world, options);
      autograd::Backward(LossOf(*model, rank, 2, 0));
      model->ZeroGrad();
      {
        Summon summon(fsdp);
        const autograd::NoGradScope no_grad;
        const int64_t first = world->sequence();
        for (int i = 0; i < 2; ++i) EXPECT_EQ((*model)(x).ToVector<double>(), wanted);
        EXPECT_EQ(world->sequence(), first);
        for (const Tensor& parameter : model->Parameters()) MulInPlace(parameter, 2.0);
        EXPECT_NE((*model)(x).ToVector<double>(), wanted);
      }
      {
        Summon summon(fsdp);
        const autograd::NoGradScope no_grad;
        for (const Tensor& parameter : model->Parameters()) MulInPlace(parameter, 0.5);
      }
      EXPECT_EQ(FullParameters(fsdp, *model), testing_util::AllParameters(*MakeMlp(0)));
      autograd::Backward(LossOf(*model, rank, 2, 1));
    });
  }
}

TEST(StateTest, SummonRefuses) {
  OnRanks(2, [](int rank, Group world) {
    auto model = MakeMlp(0);
    FullyShardedDataParallel fsdp(model, world, Units());
    ExpectError(absl::StatusCode::kInvalidArgument, "writeback does not go with rank0_only",
                [&] { Summon summon(fsdp, {.rank0_only = true}); });
    ExpectError(absl::StatusCode::kInvalidArgument, "writeback does not go with offload_to_cpu",
                [&] { Summon summon(fsdp, {.offload_to_cpu = true}); });
    const Tensor loss = LossOf(*model, rank, 2, 0);
    {
      Summon summon(fsdp);
      const auto refuses = [&](const std::string& call, const std::function<void()>& body) {
        ExpectError(absl::StatusCode::kFailedPrecondition,
                    call + " was called inside SummonFullParameters", body);
      };
      refuses("SummonFullParameters", [&] { Summon inner(fsdp); });
      refuses("VisitFull", [&] { fsdp.FullStateDict(); });
      refuses("LoadFullStateDict", [&] { fsdp.LoadFullStateDict({}); });
      refuses("ClipGradNorm", [&] { fsdp.ClipGradNorm(1); });
      refuses("Unshard", [&] { fsdp.Unshard(*model); });
      refuses("Reshard", [&] { fsdp.Reshard(*model); });
      ExpectError(absl::StatusCode::kFailedPrecondition,
                  "Backward() was called inside SummonFullParameters",
                  [&] { autograd::Backward(loss); });
    }
    // Inside a forward pass, between the root's hooks.
    int calls = 0;
    for (const auto& [name, module] : model->NamedModules()) {
      if (name != "layers") continue;
      module->RegisterForwardHook([&](nn::Module&, TensorSpan, TensorList&) {
        ++calls;
        ExpectError(absl::StatusCode::kFailedPrecondition,
                    "SummonFullParameters was called during a forward pass",
                    [&] { Summon summon(fsdp); });
        ExpectError(absl::StatusCode::kFailedPrecondition,
                    "VisitFull was called during a forward pass", [&] { fsdp.FullStateDict(); });
      });
      module->RegisterForwardPreHook([&](nn::Module&, TensorList&) {
        ++calls;
        ExpectError(absl::StatusCode::kFailedPrecondition,
                    "ClipGradNorm was called during a forward pass", [&] { fsdp.ClipGradNorm(1); });
      });
    }
    autograd::Backward(LossOf(*model, rank, 2, 0));
    EXPECT_EQ(calls, 2);
    Summon summon(fsdp);
  });
}

// ---- State dicts ----

models::Gpt2Config Tiny() {
  return {.layers = 2, .heads = 2, .width = 8, .block = 4, .vocabulary = 11};
}

std::shared_ptr<models::Gpt2> MakeGpt2(uint64_t seed) {
  ManualSeed(seed);
  return std::make_shared<models::Gpt2>(Tiny());
}

Tensor Gpt2Loss(models::Gpt2& model, int64_t step) {
  std::vector<int64_t> ids, targets;
  for (int64_t i = 0; i < 12; ++i) {
    ids.push_back((3 * i + step) % 11);
    targets.push_back((5 * i + 2 * step) % 11);
  }
  return model.Loss(FromVector<int64_t>(ids, {3, 4}), FromVector<int64_t>(targets, {3, 4}));
}

struct TrainingState {
  NamedTensors model;
  optim::OptimizerState optimizer;
};

// Trains steps [begin, end) on `ranks` ranks which all see the same rows, from `state`; what rank 0
// has then.
TrainingState Train(int ranks, int64_t begin, int64_t end,
                    const std::optional<TrainingState>& state, Options options = {}) {
  TrainingState result;
  options.wrap_policy = WrapByType<models::Gpt2Block>();
  OnRanks(ranks, [&](int rank, Group world) {
    auto model = MakeGpt2(state.has_value() ? 77 : 1);
    FullyShardedDataParallel fsdp(model, world, options);
    optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
    if (state.has_value()) {
      fsdp.LoadFullStateDict(state->model);
      fsdp.LoadFullOptimizerState(optimizer, state->optimizer);
    }
    for (int64_t step = begin; step < end; ++step) {
      optimizer.ZeroGrad();
      autograd::Backward(Gpt2Loss(*model, step));
      optimizer.Step();
    }
    TrainingState mine{fsdp.FullStateDict(), fsdp.FullOptimizerState(optimizer)};
    if (rank == 0) {
      result = std::move(mine);
    } else {
      EXPECT_TRUE(mine.model.empty());
      EXPECT_TRUE(mine.optimizer.tensors.empty());
    }
  });
  return result;
}

TrainingState TrainUnsharded(int64_t begin, int64_t end,
                             const std::optional<TrainingState>& state) {
  auto model = MakeGpt2(state.has_value() ? 77 : 1);
  optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
  if (state.has_value()) {
    model->LoadStateDict(state->model);
    optimizer.LoadState(state->optimizer);
  }
  for (int64_t step = begin; step < end; ++step) {
    optimizer.ZeroGrad();
    autograd::Backward(Gpt2Loss(*model, step));
    optimizer.Step();
  }
  TrainingState result{{}, optimizer.SaveState()};
  for (const auto& [name, tensor] : model->StateDict()) result.model.Insert(name, Clone(tensor));
  return result;
}

void ExpectNear(const TrainingState& state, const TrainingState& wanted) {
  EXPECT_EQ(state.model.Names(), wanted.model.Names());
  for (const auto& [name, tensor] : wanted.model) {
    const Tensor& other = state.model.At(name);
    ASSERT_EQ(other.shape(), tensor.shape()) << name;
    EXPECT_EQ(other.device(), kHost);
    const Values a = other.ToVector<double>(), b = tensor.ToVector<double>();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << name << " " << i;
  }
  EXPECT_EQ(state.optimizer.numbers, wanted.optimizer.numbers);
  EXPECT_EQ(state.optimizer.tensors.size(), wanted.optimizer.tensors.size());
  for (const auto& [name, tensor] : wanted.optimizer.tensors) {
    const Tensor& other = state.optimizer.tensors.At(name);
    ASSERT_EQ(other.shape(), tensor.shape()) << name;
    const Values a = other.ToVector<double>(), b = tensor.ToVector<double>();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << name << " " << i;
  }
}

// Two steps on `before` ranks, two more on `after`; 0: an unsharded module.
TEST(StateTest, GoesToOtherNumbersOfRanks) {
  const TrainingState wanted = TrainUnsharded(0, 4, std::nullopt);
  for (const auto& [before, after] :
       std::vector<std::pair<int, int>>{{1, 2}, {2, 3}, {3, 1}, {2, 0}, {0, 3}, {3, 2}}) {
    SCOPED_TRACE(testing::Message() << before << " ranks, then " << after);
    const TrainingState half =
        before > 0 ? Train(before, 0, 2, std::nullopt) : TrainUnsharded(0, 2, std::nullopt);
    const TrainingState all = after > 0 ? Train(after, 2, 4, half) : TrainUnsharded(2, 4, half);
    if (after > 0) {
      ExpectNear(all, wanted);
    } else {
      EXPECT_EQ(all.model.Names(), wanted.model.Names());
      const Values a = Join(all.model), b = Join(wanted.model);
      for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
    }
  }
  ExpectNear(Train(2, 2, 4, Train(2, 0, 2, std::nullopt, {.cpu_offload = true}),
                   {.sharding_strategy = ShardingStrategy::kShardGradOp}),
             wanted);
}

TEST(StateTest, SavingAndLoadingChangesNothing) {
  const TrainingState state = Train(3, 0, 3, std::nullopt);
  const TrainingState again = Train(3, 3, 3, state);
  EXPECT_EQ(Join(again.model), Join(state.model));
  EXPECT_EQ(Join(again.optimizer.tensors), Join(state.optimizer.tensors));
  EXPECT_EQ(again.optimizer.numbers, state.optimizer.numbers);
  // Tied names are both there.
  EXPECT_TRUE(state.model.Contains("lm_head.weight"));
  EXPECT_EQ(state.model.At("lm_head.weight").ToVector<float>(),
            state.model.At("transformer.wte.weight").ToVector<float>());
}

TEST(StateTest, VisitsEachParameterOnceAndWhole) {
  OnRanks(3, [](int rank, Group world) {
    auto model = MakeGpt2(1);
    const NamedTensors wanted = MakeGpt2(1)->NamedParameters();
    FullyShardedDataParallel fsdp(model, world, {.wrap_policy = WrapByType<models::Gpt2Block>()});
    for (const bool rank0_only : {true, false}) {
      std::vector<std::string> seen;
      fsdp.VisitFullParameters(
          [&](const std::string& name, const Tensor& value) {
            seen.push_back(name);
            EXPECT_EQ(value.shape(), wanted.At(name).shape());
            EXPECT_EQ(value.ToVector<float>(), wanted.At(name).ToVector<float>());
          },
          rank0_only);
      EXPECT_EQ(seen.size(), rank0_only && rank != 0 ? 0u : wanted.size());
    }
    // What is undefined is left out.
    int visits = 0;
    fsdp.VisitFull(
        [&](const std::string& name) {
          Tensor piece;
          for (const auto& own : fsdp.Pieces()) {
            if (own.name == name && name.ends_with("ln_f.weight")) {
              piece = To(own.tensor, DType::kFloat64);
            }
          }
          return piece;
        },
        [&](const std::string& name, const Tensor& value) {
          ++visits;
          EXPECT_EQ(name, "transformer.ln_f.weight");
          EXPECT_EQ(value.dtype(), DType::kFloat64);
          EXPECT_EQ(value.ToVector<double>(), Values(8, 1.0));
        });
    EXPECT_EQ(visits, 1);
  });
}

TEST(StateTest, LoadingRefusesWhatDoesNotFit) {
  OnRanks(2, [](int, Group world) {
    auto model = MakeMlp(0);
    FullyShardedDataParallel fsdp(model, world, Units());
    optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.01});
    const Values before = FullParameters(fsdp, *model);
    NamedTensors state = MakeMlp(5)->StateDict();
    NamedTensors wrong = state.Filter(
        [](const std::string& name, const Tensor&) { return name != "layers.2.bias"; });
    wrong.Set("layers.4.weight", Zeros({3, 5}));
    wrong.Insert("layers.6.weight", Zeros({1}));
    for (const std::string part :
         {"layers.2.bias is missing", "layers.4.weight is", "and not of shape [2, 5]",
          "layers.6.weight is not in the module"}) {
      ExpectError(absl::StatusCode::kInvalidArgument, part, [&] { fsdp.LoadFullStateDict(wrong); });
    }
    EXPECT_EQ(FullParameters(fsdp, *model), before);
    optim::OptimizerState moments;
    moments.tensors.Insert("layers.0.weight.exp_avg", Zeros({4, 4}));
    ExpectError(absl::StatusCode::kInvalidArgument, "layers.0.weight.exp_avg is",
                [&] { fsdp.LoadFullOptimizerState(optimizer, moments); });
    optim::OptimizerState unknown;
    unknown.tensors.Insert("layers.9.weight.exp_avg", Zeros({4, 4}));
    ExpectError(absl::StatusCode::kInvalidArgument, "layers.9.weight",
                [&] { fsdp.LoadFullOptimizerState(optimizer, unknown); });
    // Another dtype is converted.
    NamedTensors wide;
    for (const auto& [name, tensor] : state) wide.Insert(name, To(tensor, DType::kFloat64));
    fsdp.LoadFullStateDict(wide);
    EXPECT_EQ(FullParameters(fsdp, *model), testing_util::AllParameters(*MakeMlp(5)));
    // And what was gathered before is not used afterwards.
    const Tensor x = Rows(0, 2).At("inputs");
    const autograd::NoGradScope no_grad;
    EXPECT_EQ((*model)(x).ToVector<float>(), (*MakeMlp(5))(x).ToVector<float>());
    fsdp.Unshard(*model);
    fsdp.LoadFullStateDict(MakeMlp(6)->StateDict());
    EXPECT_EQ((*model)(x).ToVector<float>(), (*MakeMlp(6))(x).ToVector<float>());
  });
}

// ---- Calls of other functions ----

TEST(StateTest, CallMethod) {
  OnRanks(2, [](int rank, Group world) {
    auto model = MakeMlp(0);
    FullyShardedDataParallel fsdp(model, world, Units());
    nn::Linear* layer = nullptr;
    for (const auto& [name, module] : model->NamedModules()) {
      if (name == "layers.2") layer = dynamic_cast<nn::Linear*>(module);
    }
    for (int i = 0; i < 3; ++i) {
      const Tensor y = fsdp.CallMethod(*layer, {Full({2, 5}, rank + 1.0)}, [&](TensorSpan in) {
        EXPECT_EQ(layer->weight.shape(), (Shape{5, 7}));
        return TensorList{MatMul(in[0], layer->weight)};
      })[0];
      EXPECT_EQ(layer->weight.rank(), 1);
      autograd::Backward(Sum(y));
      for (const auto& piece : fsdp.Pieces()) {
        const Tensor gradient = autograd::Grad(piece.tensor);
        ASSERT_EQ(gradient.defined(), piece.name == "layers.2.weight");
        if (!gradient.defined()) continue;
        for (const float value : gradient.ToVector<float>()) EXPECT_EQ(value, 3.0f);
      }
      model->ZeroGrad();
    }
    for (const auto& [name, module] : model->NamedModules()) {
      if (name != "layers") continue;
      ExpectError(absl::StatusCode::kInvalidArgument,
                  "CallMethod: this Sequential is no unit; the units are \"\", \"layers.0\"",
                  [&] { fsdp.CallMethod(*module, {}, [](TensorSpan) { return TensorList(); }); });
      ExpectError(absl::StatusCode::kInvalidArgument, "Unshard: this Sequential is no unit",
                  [&] { fsdp.Unshard(*module); });
      ExpectError(absl::StatusCode::kInvalidArgument, "Reshard: this Sequential is no unit",
                  [&] { fsdp.Reshard(*module); });
    }
  });
}

// A module with a function besides operator(), which a module above calls without knowing of
// sharding.
class Encoder : public nn::UnaryModule {
 public:
  explicit Encoder(double value) {
    RegisterParameter("weight", &weight, FromVector<float>({1, 2, 3, 4, 5, 6}, {3, 2}) * value);
  }
  Tensor Forward(const Tensor& x) override { return Tanh(MatMul(x, weight)); }
  Tensor Embed(const Tensor& x) {
    return CallWithHooks(
        {x}, [this](TensorSpan in) -> TensorList { return {MatMul(in[0], weight)}; })[0];
  }
  Tensor weight;
};

class TwoEncoders : public nn::UnaryModule {
 public:
  TwoEncoders() {
    first_ = RegisterModule("first", std::make_shared<Encoder>(0.1));
    second_ = RegisterModule("second", std::make_shared<Encoder>(0.2));
  }
  Tensor Forward(const Tensor& x) override {
    return first_->Embed(x) * (*second_)(x) + second_->Embed(x);
  }

 private:
  std::shared_ptr<Encoder> first_, second_;
};

TEST(StateTest, FunctionsThatRunTheHooksNeedNoCallMethod) {
  const Tensor x = FromVector<float>({1, -2, 3, 0.5, 1, -1}, {2, 3});
  const auto plain = std::make_shared<TwoEncoders>();
  autograd::Backward(Sum((*plain)(x)));
  const Values wanted = testing_util::Gradients(*plain);
  for (const int ranks : {2, 3}) {
    OnRanks(ranks, [&](int, Group world) {
      const auto model = std::make_shared<TwoEncoders>();
      FullyShardedDataParallel fsdp(model, world, {.wrap_policy = WrapByType<Encoder>()});
      for (int step = 0; step < 3; ++step) {
        model->ZeroGrad();
        const Tensor y = (*model)(x);
        EXPECT_EQ(y.ToVector<float>(), (*plain)(x).ToVector<float>());
        autograd::Backward(Sum(y));
        const Values gradients = testing_util::FullGradients(fsdp, *model);
        ASSERT_EQ(gradients.size(), wanted.size());
        for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(gradients[i], wanted[i], 1e-6);
      }
    });
  }
}

}  // namespace
}  // namespace lockstep::strategies
