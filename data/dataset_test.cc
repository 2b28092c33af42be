// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/dataset.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/data/byte_text.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::data {
namespace {

void Write(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// Bytes that tell their position: byte i is (i * 7 + i / 251) mod 256.
std::string PositionBytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  return bytes;
}

TEST(TensorDatasetTest, RowsAreViewsAndStackBack) {
  const TensorDataset dataset({{"inputs", FromVector<float>({0, 1, 2, 3, 4, 5}, {3, 2})},
                               {"labels", FromVector<int64_t>({7, 8, 9}, {3})}});
  ASSERT_EQ(dataset.size(), 3);
  SampleContext context;
  std::vector<NamedTensors> rows = {dataset.Get(2, context), dataset.Get(0, context)};
  const NamedTensors batch = StackRows(rows);
  EXPECT_EQ(batch.At("inputs").shape(), (Shape{2, 2}));
  EXPECT_EQ(batch.At("inputs").ToVector<float>(), (std::vector<float>{4, 5, 0, 1}));
  EXPECT_EQ(batch.At("labels").shape(), (Shape{2}));
  EXPECT_EQ(batch.At("labels").ToVector<int64_t>(), (std::vector<int64_t>{9, 7}));
  EXPECT_EQ(batch.At("labels").storage()->category(), MemoryCategory::kData);
}

TEST(TensorDatasetTest, StridedColumnsStackInTheirOwnOrder) {
  Tensor base = FromVector<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  Tensor transposed(MakeRef<TensorImpl>(base.storage(), Shape{3, 2}, Strides{1, 3}, 0, base.dtype(),
                                        base.device()));
  const TensorDataset dataset({{"x", transposed}});
  SampleContext context;
  std::vector<NamedTensors> rows = {dataset.Get(1, context), dataset.Get(2, context)};
  EXPECT_EQ(StackRows(rows).At("x").ToVector<float>(), (std::vector<float>{1, 4, 2, 5}));
}

TEST(TensorDatasetTest, BadInputIsNamed) {
  EXPECT_EQ(ErrorOf([] { TensorDataset({}); }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([] {
              TensorDataset({{"x", FromVector<float>({1}, {})}});
            }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([] {
              TensorDataset({{"x", FromVector<float>({1, 2}, {2})},
                             {"y", FromVector<float>({1, 2, 3}, {3})}});
            }).message(),
            "TensorDataset: 'y' has 3 rows and 'x' has 2; the first dimensions must agree");
  const TensorDataset dataset({{"x", FromVector<float>({1, 2}, {2})}});
  SampleContext context;
  EXPECT_EQ(ErrorOf([&] { dataset.Get(2, context); }).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ErrorOf([&] { dataset.Get(-1, context); }).code(), absl::StatusCode::kOutOfRange);
}

TEST(StackRowsTest, RowsMustAgree) {
  const NamedTensors row = {{"x", FromVector<float>({1, 2}, {2})}};
  const NamedTensors longer = {{"x", FromVector<float>({1, 2, 3}, {3})}};
  const NamedTensors other_name = {{"y", FromVector<float>({1, 2}, {2})}};
  std::vector<NamedTensors> rows = {row, longer};
  EXPECT_NE(ErrorOf([&] { StackRows(rows); }).message().find("in row 1"), std::string::npos);
  rows[1] = other_name;
  EXPECT_EQ(ErrorOf([&] { StackRows(rows); }).message(), "StackRows: row 1 has no 'x'");
  rows.clear();
  EXPECT_EQ(ErrorOf([&] { StackRows(rows); }).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SampleGeneratorTest, DependsOnSeedEpochAndIndexOnly) {
  const RandomKey key = SampleGenerator(1, 2, 3).key;
  EXPECT_TRUE(key == SampleGenerator(1, 2, 3).key);
  EXPECT_FALSE(key == SampleGenerator(2, 2, 3).key);
  EXPECT_FALSE(key == SampleGenerator(1, 3, 3).key);
  EXPECT_FALSE(key == SampleGenerator(1, 2, 4).key);
}

TEST(ByteTextTest, FoldersAreJoinedInPathOrder) {
  const std::string folder = NewFolder();
  Write(folder + "/b.txt", "world");
  Write(folder + "/a/x.txt", "hello ");
  Write(folder + "/a/empty.txt", "");
  Write(folder + "/a/skip.bin", "????");
  Write(folder + "/plain", "!");
  const auto text = ByteText::Open(folder, {.extensions = {".txt", ""}});
  EXPECT_EQ(text->file_count(), 4);
  ASSERT_EQ(text->size_bytes(), 12);
  std::string all(12, ' ');
  text->Read(0, 12, reinterpret_cast<uint8_t*>(all.data()));
  EXPECT_EQ(all, "hello world!");
  text->Read(4, 3, reinterpret_cast<uint8_t*>(all.data()));
  EXPECT_EQ(all.substr(0, 3), "o w");
  EXPECT_EQ(ErrorOf([&] { text->Read(10, 3, nullptr); }).code(), absl::StatusCode::kOutOfRange);

  const uint64_t before = text->Fingerprint();
  EXPECT_EQ(before, ByteText::Open(folder, {.extensions = {".txt", ""}})->Fingerprint());
  Write(folder + "/b.txt", "worle");
  EXPECT_NE(before, ByteText::Open(folder, {.extensions = {".txt", ""}})->Fingerprint());
}

TEST(ByteTextTest, BadPathsAreNamed) {
  const std::string folder = NewFolder();
  EXPECT_EQ(ErrorOf([&] { ByteText::Open(folder + "/none"); }).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([&] { ByteText::Open(folder); }).code(), absl::StatusCode::kNotFound);
  Write(folder + "/empty", "");
  EXPECT_EQ(ErrorOf([&] { ByteText::Open(folder); }).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { ByteText::Open(folder, {.extensions = {".h"}}); }).code(),
            absl::StatusCode::kNotFound);
}

TEST(ByteTextDatasetTest, WindowsCoverEachPartOnceAndNeverMix) {
  constexpr int64_t kChunk = 16 << 10;
  const std::string bytes = PositionBytes(kChunk * 41 + 100);
  const std::string folder = NewFolder();
  Write(folder + "/one", bytes.substr(0, 5000));
  Write(folder + "/two", bytes.substr(5000));
  const auto text = ByteText::Open(folder);
  for (int64_t block : {3, 64}) {
    const ByteTextDataset train(text, block, TextPart::kTraining);
    const ByteTextDataset valid(text, block, TextPart::kValidation);
    const int64_t windows = (kChunk - 1) / block;
    EXPECT_EQ(valid.size(), 2 * windows);
    EXPECT_EQ(train.size(), 39 * windows + 99 / block);
    SampleContext context;
    // The first held-out chunk is number 19.
    const NamedTensors row = valid.Get(1, context);
    for (int64_t i = 0; i < block; ++i) {
      const size_t at = static_cast<size_t>(19 * kChunk + block + i);
      EXPECT_EQ(row.At("ids").Item<int>({i}), static_cast<uint8_t>(bytes[at]));
      EXPECT_EQ(row.At("targets").Item<int>({i}), static_cast<uint8_t>(bytes[at + 1]));
    }
    // The training row after chunk 18's last one lies in chunk 20.
    const NamedTensors next = train.Get(19 * windows, context);
    EXPECT_EQ(next.At("ids").Item<int>({0}),
              static_cast<uint8_t>(bytes[static_cast<size_t>(20 * kChunk)]));
    EXPECT_EQ(ErrorOf([&] { train.Get(train.size(), context); }).code(),
              absl::StatusCode::kOutOfRange);
  }
}

TEST(ByteTextDatasetTest, TooLittleTextIsRefused) {
  const std::string folder = NewFolder();
  Write(folder + "/t", PositionBytes(64));
  const auto text = ByteText::Open(folder);
  EXPECT_NO_THROW(ByteTextDataset(text, 63, TextPart::kTraining));
  EXPECT_EQ(ErrorOf([&] { ByteTextDataset(text, 64, TextPart::kTraining); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { ByteTextDataset(text, 3, TextPart::kValidation); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { ByteTextDataset(text, 0, TextPart::kTraining); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { ByteTextDataset(nullptr, 1, TextPart::kTraining); }).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
