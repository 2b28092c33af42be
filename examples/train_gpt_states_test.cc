// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a run begins with, and its states in parts: the program run as a user does.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/examples/train_gpt_testing.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/huggingface.h"
#include "lockstep/state/safetensors.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::examples {
namespace {

namespace fs = std::filesystem;

// A GPT-2 of the sizes of Tiny(), all of whose values are far from 0.
NamedTensors GivenModel(int64_t vocabulary = 256) {
  ManualSeed(7);
  models::Gpt2 model({.layers = 1, .heads = 2, .width = 16, .block = 16, .vocabulary = vocabulary});
  NamedTensors state;
  for (const auto& [name, tensor] : model.StateDict()) {
    const Tensor* tokens = state.Find("transformer.wte.weight");
    state.Insert(name, name == "lm_head.weight" ? *tokens : tensor + 0.5);
  }
  return state;
}

// As save_pretrained() writes it, in two files and an index.
void WritePretrained(const std::string& folder, const NamedTensors& state, int64_t vocabulary) {
  fs::create_directories(folder);
  std::ofstream(folder + "/config.json")
      << "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16, "
         "\"n_positions\": 16, \"activation_function\": \"gelu_new\", \"vocab_size\": "
      << vocabulary << "}";
  NamedTensors halves[2];
  std::string map;
  size_t count = 0;
  for (const auto& [name, tensor] : models::Gpt2ToHuggingFace(state)) {
    const size_t half = count++ % 2;
    halves[half].Insert(name, tensor);
    absl::StrAppend(&map, map.empty() ? "" : ",", "\"", name, "\": \"model-", half,
                    ".safetensors\"");
  }
  for (const size_t half : {0, 1}) {
    state::WriteSafetensors(absl::StrCat(folder, "/model-", half, ".safetensors"), halves[half]);
  }
  std::ofstream(folder + "/model.safetensors.index.json") << "{\"weight_map\": {" << map << "}}";
}

// At a learning rate that changes no float, what is saved is what was given.
TEST(TrainGptStatesTest, BeginsWithAGivenModel) {
  const std::string folder = NewFolder();
  WriteText(folder);
  const NamedTensors given = GivenModel();
  WritePretrained(folder + "/gpt2", given, 256);
  state::WriteSafetensors(folder + "/given.safetensors", given);
  const std::string wanted = ReadAll(folder + "/given.safetensors");
  const auto run = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--data=text.txt", "--batch=6", "--steps=1", "--lr=1e-30"});
    Process process(flags, folder);
    const int status = process.Wait();
    return status == 0 ? process.out() : process.err();
  };
  for (const std::vector<std::string>& how : std::vector<std::vector<std::string>>{
           {"--strategy=single"},
           {"--ranks=2"},
           {"--ranks=2", "--strategy=zero1"},
           {"--ranks=2", "--strategy=fsdp", "--deferred_init"},
           {"--ranks=3", "--strategy=fsdp", "--cpu_offload", "--wrap=none"},
           {"--ranks=3", "--strategy=zero2"}}) {
    std::vector<std::string> flags = how;
    flags.insert(flags.end(), {"--init_from=gpt2", "--out=run"});
    EXPECT_NE(run(flags).find("beginning with: "), std::string::npos) << how.back();
    EXPECT_TRUE(ReadAll(folder + "/run/step-00000001/model.safetensors") == wanted) << how.back();
    fs::remove_all(folder + "/run");
  }
  // A file of ours: its sizes are the flags'.
  run(Tiny({"--init_from=given.safetensors", "--strategy=fsdp", "--ranks=2", "--out=file"}));
  EXPECT_TRUE(ReadAll(folder + "/file/step-00000001/model.safetensors") == wanted);
  // One command for the first start and for every later one: the state wins.
  const std::vector<std::string> command = {"--init_from=gpt2", "--out=job", "--resume=auto"};
  EXPECT_NE(run(command).find("beginning with: "), std::string::npos);
  fs::rename(folder + "/gpt2", folder + "/moved");
  const std::string second = run(command);
  EXPECT_NE(second.find("resuming: "), std::string::npos) << second;
  EXPECT_EQ(second.find("beginning with: "), std::string::npos);
  EXPECT_NE(run({"--init_from=moved", "--out=job", "--resume=auto"}).find("leave the flag out"),
            std::string::npos);
}

TEST(TrainGptStatesTest, AGivenModelThatDoesNotFitIsRefused) {
  const std::string folder = NewFolder();
  WriteText(folder);
  WritePretrained(folder + "/gpt2", GivenModel(), 256);
  WritePretrained(folder + "/words", GivenModel(300), 300);
  NamedTensors part = GivenModel().Filter(
      [](const std::string& name, const Tensor&) { return name != "transformer.h.0.ln_1.bias"; });
  part.Insert("transformer.h.1.ln_1.bias", part.At("transformer.ln_f.bias"));
  WritePretrained(folder + "/part", part, 256);
  state::WriteSafetensors(folder + "/part.safetensors", part);
  const auto refused = [&](std::vector<std::string> flags, const std::string& what) {
    flags.insert(flags.begin(), {"--data=text.txt", "--batch=6", "--steps=1"});
    Process process(flags, folder);
    EXPECT_EQ(process.Wait(), 1) << what;
    EXPECT_NE(process.err().find(what), std::string::npos) << process.err();
    EXPECT_FALSE(fs::exists(folder + "/train_gpt_out"));
  };
  refused({"--init_from=words"}, "its vocabulary has 300 tokens");
  refused({"--init_from=gpt2", "--width=32"}, "its own is 16");
  refused({"--init_from=gpt2", "--model=nano"}, "sizes of its own");
  refused({"--init_from=part"}, "transformer.h.0.ln_1.bias");
  refused({"--init_from=part", "--strategy=fsdp"}, "transformer.h.0.ln_1.bias is missing");
  refused({"--init_from=part", "--strategy=fsdp"}, "transformer.h.1.ln_1.bias is not in");
  refused(Tiny({"--init_from=part.safetensors", "--strategy=fsdp"}), "ln_1.bias is missing");
}

// Each rank's part in a file of its own: bit for bit on the same layout, and made whole for others.
TEST(TrainGptStatesTest, ShardedStatesGoOnAsTheyWere) {
  const std::string folder = NewFolder();
  WriteText(folder);
  const auto train = [&](const std::vector<std::string>& flags) {
    Process process(flags, folder);
    EXPECT_EQ(process.Wait(), 0) << flags.back() << ": " << process.err();
    return process.out();
  };
  const auto refused = [&](const std::vector<std::string>& flags, const std::string& what) {
    Process process(flags, folder);
    EXPECT_EQ(process.Wait(), 1) << what;
    EXPECT_NE(process.err().find(what), std::string::npos) << process.err();
  };
  const auto same = [&](const std::string& a, const std::string& b) {
    EXPECT_FALSE(ReadAll(folder + "/" + a).empty()) << a;
    EXPECT_TRUE(ReadAll(folder + "/" + a) == ReadAll(folder + "/" + b)) << a << " and " << b;
  };
  const auto flags = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--data=text.txt", "--steps=6", "--save_every=3", "--ranks=3",
                               "--strategy=zero3"});
    return Tiny(more);
  };
  train(flags({"--out=full"}));
  EXPECT_NE(train(flags({"--state=sharded", "--out=parts"})).find("a part for each rank"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder + "/parts/step-00000006/model.safetensors"));
  train({"--resume=parts/step-00000003", "--out=again"});
  for (const int rank : {0, 1, 2}) {
    const std::string file = absl::StrCat("/step-00000006/rank-0000", rank, ".safetensors");
    same("again" + file, "parts" + file);
  }
  refused({"--resume=parts/step-00000003", "--ranks=2", "--out=no"},
          "is in parts (--state=sharded), of --strategy=fsdp --ranks=3 --wrap=block, and this run "
          "is --strategy=fsdp --ranks=2 --wrap=block; resume it as it was with --state=full");
  refused({"--resume=parts", "--wrap=none", "--out=no"}, "--state=full");
  refused({"--resume=parts", "--strategy=ddp", "--out=no"}, "--state=full");
  // Made whole: the same step as the run that has always been, and its end.
  train({"--resume=parts/step-00000003", "--state=full", "--out=whole"});
  for (const char* step : {"/step-00000003", "/step-00000006"}) {
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
      same(absl::StrCat("whole", step, file), absl::StrCat("full", step, file));
    }
  }
  train({"--resume=whole/step-00000003", "--strategy=ddp", "--ranks=2", "--out=ddp"});
  // A damaged part is found before the ranks start, and the state before it is taken.
  const std::string damaged = folder + "/parts/step-00000006/rank-00002.safetensors";
  fs::resize_file(damaged, fs::file_size(damaged) - 1);
  EXPECT_NE(train({"--resume=latest", "--out=parts"}).find("after step 3"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::examples
