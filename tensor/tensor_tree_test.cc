// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/tensor_tree.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {
namespace {

Tensor Vector(std::vector<float> values) {
  const int64_t count = static_cast<int64_t>(values.size());
  return FromVector<float>(values, {count});
}

TensorTree Example() {
  return {Vector({1, 2}),
          TensorTree::Dict{{"mask", Vector({3})}, {"scale", 0.5}, {"none", Tensor()}},
          TensorTree::List{7, true, "text", int64_t{8}}};
}

TEST(TensorTreeTest, HoldsWhatItIsGiven) {
  const TensorTree tree = Example();
  ASSERT_TRUE(tree.is_list());
  EXPECT_EQ(tree.size(), 3u);
  EXPECT_TRUE(tree[0].is_tensor());
  EXPECT_EQ(tree[0].tensor().ToVector<double>(), (std::vector<double>{1, 2}));
  EXPECT_EQ(tree[1].At("mask").tensor().numel(), 1);
  EXPECT_EQ(tree[1].At("scale").number(), 0.5);
  EXPECT_TRUE(tree[1].At("none").is_nothing());
  EXPECT_EQ(tree[2][0].integer(), 7);
  EXPECT_EQ(tree[2][0].number(), 7.0);
  EXPECT_TRUE(tree[2][1].boolean());
  EXPECT_EQ(tree[2][2].text(), "text");
  EXPECT_EQ(tree[2][3].integer(), 8);
  EXPECT_TRUE(tree[2][3].is_plain());
  EXPECT_FALSE(tree[0].is_plain());
  EXPECT_EQ(tree.TensorCount(), 2u);
  EXPECT_EQ(tree.DebugString(),
            "[float32[2] on cpu:0, {mask: float32[1] on cpu:0, scale: 0.5, none: nothing}, "
            "[7, true, \"text\", 8]]");
}

TEST(TensorTreeTest, NamedTensorsAreADictionary) {
  const TensorTree tree = NamedTensors{{"b", Vector({1})}, {"a", Vector({2})}};
  ASSERT_TRUE(tree.is_dict());
  EXPECT_EQ(tree.dict()[0].first, "b");
  EXPECT_EQ(tree.At("a").tensor().Item<double>({0}), 2);
}

TEST(TensorTreeTest, VisitsWithPathsAndMaps) {
  std::vector<std::string> paths;
  Example().ForEachTensor([&](const std::string& path, const Tensor&) { paths.push_back(path); });
  EXPECT_EQ(paths, (std::vector<std::string>{"[0]", "[1].mask"}));
  TensorTree(Vector({1})).ForEachTensor([&](const std::string& path, const Tensor&) {
    paths.push_back(path);
  });
  EXPECT_EQ(paths.back(), "");

  const TensorTree mapped = Example().Map([](const std::string& path, const Tensor& tensor) {
    return path == "[0]" ? Vector({9, 9, 9}) : tensor;
  });
  EXPECT_EQ(mapped.DebugString(),
            "[float32[3] on cpu:0, {mask: float32[1] on cpu:0, scale: 0.5, none: nothing}, "
            "[7, true, \"text\", 8]]");
}

TEST(TensorTreeTest, ComparesPlainValues) {
  EXPECT_TRUE(TensorTree(3).SamePlainValue(TensorTree(int64_t{3})));
  EXPECT_FALSE(TensorTree(3).SamePlainValue(TensorTree(3.0)));
  EXPECT_FALSE(TensorTree(true).SamePlainValue(TensorTree(false)));
  EXPECT_TRUE(TensorTree("a").SamePlainValue(TensorTree(std::string("a"))));
  EXPECT_TRUE(TensorTree(0.25).SamePlainValue(TensorTree(0.25)));
  EXPECT_FALSE(TensorTree().SamePlainValue(TensorTree()));
}

TEST(TensorTreeTest, SaysWhatIsThereInstead) {
  const TensorTree tree = Example();
  const auto message = [](const auto& fn) { return ErrorOf([&] { fn(); }).message(); };
  EXPECT_EQ(message([&] { static_cast<void>(tree.tensor()); }),
            "TensorTree: this is a list of 3, not a tensor");
  EXPECT_EQ(message([&] { static_cast<void>(tree[1].list()); }),
            "TensorTree: this is a dictionary of mask, scale, none, not a list");
  EXPECT_EQ(message([&] { static_cast<void>(tree[0].dict()); }),
            "TensorTree: this is a tensor, not a dictionary");
  EXPECT_EQ(message([&] { static_cast<void>(tree[2][2].number()); }),
            "TensorTree: this is a text, not a number");
  EXPECT_EQ(message([&] { static_cast<void>(tree[2][0].text()); }),
            "TensorTree: this is an integer, not a text");
  EXPECT_EQ(message([&] { static_cast<void>(tree[1].At("scale").integer()); }),
            "TensorTree: this is a number, not an integer");
  EXPECT_EQ(message([&] { static_cast<void>(TensorTree().boolean()); }),
            "TensorTree: this is nothing, not a bool");
  EXPECT_EQ(ErrorOf([&] { static_cast<void>(tree[3]); }).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(message([&] { static_cast<void>(tree[3]); }), "TensorTree: element 3 of a list of 3");
  EXPECT_EQ(message([&] { static_cast<void>(tree[1].At("maks")); }),
            "TensorTree: no \"maks\"; the names are mask, scale, none");
}

}  // namespace
}  // namespace lockstep
