// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/testing.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/layer_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"

namespace lockstep::strategies {
namespace {

using Names = std::vector<std::string>;

Names NamesOf(const std::vector<WrappedModule>& chosen) {
  Names names;
  for (const WrappedModule& wrapped : chosen) names.push_back(wrapped.name);
  return names;
}

models::Gpt2Config TwoLayers() {
  return {.layers = 2, .heads = 2, .width = 8, .block = 4, .vocabulary = 11};
}

TEST(WrapPolicyTest, ByType) {
  models::Gpt2 model(TwoLayers());
  const std::vector<WrappedModule> chosen =
      WrapByType<models::Gpt2Block>({.reduce_dtype = DType::kFloat32})(model);
  EXPECT_EQ(NamesOf(chosen), (Names{"transformer.h.0", "transformer.h.1"}));
  for (const WrappedModule& wrapped : chosen) {
    EXPECT_NE(dynamic_cast<models::Gpt2Block*>(wrapped.module), nullptr);
    EXPECT_EQ(wrapped.options, (UnitOptions{.reduce_dtype = DType::kFloat32}));
  }
  // Derived types too; the root never.
  nn::Sequential list;
  list.Emplace<nn::Linear>(2, 3);
  list.Emplace<nn::Sequential>()->Emplace<nn::Linear>(3, 1);
  EXPECT_EQ(NamesOf(WrapByType<nn::UnaryModule>()(list)), (Names{"0", "1", "1.0"}));
  EXPECT_EQ(NamesOf(WrapByType<nn::LayerNorm>()(list)), Names());
}

TEST(WrapPolicyTest, ByChoiceWithOptionsOfEach) {
  models::Gpt2 model(TwoLayers());
  const auto chosen = WrapIf([](const std::string& name, nn::Module& module) {
    std::optional<UnitOptions> unit;
    if (name == "transformer.h.1") unit = UnitOptions{.reshard_after_forward = false};
    if (dynamic_cast<nn::LayerNorm*>(&module)) unit = UnitOptions{.param_dtype = DType::kFloat64};
    return unit;
  })(model);
  EXPECT_EQ(NamesOf(chosen),
            (Names{"transformer.h.0.ln_1", "transformer.h.0.ln_2", "transformer.h.1",
                   "transformer.h.1.ln_1", "transformer.h.1.ln_2", "transformer.ln_f"}));
  EXPECT_EQ(chosen[2].options.reshard_after_forward, false);
  EXPECT_EQ(chosen[2].options.param_dtype, std::nullopt);
  EXPECT_EQ(chosen[3].options.param_dtype, DType::kFloat64);
  EXPECT_EQ(chosen[3].options.reshard_after_forward, std::nullopt);
}

// A tree of linear layers (bias off) of so many elements:
//   0: 6, 1: {0: 12, 1: {0: 4, 1: 10}}, 2: 30
std::shared_ptr<nn::Sequential> Tree() {
  const auto add = [](nn::Sequential& to, int64_t elements) {
    to.Emplace<nn::Linear>(elements, 1, nn::LinearOptions{.bias = false});
  };
  auto tree = std::make_shared<nn::Sequential>();
  add(*tree, 6);
  const auto middle = tree->Emplace<nn::Sequential>();
  add(*middle, 12);
  const auto inner = middle->Emplace<nn::Sequential>();
  add(*inner, 4);
  add(*inner, 10);
  add(*tree, 30);
  return tree;
}

Names BySize(nn::Module& module, int64_t min_elements) {
  return NamesOf(WrapBySize({.min_elements = min_elements})(module));
}

// The recursion is that of PyTorch's size_based_auto_wrap_policy: children first; a module whose
// rest is large enough is chosen as well; one that is too small is not looked into.
TEST(WrapPolicyTest, BySize) {
  const auto tree = Tree();
  EXPECT_EQ(BySize(*tree, 1), (Names{"0", "1.0", "1.1.0", "1.1.1", "2"}));
  EXPECT_EQ(BySize(*tree, 4), (Names{"0", "1.0", "1.1.0", "1.1.1", "2"}));
  // 1.1 has 14, of which 10 are in a unit; what is left of 1 is 4.
  EXPECT_EQ(BySize(*tree, 5), (Names{"0", "1.0", "1.1.1", "2"}));
  EXPECT_EQ(BySize(*tree, 11), (Names{"1.0", "1.1", "2"}));
  EXPECT_EQ(BySize(*tree, 12), (Names{"1.0", "1.1", "2"}));
  EXPECT_EQ(BySize(*tree, 13), (Names{"1.1", "2"}));
  // None of 1's children is large enough, all together are.
  EXPECT_EQ(BySize(*tree, 15), (Names{"1", "2"}));
  EXPECT_EQ(BySize(*tree, 26), (Names{"1", "2"}));
  EXPECT_EQ(BySize(*tree, 27), (Names{"2"}));
  EXPECT_EQ(BySize(*tree, 31), Names());
  EXPECT_EQ(WrapBySizeOptions().min_elements, 100'000'000);
}

class Listed : public nn::UnaryModule {
 public:
  Listed() {
    list_ = RegisterModule("list", std::make_shared<nn::ModuleList<nn::Linear>>());
    for (int i = 0; i < 2; ++i) list_->Emplace(7, 1, nn::LinearOptions{.bias = false});
  }
  Tensor Forward(const Tensor& x) override { return (*(*list_)[0])(x); }

 private:
  std::shared_ptr<nn::ModuleList<nn::Linear>> list_;
};

// A list is never called, so that the module around it gets what is in it.
TEST(WrapPolicyTest, BySizeChoosesNoList) {
  nn::Sequential model;
  model.Emplace<Listed>();
  EXPECT_EQ(BySize(model, 10), Names{"0"});
  EXPECT_EQ(BySize(model, 7), (Names{"0.list.0", "0.list.1"}));
}

// As PyTorch's force_leaf_modules: neither they nor what is in them.
TEST(WrapPolicyTest, BySizeLeavesAttentionWhole) {
  nn::Sequential model;
  model.Emplace<nn::CausalSelfAttention>(nn::CausalSelfAttentionOptions{.width = 10});
  model.Emplace<nn::Linear>(10, 10);
  EXPECT_EQ(BySize(model, 40), Names{"1"});
  EXPECT_EQ(NamesOf(WrapBySize({.min_elements = 40, .is_leaf = [](nn::Module&) { return false; }})(
                model)),
            (Names{"0.c_attn", "0.c_proj", "1"}));
  EXPECT_EQ(NamesOf(WrapBySize({.min_elements = 40,
                                .is_leaf =
                                    [](nn::Module& module) {
                                      return dynamic_cast<nn::Linear*>(&module) != nullptr;
                                    }})(model)),
            Names{"0"});
}

TEST(WrapPolicyTest, BySizeCountsSharedModulesOnce) {
  const auto shared = std::make_shared<nn::Linear>(9, 1, nn::LinearOptions{.bias = false});
  nn::Sequential model;
  for (int i = 0; i < 2; ++i) {
    const auto branch = model.Emplace<nn::Sequential>();
    branch->Append(shared);
    branch->Emplace<nn::Linear>(5, 1, nn::LinearOptions{.bias = false});
  }
  EXPECT_EQ(BySize(model, 9), Names{"0.0"});
  EXPECT_EQ(BySize(model, 10), (Names{"0", "1"}));
}

TEST(WrapPolicyTest, TheseModules) {
  models::Gpt2 model(TwoLayers());
  const auto all = model.NamedModules();
  std::vector<nn::Module*> wanted;
  for (const auto& [name, module] : all) {
    if (name == "transformer.h.1" || name == "transformer.h.0.attn") wanted.push_back(module);
  }
  wanted.push_back(&model);  // a unit anyway
  EXPECT_EQ(NamesOf(WrapModules(wanted)(model)),
            (Names{"transformer.h.0.attn", "transformer.h.1"}));
  EXPECT_EQ(NamesOf(WrapModules({})(model)), Names());
  nn::Linear stranger(2, 2);
  ExpectError(absl::StatusCode::kInvalidArgument,
              "WrapModules: number 1 of 2 is not a module of the tree that is wrapped", [&] {
                WrapModules({wanted[0], &stranger})(model);
              });
}

TEST(WrapPolicyTest, AnyOfThemWithTheFirstOnesOptions) {
  models::Gpt2 model(TwoLayers());
  const auto chosen =
      WrapAny({WrapByType<models::Gpt2Mlp>({.reshard_after_forward = true}),
               WrapBySize({.min_elements = 8 * 32}), WrapByType<models::Gpt2Block>()})(model);
  for (const WrappedModule& wrapped : chosen) {
    const bool is_mlp = dynamic_cast<models::Gpt2Mlp*>(wrapped.module) != nullptr;
    EXPECT_EQ(wrapped.options.reshard_after_forward.has_value(), is_mlp) << wrapped.name;
  }
  const Names names = NamesOf(chosen);
  EXPECT_EQ(names[0], "transformer.h.0.mlp");
  EXPECT_EQ(std::count(names.begin(), names.end(), "transformer.h.1"), 1);
  EXPECT_TRUE(WrapAny({})(model).empty());
}

TEST(WrapPolicyTest, RefusesBadInput) {
  ExpectError(absl::StatusCode::kInvalidArgument, "WrapIf: the choice is empty",
              [] { WrapIf(nullptr); });
  ExpectError(absl::StatusCode::kInvalidArgument, "WrapBySize: min_elements is 0; give at least 1",
              [] { WrapBySize({.min_elements = 0}); });
}

}  // namespace
}  // namespace lockstep::strategies
