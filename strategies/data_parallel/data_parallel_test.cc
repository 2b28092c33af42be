// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/data_parallel/data_parallel.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/amp/non_finite/find_non_finite.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/custom_function.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/hooks.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/data_parallel/scatter.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_tree.h"

namespace lockstep::strategies {
namespace {

using autograd::Backward;
using autograd::Grad;
using Values = std::vector<double>;

// Rows that tell their number.
Tensor Rows(int64_t rows, int64_t width, double step = 0.7) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * width; ++i) {
    values.push_back(static_cast<float>(std::sin(step * static_cast<double>(i))));
  }
  return FromVector<float>(values, {rows, width});
}

std::shared_ptr<models::Mlp> MakeMlp(double dropout = 0) {
  ManualSeed(3);
  return std::make_shared<models::Mlp>(
      models::MlpConfig{.sizes = {3, 17, 17, 2}, .dropout = dropout});
}

DataParallelOptions On(int devices) { return {.devices = CpuDevices(devices)}; }

// Losses, then all parameters, of steps whose gradients `loss` leads to.
template <typename Loss>
Values TrainThreeSteps(nn::Module& module, Loss loss) {
  optim::Sgd optimizer(module.NamedParameters(), {.lr = 0.1, .momentum = 0.9});
  Values values;
  for (int step = 0; step < 3; ++step) {
    optimizer.ZeroGrad();
    const Tensor value = loss(step);
    Backward(value);
    optimizer.Step();
    values.push_back(value.Item<double>());
  }
  for (const Tensor& parameter : module.Parameters()) {
    for (const double value : parameter.ToVector<double>()) values.push_back(value);
  }
  return values;
}

// The contract of docs/numerics.md for another number of devices.
void ExpectClose(const Values& actual, const Values& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0;
  for (size_t i = 3; i < expected.size(); ++i) largest = std::max(largest, std::abs(expected[i]));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double bound = i < 3 ? 1e-6 * std::abs(expected[i]) : 1e-5 * largest;
    EXPECT_NEAR(actual[i], expected[i], bound) << what << ", value " << i;
  }
}

Values TrainMlp(int devices, int64_t rows, double dropout = 0) {
  const auto model = MakeMlp(dropout);
  DataParallel parallel(model, On(devices));
  return TrainThreeSteps(*model, [&](int step) {
    return MseLoss(parallel(Rows(rows, 3, 0.7 + step)), Rows(rows, 2, 0.3 + step));
  });
}

Values TrainMlpAlone(int64_t rows, double dropout = 0) {
  const auto model = MakeMlp(dropout);
  return TrainThreeSteps(*model, [&](int step) {
    return MseLoss((*model)(Rows(rows, 3, 0.7 + step)), Rows(rows, 2, 0.3 + step));
  });
}

TEST(DataParallelTest, TrainsAsOneDeviceDoes) {
  for (const int64_t rows : {8, 7, 3, 2, 1}) {
    const Values alone = TrainMlpAlone(rows);
    EXPECT_EQ(TrainMlp(1, rows), alone);
    for (const int devices : {2, 3, 4}) {
      ExpectClose(TrainMlp(devices, rows), alone, absl::StrCat(rows, " rows, ", devices));
    }
  }
}

TEST(DataParallelTest, TwoRunsAreTheSame) {
  for (const double dropout : {0.0, 0.3}) {
    for (const int devices : {2, 3, 4}) {
      EXPECT_EQ(TrainMlp(devices, 7, dropout), TrainMlp(devices, 7, dropout)) << devices;
    }
  }
  EXPECT_NE(TrainMlp(2, 7, 0.3), TrainMlp(2, 7, 0));
}

// Replica k drops what rank k of as many ranks would.
TEST(DataParallelTest, DropoutIsThatOfRanks) {
  const auto model = MakeMlp(0.5);
  DataParallel parallel(model, On(3));
  const Tensor x = Rows(7, 3);
  ManualSeed(9);
  const Values first = parallel(x).ToVector<double>();
  const Values second = parallel(x).ToVector<double>();
  EXPECT_NE(first, second);
  Values ranks[2];
  const std::vector<Tensor> pieces = Split(x, Shape{3, 2, 2}, 0);
  for (size_t rank = 0; rank < 3; ++rank) {
    ManualSeed(9, static_cast<int64_t>(rank));
    // The first of the ranks has the most rows and draws most; the others go on from there.
    for (Values& values : ranks) {
      ThreadGenerators().dropout.key.offset = &values == &ranks[0] ? 0 : 2 * 52;
      for (const double y : (*model)(pieces[rank]).ToVector<double>()) values.push_back(y);
    }
  }
  EXPECT_EQ(first, ranks[0]);
  EXPECT_EQ(second, ranks[1]);
}

TEST(DataParallelTest, AnEmptyBatch) {
  DataParallel parallel(MakeMlp(), On(3));
  EXPECT_EQ(parallel(Empty({0, 3})).shape(), (Shape{0, 2}));
}

// The head is the embedding, as in GPT-2: one parameter under two names.
class Tied : public nn::UnaryModule {
 public:
  Tied()
      : in_(RegisterModule("in", std::make_shared<nn::Linear>(4, 4))),
        middle_(RegisterModule("middle", std::make_shared<nn::Linear>(4, 4))),
        out_(RegisterModule("out", std::make_shared<nn::Linear>(4, 4))) {
    out_->weight = in_->weight;
  }
  Tensor Forward(const Tensor& x) override { return (*out_)(Tanh((*middle_)(Tanh((*in_)(x))))); }
  nn::Linear& middle() { return *middle_; }

 private:
  std::shared_ptr<nn::Linear> in_, middle_, out_;
};

Values TrainTied(int devices, bool freeze) {
  ManualSeed(5);
  const auto model = std::make_shared<Tied>();
  model->middle().SetRequiresGrad(!freeze);
  DataParallel parallel(model, On(std::max(devices, 1)));
  return TrainThreeSteps(*model, [&](int step) {
    if (step == 2) model->middle().SetRequiresGrad(true);  // replicas see it at once
    const Tensor x = Rows(5, 4, 0.7 + step);
    const Tensor loss = MseLoss(devices == 0 ? (*model)(x) : parallel(x), Rows(5, 4));
    EXPECT_EQ(freeze && step < 2, !autograd::RequiresGrad(model->middle().weight));
    return loss;
  });
}

TEST(DataParallelTest, TiedAndFrozenParameters) {
  for (const bool freeze : {false, true}) {
    const Values alone = TrainTied(0, freeze);
    EXPECT_EQ(TrainTied(1, freeze), alone);
    for (const int devices : {2, 3, 4}) {
      ExpectClose(TrainTied(devices, freeze), alone, absl::StrCat(devices, freeze));
    }
  }
}

// CPP-6: copies are made once, and no more is copied than changed.
TEST(DataParallelTest, ReplicasAreKept) {
  const auto model = MakeMlp();
  DataParallel parallel(model, On(2));
  optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.01});
  const auto tensors = static_cast<int64_t>(model->Parameters().size());
  const Tensor x = Rows(6, 3);
  for (int i = 0; i < 50; ++i) {
    optimizer.ZeroGrad();
    Backward(Sum(parallel(x)));
    EXPECT_EQ(parallel.statistics().copied_tensors, tensors);
    EXPECT_EQ(parallel.statistics().copied_bytes, model->ParameterCount() * 4);
    EXPECT_EQ(parallel.statistics().made_tensors, tensors);
    parallel(x);  // no step in between
    EXPECT_EQ(parallel.statistics().copied_bytes, 0);
    optimizer.Step();
  }
}

TEST(DataParallelTest, TwoForwardsBeforeOneBackward) {
  const auto loss = [](auto& forward) {
    return Sum(forward(Rows(5, 3)) * forward(Rows(5, 3, 0.2)));
  };
  const auto alone = MakeMlp();
  Backward(loss(*alone));
  const auto model = MakeMlp();
  DataParallel parallel(model, On(3));
  Backward(loss(parallel));
  const std::vector<Tensor> expected = alone->Parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    const Values a = Grad(model->Parameters()[i]).ToVector<double>();
    const Values b = Grad(expected[i]).ToVector<double>();
    for (size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-5);
  }
}

TEST(DataParallelTest, EvaluatesWithoutARecord) {
  const auto model = MakeMlp(0.5);
  model->Eval();
  DataParallel parallel(model, On(3));
  const Tensor x = Rows(7, 3);
  const Values expected = (*model)(x).ToVector<double>();
  const autograd::NoGradScope no_grad;
  for (int i = 0; i < 2; ++i) {
    const Tensor y = parallel(x);
    EXPECT_FALSE(autograd::RequiresGrad(y));
    const Values values = y.ToVector<double>();
    for (size_t k = 0; k < values.size(); ++k) EXPECT_NEAR(values[k], expected[k], 1e-6);
  }
  EXPECT_EQ(parallel.statistics().copied_tensors, 0);
  model->Train();  // on every replica
  EXPECT_NE(parallel(x).ToVector<double>(), parallel(x).ToVector<double>());
}

TEST(DataParallelTest, InputsGetGradientsToo) {
  const auto model = MakeMlp();
  const Tensor x = autograd::SetRequiresGrad(Rows(5, 3), true);
  Backward(Sum((*model)(x)));
  const Values expected = Grad(x).ToVector<double>();
  autograd::SetGrad(x, Tensor());
  DataParallel parallel(model, On(2));
  Backward(Sum(parallel(x)));
  const Values values = Grad(x).ToVector<double>();
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-6);
}

TEST(DataParallelTest, RunsUnderAutocast) {
  const Tensor x = Rows(7, 3);
  const auto run = [&](int devices) {
    const auto model = MakeMlp();
    DataParallel parallel(model, On(devices));
    std::atomic<int> low{0};
    const auto handle =
        model->RegisterForwardHook([&](nn::Module&, TensorSpan, TensorList& outputs) {
          low += outputs[0].dtype() == DType::kBFloat16 ? 1 : 0;
        });
    Tensor loss;
    {
      const amp::Autocast autocast;
      loss = Mean(To(parallel(x), DType::kFloat32));
    }
    EXPECT_EQ(low, devices);
    Backward(loss);
    Values gradients;
    for (const Tensor& parameter : model->Parameters()) {
      EXPECT_EQ(Grad(parameter).dtype(), DType::kFloat32);
      for (const double value : Grad(parameter).ToVector<double>()) gradients.push_back(value);
    }
    return gradients;
  };
  const Values alone = run(1);
  for (const int devices : {2, 3}) {
    const Values values = run(devices);
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(values[i], alone[i], 5e-3);
  }
}

enum class Where { kNowhere, kInside, kAround };

Values TrainCheckpointed(Where where) {
  const auto model = MakeMlp(0.2);
  if (where == Where::kInside) {
    checkpoint::ApplyCheckpointing(*model, {.choose = checkpoint::OfType<nn::Sequential>()});
  }
  DataParallel parallel(model, On(3));
  return TrainThreeSteps(*model, [&](int step) {
    const Tensor x = Rows(7, 3, 0.7 + step);
    const auto forward = [&](const Tensor& in) { return parallel(in); };
    const Tensor y = where == Where::kAround ? checkpoint::Checkpoint(forward, x) : parallel(x);
    return MseLoss(y, Rows(7, 2));
  });
}

TEST(DataParallelTest, CheckpointingChangesNothing) {
  const Values plain = TrainCheckpointed(Where::kNowhere);
  EXPECT_EQ(TrainCheckpointed(Where::kInside), plain);
  EXPECT_EQ(TrainCheckpointed(Where::kAround), plain);
}

// Counts the rows it has seen.
class Counter : public nn::UnaryModule {
 public:
  Counter() {
    RegisterBuffer("seen", &seen, Zeros({1}));
    RegisterParameter("w", &w, Full({1}, 2.0));
  }
  Tensor Forward(const Tensor& x) override {
    const autograd::NoGradScope no_grad;
    AddInPlace(seen, static_cast<double>(x.size(0)));
    return x * w + seen;
  }
  Tensor seen, w;
};

TEST(DataParallelTest, BuffersOfReplicaZeroAreKept) {
  const auto model = std::make_shared<Counter>();
  DataParallel parallel(model, On(2));
  EXPECT_EQ(parallel(Zeros({5, 1})).ToVector<double>(), (Values{3, 3, 3, 2, 2}));
  EXPECT_EQ(model->seen.Item<double>({0}), 3);
  EXPECT_EQ(parallel(Zeros({5, 1})).ToVector<double>(), (Values{6, 6, 6, 5, 5}));
  EXPECT_EQ(model->seen.Item<double>({0}), 6);
}

TEST(DataParallelTest, TreesOfInputsAndOutputs) {
  const auto model = MakeMlp();
  DataParallel parallel(model, On(3));
  const TensorTree inputs = TensorTree::Dict{{"x", Rows(4, 3)}, {"pair", {Rows(4, 1), 10}}};
  const auto fn = [&](const TensorTree& in) {
    const Tensor y = (*model)(in.At("x").tensor());
    const Tensor z = in.At("pair")[0].tensor() * in.At("pair")[1].number();
    return TensorTree::Dict{{"y", y}, {"rest", {z, Mean(z), Tensor(), "text"}}};
  };
  const TensorTree output = parallel.Run(fn, inputs);
  EXPECT_EQ(output.DebugString(),
            "{y: float32[4, 2] on cpu:0, rest: [float32[4, 1] on cpu:0, float32[3] on cpu:0, "
            "nothing, \"text\"]}");
  EXPECT_EQ(output.At("rest")[0].tensor().ToVector<double>(),
            (Rows(4, 1) * 10.0).ToVector<double>());
  EXPECT_EQ(RunDataParallel(model, fn, inputs, On(2)).DebugString(),
            "{y: float32[4, 2] on cpu:0, rest: [float32[4, 1] on cpu:0, float32[2] on cpu:0, "
            "nothing, \"text\"]}");
}

TEST(DataParallelTest, DividesAnyDimensionAndGathersAnywhere) {
  const auto model = std::make_shared<Counter>();
  DataParallel parallel(model, {.devices = CpuDevices(2), .output_device = Cpu(3), .dim = -1});
  const Tensor y = parallel(Reshape(Arange(6.0), {2, 3}));
  EXPECT_EQ(y.device(), Cpu(3));
  EXPECT_EQ(y.ToVector<double>(), (Values{2, 4, 6, 8, 10, 12}));
}

TEST(DataParallelTest, MeanLossCountsRows) {
  const Tensor x = Rows(7, 3), target = Rows(7, 2, 0.3);
  for (const int devices : {1, 2, 3, 4}) {
    const auto model = MakeMlp();
    DataParallel parallel(model, On(devices));
    const Tensor loss = parallel.MeanLoss(
        [&](const TensorTree& in) { return MseLoss((*model)(in[0].tensor()), in[1].tensor()); },
        {x, target});
    const double expected = MseLoss((*model)(x), target).Item<double>();
    EXPECT_NEAR(loss.Item<double>(), expected, 1e-6 * expected) << devices;
    EXPECT_EQ(loss.rank(), 0);
  }
  const auto model = MakeMlp();
  DataParallel parallel(model, On(2));
  const auto no_loss = [&](const TensorTree& in) { return TensorTree((*model)(in[0].tensor())); };
  EXPECT_TRUE(absl::StrContains(MessageOf([&] { parallel.MeanLoss(no_loss, {x}); }),
                                "MeanLoss: the function's results are float32[7, 2]"));
  const auto vector = [&](const TensorTree& in) { return TensorTree(Sum(in[0].tensor(), {1})); };
  EXPECT_TRUE(absl::StrContains(MessageOf([&] { parallel.MeanLoss(vector, {x}); }),
                                "MeanLoss: 7 losses of 2 replicas"));
}

// ---- Failures ----

class FailsOn : public nn::UnaryModule {
 public:
  FailsOn() { RegisterParameter("w", &w, Full({1}, 2.0)); }
  Tensor Forward(const Tensor& x) override {
    if (CurrentDevice() == device) throw OutOfRangeError("no more");
    return x * w;
  }
  Tensor w;
  Device device = kMeta;
};

TEST(DataParallelTest, AReplicasExceptionNamesItsDevice) {
  const auto model = std::make_shared<FailsOn>();
  DataParallel parallel(model, On(3));
  for (int i = 0; i < 3; ++i) {
    model->device = Cpu(i);
    const Error error = ErrorOf([&] { parallel(Rows(6, 1)); });
    EXPECT_EQ(error.code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ(error.message(), absl::StrCat("replica ", i, " of 3 on cpu:", i, ": no more"));
  }
  model->device = kMeta;
  const Tensor y = parallel(Rows(6, 1));
  EXPECT_EQ(y.ToVector<double>(), (Rows(6, 1) * 2.0).ToVector<double>());
  Backward(Sum(y));
  EXPECT_EQ(Grad(model->w).numel(), 1);
}

class FailsInBackward : public autograd::CustomFunction {
 public:
  std::string Name() const override { return "FailsInBackward"; }
  std::vector<Tensor> Forward(autograd::FunctionContext&, TensorSpan inputs) override {
    return {inputs[0] * 1.0};
  }
  std::vector<Tensor> Backward(autograd::FunctionContext&, TensorSpan) override {
    throw OutOfRangeError("no way back");
  }
};

TEST(DataParallelTest, ABackwardsExceptionNamesTheDevice) {
  const auto model = std::make_shared<FailsOn>();
  DataParallel parallel(model, On(3));
  const auto fn = [&](bool fails) {
    return [&, fails](const TensorTree& in) -> TensorTree {
      const Tensor y = (*model)(in.tensor());
      if (!fails || CurrentDevice() != Cpu(1)) return y;
      return autograd::Apply(std::make_shared<FailsInBackward>(), {y})[0];
    };
  };
  const Tensor y = parallel.Run(fn(true), TensorTree(Rows(6, 1))).tensor();
  const Error error = ErrorOf([&] { Backward(Sum(y)); });
  EXPECT_EQ(error.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(error.message(), "backward of FailsInBackward on cpu:1: no way back");
  model->ZeroGrad();
  Backward(Sum(parallel.Run(fn(false), TensorTree(Rows(6, 1))).tensor()));
  EXPECT_NEAR(Grad(model->w).Item<double>({0}), Sum(Rows(6, 1)).Item<double>(), 1e-6);
}

// A custom function that is given a parameter gets the replica's.
class Times : public autograd::CustomFunction {
 public:
  std::string Name() const override { return "Times"; }
  std::vector<Tensor> Forward(autograd::FunctionContext& context, TensorSpan inputs) override {
    context.SaveForBackward(inputs);
    return {inputs[0] * inputs[1]};
  }
  std::vector<Tensor> Backward(autograd::FunctionContext& context, TensorSpan gradients) override {
    const std::vector<Tensor> saved = context.Saved();
    return {gradients[0] * saved[1], Sum(gradients[0] * saved[0], {0})};
  }
};

TEST(DataParallelTest, CustomFunctionsTakeTheReplicasParameters) {
  const auto model = std::make_shared<FailsOn>();
  DataParallel parallel(model, On(3));
  const auto fn = [&](const TensorTree& in) {
    return TensorTree(autograd::Apply(std::make_shared<Times>(), {in.tensor(), model->w})[0]);
  };
  const Tensor y = parallel.Run(fn, TensorTree(Rows(7, 1))).tensor();
  EXPECT_EQ(y.ToVector<double>(), (Rows(7, 1) * 2.0).ToVector<double>());
  Backward(Sum(y));
  EXPECT_NEAR(Grad(model->w).Item<double>({0}), Sum(Rows(7, 1)).Item<double>(), 1e-6);
}

TEST(DataParallelTest, HooksRunOnceAReplica) {
  const auto model = MakeMlp();
  DataParallel parallel(model, On(3));
  std::atomic<int> forward{0}, backward{0}, gradient{0};
  nn::HookHandle gone =
      model->RegisterForwardHook([&](nn::Module&, TensorSpan, TensorList&) { forward += 100; });
  model->RegisterForwardHook([&](nn::Module&, TensorSpan, TensorList&) { ++forward; });
  model->RegisterBackwardHook([&](nn::Module&, TensorList&, TensorSpan) { ++backward; });
  autograd::RegisterHook(model->Parameters()[0], [&](const Tensor& g) {
    ++gradient;
    return g;
  });
  gone.Remove();
  Backward(Sum(parallel(Rows(7, 3))));
  EXPECT_EQ(forward, 3);
  EXPECT_EQ(backward, 3);
  EXPECT_EQ(gradient, 1);  // the parameter's own: the sum
}

TEST(DataParallelTest, FindsWhatIsNotFiniteOnAReplica) {
  const auto model = MakeMlp();
  DataParallel parallel(model, On(2));
  const auto found = amp::FindNonFinite(
      [&] {
        parallel.Run(
            [&](const TensorTree& in) {
              const Tensor y = (*model)(in.tensor());
              return TensorTree(CurrentDevice() == Cpu(1) ? Sqrt(y * y * -1.0 - 1.0) : y);
            },
            TensorTree(Rows(4, 3)));
      },
      model.get());
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(absl::StrContains(found->ToString(), "op Sqrt")) << found->ToString();
  EXPECT_TRUE(absl::StrContains(found->ToString(), "on cpu:1")) << found->ToString();
}

TEST(DataParallelTest, ConstructorErrors) {
  const auto model = MakeMlp();
  const auto message = [](std::shared_ptr<nn::Module> module, DataParallelOptions options) {
    return MessageOf([&] { DataParallel parallel(std::move(module), std::move(options)); });
  };
  EXPECT_EQ(message(nullptr, On(2)), "DataParallel: no module given");
  EXPECT_TRUE(absl::StrContains(message(model, {}), "no devices"));
  EXPECT_TRUE(absl::StrContains(message(model, {.devices = {Cpu(0), Cpu(0)}}),
                                "device cpu:0 is given twice"));
  EXPECT_TRUE(absl::StrContains(message(model, {.devices = {kMeta}}), "meta"));
  EXPECT_TRUE(absl::StrContains(message(model, {.devices = CpuDevices(2), .output_device = kHost}),
                                "DataParallel: output_device: nothing is computed on host"));
  EXPECT_EQ(message(model, {.devices = {Cpu(1), Cpu(0)}}),
            "DataParallel: the module is on cpu:0 (layers.0.weight) and the first device is cpu:1; "
            "call To(cpu:1) or give its device first");
  EXPECT_EQ(message(model, {.devices = CpuDevices(2), .threads_per_device = -2}),
            "DataParallel: threads_per_device is -2; give at least 1, or 0 to divide the caller's");
  EXPECT_TRUE(absl::StrContains(message(std::make_shared<nn::Sequential>(), On(2)),
                                "no parameters and no buffers"));
  auto spread = std::make_shared<Tied>();
  spread->middle().To(Cpu(1));
  EXPECT_EQ(message(spread, On(2)),
            "DataParallel: the module is on several devices: in.weight on cpu:0 and middle.weight "
            "on cpu:1; move it to one with To(device), or use DistributedDataParallel over its "
            "parts");
}

TEST(DataParallelTest, CallErrors) {
  const auto model = MakeMlp();
  DataParallel parallel(model, On(2));
  EXPECT_TRUE(absl::StrContains(
      MessageOf([&] { parallel.Run([](const TensorTree& in) { return in; }, TensorTree("a")); }),
      "Scatter: no tensor to divide in \"a\""));
  EXPECT_EQ(MessageOf([&] { parallel.Run(nullptr, TensorTree(Rows(4, 3))); }),
            "DataParallel: no function given");
  DataParallel sideways(model, {.devices = CpuDevices(2), .dim = 2});
  EXPECT_EQ(ErrorOf([&] { sideways(Rows(4, 3)); }).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(absl::StrContains(
      MessageOf([&] {
        parallel.Run(
            [](const TensorTree& in) {
              return CurrentDevice() == Cpu(0) ? TensorTree{in, in} : TensorTree{in};
            },
            TensorTree(Rows(4, 3)));
      }),
      "Gather: outputs of replicas 0 and 1 differ in structure"));
  EXPECT_TRUE(absl::StrContains(
      MessageOf([&] {
        parallel.Run([&](const TensorTree& in) { return TensorTree(parallel(in.tensor())); },
                     TensorTree(Rows(4, 3)));
      }),
      "called on a replica of a DataParallel"));
  // A tensor that nobody knows of stays where it is.
  const Tensor constant = Full({3}, 1.0);
  EXPECT_EQ(MessageOf([&] {
              parallel.Run([&](const TensorTree& in) { return TensorTree(in.tensor() + constant); },
                           TensorTree(Rows(4, 3)));
            }),
            "replica 1 of 2 on cpu:1: Add: operands on cpu:1 and cpu:0; move one with To(x, "
            "device)");
  model->To(Cpu(2));
  EXPECT_TRUE(absl::StrContains(MessageOf([&] { parallel(Rows(4, 3)); }),
                                "the module is on cpu:2 (layers.0.weight)"));
  model->To(Cpu(0));
  EXPECT_EQ(parallel(Rows(4, 3)).numel(), 8);

  class Binary : public nn::Module {
   public:
    Binary() { RegisterParameter("w", &w, Full({1}, 2.0)); }
    std::string Description() const override { return "Binary"; }
    Tensor w;
  };
  DataParallel binary(std::make_shared<Binary>(), On(2));
  const Error error = ErrorOf([&] { binary(Rows(4, 3)); });
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(error.message(),
            "DataParallel: Binary is no UnaryModule; call Run() with a function that calls the "
            "module");
}

// ---- Memory ----

int64_t Now(Device device, MemoryCategory category) {
  return GetMemoryStats(device).current[category];
}

TEST(DataParallelTest, TheSourceDeviceHoldsMore) {
  constexpr int64_t kLayers = 8, kWidth = 128;
  constexpr int64_t kWeights = kLayers * kWidth * (kWidth + 1) * 4;
  std::vector<int64_t> sizes(kLayers + 1, kWidth);
  const int64_t parameters_before[2] = {Now(Cpu(0), MemoryCategory::kParameter),
                                        Now(Cpu(1), MemoryCategory::kParameter)};
  const auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = sizes});
  DataParallel parallel(model, On(2));
  optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 3; ++step) {
    const Tensor y = parallel(Rows(8, kWidth));
    ResetPeakBytes(Cpu(1));
    Backward(Sum(y * y));
    // Gradients of a replica go as they come: never more than a few layers' at once.
    EXPECT_LT(GetMemoryStats(Cpu(1)).peak[MemoryCategory::kBackward], kWeights / 2);
    EXPECT_EQ(Now(Cpu(1), MemoryCategory::kBackward), 0);
    EXPECT_EQ(Now(Cpu(1), MemoryCategory::kGradient), 0);
    EXPECT_EQ(Now(Cpu(0), MemoryCategory::kGradient), kWeights);
    optimizer.Step();
    optimizer.ZeroGrad();
    EXPECT_EQ(Now(Cpu(0), MemoryCategory::kParameter) - parameters_before[0], kWeights);
    EXPECT_EQ(Now(Cpu(1), MemoryCategory::kParameter) - parameters_before[1], kWeights);
    EXPECT_EQ(Now(Cpu(0), MemoryCategory::kOptimizer), kWeights);
    EXPECT_EQ(Now(Cpu(1), MemoryCategory::kOptimizer), 0);
  }
  // Batch and outputs are whole on the source device; activations are divided.
  const Tensor x = Rows(8, kWidth);
  const Tensor y = parallel(x);
  const int64_t row = kWidth * 4;
  EXPECT_EQ(y.bytes(), 8 * row);
  const int64_t source = Now(Cpu(0), MemoryCategory::kActivation);
  const int64_t other = Now(Cpu(1), MemoryCategory::kActivation);
  EXPECT_EQ(other, 4 * row * (kLayers - 1));  // the outputs of the ReLUs
  EXPECT_GE(source, other + 4 * row);         // all of y, and no less of its own
}

}  // namespace
}  // namespace lockstep::strategies
