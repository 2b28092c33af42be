// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of data_parallel.md.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/optim/sgd.h"
#include "lockstep/strategies/data_parallel/data_parallel.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/data_parallel/gather.h"
#include "lockstep/strategies/data_parallel/parallel_apply.h"
#include "lockstep/strategies/data_parallel/replicate.h"
#include "lockstep/strategies/data_parallel/scatter.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/substitution.h"
#include "lockstep/tensor/tensor_tree.h"

namespace lockstep {
namespace {

TEST(DataParallelExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/data_parallel.md", "docs/data_parallel_example_test.cc");
}

TEST(DataParallelExample, Trains) {
  const Tensor inputs = Reshape(Arange(14.0), {7, 2}) * 0.1;
  const Tensor targets = Reshape(Arange(7.0), {7, 1}) * 0.05;
  const Tensor more_inputs = inputs + 1.0;
  auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {2, 8, 1}});
  strategies::DataParallel parallel(model, {.devices = strategies::CpuDevices(2)});
  optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1});
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    optimizer.ZeroGrad();
    Tensor loss = MseLoss(parallel(inputs), targets);
    autograd::Backward(loss);
    optimizer.Step();
    if (step == 0) first = loss.Item<double>();
    last = loss.Item<double>();
  }
  EXPECT_LT(last, first);

  model->Eval();
  {
    autograd::NoGradScope no_grad;
    Tensor predictions = parallel(more_inputs);
    EXPECT_EQ(predictions.shape(), (Shape{7, 1}));
  }
}

TEST(DataParallelExample, OtherFunctionsOfAModule) {
  models::Gpt2Config config;
  config.layers = 1;
  config.width = 16;
  config.block = 4;
  auto gpt = std::make_shared<models::Gpt2>(config);
  const Tensor ids = Zeros({3, 4}, {.dtype = DType::kInt64});
  const Tensor targets = ids;
  strategies::DataParallel parallel(gpt, {.devices = strategies::CpuDevices(2)});
  Tensor loss = parallel.MeanLoss(
      [&](const TensorTree& in) { return gpt->Loss(in[0].tensor(), in[1].tensor()); },
      {ids, targets});
  autograd::Backward(loss);
  EXPECT_EQ(loss.rank(), 0);

  const Tensor mask = targets;
  TensorTree output = parallel.Run(
      [&](const TensorTree& in) -> TensorTree {
        Tensor logits = (*gpt)(in.At("ids").tensor());
        return TensorTree::Dict{{"logits", logits}, {"largest", Max(logits)}};
      },
      TensorTree::Dict{{"ids", ids}, {"extra", {mask, 0.5}}});
  output.At("logits").tensor();   // all rows, on cpu:0
  output.At("largest").tensor();  // one element a replica
  EXPECT_EQ(output.At("logits").tensor().size(0), 3);
  EXPECT_EQ(output.At("largest").tensor().shape(), (Shape{2}));
}

TEST(DataParallelExample, Pieces) {
  const auto model = std::make_shared<models::Mlp>(models::MlpConfig{.sizes = {2, 8, 1}});
  const Tensor x = Reshape(Arange(14.0), {7, 2});
  std::vector<Device> devices = strategies::CpuDevices(3);
  std::vector<Tensor> pieces = strategies::Scatter(x, devices);  // 3, 2 and 2 rows
  std::vector<Tensor> weights = model->Parameters();
  auto copies = strategies::Replicate(weights, devices);
  std::vector<strategies::ReplicaFunction> functions;
  for (size_t k = 0; k < devices.size(); ++k) {
    Substitution here;
    for (size_t i = 0; k > 0 && i < weights.size(); ++i) here.Add(weights[i], copies[k][i]);
    auto shared = std::make_shared<const Substitution>(std::move(here));
    functions.push_back([&model, shared](const TensorTree& in) -> TensorTree {
      SubstitutionScope scope(shared);
      return (*model)(in.tensor());
    });
  }
  std::vector<TensorTree> inputs(pieces.begin(), pieces.end());
  std::vector<TensorTree> outputs = strategies::ParallelApply(functions, inputs, devices);
  Tensor y = strategies::Gather(absl::MakeConstSpan(outputs), Cpu(0)).tensor();
  EXPECT_EQ(y.shape(), (Shape{7, 1}));
  autograd::Backward(Sum(y));
}

}  // namespace
}  // namespace lockstep
