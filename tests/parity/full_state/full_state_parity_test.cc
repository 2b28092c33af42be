// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The full state of a sharded model is a file that Python's safetensors reads: what is written is,
// byte for byte, the file that read_full_state.py has read.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/nn/module.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/strategies/fully_sharded_data_parallel/sharded_files.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tests/parity/goldens.h"

namespace lockstep::parity {
namespace {

constexpr char kFile[] = "tests/parity/full_state/full_state.safetensors";
constexpr char kReadByPython[] = "tests/parity/full_state/full_state_python.json";

// first, first + 0.25, ...: numbers that each dtype has exactly, and that tell their position.
Tensor Positions(const Shape& shape, double first, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < NumElements(shape); ++i) {
    values.push_back(first + 0.25 * static_cast<double>(i));
  }
  return FromVector<double>(values, shape, {.dtype = dtype});
}

class Part : public nn::Module {
 public:
  explicit Part(double first) {
    RegisterParameter("matrix", &matrix_, Positions({5, 3}, first, DType::kFloat32));
    RegisterParameter("half", &half_, Positions({7}, first, DType::kFloat16));
    RegisterParameter("brain", &brain_, Positions({2, 2}, first, DType::kBFloat16));
  }

 private:
  Tensor matrix_, half_, brain_;
};

// Odd sizes that three ranks do not share evenly, each dtype, a scalar and a buffer.
class Net : public nn::Module {
 public:
  Net() {
    RegisterParameter("scale", &scale_, Positions({}, 1.5, DType::kFloat32));
    RegisterParameter("double", &double_, Positions({1, 13}, -8, DType::kFloat64));
    RegisterBuffer("count", &count_, FromVector<int64_t>({-5, int64_t{1} << 40}, {2}));
    RegisterModule("first", first_);
    RegisterModule("second", second_);
  }

 private:
  Tensor scale_, double_, count_;
  std::shared_ptr<Part> first_ = std::make_shared<Part>(-1);
  std::shared_ptr<Part> second_ = std::make_shared<Part>(3);
};

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Of a model that `ranks` ranks share.
std::string WriteOn(int ranks) {
  const std::string path =
      absl::StrCat(std::getenv("TEST_TMPDIR"), "/full_state_", ranks, ".safetensors");
  comm::SpawnThreads(ranks, [&](comm::RankContext& context) {
    strategies::FullyShardedDataParallel fsdp(std::make_shared<Net>(),
                                              comm::InitProcessGroup(context.group_options()),
                                              {.wrap_policy = strategies::WrapByType<Part>()});
    strategies::SaveFullState(fsdp, path);
  }).ThrowIfFailed();
  return path;
}

TEST(FullStateParity, TheFileIsTheOneThatPythonHasRead) {
  const std::string wanted = BytesOf(kFile);
  ASSERT_FALSE(wanted.empty());
  for (const int ranks : {1, 2, 3}) {
    const std::string path = WriteOn(ranks);
    EXPECT_TRUE(BytesOf(path) == wanted)
        << "written on " << ranks << " ranks: " << path
        << " is another file; have read_full_state.py read it before it becomes the golden one";
  }
}

TEST(FullStateParity, PythonHasReadWhatWasWritten) {
  const nlohmann::json python = ReadGoldens(kReadByPython);
  const NamedTensors written = Net().StateDict();
  EXPECT_EQ(python.at("tensors").size(), written.size());
  for (const auto& [name, tensor] : written) {
    const nlohmann::json& read = python.at("tensors").at(name);
    EXPECT_EQ(read.at("shape").get<std::vector<int64_t>>(),
              std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end()))
        << name;
    EXPECT_EQ(read.at("dtype"), std::string(DTypeName(tensor.dtype()))) << name;
    EXPECT_EQ(read.at("values").get<std::vector<double>>(), tensor.ToVector<double>()) << name;
  }
  const state::SafetensorsFile file = state::SafetensorsFile::Open(kFile);
  nlohmann::json metadata = nlohmann::json::object();
  for (const auto& [key, value] : file.metadata()) metadata[key] = value;
  EXPECT_EQ(python.at("metadata"), metadata);
}

}  // namespace
}  // namespace lockstep::parity
