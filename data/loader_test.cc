// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/loader.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/philox.h"
#include "lockstep/base/testing.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/sampler.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::data {
namespace {

// Rows hold their index and a random number of their own.
class IndexDataset : public Dataset {
 public:
  explicit IndexDataset(int64_t size, int64_t fails_at = -1) : size_(size), fails_at_(fails_at) {}
  int64_t size() const override { return size_; }
  NamedTensors Get(int64_t index, SampleContext& context) const override {
    if (index == fails_at_) throw DataLossError(absl::StrCat("row ", index, " is damaged"));
    const RandomKey key = context.generator.Draw(1);
    const auto words = Philox4x32(key.seed, key.stream, key.offset / 4);
    return {{"index", FromVector<int64_t>({index}, {})},
            {"random", FromVector<int64_t>({static_cast<int64_t>(words[0])}, {})}};
  }

 private:
  int64_t size_;
  int64_t fails_at_;
};

std::shared_ptr<DistributedSampler> Sampler(int64_t size, const SamplerOptions& options) {
  return std::make_shared<DistributedSampler>(size, options);
}

// The named values of one pass, batch after batch.
std::vector<int64_t> Pass(DataLoader& loader, const char* name = "index") {
  std::vector<int64_t> values;
  while (auto batch = loader.Next()) {
    for (int64_t value : batch->At(name).ToVector<int64_t>()) values.push_back(value);
  }
  return values;
}

TEST(DistributedSamplerTest, ThreeWaysToTreatTheRemainder) {
  const auto counts = [](Remainder remainder, int64_t size) {
    std::vector<size_t> result;
    for (int64_t rank = 0; rank < 4; ++rank) {
      const SamplerOptions options{.rank = rank, .world_size = 4, .remainder = remainder};
      const DistributedSampler sampler(size, options);
      EXPECT_EQ(sampler.Count(), static_cast<int64_t>(sampler.Indices().size()));
      result.push_back(sampler.Indices().size());
    }
    return result;
  };
  EXPECT_EQ(counts(Remainder::kPad, 10), (std::vector<size_t>{3, 3, 3, 3}));
  EXPECT_EQ(counts(Remainder::kDrop, 10), (std::vector<size_t>{2, 2, 2, 2}));
  EXPECT_EQ(counts(Remainder::kExact, 10), (std::vector<size_t>{3, 3, 2, 2}));
  EXPECT_EQ(counts(Remainder::kPad, 2), (std::vector<size_t>{1, 1, 1, 1}));
  EXPECT_EQ(counts(Remainder::kExact, 2), (std::vector<size_t>{1, 1, 0, 0}));
  EXPECT_EQ(counts(Remainder::kPad, 0), (std::vector<size_t>{0, 0, 0, 0}));

  std::multiset<int64_t> exact, padded;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const SamplerOptions exact_options{
        .rank = rank, .world_size = 4, .remainder = Remainder::kExact};
    for (int64_t i : DistributedSampler(10, exact_options).Indices()) exact.insert(i);
    const SamplerOptions pad_options{.rank = rank, .world_size = 4};
    for (int64_t i : DistributedSampler(10, pad_options).Indices()) padded.insert(i);
  }
  EXPECT_EQ(std::vector<int64_t>(exact.begin(), exact.end()),
            (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(padded.size(), 12u);
  EXPECT_EQ(std::set<int64_t>(padded.begin(), padded.end()).size(), 10u);
}

TEST(DistributedSamplerTest, BatchesOfAllRanksAreTheSameRowsForEveryWorldSize) {
  const auto rows_of_first_batches = [](int64_t world_size) {
    std::multiset<int64_t> rows;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      const SamplerOptions options{.rank = rank, .world_size = world_size, .seed = 5};
      const std::vector<int64_t> mine = DistributedSampler(60, options).Indices();
      rows.insert(mine.begin(), mine.begin() + 12 / world_size);
    }
    return rows;
  };
  const auto one = rows_of_first_batches(1);
  EXPECT_EQ(one, rows_of_first_batches(2));
  EXPECT_EQ(one, rows_of_first_batches(3));
  EXPECT_EQ(one, rows_of_first_batches(4));
}

TEST(DistributedSamplerTest, BadInput) {
  const auto code = [](int64_t size, int64_t rank, int64_t world_size) {
    return ErrorOf([&] {
             const SamplerOptions options{.rank = rank, .world_size = world_size};
             DistributedSampler(size, options);
           })
        .code();
  };
  EXPECT_EQ(code(-1, 0, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, 2, 2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, -1, 2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, 0, 0), absl::StatusCode::kInvalidArgument);
  DistributedSampler sampler(3, {});
  EXPECT_EQ(ErrorOf([&] { sampler.SetEpoch(-1); }).code(), absl::StatusCode::kInvalidArgument);
}

// A user who calls SetEpoch on the sampler they hold changes the loader's next pass, and passes
// differ even without the call.
TEST(DataLoaderTest, EpochsShuffleAnewAndRepeatOnRequest) {
  std::vector<std::shared_ptr<DistributedSampler>> samplers;
  std::vector<std::unique_ptr<DataLoader>> loaders;
  const auto dataset = std::make_shared<IndexDataset>(8);
  for (int64_t rank = 0; rank < 2; ++rank) {
    samplers.push_back(Sampler(8, {.rank = rank, .world_size = 2, .seed = 3}));
    loaders.push_back(
        std::make_unique<DataLoader>(dataset, samplers.back(), DataLoaderOptions{.batch_size = 3}));
  }
  std::vector<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> joined = Pass(*loaders[0]);
    const std::vector<int64_t> second = Pass(*loaders[1]);
    EXPECT_EQ(joined.size(), 4u);
    orders.push_back(joined);
    joined.insert(joined.end(), second.begin(), second.end());
    std::sort(joined.begin(), joined.end());
    EXPECT_EQ(joined, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  }
  EXPECT_FALSE(orders[0] == orders[1] && orders[1] == orders[2]);
  samplers[0]->SetEpoch(0);
  EXPECT_EQ(Pass(*loaders[0]), orders[0]);
}

TEST(DataLoaderTest, SameBatchesForAnyThreadsAndWorldSizes) {
  const auto dataset = std::make_shared<IndexDataset>(64);
  std::vector<std::vector<int64_t>> indices, randoms;
  for (int threads : {0, 1, 4}) {
    DataLoader loader(dataset, Sampler(64, {.seed = 9}),
                      {.batch_size = 5, .threads = threads, .prefetch_batches = 7});
    indices.push_back(Pass(loader));
    loader.Seek({0, 0});
    randoms.push_back(Pass(loader, "random"));
  }
  EXPECT_EQ(indices[0], indices[1]);
  EXPECT_EQ(indices[0], indices[2]);
  EXPECT_EQ(randoms[0], randoms[1]);
  EXPECT_EQ(randoms[0], randoms[2]);
  EXPECT_EQ(std::set<int64_t>(randoms[0].begin(), randoms[0].end()).size(), 64u);

  DataLoader next_epoch(dataset, Sampler(64, {.seed = 9}), {.batch_size = 64});
  next_epoch.Seek({1, 0});
  std::vector<int64_t> later = Pass(next_epoch, "random");
  std::vector<int64_t> both = randoms[0];
  both.insert(both.end(), later.begin(), later.end());
  EXPECT_EQ(std::set<int64_t>(both.begin(), both.end()).size(), 128u);

  // A row's random numbers do not depend on the rank that reads it.
  std::set<int64_t> over_ranks;
  for (int64_t rank = 0; rank < 2; ++rank) {
    DataLoader loader(dataset, Sampler(64, {.rank = rank, .world_size = 2, .seed = 9}),
                      {.batch_size = 4, .threads = 2});
    for (int64_t value : Pass(loader, "random")) over_ranks.insert(value);
  }
  EXPECT_EQ(over_ranks, std::set<int64_t>(randoms[0].begin(), randoms[0].end()));
}

TEST(DataLoaderTest, ResumesInMidEpochAnywhere) {
  const auto dataset = std::make_shared<IndexDataset>(11);
  DataLoader whole(dataset, Sampler(11, {.seed = 4}), {.batch_size = 3, .threads = 2});
  std::vector<int64_t> expected = Pass(whole);
  const std::vector<int64_t> second = Pass(whole);
  expected.insert(expected.end(), second.begin(), second.end());
  for (int64_t taken = 0; taken <= 4; ++taken) {
    DataLoader first(dataset, Sampler(11, {.seed = 4}), {.batch_size = 3, .threads = 2});
    std::vector<int64_t> values;
    for (int64_t i = 0; i < taken; ++i) {
      for (int64_t value : first.Next()->At("index").ToVector<int64_t>()) values.push_back(value);
    }
    EXPECT_EQ(first.position(), (LoaderPosition{0, taken}));
    DataLoader resumed(dataset, Sampler(11, {.seed = 4}), {.batch_size = 3, .threads = 1});
    resumed.Seek(first.position());
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t value : Pass(resumed)) values.push_back(value);
    }
    EXPECT_EQ(values, expected) << "after " << taken << " batches";
    EXPECT_EQ(resumed.position(), (LoaderPosition{2, 0}));
  }
}

TEST(DataLoaderTest, LastBatchIsSmallerOrDropped) {
  const auto dataset = std::make_shared<IndexDataset>(7);
  DataLoader keep(dataset, Sampler(7, {.shuffle = false}), {.batch_size = 3});
  EXPECT_EQ(keep.BatchesPerEpoch(), 3);
  EXPECT_EQ(Pass(keep), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  DataLoader drop(dataset, Sampler(7, {.shuffle = false}), {.batch_size = 3, .drop_last = true});
  EXPECT_EQ(drop.BatchesPerEpoch(), 2);
  EXPECT_EQ(Pass(drop), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  DataLoader empty(std::make_shared<IndexDataset>(0), Sampler(0, {}), {});
  EXPECT_EQ(Pass(empty), std::vector<int64_t>());
}

TEST(DataLoaderTest, AnErrorReachesTheCallerAtItsBatch) {
  for (int threads : {0, 2}) {
    DataLoader loader(std::make_shared<IndexDataset>(9, /*fails_at=*/4),
                      Sampler(9, {.shuffle = false}), {.batch_size = 3, .threads = threads});
    EXPECT_EQ(loader.Next()->At("index").ToVector<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
    EXPECT_EQ(ErrorOf([&] { loader.Next(); }).message(), "row 4 is damaged");
    EXPECT_EQ(loader.Next()->At("index").ToVector<int64_t>(), (std::vector<int64_t>{6, 7, 8}));
    EXPECT_FALSE(loader.Next().has_value());
  }
}

TEST(DataLoaderTest, CollateMakesTheBatch) {
  DataLoader loader(std::make_shared<IndexDataset>(5), Sampler(5, {.shuffle = false}),
                    {.batch_size = 2, .collate = [](absl::Span<const NamedTensors> rows) {
                       int64_t sum = 0;
                       for (const NamedTensors& row : rows) sum += row.At("index").Item<int64_t>();
                       return NamedTensors{{"index", FromVector<int64_t>({sum}, {1})}};
                     }});
  EXPECT_EQ(Pass(loader), (std::vector<int64_t>{1, 5, 4}));
}

TEST(DataLoaderTest, BadInput) {
  const auto dataset = std::make_shared<IndexDataset>(5);
  const auto code = [&](const DataLoaderOptions& options) {
    return ErrorOf([&] { DataLoader(dataset, Sampler(5, {}), options); }).code();
  };
  EXPECT_EQ(code({.batch_size = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.threads = -1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.prefetch_batches = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { DataLoader(nullptr, Sampler(5, {}), {}); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { DataLoader(dataset, nullptr, {}); }).code(),
            absl::StatusCode::kInvalidArgument);
  DataLoader loader(dataset, Sampler(5, {}), {.batch_size = 2});
  EXPECT_EQ(ErrorOf([&] { loader.Seek({0, 4}); }).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ErrorOf([&] { loader.Seek({-1, 0}); }).code(), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace lockstep::data
