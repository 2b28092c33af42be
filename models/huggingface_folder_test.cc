// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/huggingface_folder.h"

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/huggingface.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/state/tensor_source.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::models {
namespace {

constexpr char kConfig[] =
    R"({"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 6, "n_positions": 5,
        "n_ctx": 5, "vocab_size": 11, "activation_function": "gelu_new", "n_inner": null,
        "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-06, "scale_attn_weights": true})";

std::string FolderWith(const std::string& config) {
  const std::string folder = NewFolder();
  std::ofstream(folder + "/config.json") << config;
  return folder;
}

TEST(HuggingFaceFolderTest, Configuration) {
  const Gpt2Config config = ParseHuggingFaceGpt2Config(kConfig);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.heads, 2);
  EXPECT_EQ(config.width, 6);
  EXPECT_EQ(config.block, 5);
  EXPECT_EQ(config.vocabulary, 11);
  EXPECT_EQ(config.layer_norm_epsilon, 1e-6);
  EXPECT_EQ(config.dropout, 0);
  EXPECT_TRUE(config.tie_head);
}

TEST(HuggingFaceFolderTest, RefusesWhatGpt2IsNot) {
  const auto refused = [](const std::string& from, const std::string& to, absl::StatusCode code) {
    std::string text = kConfig;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const Error error = ErrorOf([&] { ParseHuggingFaceGpt2Config(text); });
    EXPECT_EQ(error.code(), code) << to << ": " << error.message();
  };
  refused("\"gpt2\"", "\"llama\"", absl::StatusCode::kUnimplemented);
  refused("gelu_new", "relu", absl::StatusCode::kUnimplemented);
  refused("\"n_inner\": null", "\"n_inner\": 25", absl::StatusCode::kUnimplemented);
  refused("\"scale_attn_weights\": true", "\"scale_attn_weights\": false",
          absl::StatusCode::kUnimplemented);
  refused("\"n_layer\": 2,", "", absl::StatusCode::kDataLoss);
  refused("\"n_layer\": 2", "\"n_layer\": \"2\"", absl::StatusCode::kDataLoss);
  refused("\"n_embd\": 6", "\"n_embd\": 7", absl::StatusCode::kInvalidArgument);
  refused("{\"model_type\"", "[\"model_type\"", absl::StatusCode::kDataLoss);
}

// One file, and two with an index, as save_pretrained(max_shard_size=...) writes them.
TEST(HuggingFaceFolderTest, OpensWhatSavePretrainedWrites) {
  ManualSeed(4);
  Gpt2 model(ParseHuggingFaceGpt2Config(kConfig));
  const NamedTensors wanted = model.StateDict();
  const NamedTensors theirs = Gpt2ToHuggingFace(wanted);
  const auto expect_model = [&](const std::string& folder) {
    const HuggingFaceGpt2 opened = OpenHuggingFaceGpt2(folder);
    EXPECT_EQ(opened.config.width, 6);
    Gpt2 other(opened.config);
    other.LoadStateDict(state::LoadAll(*opened.weights));
    const NamedTensors loaded = other.StateDict();
    for (const auto& [name, tensor] : wanted) {
      EXPECT_EQ(loaded.At(name).ToVector<float>(), tensor.ToVector<float>()) << name;
    }
  };
  const std::string one = FolderWith(kConfig);
  state::WriteSafetensors(one + "/model.safetensors", theirs);
  expect_model(one);

  const std::string two = FolderWith(kConfig);
  NamedTensors halves[2];
  std::string map;
  int count = 0;
  for (const auto& [name, tensor] : theirs) {
    const int half = count++ % 2;
    halves[half].Insert(name, tensor);
    absl::StrAppend(&map, map.empty() ? "" : ",", "\"", name, "\":\"model-0000", half + 1,
                    "-of-00002.safetensors\"");
  }
  state::WriteSafetensors(two + "/model-00001-of-00002.safetensors", halves[0]);
  state::WriteSafetensors(two + "/model-00002-of-00002.safetensors", halves[1]);
  std::ofstream(two + "/model.safetensors.index.json") << "{\"weight_map\":{" << map << "}}";
  expect_model(two);

  const auto refused = [](const std::string& folder, absl::StatusCode code, const char* part) {
    const Error error = ErrorOf([&] { OpenHuggingFaceGpt2(folder); });
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_TRUE(absl::StrContains(error.message(), part)) << error.message();
  };
  refused("/nowhere", absl::StatusCode::kNotFound, "no such folder");
  refused(FolderWith(kConfig), absl::StatusCode::kNotFound, "safe_serialization");
  refused(FolderWith("{"), absl::StatusCode::kDataLoss, "config.json");
}

}  // namespace
}  // namespace lockstep::models
