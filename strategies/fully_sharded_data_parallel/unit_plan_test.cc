// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/unit_plan.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/layer_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using Options = FullyShardedDataParallelOptions;
using Lines = std::vector<std::string>;

// "unit: a b | c" for a unit with the flat parameters {a, b} and {c}.
Lines Describe(nn::Module& root, const Options& options) {
  Lines lines;
  for (const UnitPlan& unit : PlanUnits(root, options)) {
    Lines flats;
    for (const FlatPlan& flat : unit.flats) {
      flats.push_back(absl::StrJoin(flat.parameters.Names(), " "));
    }
    lines.push_back(absl::StrCat(unit.name, ": ", absl::StrJoin(flats, " | ")));
  }
  return lines;
}

// Names of modules, which become the units.
Options Units(const Lines& names) {
  Options options;
  options.wrap_policy = WrapIf([names](const std::string& name, nn::Module&) {
    for (const std::string& wanted : names) {
      if (name == wanted) return std::optional<UnitOptions>(UnitOptions());
    }
    return std::optional<UnitOptions>();
  });
  return options;
}

// {0: Linear, 1: {0: Linear, 1: Linear}}, without biases.
std::shared_ptr<nn::Sequential> Tree() {
  const nn::LinearOptions plain = {.bias = false};
  auto tree = std::make_shared<nn::Sequential>();
  tree->Emplace<nn::Linear>(2, 2, plain);
  const auto inner = tree->Emplace<nn::Sequential>();
  inner->Emplace<nn::Linear>(2, 2, plain);
  inner->Emplace<nn::Linear>(2, 2, plain);
  return tree;
}
nn::Linear& LinearAt(nn::Sequential& tree, size_t i) {
  return dynamic_cast<nn::Linear&>(*dynamic_cast<nn::Sequential&>(*tree[1])[i]);
}

TEST(UnitPlanTest, OneUnitWithoutAPolicy) {
  const auto tree = Tree();
  EXPECT_EQ(Describe(*tree, {}), Lines{": 0.weight 1.0.weight 1.1.weight"});
  const std::vector<UnitPlan> units = PlanUnits(*tree, {});
  EXPECT_EQ(units[0].module, tree.get());
  EXPECT_TRUE(units[0].flats[0].trainable);
  EXPECT_EQ(units[0].flats[0].dtype, DType::kFloat32);
  EXPECT_EQ(units[0].flats[0].device, Cpu());
}

TEST(UnitPlanTest, ParametersBelongToTheNearestUnit) {
  const auto tree = Tree();
  EXPECT_EQ(Describe(*tree, Units({"1"})), (Lines{": 0.weight", "1: 1.0.weight 1.1.weight"}));
  EXPECT_EQ(Describe(*tree, Units({"1", "1.1"})),
            (Lines{": 0.weight", "1: 1.0.weight", "1.1: 1.1.weight"}));
  // A unit whose parameters are all in inner ones is none; the root stays.
  EXPECT_EQ(Describe(*tree, Units({"0", "1", "1.0", "1.1"})),
            (Lines{": ", "0: 0.weight", "1.0: 1.0.weight", "1.1: 1.1.weight"}));
}

// The field's fault: two units each with the same weight, which then drift apart.
TEST(UnitPlanTest, TiedWeightsBelongToTheUnitAroundBoth) {
  const auto tree = Tree();
  LinearAt(*tree, 1).weight = LinearAt(*tree, 0).weight;
  EXPECT_EQ(Describe(*tree, Units({"1", "1.0", "1.1"})), (Lines{": 0.weight", "1: 1.0.weight"}));
  EXPECT_EQ(Describe(*tree, Units({"1.0", "1.1"})), Lines{": 0.weight 1.0.weight"});
  // Tied inside of one unit.
  EXPECT_EQ(Describe(*tree, Units({"1"})), (Lines{": 0.weight", "1: 1.0.weight"}));
  // Between a unit and the root's own.
  dynamic_cast<nn::Linear&>(*(*tree)[0]).weight = LinearAt(*tree, 0).weight;
  EXPECT_EQ(Describe(*tree, Units({"1", "1.0"})), Lines{": 0.weight"});
}

// As GPT-2's head, whose weight is the token embedding.
TEST(UnitPlanTest, TheTiedHeadOfALanguageModel) {
  models::Gpt2 model({.layers = 2, .heads = 2, .width = 8, .block = 4, .vocabulary = 11});
  Options options;
  options.wrap_policy = WrapByType<models::Gpt2Block>();
  const std::vector<UnitPlan> units = PlanUnits(model, options);
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[0].flats[0].parameters.Names(),
            (Lines{"transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f.weight",
                   "transformer.ln_f.bias"}));
  EXPECT_EQ(units[1].name, "transformer.h.0");
  EXPECT_EQ(units[1].flats[0].parameters.size(), 12u);
}

TEST(UnitPlanTest, AModuleThatStandsAtTwoPlacesIsOneUnit) {
  const auto shared = std::make_shared<nn::Linear>(2, 2, nn::LinearOptions{.bias = false});
  nn::Sequential model;
  model.Append(shared);
  model.Emplace<nn::Linear>(2, 2, nn::LinearOptions{.bias = false});
  model.Append(shared);
  EXPECT_EQ(Describe(model, Units({"0"})), (Lines{": 1.weight", "0: 0.weight"}));
}

TEST(UnitPlanTest, DtypesAndFrozenParametersAreFlatApart) {
  nn::Sequential model;
  for (int i = 0; i < 4; ++i) model.Emplace<nn::Linear>(2, 3);
  model[1]->To(DType::kFloat64);
  model[2]->SetRequiresGrad(false);
  model[3]->To(DType::kFloat64);
  const std::vector<UnitPlan> units = PlanUnits(model, {});
  ASSERT_EQ(units.size(), 1u);
  EXPECT_EQ(Describe(model, {}), Lines{": 0.weight 0.bias | 1.weight 1.bias 3.weight 3.bias | "
                                       "2.weight 2.bias"});
  EXPECT_EQ(units[0].flats[1].dtype, DType::kFloat64);
  EXPECT_TRUE(units[0].flats[1].trainable);
  EXPECT_FALSE(units[0].flats[2].trainable);
}

TEST(UnitPlanTest, IgnoresParametersAndModules) {
  const auto tree = Tree();
  Options options = Units({"1"});
  options.ignored = {"1.0.weight"};
  EXPECT_EQ(Describe(*tree, options), (Lines{": 0.weight", "1: 1.1.weight"}));
  options.ignored = {"1"};
  EXPECT_EQ(Describe(*tree, options), Lines{": 0.weight"});
  // Names are whole components: "1.1" is not what "1" begins with.
  options.ignored = {"0"};
  EXPECT_EQ(Describe(*tree, options), (Lines{": ", "1: 1.0.weight 1.1.weight"}));
  for (const std::string name : {"2", "1.", "", "1.0.weigh"}) {
    options.ignored = {"0", name};
    ExpectError(absl::StatusCode::kInvalidArgument,
                absl::StrCat("ignored names \"", name, "\", which is neither a parameter nor"),
                [&] { PlanUnits(*tree, options); });
  }
}

TEST(UnitPlanTest, ModulesOfFullPrecisionAreUnits) {
  nn::Sequential model;
  const auto block = model.Emplace<nn::Sequential>();
  block->Emplace<nn::Linear>(2, 2);
  block->Emplace<nn::LayerNorm>(ShapeArg{2});
  Options options = Units({"0"});
  options.mixed_precision.keep_full_precision = [](const std::string&, nn::Module& module) {
    return dynamic_cast<nn::LayerNorm*>(&module) != nullptr;
  };
  EXPECT_EQ(Describe(model, options),
            (Lines{": ", "0: 0.0.weight 0.0.bias", "0.1: 0.1.weight 0.1.bias"}));
  const std::vector<UnitPlan> units = PlanUnits(model, options);
  EXPECT_FALSE(units[1].full_precision);
  EXPECT_TRUE(units[2].full_precision);
}

TEST(UnitPlanTest, UnitsKeepTheirOptions) {
  const auto tree = Tree();
  Options options;
  options.wrap_policy = [](nn::Module& root) {
    const auto modules = root.NamedModules();
    return std::vector<WrappedModule>{
        {"1.1",
         modules[4].second,
         {.reshard_after_forward = false, .param_dtype = DType::kBFloat16}},
        {"", &root, {.reduce_dtype = DType::kFloat64}},
        {"1.1",
         modules[4].second,
         {.reshard_after_forward = false, .param_dtype = DType::kBFloat16}}};
  };
  const std::vector<UnitPlan> units = PlanUnits(*tree, options);
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0].options, (UnitOptions{.reduce_dtype = DType::kFloat64}));
  EXPECT_EQ(units[1].name, "1.1");
  EXPECT_EQ(units[1].options,
            (UnitOptions{.reshard_after_forward = false, .param_dtype = DType::kBFloat16}));
}

TEST(UnitPlanTest, RefusesWhatPoliciesMustNotGive) {
  const auto tree = Tree();
  nn::Linear stranger(2, 2);
  std::vector<WrappedModule> given;
  Options options;
  options.wrap_policy = [&](nn::Module&) { return given; };
  const auto refuses = [&](const std::string& part) {
    ExpectError(absl::StatusCode::kInvalidArgument, part, [&] { PlanUnits(*tree, options); });
  };
  given = {{"x", nullptr, {}}};
  refuses("wrap_policy gives a null module");
  given = {{"x", &stranger, {}}};
  refuses("wrap_policy gives \"x\", a Linear(2, 2) that is not in the tree below the root");
  nn::Module* first = (*tree)[0].get();
  given = {{"0", first, {}}, {"0", first, {.reshard_after_forward = true}}};
  refuses("wrap_policy gives \"0\" twice, with different options");
  given = {{"0", first, {.param_dtype = DType::kInt32}}};
  refuses("param_dtype of unit \"0\" is int32; give a floating-point dtype");
  given = {{"0", first, {.reduce_dtype = DType::kBool}}};
  refuses("reduce_dtype of unit \"0\" is bool");
}

class Listed : public nn::Module {
 public:
  Listed() { RegisterModule("list", list_)->Emplace(2, 2); }

 private:
  std::shared_ptr<nn::ModuleList<nn::Linear>> list_ =
      std::make_shared<nn::ModuleList<nn::Linear>>();
};

TEST(UnitPlanTest, RefusesListsAndNothing) {
  Listed listed;
  ExpectError(absl::StatusCode::kInvalidArgument,
              "wrap_policy gives \"list\", a ModuleList, which is never called",
              [&] { PlanUnits(listed, Units({"list"})); });
  const auto tree = Tree();
  Options options;
  options.ignored = {"0", "1"};
  ExpectError(absl::StatusCode::kInvalidArgument,
              "nothing to shard: the module has 3 parameters, and 2 names are ignored",
              [&] { PlanUnits(*tree, options); });
  nn::Sequential empty;
  ExpectError(absl::StatusCode::kInvalidArgument, "the module has 0 parameters, and 0 names",
              [&] { PlanUnits(empty, {}); });
}

}  // namespace
}  // namespace lockstep::strategies
