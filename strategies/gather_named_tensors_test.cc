// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/gather_named_tensors.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::strategies {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_util::RunRanks;
using Values = std::vector<double>;

void ExpectNoErrors(const std::vector<testing_util::Outcome>& outcomes) {
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.message, "");
}

TEST(GatherNamedTensorsTest, TheRootHasEveryRanksTensors) {
  for (const int root : {0, 2}) {
    ExpectNoErrors(RunRanks(3, [root](int rank, auto world) {
      NamedTensors own;
      if (rank != 1) {  // has none
        own.Insert(absl::StrCat(rank, ".weight"),
                   Transpose(Reshape(Arange(15) + rank, {3, 5}), 0, 1));
        own.Insert(absl::StrCat(rank, ".empty"), Zeros({0, 4}, {.dtype = DType::kBFloat16}));
        own.Insert(absl::StrCat(rank, ".step"), FromVector<int64_t>({40 + rank}, {}));
        own.Insert(absl::StrCat(rank, "\t\\n\n"), FromVector<int64_t>({50 + rank}, {}));
      }
      const NamedTensors all = GatherNamedTensors(own, *world, root);
      if (rank != root) {
        EXPECT_TRUE(all.empty());
        return Values{};
      }
      EXPECT_THAT(all.Names(), ElementsAre("0.weight", "0.empty", "0.step", "0\t\\n\n", "2.weight",
                                           "2.empty", "2.step", "2\t\\n\n"));
      for (const int owner : {0, 2}) {
        const Tensor weight = all.At(absl::StrCat(owner, ".weight"));
        EXPECT_EQ(weight.shape(), (Shape{5, 3}));
        EXPECT_EQ(weight.ToVector<int64_t>(),
                  Transpose(Reshape(Arange(15) + owner, {3, 5}), 0, 1).ToVector<int64_t>());
        EXPECT_EQ(all.At(absl::StrCat(owner, ".empty")).shape(), (Shape{0, 4}));
        EXPECT_EQ(all.At(absl::StrCat(owner, ".empty")).dtype(), DType::kBFloat16);
        EXPECT_EQ(all.At(absl::StrCat(owner, ".step")).template Item<int64_t>(), 40 + owner);
        EXPECT_EQ(all.At(absl::StrCat(owner, "\t\\n\n")).template Item<int64_t>(), 50 + owner);
      }
      return Values{};
    }));
  }
}

TEST(GatherNamedTensorsTest, ANameOfTwoRanksIsRefusedOnAll) {
  ExpectNoErrors(RunRanks(3, [](int rank, auto world) {
    const std::string name = rank == 1 ? "b" : "a";
    EXPECT_THAT(MessageOf([&] {
                  GatherNamedTensors({{name, Zeros({1})}}, *world);
                }),
                HasSubstr("ranks 0 and 2 both have \"a\""));
    return Values{};
  }));
}

}  // namespace
}  // namespace lockstep::strategies
