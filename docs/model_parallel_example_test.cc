// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of model_parallel.md.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/optim/adamw.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/model_parallel/model_parallel.h"
#include "lockstep/strategies/model_parallel/place_blocks.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/peer_access.h"

namespace lockstep {
namespace {

class TwoHalves : public nn::UnaryModule {
 public:
  TwoHalves()
      : first_(RegisterModule("first", std::make_shared<nn::Linear>(4, 16))),
        second_(RegisterModule("second", std::make_shared<nn::Linear>(16, 3))) {
    first_->To(Cpu(0));
    second_->To(Cpu(1));
  }
  Tensor Forward(const Tensor& x) override {
    Tensor h = Relu((*first_)(lockstep::To(x, Cpu(0))));
    return (*second_)(lockstep::To(h, Cpu(1)));
  }

 private:
  std::shared_ptr<nn::Linear> first_, second_;
};

TEST(ModelParallelExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/model_parallel.md", "docs/model_parallel_example_test.cc");
}

TEST(ModelParallelExample, ByHand) {
  const Tensor x = Reshape(Arange(12.0), {3, 4}) * 0.1;
  const Tensor targets = Zeros({3, 3});
  TwoHalves model;
  optim::AdamW optimizer(model.NamedParameters(), {.lr = 1e-3});
  Tensor y = model(x);  // on cpu:1
  autograd::Backward(MseLoss(y, To(targets, y.device())));
  optimizer.Step();  // state beside each parameter
  EXPECT_EQ(y.device(), Cpu(1));
  EXPECT_EQ(autograd::Grad(model.Parameters()[0]).device(), Cpu(0));
}

TEST(ModelParallelExample, Blocks) {
  const Tensor x = Reshape(Arange(12.0), {3, 4}) * 0.1;
  auto net = std::make_shared<nn::Sequential>();
  for (int i = 0; i < 5; ++i) net->Emplace<nn::Linear>(4, 4);
  std::vector<Device> devices = strategies::CpuDevices(2);
  strategies::BlockList blocks = strategies::BlocksOf(*net);
  // By number, by bytes of parameters, or by the measured time of forward and backward.
  std::vector<Device> placed = strategies::PlaceBlocks(std::vector<double>(5, 1), devices);
  placed = strategies::PlaceBlocks(strategies::BlockBytes(blocks), devices);
  placed = strategies::PlaceBlocks(strategies::MeasureBlocks(blocks, x), devices);

  strategies::ModelParallel parallel(net, strategies::PlaceChildren(*net, placed));
  Tensor y = parallel(x);
  EXPECT_EQ(y.device(), Cpu(1));
}

TEST(ModelParallelExample, PartsByName) {
  models::Gpt2Config config;
  config.layers = 2;
  config.width = 16;
  config.block = 4;
  const Tensor ids = Zeros({3, 4}, {.dtype = DType::kInt64});
  const Tensor targets = ids;
  std::shared_ptr<models::Gpt2> gpt;
  {
    nn::DeferredInitScope no_bytes_yet;
    gpt = std::make_shared<models::Gpt2>(config);
  }
  strategies::ModelParallel parallel(gpt, {{"transformer.wte", Cpu(0)},
                                           {"transformer.wpe", Cpu(0)},
                                           {"transformer.h.0", Cpu(0)},
                                           {"transformer.h.1", Cpu(1)},
                                           {"transformer.ln_f", Cpu(1)},
                                           {"lm_head", Cpu(1)}});
  Tensor loss = gpt->Loss(ids, targets);
  autograd::Backward(loss);
  EXPECT_EQ(loss.device(), Cpu(1));
}

TEST(ModelParallelExample, Peers) {
  bool reaches = CanAccessPeer(Cpu(0), Cpu(1));
  if (reaches) EnablePeerAccess(Cpu(0), Cpu(1));
  EXPECT_TRUE(reaches);
}

}  // namespace
}  // namespace lockstep
