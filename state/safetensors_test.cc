// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/safetensors.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/state/file_io.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {
namespace {

std::string Length(uint64_t value) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[static_cast<size_t>(i)] = static_cast<char>(value >> 8 * i);
  return bytes;
}

// A whole file of this JSON and this many bytes of data.
std::string FileOf(const std::string& json, size_t data_bytes) {
  return Length(json.size()) + json + std::string(data_bytes, '\7');
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                      ",\"data_offsets\":", offsets, "}");
}

Error Refusal(const std::string& file) {
  return ErrorOf([&] { ParseSafetensorsHeader(file, static_cast<int64_t>(file.size())); });
}

TEST(SafetensorsTest, RoundTripOfEveryDTypeShapeAndStride) {
  const std::string path = NewFolder() + "/t.safetensors";
  NamedTensors tensors;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    tensors.Insert(absl::StrCat("t.", DTypeName(dtype)),
                   FromVector<double>({0, 1, 2, 3, 100, 5}, {2, 3}, {.dtype = dtype}));
  }
  tensors.Insert("strided", Transpose(tensors.At("t.float32"), 0, 1));
  tensors.Insert("empty", Empty({0, 3}));
  tensors.Insert("scalar", FromVector<float>({2.5f}, {}));
  tensors.Insert("host", FromVector<int64_t>({1, 2}, {2}, {.device = kHost}));
  WriteSafetensors(path, tensors, {{"format", "pt"}, {"note", "q\"uote\n"}});

  const SafetensorsFile file = SafetensorsFile::Open(path);
  EXPECT_TRUE(file.ChecksumIsRight());
  EXPECT_EQ(file.metadata().at("note"), "q\"uote\n");
  const NamedTensors back = file.LoadAll();
  EXPECT_EQ(back.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(back.At(name).dtype(), tensor.dtype()) << name;
    EXPECT_EQ(back.At(name).shape(), tensor.shape()) << name;
    EXPECT_EQ(back.At(name).ToVector<double>(), tensor.ToVector<double>()) << name;
  }
  EXPECT_EQ(back.At("strided").ToVector<float>(), (std::vector<float>{0, 3, 1, 100, 2, 5}));
  EXPECT_EQ(ErrorOf([&] { file.Load("none"); }).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(file.Contains("scalar"));
  EXPECT_FALSE(file.Contains("none"));
}

TEST(SafetensorsTest, DamagedDataIsNoticed) {
  const std::string path = NewFolder() + "/t.safetensors";
  WriteSafetensors(path, {{"x", FromVector<float>({1, 2, 3}, {3})}});
  std::string bytes = ReadFile(path, 1 << 20);
  bytes.back() ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_FALSE(SafetensorsFile::Open(path).ChecksumIsRight());
  std::ofstream(path, std::ios::binary) << bytes.substr(0, bytes.size() - 1);
  const Error error = ErrorOf([&] { SafetensorsFile::Open(path); });
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(error.message().find(path), std::string::npos) << error.message();
}

TEST(SafetensorsTest, FilesOfOtherProgramsNeedNoChecksumOrOrder) {
  const std::string json =
      "{" + Entry("b", "I32", "[1]", "[8,12]") + "," + Entry("a", "F32", "[2]", "[0,8]") + "}  ";
  const std::string file = FileOf(json, 12);
  const SafetensorsHeader header = ParseSafetensorsHeader(file, static_cast<int64_t>(file.size()));
  ASSERT_EQ(header.entries.size(), 2u);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[1].shape, Shape{1});
  const std::string empty = FileOf("{}", 0);
  EXPECT_TRUE(ParseSafetensorsHeader(empty, static_cast<int64_t>(empty.size())).entries.empty());
}

TEST(SafetensorsTest, HostileHeadersAreRefusedWithTheReason) {
  const std::string good = Entry("x", "F32", "[1]", "[0,4]");
  struct Case {
    std::string file;
    std::string reason;
  };
  const std::string deep = std::string(10000, '[');
  std::vector<std::string> dimensions(100, "1");
  const std::vector<Case> cases = {
      {"", "too few"},
      {"1234567", "too few"},
      {Length(~uint64_t{0}) + "{}", "18446744073709551615"},
      {Length(3) + "{}", "a length of 3"},
      {Length(200 << 20) + "{}", "at most"},
      {FileOf("[]", 0), "begin with"},
      {FileOf("", 0), "begin with"},
      {FileOf("{\"x\":", 0), "JSON"},
      {FileOf("{" + Entry("x", "F32", "[1]", "[4,0]") + "}", 4), "backwards"},
      {FileOf("{" + Entry("x", "F32", "[1]", "[10,5]") + "}", 12), "backwards"},
      {FileOf("{" + Entry("x", "F32", "[1]", "[-4,0]") + "}", 4), "negative"},
      {FileOf("{" + Entry("x", "F32", "[-1]", "[0,4]") + "}", 4), "negative"},
      {FileOf("{" + Entry("x", "F32", "[1000,1000]", "[0,4]") + "}", 4), "takes 4000000"},
      {FileOf("{" + Entry("x", "F32", "[8589934592,8589934592]", "[0,4]") + "}", 4), "2^63"},
      {FileOf("{" + Entry("x", "F32", "[18446744073709551615]", "[0,4]") + "}", 4), "2^63"},
      {FileOf("{" + Entry("x", "F32", "[1]", "[0,8]") + "}", 4), "but the file has 4"},
      {FileOf("{" + good + "," + Entry("y", "F32", "[1]", "[0,4]") + "}", 4), "overlap"},
      {FileOf(
           "{" + Entry("x", "F32", "[2]", "[0,8]") + "," + Entry("y", "F32", "[1]", "[4,8]") + "}",
           8),
       "overlap"},
      {FileOf("{" + good + "," + Entry("y", "F32", "[1]", "[8,12]") + "}", 12), "hole"},
      {FileOf("{" + good + "}", 8), "the tensors take 4 bytes"},
      {FileOf("{" + good + "}", 3), "but the file has 3"},
      {FileOf("{" + Entry("x", "F99", "[1]", "[0,4]") + "}", 4), "dtype 'F99'"},
      {FileOf("{" + good + "," + good + "}", 4), "second time"},
      {FileOf("{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
              4),
       "repeated"},
      {FileOf("{\"x\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4), "without"},
      {FileOf("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":[1]}}", 4),
       "array"},
      {FileOf("{" + Entry("x", "F32", "[1.5]", "[0,4]") + "}", 4), "1.5"},
      {FileOf("{" + Entry("x", "F32", "[[1]]", "[0,4]") + "}", 4), "array"},
      {FileOf("{" + Entry("x", "F32", "[1]", "[0,4,8]") + "}", 4), "3 offsets"},
      {FileOf("{" + Entry("x", "F32", "[" + absl::StrJoin(dimensions, ",") + "]", "[0,4]") + "}",
              4),
       "more than 64"},
      {FileOf("{\"x\":" + deep, 0), "array"},
      {FileOf("{\"x\":null}", 0), "null"},
      {FileOf("{\"__metadata__\":{\"a\":1}}", 0), "number"},
      {FileOf("{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0), "nested"},
      {FileOf("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0), "repeated key"},
  };
  for (const Case& c : cases) {
    const Error error = Refusal(c.file);
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << c.file.substr(0, 200);
    EXPECT_NE(error.message().find(c.reason), std::string::npos)
        << error.message() << " lacks '" << c.reason << "'";
  }
  EXPECT_NE(Refusal(cases[12].file).message().find("'x'"), std::string::npos)
      << "the tensor is named";
}

// Any one bit of a small file flipped: read as something valid inside the file, or refused.
TEST(SafetensorsTest, EveryFlippedBitIsHandled) {
  const std::string path = NewFolder() + "/t.safetensors";
  WriteSafetensors(
      path, {{"x", FromVector<float>({1, 2, 3}, {3})}, {"y", FromVector<int64_t>({1}, {1})}});
  const std::string bytes = ReadFile(path, 1 << 20);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    try {
      const SafetensorsHeader header =
          ParseSafetensorsHeader(changed, static_cast<int64_t>(changed.size()));
      for (const auto& entry : header.entries) {
        ASSERT_LE(entry.end_bytes + header.data_begin_bytes, static_cast<int64_t>(changed.size()));
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.what();
    }
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Refusal(bytes.substr(0, size)).code(), absl::StatusCode::kDataLoss) << size;
  }
}

TEST(SafetensorsTest, AFailedWriteLeavesTheOldFile) {
  const std::string folder = NewFolder();
  const std::string path = folder + "/t.safetensors";
  WriteSafetensors(path, {{"x", FromVector<float>({1}, {1})}});
  EXPECT_EQ(ErrorOf([&] {
              WriteSafetensors(path, {{"x", Empty({3}, {.device = kMeta})}});
            }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] {
              WriteSafetensors(path, {{"__metadata__", FromVector<float>({1}, {1})}});
            }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] {
              WriteSafetensors(path, {}, {{"lockstep.xxh64", "0"}});
            }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SafetensorsFile::Open(path).Load("x").Item<float>(), 1);
  EXPECT_EQ(ErrorOf([&] { WriteSafetensors(folder + "/none/t", {}); }).code(),
            absl::StatusCode::kFailedPrecondition);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    (void)entry;
    ++files;
  }
  EXPECT_EQ(files, 1) << "no temporary file is left";
  EXPECT_EQ(ErrorOf([&] { SafetensorsFile::Open(folder + "/none"); }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([&] { SafetensorsFile::Open(folder); }).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(AtomicFileTest, UnpublishedFilesVanish) {
  const std::string folder = NewFolder();
  { AtomicFile(folder + "/f").Append("abc"); }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  {
    AtomicFile file(folder + "/f");
    file.Append("abc");
    file.Publish();
  }
  EXPECT_EQ(ReadFile(folder + "/f", 3), "abc");
  EXPECT_EQ(ErrorOf([&] { ReadFile(folder + "/f", 2); }).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace lockstep::state
