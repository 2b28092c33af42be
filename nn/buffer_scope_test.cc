// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/nn/buffer_scope.h"

#include <memory>

#include "gtest/gtest.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {
namespace {

// Counts its calls in a buffer.
class Counter : public UnaryModule {
 public:
  Counter() { RegisterBuffer("calls", &calls_, Zeros({2})); }
  Tensor Forward(const Tensor& input) override {
    CopyInto(calls_, calls_ + 1.0);
    return input;
  }
  double calls() const { return calls_.ToVector<float>()[1]; }

 private:
  Tensor calls_;
};

TEST(BufferScopeTest, PutsBuffersOfAllModulesBack) {
  auto first = std::make_shared<Counter>();
  auto second = std::make_shared<Counter>();
  Sequential model;
  model.Append(first);
  model.Append(second);
  model(Ones({1}));
  {
    const BufferScope outer(model);
    model(Ones({1}));
    {
      const BufferScope inner(*second);
      model(Ones({1}));
      EXPECT_EQ(second->calls(), 3);
    }
    EXPECT_EQ(first->calls(), 3);
    EXPECT_EQ(second->calls(), 2);
  }
  EXPECT_EQ(first->calls(), 1);
  EXPECT_EQ(second->calls(), 1);
}

}  // namespace
}  // namespace lockstep::nn
