// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The writer and the reader that take one tensor at a time, against those that take all.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/state/file_io.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/state/safetensors_reader.h"
#include "lockstep/state/safetensors_writer.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {
namespace {

using ::testing::HasSubstr;

// Every dtype, values that tell their position, and odd shapes.
NamedTensors Everything() {
  NamedTensors tensors;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    tensors.Insert(absl::StrCat("t.", DTypeName(dtype)),
                   FromVector<double>({0, 1, 2, 3, 100, 5}, {2, 3}, {.dtype = dtype}));
  }
  tensors.Insert("strided", Transpose(tensors.At("t.float32"), 0, 1));
  tensors.Insert("empty", Empty({0, 3}));
  tensors.Insert("scalar", FromVector<float>({2.5f}, {}));
  tensors.Insert("last empty", Empty({4, 0}));
  return tensors;
}

std::vector<TensorDescription> Describe(const NamedTensors& tensors) {
  std::vector<TensorDescription> descriptions;
  for (const auto& [name, tensor] : tensors) {
    descriptions.push_back({name, tensor.dtype(), tensor.shape()});
  }
  return descriptions;
}

// Metadata whose texts look like the place of the checksum.
const Metadata kMetadata = {{"format", "pt"},
                            {"lockstep.xxh6", "0000000000000000"},
                            {"z", "\"lockstep.xxh64\":\"0000000000000000\"}}"}};

TEST(SafetensorsStreamTest, WritesTheFileOfTheOtherWriter) {
  const std::string folder = NewFolder();
  const NamedTensors tensors = Everything();
  WriteSafetensors(folder + "/all", tensors, kMetadata);
  {
    SafetensorsWriter writer(folder + "/whole", Describe(tensors), kMetadata);
    for (const auto& [name, tensor] : tensors) writer.Append(name, tensor);
    writer.Finish();
  }
  {
    // In pieces of 0 to 4 elements.
    SafetensorsWriter writer(folder + "/pieces", Describe(tensors), kMetadata);
    int64_t size = 0;
    for (const auto& [name, tensor] : tensors) {
      const Tensor flat = Reshape(tensor, {-1});
      int64_t begin = 0;
      do {
        const int64_t end = std::min(begin + size, flat.numel());
        writer.AppendElements(name, Slice(flat, 0, begin, end));
        size = (size + 1) % 5;
        begin = end;
      } while (begin < flat.numel());
    }
    writer.Finish();
  }
  const std::string all = ReadFile(folder + "/all", 1 << 20);
  EXPECT_EQ(all, ReadFile(folder + "/whole", 1 << 20));
  EXPECT_EQ(all, ReadFile(folder + "/pieces", 1 << 20));
  const SafetensorsFile file = SafetensorsFile::Open(folder + "/whole");
  EXPECT_TRUE(file.ChecksumIsRight());
  EXPECT_NE(file.metadata().at(kSafetensorsChecksumKey), "0000000000000000");
  for (const auto& [key, value] : kMetadata) EXPECT_EQ(file.metadata().at(key), value);
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(file.Load(name).ToVector<double>(), tensor.ToVector<double>()) << name;
  }
  SafetensorsWriter none(folder + "/none", {});
  none.Finish();
  EXPECT_TRUE(SafetensorsFile::Open(folder + "/none").entries().empty());
}

TEST(SafetensorsStreamTest, ReadsWholeTensorsAndRanges) {
  const std::string path = NewFolder() + "/t";
  const NamedTensors tensors = Everything();
  WriteSafetensors(path, tensors, kMetadata);
  const SafetensorsReader reader(path);
  EXPECT_EQ(reader.entries().size(), tensors.size());
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_TRUE(reader.Contains("scalar"));
  EXPECT_FALSE(reader.Contains("none"));
  for (const auto& [name, tensor] : tensors) {
    const Tensor whole = reader.Load(name);
    EXPECT_EQ(whole.shape(), tensor.shape()) << name;
    EXPECT_EQ(whole.dtype(), tensor.dtype()) << name;
    const std::vector<double> values = tensor.ToVector<double>();
    EXPECT_EQ(whole.ToVector<double>(), values) << name;
    for (int64_t begin = 0; begin <= tensor.numel(); ++begin) {
      for (int64_t end = begin; end <= tensor.numel(); ++end) {
        const Tensor part = reader.LoadRange(name, begin, end);
        EXPECT_EQ(part.shape(), Shape{end - begin});
        EXPECT_EQ(part.ToVector<double>(),
                  std::vector<double>(values.begin() + begin, values.begin() + end));
      }
    }
    EXPECT_EQ(ErrorOf([&, &n = name] { reader.LoadRange(n, 0, 7); }).code(),
              absl::StatusCode::kOutOfRange);
  }
  EXPECT_THAT(MessageOf([&] { reader.LoadRange("strided", -1, 2); }),
              HasSubstr("elements [-1, 2) of 'strided', which has 6"));
  EXPECT_THAT(MessageOf([&] { reader.LoadRange("strided", 2, 1); }), HasSubstr("[2, 1)"));
  EXPECT_EQ(ErrorOf([&] { reader.Load("none"); }).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([&] { reader.LoadRange("none", 0, 0); }).code(), absl::StatusCode::kNotFound);
}

// A state larger than what is allowed to be in memory at once.
TEST(SafetensorsStreamTest, NeedsTheMemoryOfOneTensor) {
  constexpr int64_t kElements = 50000, kTensors = 8;
  const std::string path = NewFolder() + "/t";
  std::vector<TensorDescription> descriptions;
  for (int64_t i = 0; i < kTensors; ++i) {
    descriptions.push_back({absl::StrCat("t", i), DType::kFloat32, {kElements / 2, 2}});
  }
  const int64_t before = GetMemoryStats(Cpu()).current_bytes;
  ResetPeakBytes(Cpu());
  SafetensorsWriter writer(path, descriptions);
  for (int64_t i = 0; i < kTensors; ++i) {
    const std::vector<float> values(kElements, static_cast<float>(i));
    writer.Append(descriptions[static_cast<size_t>(i)].name,
                  FromVector<float>(values, {kElements / 2, 2}));
  }
  writer.Finish();
  const SafetensorsReader reader(path);
  for (int64_t i = 0; i < kTensors; ++i) {
    const Tensor tensor = reader.Load(absl::StrCat("t", i));
    EXPECT_EQ(tensor.Item<float>({-1, -1}), static_cast<float>(i));
  }
  EXPECT_LE(GetMemoryStats(Cpu()).peak_bytes - before, kElements * 4 + 4096);
}

TEST(SafetensorsStreamTest, WriterRefusesWhatWasNotDescribed) {
  const std::string folder = NewFolder();
  const std::string path = folder + "/t";
  WriteSafetensors(path, {{"old", FromVector<float>({1}, {1})}});
  const auto refusal = [&](auto body) {
    SafetensorsWriter writer(path, {{"a", DType::kFloat32, {2, 3}}, {"b", DType::kInt64, {1}}});
    return MessageOf([&] { body(writer); });
  };
  const Tensor a = FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_THAT(refusal([&](auto& w) { w.Append("b", a); }),
              HasSubstr("the next one is 'a', float32[2, 3]"));
  EXPECT_THAT(refusal([&](auto& w) { w.Append("a", Transpose(a, 0, 1)); }),
              HasSubstr("'a' is float32[3, 2] on cpu:0; it was described as 'a', float32[2, 3]"));
  EXPECT_THAT(refusal([&](auto& w) { w.Append("a", FromVector<int64_t>({1}, {1})); }),
              HasSubstr("it was described as 'a', float32[2, 3]"));
  EXPECT_THAT(refusal([&](auto& w) { w.Append("a", Tensor()); }), HasSubstr("undefined"));
  EXPECT_THAT(refusal([&](auto& w) {
                w.Append("a", Empty({2, 3}, {.device = kMeta}));
              }),
              HasSubstr("To(x, Cpu())"));
  EXPECT_THAT(refusal([&](auto& w) {
                w.AppendElements("a", FromVector<float>({1, 2}, {2}));
                w.Append("a", a);
              }),
              HasSubstr("of which 4 elements are left"));
  EXPECT_THAT(refusal([&](auto& w) {
                w.AppendElements("a", FromVector<float>({1, 2}, {2}));
                w.AppendElements("a", FromVector<float>({1, 2, 3, 4, 5}, {5}));
              }),
              HasSubstr("5 elements of 'a', float32[2, 3], of which 4 are left"));
  EXPECT_THAT(refusal([&](auto& w) {
                w.AppendElements("a", FromVector<float>({1, 2}, {2}));
                w.Finish();
              }),
              HasSubstr("4 elements of 'a', float32[2, 3] and 1 tensors after it"));
  EXPECT_THAT(refusal([&](auto& w) {
                w.Append("a", a);
                w.Append("b", FromVector<int64_t>({1}, {1}));
                w.Append("c", a);
              }),
              HasSubstr("all described tensors have been written"));
  EXPECT_THAT(MessageOf([&] {
                SafetensorsWriter(path, {{"a", DType::kFloat32, {1}}, {"a", DType::kFloat32, {1}}});
              }),
              HasSubstr("'a' is given twice"));
  EXPECT_THAT(MessageOf([&] {
                SafetensorsWriter(path, {{"", DType::kFloat32, {1}}});
              }),
              HasSubstr("cannot be a tensor's name"));
  EXPECT_EQ(ErrorOf([&] {
              SafetensorsWriter(path, {{"a", DType::kFloat32, {-1}}});
            }).code(),
            absl::StatusCode::kInvalidArgument);
  // None of it was published, and nothing else is left.
  EXPECT_EQ(SafetensorsReader(path).Load("old").Item<float>(), 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

// Every truncation and every flipped bit is read as something valid inside the file, or refused;
// exactly as the other reader does.
TEST(SafetensorsStreamTest, ReaderValidatesAsTheOtherOne) {
  const std::string path = NewFolder() + "/t";
  WriteSafetensors(
      path, {{"x", FromVector<float>({1, 2, 3}, {3})}, {"y", FromVector<int64_t>({1}, {1})}});
  const std::string bytes = ReadFile(path, 1 << 20);
  const auto outcome = [&](auto open) -> std::string {
    try {
      open();
      return "good";
    } catch (const Error& error) {
      return error.what();
    }
  };
  const auto expect_same = [&](const std::string& changed, size_t at) {
    std::ofstream(path, std::ios::binary) << changed;
    EXPECT_EQ(outcome([&] { SafetensorsReader reader(path); }),
              outcome([&] { SafetensorsFile::Open(path); }))
        << at;
  };
  const size_t header_bits = 8 * (bytes.size() - 20);
  for (size_t bit = 0; bit < header_bits; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    expect_same(changed, bit);
  }
  for (size_t size = 0; size < bytes.size(); ++size) expect_same(bytes.substr(0, size), size);
  EXPECT_EQ(ErrorOf([&] { SafetensorsReader(path + ".none"); }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([&] { SafetensorsReader("/tmp"); }).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(SafetensorsStreamTest, AFileThatIsCutShortWhileOpenIsDataLoss) {
  const std::string path = NewFolder() + "/t";
  WriteSafetensors(path, {{"x", FromVector<float>({1, 2, 3}, {3})}});
  const SafetensorsReader reader(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
  EXPECT_EQ(reader.LoadRange("x", 0, 2).Item<float>({1}), 2);
  const Error error = ErrorOf([&] { reader.Load("x"); });
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(error.message(), HasSubstr(path));
}

}  // namespace
}  // namespace lockstep::state
