// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// GPT-2 reads Hugging Face's files and computes what their model computes, and writes files that
// hold the same (make_goldens.py).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/huggingface.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tests/parity/goldens.h"

namespace lockstep::parity {
namespace {

constexpr char kFolder[] = "tests/parity/huggingface/";

models::Gpt2Config ConfigOf(const nlohmann::json& goldens) {
  const nlohmann::json& c = goldens["config"];
  return {.layers = c["n_layer"],
          .heads = c["n_head"],
          .width = c["n_embd"],
          .block = c["n_positions"],
          .vocabulary = c["vocab_size"]};
}

NamedTensors ReadFile(const std::string& path) {
  return state::SafetensorsFile::Open(path).LoadAll();
}

// The largest difference of the logits from theirs.
double LogitError(models::Gpt2& model, const nlohmann::json& goldens) {
  autograd::NoGradScope no_grad;
  std::vector<int64_t> ids;
  for (const auto& row : goldens["ids"]) {
    for (const int64_t id : row) ids.push_back(id);
  }
  const auto rows = static_cast<int64_t>(goldens["ids"].size());
  const Tensor logits =
      model(FromVector<int64_t>(ids, {rows, static_cast<int64_t>(ids.size()) / rows}));
  const std::vector<double> actual = logits.ToVector<double>();
  const auto expected = goldens["logits"].get<std::vector<double>>();
  EXPECT_EQ(actual.size(), expected.size());
  double largest = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    largest = std::max(largest, std::abs(actual[i] - expected[i]));
  }
  return largest;
}

TEST(HuggingFaceFiles, GiveTheLogitsOfTheirModel) {
  const nlohmann::json goldens = ReadGoldens(std::string(kFolder) + "gpt2_outputs.json");
  for (const std::string file : {"gpt2_tied.safetensors", "gpt2_original.safetensors"}) {
    models::Gpt2 model(ConfigOf(goldens));
    model.LoadStateDict(models::Gpt2FromHuggingFace(ReadFile(kFolder + file)));
    EXPECT_LT(LogitError(model, goldens), 1e-4) << file;
    model.To(DType::kFloat64);
    EXPECT_LT(LogitError(model, goldens), 1e-11) << file;
  }
}

// Were a square matrix left as it is, the test above would notice.
TEST(HuggingFaceFiles, TheGoldenTellsATransposedSquareMatrix) {
  const nlohmann::json goldens = ReadGoldens(std::string(kFolder) + "gpt2_outputs.json");
  NamedTensors theirs = ReadFile(std::string(kFolder) + "gpt2_tied.safetensors");
  for (const std::string name :
       {"transformer.h.0.attn.c_proj.weight", "transformer.h.1.attn.c_proj.weight"}) {
    NamedTensors wrong = theirs;
    wrong.Set(name, Contiguous(Transpose(theirs.At(name), 0, 1)));
    models::Gpt2 model(ConfigOf(goldens));
    model.LoadStateDict(models::Gpt2FromHuggingFace(wrong));
    EXPECT_GT(LogitError(model, goldens), 0.01) << name;
  }
}

TEST(HuggingFaceFiles, AreWrittenAsTheyAreRead) {
  const nlohmann::json goldens = ReadGoldens(std::string(kFolder) + "gpt2_outputs.json");
  const NamedTensors theirs = ReadFile(std::string(kFolder) + "gpt2_tied.safetensors");
  models::Gpt2 model(ConfigOf(goldens));
  model.LoadStateDict(models::Gpt2FromHuggingFace(theirs));
  const std::string path = NewFolder() + "/model.safetensors";
  state::WriteSafetensors(path, models::Gpt2ToHuggingFace(model.StateDict()), {{"format", "pt"}});
  const NamedTensors written = ReadFile(path);
  EXPECT_EQ(written.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) {
    EXPECT_EQ(written.At(name).shape(), tensor.shape()) << name;
    EXPECT_EQ(written.At(name).dtype(), tensor.dtype()) << name;
    EXPECT_EQ(written.At(name).ToVector<float>(), tensor.ToVector<float>()) << name;
  }
}

}  // namespace
}  // namespace lockstep::parity
