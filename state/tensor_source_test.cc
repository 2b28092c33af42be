// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/tensor_source.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/state/safetensors_source.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {
namespace {

NamedTensors Some() {
  return {{"a", FromVector<float>({0, 1, 2, 3, 4, 5}, {2, 3})},
          {"b", FromVector<int64_t>({7, 8, 9}, {3})},
          {"scalar", FromVector<float>({5}, Shape{})},
          {"none", FromVector<float>({}, {0, 4})}};
}

void ExpectSome(const TensorSource& source) {
  const NamedTensors wanted = Some();
  ASSERT_EQ(source.tensors().size(), wanted.size());
  const NamedTensors all = LoadAll(source);
  for (const auto& [name, tensor] : wanted) {
    ASSERT_NE(FindTensor(source, name), nullptr) << name;
    EXPECT_EQ(FindTensor(source, name)->shape, tensor.shape());
    EXPECT_EQ(FindTensor(source, name)->dtype, tensor.dtype());
    EXPECT_EQ(all.At(name).shape(), tensor.shape());
    EXPECT_EQ(all.At(name).ToVector<double>(), tensor.ToVector<double>()) << name;
  }
  EXPECT_EQ(FindTensor(source, "c"), nullptr);
  EXPECT_EQ(source.LoadRange("a", 1, 5).ToVector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(source.LoadRange("b", 2, 2).shape(), (Shape{0}));
  EXPECT_EQ(ErrorOf([&] { source.LoadRange("c", 0, 0); }).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([&] { source.LoadRange("a", 4, 7); }).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ErrorOf([&] { source.LoadRange("a", -1, 2); }).code(), absl::StatusCode::kOutOfRange);
}

TEST(TensorSourceTest, Memory) {
  ExpectSome(NamedTensorsSource(Some()));
  // Of any strides.
  NamedTensors turned = Some();
  turned.Set("a", Transpose(FromVector<float>({0, 3, 1, 4, 2, 5}, {3, 2}), 0, 1));
  ExpectSome(NamedTensorsSource(turned));
}

TEST(TensorSourceTest, OneFile) {
  const std::string path = NewFolder() + "/model.safetensors";
  WriteSafetensors(path, Some());
  ExpectSome(SafetensorsSource(path));
}

// Two files and their index; what `change` leaves of it.
std::string WriteSplit(const std::string& index) {
  const std::string folder = NewFolder();
  const NamedTensors all = Some();
  WriteSafetensors(folder + "/model-1.safetensors", {{"a", all.At("a")}, {"none", all.At("none")}});
  WriteSafetensors(folder + "/model-2.safetensors",
                   {{"b", all.At("b")}, {"scalar", all.At("scalar")}});
  const std::string path = folder + "/model.safetensors.index.json";
  std::ofstream(path) << index;
  return path;
}

TEST(TensorSourceTest, SeveralFiles) {
  ExpectSome(SafetensorsSource(WriteSplit(
      R"({"metadata": {"total_size": 52},
          "weight_map": {"a": "model-1.safetensors", "none": "model-1.safetensors",
                         "b": "model-2.safetensors", "scalar": "model-2.safetensors"}})")));
}

TEST(TensorSourceTest, AnIndexThatIsNotThatOfItsFiles) {
  const auto refused = [](const std::string& index, absl::StatusCode code, const char* part) {
    const std::string path = WriteSplit(index);
    const Error error = ErrorOf([&] { SafetensorsSource source(path); });
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_TRUE(absl::StrContains(error.message(), part)) << error.message();
  };
  constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
  refused("{", kDataLoss, "is no index");
  refused(R"({"weight_map": ["a"]})", kDataLoss, "is no index");
  refused(R"({"weight_map": {"a": 1}})", kDataLoss, "the file of 'a'");
  refused(R"({"weight_map": {"a": "../model-1.safetensors"}})", kDataLoss, "beside the index");
  refused(R"({"weight_map": {"a": "/etc/passwd"}})", kDataLoss, "beside the index");
  refused(R"({"weight_map": {"a": "model-1.safetensors"}})", kDataLoss, "has 'none'");
  refused(R"({"weight_map": {"a": "model-1.safetensors", "none": "model-1.safetensors",
                             "stranger": "model-1.safetensors"}})",
          kDataLoss, "'stranger' is not in");
  refused(R"({"weight_map": {"a": "model-3.safetensors"}})", absl::StatusCode::kNotFound,
          "model-3.safetensors");
  EXPECT_EQ(ErrorOf([] { SafetensorsSource source("nowhere.index.json"); }).code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::state
