// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Parameters, gradients, buffers, inputs and outputs in other dtypes; loss scaling.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/scaler/grad_scaler.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/layer_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies {
namespace {

using testing_util::FullGradients;
using testing_util::FullParameters;
using testing_util::LossOf;
using testing_util::MakeMlp;
using testing_util::OnRanks;
using testing_util::Rows;
using testing_util::ValuesOf;
using testing_util::Weights;
using Options = FullyShardedDataParallelOptions;
using Group = std::shared_ptr<comm::Communicator>;
using Values = std::vector<double>;

constexpr float kInf = std::numeric_limits<float>::infinity();

Options Units(Options options = {}) {
  options.wrap_policy = WrapByType<nn::Linear>();
  return options;
}

// Linear, norm, linear; a buffer; notes the dtypes that it sees.
class Normed : public nn::UnaryModule {
 public:
  Normed() {
    RegisterModule("first", first);
    RegisterModule("norm", norm);
    RegisterModule("last", last);
    RegisterBuffer("shift", &shift, Full({2}, 0.3));
    RegisterBuffer("count", &count, Full({1}, 5, {.dtype = DType::kInt64}));
  }
  Tensor Forward(const Tensor& x) override {
    dtypes = {x.dtype()};
    Tensor y = (*first)(x);
    dtypes.push_back(y.dtype());
    y = (*norm)(y);
    dtypes.push_back(y.dtype());
    y = (*last)(Tanh(y)) + shift;
    dtypes.push_back(y.dtype());
    return y;
  }
  std::shared_ptr<nn::Linear> first = std::make_shared<nn::Linear>(3, 6);
  std::shared_ptr<nn::LayerNorm> norm = std::make_shared<nn::LayerNorm>(ShapeArg{6});
  std::shared_ptr<nn::Linear> last = std::make_shared<nn::Linear>(6, 2);
  Tensor shift;
  Tensor count;
  std::vector<DType> dtypes;
};

std::shared_ptr<Normed> MakeNormed() {
  ManualSeed(3);
  return std::make_shared<Normed>();
}

bool IsNorm(const std::string&, nn::Module& module) {
  return dynamic_cast<nn::LayerNorm*>(&module) != nullptr;
}

constexpr DType kHalf = DType::kBFloat16;
constexpr DType kFull = DType::kFloat32;

// The root, which has no parameters of its own, too.
TEST(MixedPrecisionTest, AllInFullPrecisionIsAsWithout) {
  OnRanks(2, [](int, Group world) {
    const auto gradients = [&](bool mixes) {
      auto model = MakeNormed();
      Options options = Units();
      if (mixes) {
        options.mixed_precision.param_dtype = kHalf;
        options.mixed_precision.keep_full_precision = [](const std::string&, nn::Module&) {
          return true;
        };
      }
      FullyShardedDataParallel fsdp(model, world, options);
      autograd::Backward(Sum((*model)(Full({2, 3}, 0.3))));
      return FullGradients(fsdp, *model);
    };
    EXPECT_EQ(gradients(true), gradients(false));
  });
}

TEST(MixedPrecisionTest, DtypesInsideAndOutside) {
  OnRanks(2, [](int rank, Group world) {
    struct Case {
      MixedPrecision mixed;
      std::vector<DType> inside;
      DType output;
      DType buffer;
    };
    const std::vector<Case> cases = {
        {{}, {kFull, kFull, kFull, kFull}, kFull, kFull},
        {{.param_dtype = kHalf, .buffer_dtype = kHalf}, {kHalf, kHalf, kHalf, kHalf}, kHalf, kHalf},
        {{.param_dtype = kHalf, .output_dtype = kFull, .keep_full_precision = IsNorm},
         {kHalf, kHalf, kHalf, kFull},  // the buffer promotes
         kFull,
         kFull},
        {{.param_dtype = kHalf,
          .buffer_dtype = kHalf,
          .output_dtype = kFull,
          .keep_full_precision = IsNorm},
         {kHalf, kHalf, kHalf, kHalf},
         kFull,
         kHalf},
    };
    for (const Case& one : cases) {
      auto model = MakeNormed();
      Options options = Units();
      options.mixed_precision = one.mixed;
      FullyShardedDataParallel fsdp(model, world, options);
      const bool mixes = one.mixed.param_dtype.has_value();
      const bool keeps_norm = one.mixed.keep_full_precision != nullptr;
      model->first->RegisterForwardPreHook([&](nn::Module&, TensorList& inputs) {
        EXPECT_EQ(inputs[0].dtype(), mixes ? kHalf : kFull);
        EXPECT_EQ(model->first->weight.dtype(), mixes ? kHalf : kFull);
      });
      model->norm->RegisterForwardPreHook([&](nn::Module&, TensorList& inputs) {
        EXPECT_EQ(inputs[0].dtype(), mixes && !keeps_norm ? kHalf : kFull);
        EXPECT_EQ(model->norm->weight.dtype(), mixes && !keeps_norm ? kHalf : kFull);
      });
      for (int i = 0; i < 2; ++i) {
        const Tensor y = (*model)(Rows(rank, 2).At("inputs"));
        EXPECT_EQ(y.dtype(), one.output);
        EXPECT_EQ(model->dtypes, one.inside);
        EXPECT_EQ(model->shift.dtype(), one.buffer);
        EXPECT_EQ(model->count.dtype(), DType::kInt64);
        autograd::Backward(Sum(y));
        // What is kept, and stepped, is not changed.
        for (const auto& piece : fsdp.Pieces()) {
          EXPECT_EQ(piece.tensor.dtype(), kFull);
          EXPECT_EQ(autograd::Grad(piece.tensor).dtype(), kFull);
        }
      }
    }
    // Inputs are left alone on request, which the products then refuse.
    auto model = MakeNormed();
    Options options = Units();
    options.mixed_precision = {.param_dtype = kHalf, .cast_forward_inputs = false};
    FullyShardedDataParallel fsdp(model, world, options);
    EXPECT_EQ((*model)(To(Rows(rank, 2).At("inputs"), kHalf)).dtype(), kFull);
  });
}

// Indices are no floating-point inputs.
TEST(MixedPrecisionTest, UnitsHaveTheirOwn) {
  OnRanks(2, [](int rank, Group world) {
    auto model = MakeNormed();
    Options options;
    options.mixed_precision.param_dtype = kHalf;
    options.wrap_policy = WrapIf([](const std::string& name, nn::Module& module) {
      std::optional<UnitOptions> unit;
      if (dynamic_cast<nn::Linear*>(&module) != nullptr) unit.emplace();
      if (name == "last") unit->param_dtype = DType::kFloat64;
      return unit;
    });
    FullyShardedDataParallel fsdp(model, world, options);
    const Tensor y = (*model)(Rows(rank, 2).At("inputs"));
    EXPECT_EQ(y.dtype(), DType::kFloat64);
    autograd::Backward(Sum(y));
    EXPECT_EQ(autograd::Grad(model->last->weight).dtype(), kFull);
  });
}

// Training in bfloat16 follows float32, and its parameters are float32's own.
TEST(MixedPrecisionTest, TrainsCloseToFullPrecision) {
  const auto train = [](const MixedPrecision& mixed, bool offload) {
    return ValuesOf(2, [&](int rank, Group world) {
      auto model = MakeMlp(rank);
      Options options = Units({.cpu_offload = offload});
      options.mixed_precision = mixed;
      FullyShardedDataParallel fsdp(model, world, options);
      optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.05, .momentum = 0.9});
      for (int64_t step = 0; step < 5; ++step) {
        optimizer.ZeroGrad();
        autograd::Backward(LossOf(*model, rank, 2, step));
        optimizer.Step();
      }
      return FullParameters(fsdp, *model);
    });
  };
  const Values wanted = train({}, false);
  const std::vector<MixedPrecision> cases = {
      {.param_dtype = kHalf, .output_dtype = kFull},
      {.param_dtype = kHalf, .reduce_dtype = kFull, .output_dtype = kFull},
      {.reduce_dtype = kHalf},
      {.param_dtype = DType::kFloat16, .reduce_dtype = kFull, .output_dtype = kFull},
      {.param_dtype = DType::kFloat16, .output_dtype = kFull}};
  for (size_t k = 0; k < cases.size(); ++k) {
    const Values values = train(cases[k], false);
    double largest = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i] - wanted[i]));
    }
    EXPECT_LT(largest, 4e-3) << "case " << k;
    EXPECT_GT(largest, 1e-8) << "case " << k;
    EXPECT_EQ(train(cases[k], true), values) << "case " << k;
  }
}

// The sums of float16 gradients neither overflow nor vanish: of 8 ranks with gradients of 2^14
// each, whose sum is beyond float16, and with the smallest numbers there are.
TEST(MixedPrecisionTest, Float16NearItsLimits) {
  const auto reduced = [](double gradient, DType dtype) {
    return ValuesOf(8, [&](int, Group world) {
      auto model = std::make_shared<Weights>(Values{1});
      Options options;
      options.mixed_precision.reduce_dtype = dtype;
      FullyShardedDataParallel fsdp(model, world, options);
      autograd::Backward(fsdp.CallMethod(
          *model, {}, [&](TensorSpan) -> TensorList { return {(*model)[0] * gradient}; })[0]);
      return FullGradients(fsdp, *model);
    })[0];
  };
  for (const double value : {16384.0, 1024.0, 1.0, 0x1p-14, 0x1p-20, 0x1p-24}) {
    EXPECT_EQ(reduced(value, DType::kFloat16), value);
    EXPECT_EQ(reduced(value, kHalf), value);
  }
}

// Sums in float32 over micro-batches, of parameters that are first used in the last one.
TEST(MixedPrecisionTest, AccumulatesInTheReductionsDtype) {
  const Values values = ValuesOf(2, [](int rank, Group world) {
    auto model = std::make_shared<Weights>(Values{1, 1});
    Options options;
    options.mixed_precision = {.param_dtype = kHalf, .reduce_dtype = kFull};
    FullyShardedDataParallel fsdp(model, world, options);
    Values result;
    for (int round = 0; round < 3; ++round) {
      model->ZeroGrad();
      for (int i = 0; i < 4; ++i) {
        std::optional<FullyShardedDataParallel::NoSync> no_sync;
        if (i < 3) no_sync.emplace(fsdp);
        autograd::Backward(fsdp.CallMethod(*model, {}, [&](TensorSpan) -> TensorList {
          Tensor y = (*model)[0] * (i == 0 ? 256.0 : 1.0);
          if (i == 3) y = y + (*model)[1] * (rank + 2.0);
          return {y};
        })[0]);
      }
      result = FullGradients(fsdp, *model);
    }
    return result;
  });
  // In bfloat16, 256 + 1 is 256.
  EXPECT_EQ(values, (Values{259, 2.5}));
}

// ---- Loss scaling ----

// The field's faults: ranks that decide otherwise than others, ranks without elements, and steps
// after one that was skipped.
TEST(MixedPrecisionTest, AllRanksSkipAStep) {
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp, ShardingStrategy::kNoShard}) {
    for (const bool offload : {false, true}) {
      if (offload && strategy == ShardingStrategy::kNoShard) continue;
      for (const int culprit : {0, 3}) {
        OnRanks(4, [&](int rank, Group world) {
          auto model = std::make_shared<Weights>(Values{1});  // of four ranks one has it
          FullyShardedDataParallel fsdp(model, world,
                                        {.sharding_strategy = strategy, .cpu_offload = offload});
          optim::AdamW optimizer(model->NamedParameters(), {.lr = 0.5});
          amp::GradScaler scaler({.init_scale = 2, .growth_interval = 2, .group = world});
          const std::vector<double> scales = {2, 1, 1, 2};
          for (int step = 0; step < 4; ++step) {
            optimizer.ZeroGrad();
            const bool overflows = step == 1 && rank == culprit;
            const Values before = FullParameters(fsdp, *model);
            const Tensor y = fsdp.CallMethod(*model, {}, [&](TensorSpan) -> TensorList {
              return {(*model)[0] * (overflows ? kInf : 1.0f)};
            })[0];
            autograd::Backward(scaler.Scale(y));
            EXPECT_EQ(scaler.Step(optimizer), step != 1) << "step " << step;
            scaler.Update();
            EXPECT_EQ(scaler.scale(), scales[static_cast<size_t>(step)]) << "step " << step;
            EXPECT_EQ(FullParameters(fsdp, *model) == before, step == 1);
          }
        });
      }
    }
  }
}

// Clipping between unscaling and the step.
TEST(MixedPrecisionTest, UnscaleThenClip) {
  OnRanks(2, [](int, Group world) {
    auto model = std::make_shared<Weights>(Values{1, 2});
    FullyShardedDataParallel fsdp(model, world);
    optim::Sgd optimizer(model->NamedParameters(), {.lr = 1});
    amp::GradScaler scaler({.init_scale = 1024, .group = world});
    const Tensor y = fsdp.CallMethod(*model, {}, [&](TensorSpan) -> TensorList {
      return {(*model)[0] * 3.0 + (*model)[1] * 4.0};
    })[0];
    autograd::Backward(scaler.Scale(y));
    scaler.UnscaleGradients(optimizer);
    EXPECT_EQ(fsdp.ClipGradNorm(1).Item<float>(), 5);
    EXPECT_TRUE(scaler.Step(optimizer));
    scaler.Update();
    const Values values = FullParameters(fsdp, *model);
    EXPECT_NEAR(values[0], 1 - 0.6, 1e-6);
    EXPECT_NEAR(values[1], 2 - 0.8, 1e-6);
  });
}

// ---- Autocast ----

// The casts of weights that autocast keeps are of the parameters as they are: after a step inside
// of one scope too.
TEST(MixedPrecisionTest, AutocastSeesNewValues) {
  OnRanks(2, [](int rank, Group world) {
    for (const Options& options :
         {Units(), Units({.sharding_strategy = ShardingStrategy::kShardGradOp}), Options()}) {
      auto model = MakeMlp(0);
      auto plain = MakeMlp(0);
      FullyShardedDataParallel fsdp(model, world, options);
      optim::Sgd sharded(model->NamedParameters(), {.lr = 0.5});
      optim::Sgd whole(plain->NamedParameters(), {.lr = 0.5});
      const NamedTensors rows = Rows(0, 4);
      const auto step = [&](models::Mlp& of, optim::Sgd& optimizer) {
        optimizer.ZeroGrad();
        const Tensor loss = MseLoss(of(rows.At("inputs")), rows.At("targets"));
        autograd::Backward(loss);
        optimizer.Step();
        return loss.Item<double>();
      };
      const amp::Autocast autocast;
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(step(*model, sharded), step(*plain, whole)) << "rank " << rank << " step " << i;
      }
      {
        const autograd::NoGradScope no_grad;
        EXPECT_EQ((*model)(rows.At("inputs")).ToVector<double>(),
                  (*plain)(rows.At("inputs")).ToVector<double>());
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::strategies
