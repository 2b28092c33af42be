// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/sharded_manifest.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::state {
namespace {

using ::testing::HasSubstr;
using Ranges = std::vector<std::optional<ShardRange>>;

ShardedManifest Good() {
  ShardedManifest manifest;
  manifest.step = 12;
  manifest.values = {{"third", 1.0 / 3}, {"count", int64_t{-5}}, {"text", std::string("q\"\n")}};
  manifest.files = {{100, "0123456789abcdef"}, {200, "fedcba9876543210"}};
  manifest.tensors = {{"w.\"x\"", DType::kBFloat16, {3, 5}, {ShardRange{0, 8}, ShardRange{8, 15}}},
                      {"only", DType::kInt64, {2}, {std::nullopt, ShardRange{0, 2}}},
                      {"both", DType::kFloat32, {}, {ShardRange{0, 1}, ShardRange{0, 1}}},
                      {"empty", DType::kBool, {0, 3}, {ShardRange{0, 0}, std::nullopt}}};
  return manifest;
}

TEST(ShardedManifestTest, ComesBackWhole) {
  const ShardedManifest good = Good();
  const ShardedManifest back = ParseManifest(FormatManifest(good));
  EXPECT_EQ(back.step, 12);
  EXPECT_EQ(back.values, good.values);
  ASSERT_EQ(back.world_size(), 2);
  EXPECT_EQ(back.files[1].bytes, 200);
  EXPECT_EQ(back.files[1].checksum, "fedcba9876543210");
  ASSERT_EQ(back.tensors.size(), good.tensors.size());
  for (size_t i = 0; i < good.tensors.size(); ++i) {
    EXPECT_EQ(back.tensors[i].name, good.tensors[i].name);
    EXPECT_EQ(back.tensors[i].dtype, good.tensors[i].dtype);
    EXPECT_EQ(back.tensors[i].shape, good.tensors[i].shape);
    EXPECT_EQ(back.tensors[i].ranges, good.tensors[i].ranges);
  }
  EXPECT_EQ(FormatManifest(back), FormatManifest(good));
}

TEST(ShardedManifestTest, EveryFlippedBitAndTruncationIsNoticedOrMeansTheSame) {
  const std::string text = FormatManifest(Good());
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    try {
      EXPECT_EQ(FormatManifest(ParseManifest(changed)), text) << "white space, at bit " << bit;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.what();
    }
  }
  for (size_t size = 0; size + 2 < text.size(); ++size) {
    ASSERT_EQ(ErrorOf([&] { ParseManifest(text.substr(0, size)); }).code(),
              absl::StatusCode::kDataLoss)
        << size;
  }
  EXPECT_THAT(MessageOf([&] { ParseManifest(FormatRankManifest(Good())); }),
              HasSubstr("not a 'lockstep sharded state 1'"));
  EXPECT_THAT(MessageOf([&] { ParseRankManifest(FormatRankManifest(Good())); }),
              HasSubstr("not that of one rank"));
}

TEST(ShardedManifestTest, WhatDoesNotHoldTogetherIsNamed) {
  EXPECT_EQ(CheckManifest(Good()), "");
  const auto wrong = [](auto change) {
    ShardedManifest manifest = Good();
    change(manifest);
    const std::string found = CheckManifest(manifest);
    EXPECT_THAT(MessageOf([&] { ParseManifest(FormatManifest(manifest)); }), HasSubstr(found));
    return found;
  };
  EXPECT_THAT(wrong([](auto& m) {
                m.tensors[0].ranges[1] = {9, 15};
              }),
              HasSubstr("no rank has the elements [8, 9) of 'w.\"x\"', bfloat16[3, 5]"));
  EXPECT_THAT(wrong([](auto& m) {
                m.tensors[0].ranges[1] = {8, 14};
              }),
              HasSubstr("no rank has the elements [14, 15)"));
  EXPECT_THAT(wrong([](auto& m) { m.tensors[1].ranges[1].reset(); }),
              HasSubstr("no rank has the elements [0, 2) of 'only'"));
  EXPECT_THAT(wrong([](auto& m) {
                m.tensors[0].ranges[1] = {8, 16};
              }),
              HasSubstr("has the range [8, 16) and 15 elements"));
  EXPECT_THAT(wrong([](auto& m) { m.tensors[0].ranges[0] = {-1, 8}; }), HasSubstr("[-1, 8)"));
  EXPECT_THAT(wrong([](auto& m) { m.tensors[0].ranges[0] = {9, 8}; }), HasSubstr("[9, 8)"));
  EXPECT_THAT(wrong([](auto& m) { m.tensors[0].ranges.pop_back(); }),
              HasSubstr("has ranges of 1 ranks and not of 2"));
  EXPECT_THAT(wrong([](auto& m) { m.tensors[0].shape = {-1}; }), HasSubstr("impossible shape"));
  EXPECT_THAT(wrong([](auto& m) {
                m.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
              }),
              HasSubstr("impossible shape"));
  EXPECT_EQ(wrong([](auto& m) {
              m.files.clear();
              m.tensors.clear();
            }),
            "there are no files");
  ShardedManifest twice = Good();
  twice.tensors.push_back(twice.tensors[0]);
  EXPECT_EQ(CheckManifest(twice), "'w.\"x\"' is there twice");
  ShardedManifest infinite = Good();
  infinite.values["x"] = std::numeric_limits<double>::infinity();
  EXPECT_THAT(MessageOf([&] { FormatManifest(infinite); }), HasSubstr("value 'x' is inf"));
}

TEST(ShardedManifestTest, RanksAreMerged) {
  const auto rank = [](int64_t bytes, std::vector<ShardedManifest::Tensor> tensors) {
    ShardedManifest manifest;
    manifest.files = {{bytes, "0"}};
    manifest.tensors = std::move(tensors);
    return ParseRankManifest(FormatRankManifest(manifest));
  };
  const ShardedManifest merged =
      MergeManifests({rank(10, {{"a", DType::kFloat32, {5}, {ShardRange{0, 2}}}}),
                      rank(20, {{"b", DType::kInt32, {1}, {ShardRange{0, 1}}},
                                {"a", DType::kFloat32, {5}, {ShardRange{2, 5}}}})});
  EXPECT_EQ(merged.world_size(), 2);
  EXPECT_EQ(merged.files[1].bytes, 20);
  ASSERT_EQ(merged.tensors.size(), 2u);
  EXPECT_EQ(merged.tensors[0].ranges, (Ranges{ShardRange{0, 2}, ShardRange{2, 5}}));
  EXPECT_EQ(merged.tensors[1].ranges, (Ranges{std::nullopt, ShardRange{0, 1}}));
  EXPECT_THAT(MessageOf([&] {
                MergeManifests({rank(10, {{"a", DType::kFloat32, {5}, {ShardRange{0, 5}}}}),
                                rank(20, {{"a", DType::kFloat32, {1, 5}, {ShardRange{0, 5}}}})});
              }),
              HasSubstr("'a' is float32[1, 5] on rank 1 and float32[5] on a rank before it"));
  EXPECT_THAT(MessageOf([&] {
                MergeManifests({rank(10, {{"a", DType::kBool, {5}, {ShardRange{0, 3}}}})});
              }),
              HasSubstr("SaveShardedState: no rank has the elements [3, 5) of 'a', bool[5]"));
}

}  // namespace
}  // namespace lockstep::state
