// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs the program as a user does: flags in, exit status, lines and files out.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/examples/train_gpt_testing.h"

namespace lockstep::examples {
namespace {

namespace fs = std::filesystem;

TEST(TrainGptTest, HelpNamesEveryFlagAndExitsZero) {
  Process process({"--help"}, NewFolder());
  EXPECT_EQ(process.Wait(), 0);
  for (const char* flag : {"--data",
                           "--extensions",
                           "--strategy",
                           "--ranks",
                           "--devices",
                           "--stages",
                           "--stages_per_rank",
                           "--schedule",
                           "--model",
                           "--layers",
                           "--steps",
                           "--batch",
                           "--lr",
                           "--seed",
                           "--out",
                           "--resume",
                           "--save_every",
                           "--keep",
                           "--threads_per_rank",
                           "--backend",
                           "--profile_step",
                           "--flight_recorder",
                           "--amp",
                           "--micro_batches",
                           "--checkpoint",
                           "--offload_activations",
                           "--accumulate",
                           "--bucket_cap_mb",
                           "--static_graph",
                           "--find_unused_parameters",
                           "--gradient_as_bucket_view",
                           "--comm_hook",
                           "--local_sgd_period",
                           "--staleness",
                           "--init_from",
                           "--state"}) {
    EXPECT_NE(process.out().find(flag), std::string::npos) << flag;
  }
}

TEST(TrainGptTest, AProfiledStepIsPrintedAndTraced) {
  const std::string folder = NewFolder();
  WriteText(folder);
  Process process(
      {"--data=text.txt", "--steps=3", "--batch=4", "--layers=1", "--out=run", "--profile_step=2"},
      folder);
  ASSERT_EQ(process.Wait(), 0) << process.err();
  for (const char* part : {"limits measured here", "MatMul", "AllReduce", "backward"}) {
    EXPECT_NE(process.out().find(part), std::string::npos) << part;
  }
  for (const char* rank : {"0", "1"}) {
    const std::string trace =
        ReadAll(absl::StrCat(folder, "/run/profile-step-2-rank-", rank, ".json"));
    EXPECT_NE(trace.find("\"communication\""), std::string::npos) << rank;
    EXPECT_NE(trace.find(absl::StrCat("\"pid\":", rank)), std::string::npos);
  }
}

TEST(TrainGptTest, WrongInputIsOneLineAndStatusOne) {
  const std::string folder = NewFolder();
  const std::string text = WriteText(folder);
  std::ofstream(folder + "/empty.txt") << "";
  std::ofstream(folder + "/short.txt") << "short";
  fs::create_directories(folder + "/foreign/step-00000003");
  std::ofstream(folder + "/foreign/step-00000003/state.json") << "{}";
  fs::create_directories(folder + "/nothing");
  const std::string before = ReadAll(folder + "/foreign/step-00000003/state.json");
  const std::vector<std::vector<std::string>> cases = {
      {"--no_such_flag=1"},
      {"--steps=many"},
      {"stray"},
      {"--data=none.txt"},
      {"--data=empty.txt"},
      {"--data=short.txt"},
      {"--data=nothing"},
      {"--data=.", "--extensions=.none"},
      {"--data=text.txt", "--ranks=13"},
      {"--data=text.txt", "--ranks=5"},
      {"--data=text.txt", "--ranks=-1"},
      {"--data=text.txt", "--strategy=sharded"},
      {"--data=text.txt", "--strategy=single", "--ranks=2"},
      {"--data=text.txt", "--strategy=dp", "--ranks=2"},
      {"--data=text.txt", "--strategy=dp", "--devices=9"},
      {"--data=text.txt", "--strategy=dp", "--offload_activations"},
      {"--data=text.txt", "--strategy=ddp", "--devices=2"},
      {"--data=text.txt", "--strategy=model_parallel", "--stages=5"},
      {"--data=text.txt", "--strategy=model_parallel", "--stages=9", "--layers=12"},
      {"--data=text.txt", "--strategy=model_parallel", "--ranks=2"},
      {"--data=text.txt", "--strategy=fsdp", "--stages=2"},
      {"--data=text.txt", "--strategy=single", "--stages=2"},
      {"--data=text.txt", "--strategy=zero1", "--local_sgd_period=2"},
      {"--data=text.txt", "--strategy=zero1", "--comm_hook=noop"},
      {"--data=text.txt", "--strategy=ddp", "--cpu_offload"},
      {"--data=text.txt", "--strategy=fsdp", "--wrap=layer"},
      {"--data=text.txt", "--strategy=fsdp", "--bucket_cap_mb=3"},
      {"--data=text.txt", "--strategy=fsdp", "--param_dtype=fp16"},
      {"--data=text.txt", "--strategy=fsdp", "--replicas=2"},
      {"--data=text.txt", "--strategy=hybrid", "--ranks=3"},
      {"--data=text.txt", "--strategy=no_shard", "--cpu_offload"},
      {"--data=text.txt", "--strategy=fsdp", "--ranks=2", "--reshard_ranks=2"},
      {"--data=text.txt", "--strategy=fsdp", "--ranks=3", "--reshard_ranks=2"},
      {"--data=text.txt", "--strategy=fsdp", "--reshard_ranks=-3"},
      {"--data=text.txt", "--strategy=fsdp_grad_op", "--ranks=4", "--reshard_ranks=2"},
      {"--data=text.txt", "--strategy=hybrid", "--ranks=4", "--reshard_ranks=2"},
      {"--data=text.txt", "--strategy=ddp", "--ranks=4", "--reshard_ranks=2"},
      {"--data=text.txt", "--strategy=config"},
      {"--data=text.txt", "--config=nowhere.json"},
      {"--data=text.txt", "--init_from=nowhere"},
      {"--data=text.txt", "--init_from=text.txt"},
      {"--data=text.txt", "--init_from=foreign/step-00000003"},
      {"--data=text.txt", "--state=parts"},
      {"--data=text.txt", "--state=sharded"},
      {"--data=text.txt", "--strategy=no_shard", "--state=sharded"},
      {"--data=text.txt", "--model=large"},
      {"--data=text.txt", "--heads=3"},
      {"--data=text.txt", "--steps=0"},
      {"--data=text.txt", "--batch=0"},
      {"--data=text.txt", "--micro_batches=-1"},
      {"--data=text.txt", "--micro_batches=4"},
      {"--data=text.txt", "--accumulate=0"},
      {"--data=text.txt", "--bucket_cap_mb=0"},
      {"--data=text.txt", "--bucket_cap_mb=100000000000000"},
      {"--data=text.txt", "--accumulate=9223372036854775807", "--micro_batches=2"},
      {"--data=text.txt", "--batch=9223372036854775807", "--ranks=1"},
      {"--data=text.txt", "--micro_batches=9223372036854775807", "--strategy=pipeline"},
      {"--data=text.txt", "--comm_hook=fp8"},
      {"--data=text.txt", "--comm_hook=powersgd", "--steps=1000"},
      {"--data=text.txt", "--comm_hook=powersgd:1:4", "--steps=4"},
      {"--data=text.txt", "--local_sgd_period=-1"},
      {"--data=text.txt", "--static_graph", "--find_unused_parameters"},
      {"--data=text.txt", "--local_sgd_period=2", "--comm_hook=powersgd:1:2"},
      {"--data=text.txt", "--local_sgd_period=2", "--bucket_cap_mb=1"},
      {"--data=text.txt", "--local_sgd_period=2", "--static_graph"},
      {"--data=text.txt", "--local_sgd_period=2", "--find_unused_parameters"},
      {"--data=text.txt", "--staleness=17"},
      {"--data=text.txt", "--staleness=1", "--amp=fp16"},
      {"--data=text.txt", "--staleness=1", "--comm_hook=fp16"},
      {"--data=text.txt", "--strategy=single", "--comm_hook=fp16"},
      {"--data=text.txt", "--amp=bf8"},
      {"--data=text.txt", "--checkpoint=all"},
      {"--data=text.txt", "--checkpoint=budget:64"},
      {"--data=text.txt", "--lr=0"},
      {"--data=text.txt", "--lr=nan"},
      {"--data=text.txt", "--keep=0"},
      {"--data=text.txt", "--save_every=-1"},
      {"--data=text.txt", "--threads_per_rank=-1"},
      {"--data=text.txt", "--profile_step=-1"},
      {"--data=text.txt", "--steps=3", "--profile_step=4"},
      {"--data=text.txt", "--block=20000"},
      {"--data=text.txt", "--resume=nowhere"},
      {"--data=text.txt", "--resume=latest"},
      {"--data=text.txt", "--resume=auto"},
      {"--data=text.txt", "--resume=foreign"},
      {"--data=text.txt", "--out=foreign"},
      {"--data=text.txt", "--out=text.txt/run"},
      {"--data=text.txt", "--out=/proc/no/such"},
      {"--data=text.txt", "--out=/proc"},
      {"--data=text.txt", "--out=" + std::string(300, 'x')},
      {"--data=text.txt", "--resume=" + std::string(300, 'x')},
  };
  for (const auto& flags : cases) {
    Process process(flags, folder);
    EXPECT_EQ(process.Wait(), 1) << flags.back();
    const std::vector<std::string> lines = absl::StrSplit(process.err(), '\n', absl::SkipEmpty());
    EXPECT_EQ(lines.size(), 1u) << flags.back() << ": " << process.err();
    EXPECT_EQ(process.out(), "") << flags.back();
  }
  EXPECT_EQ(ReadAll(folder + "/foreign/step-00000003/state.json"), before);
  EXPECT_FALSE(fs::exists(folder + "/train_gpt_out"));
}

TEST(TrainGptTest, TrainsReportsAndResumesByThePrintedCommand) {
  const std::string folder = NewFolder();
  WriteText(folder);
  Process process(Tiny({"--data=text.txt", "--steps=200", "--ranks=2", "--save_every=0"}), folder);
  ASSERT_EQ(process.Wait(), 0) << process.err();
  EXPECT_EQ(process.err(), "");
  const std::string out = process.out();
  for (const char* part : {"data: ", "model: ", "strategy: ddp, 2 ranks", "training: 200 steps",
                           "states: ", "sample:", "step 100/200 | loss "}) {
    EXPECT_NE(out.find(part), std::string::npos) << part << " in\n" << out;
  }
  EXPECT_EQ(out.find('\x1b'), std::string::npos) << "no bar when it is no terminal";
  const std::vector<std::string> losses = LinesWith(out, "validation_loss=");
  ASSERT_EQ(losses.size(), 1u);
  double loss = 0;
  EXPECT_TRUE(absl::SimpleAtod(losses[0], &loss));
  EXPECT_LT(loss, 3.0) << "from 5.5 nats a byte";
  std::map<std::string, std::string> summary = Summary(out);
  EXPECT_EQ(summary["strategy"], "ddp");
  EXPECT_EQ(summary["ranks"], "2");
  EXPECT_EQ(summary["steps"], "200");
  EXPECT_EQ(summary["validation_loss"], losses[0]);
  for (const char* field : {"tokens_per_second", "communication_share", "peak_bytes_per_rank"}) {
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(summary[field], &value)) << field;
    EXPECT_GT(value, 0) << field;
  }

  const std::vector<std::string> states = LinesWith(out, "state: ");
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0], folder + "/train_gpt_out/run-1/step-00000200");
  EXPECT_TRUE(fs::exists(states[0] + "/model.safetensors"));

  const std::vector<std::string> commands = LinesWith(out, "resume: ");
  ASSERT_EQ(commands.size(), 1u);
  std::vector<std::string> words = absl::StrSplit(commands[0], ' ');
  EXPECT_EQ(words.back(), "--steps=400");
  words.erase(words.begin());
  words.back() = "--steps=204";  // as the printed one, but shorter
  Process resumed(words, folder);
  ASSERT_EQ(resumed.Wait(), 0) << resumed.err();
  EXPECT_NE(resumed.out().find("after step 200"), std::string::npos);
  EXPECT_EQ(Summary(resumed.out())["steps"], "204");
  EXPECT_TRUE(fs::exists(folder + "/train_gpt_out/run-1/step-00000204"));

  Process other_model({"--resume=latest", "--width=32"}, folder);
  EXPECT_EQ(other_model.Wait(), 1);
  EXPECT_NE(other_model.err().find("--width=32"), std::string::npos) << other_model.err();
}

// 2N steps are, bit for bit, N steps, a new process, and N steps; with two ranks.
TEST(TrainGptTest, ResumeIsBitwise) {
  const std::string folder = NewFolder();
  WriteText(folder);
  Process whole(Tiny({"--data=text.txt", "--steps=8", "--save_every=4", "--out=whole"}), folder);
  ASSERT_EQ(whole.Wait(), 0) << whole.err();
  Process second({"--resume=whole/step-00000004", "--out=second"}, folder);
  ASSERT_EQ(second.Wait(), 0) << second.err();
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string a = ReadAll(folder + "/whole/step-00000008/" + file);
    EXPECT_FALSE(a.empty());
    EXPECT_TRUE(a == ReadAll(folder + "/second/step-00000008/" + file)) << file;
    EXPECT_FALSE(a == ReadAll(folder + "/whole/step-00000004/" + file)) << file;
  }
  EXPECT_EQ(Summary(whole.out())["validation_loss"], Summary(second.out())["validation_loss"]);
  // And another run of the same command is the same run.
  Process again(Tiny({"--data=text.txt", "--steps=8", "--out=again"}), folder);
  ASSERT_EQ(again.Wait(), 0) << again.err();
  EXPECT_TRUE(ReadAll(folder + "/whole/step-00000008/model.safetensors") ==
              ReadAll(folder + "/again/step-00000008/model.safetensors"));
}

// What a strategy keeps from step to step is part of a state, and so is what each rank has for
// itself: PowerSGD's errors, averages under way, moments between averages of parameters.
TEST(TrainGptTest, StrategiesWithMemoryResumeBitwise) {
  const std::string folder = NewFolder();
  WriteText(folder);
  const auto train = [&](std::vector<std::string> flags) {
    Process process(flags, folder);
    EXPECT_EQ(process.Wait(), 0) << process.err();
    return process.out();
  };
  const std::vector<std::string> strategies = {
      "--comm_hook=powersgd:1:2", "--local_sgd_period=3", "--staleness=1", "--staleness=3",
      "--comm_hook=fp16",         "--static_graph",
  };
  for (size_t i = 0; i < strategies.size(); ++i) {
    const std::string whole = absl::StrCat("whole", i), second = absl::StrCat("second", i);
    train(
        Tiny({"--data=text.txt", "--steps=10", "--save_every=5", "--out=" + whole, strategies[i]}));
    const std::string out = train({"--resume=" + whole + "/step-00000005", "--out=" + second});
    EXPECT_EQ(out.find("resuming: without"), std::string::npos) << strategies[i];
    EXPECT_EQ(out.find("gradients powersgd:1:2 after 2 steps in full") != std::string::npos,
              strategies[i] == "--comm_hook=powersgd:1:2")
        << out;
    for (const auto& entry : fs::directory_iterator(folder + "/" + whole + "/step-00000010")) {
      const std::string file = entry.path().filename().string();
      if (file == "state.json") continue;  // has the folder's name
      EXPECT_TRUE(ReadAll(entry.path().string()) ==
                  ReadAll(folder + "/" + second + "/step-00000010/" + file))
          << strategies[i] << ": " << file;
    }
  }
  const std::string powersgd = folder + "/whole0/step-00000010/";
  EXPECT_TRUE(fs::exists(powersgd + "strategy.safetensors"));
  EXPECT_TRUE(fs::exists(powersgd + "rank-00001.safetensors"));
  EXPECT_FALSE(ReadAll(powersgd + "rank-00000.safetensors") ==
               ReadAll(powersgd + "rank-00001.safetensors"));
  EXPECT_FALSE(fs::exists(folder + "/whole4/step-00000010/rank-00000.safetensors"));
  // On other ranks, and with another hook, the run says what it does without.
  EXPECT_NE(train({"--resume=whole0/step-00000005", "--ranks=3", "--out=three"})
                .find("resuming: without what each of 2 ranks had for itself"),
            std::string::npos);
  EXPECT_NE(train({"--resume=whole0/step-00000005", "--comm_hook=none", "--out=none"})
                .find("resuming: without what --comm_hook=powersgd:1:2 --staleness=0 had kept"),
            std::string::npos);
  train({"--resume=whole1/step-00000005", "--ranks=3", "--out=other"});
  train({"--resume=whole3/step-00000005", "--ranks=1", "--out=one"});
}

// Another strategy has no use for what ddp was told, and the same one can be told otherwise.
TEST(TrainGptTest, FlagsOfDdpAreLeftBehindAndCanBeTakenBack) {
  const std::string folder = NewFolder();
  WriteText(folder);
  const auto train = [&](std::vector<std::string> flags) {
    Process process(flags, folder);
    EXPECT_EQ(process.Wait(), 0) << flags[0] << ": " << process.err();
    return process.out();
  };
  const auto state = [&](const std::string& out) {
    return ReadAll(folder + "/" + out + "/step-00000004/state.json");
  };
  std::ofstream(folder + "/ds_config.json")
      << R"({"train_batch_size": 6, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})";
  const auto ddp = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--data=text.txt", "--steps=4", "--save_every=2"});
    train(Tiny(flags));
  };
  ddp({"--out=hook", "--bucket_cap_mb=1", "--static_graph", "--gradient_as_bucket_view",
       "--comm_hook=powersgd:1:2"});
  ddp({"--out=local", "--local_sgd_period=2"});
  ddp({"--out=unused", "--find_unused_parameters", "--staleness=1"});
  for (const std::string run : {"hook", "local", "unused"}) {
    const std::string from = "--resume=" + run + "/step-00000002";
    for (const char* other : {"--strategy=fsdp", "--strategy=zero1", "--strategy=single",
                              "--strategy=dp", "--config=ds_config.json"}) {
      const std::string out = train({from, other, "--out=other"});
      EXPECT_EQ(out.find("gradients powersgd"), std::string::npos) << out;
      fs::remove_all(folder + "/other");
    }
    // Named again, it is the same strategy.
    train({from, "--strategy=ddp", "--out=again"});
    EXPECT_TRUE(ReadAll(folder + "/again/step-00000004/model.safetensors") ==
                ReadAll(folder + "/" + run + "/step-00000004/model.safetensors"))
        << run;
    fs::remove_all(folder + "/again");
  }
  using testing::HasSubstr;
  EXPECT_THAT(state("hook"), HasSubstr("\"config.static_graph\": 1"));
  train({"--resume=hook/step-00000002", "--nostatic_graph", "-nogradient_as_bucket_view",
         "--out=back"});
  EXPECT_THAT(state("back"), HasSubstr("\"config.static_graph\": 0"));
  EXPECT_THAT(state("back"), HasSubstr("\"config.gradient_as_bucket_view\": 0"));
  EXPECT_THAT(state("back"), HasSubstr("powersgd:1:2"));
}

// One command for the first start of a job and for every later one.
TEST(TrainGptTest, AutoResumeStartsAnewAndGoesOn) {
  const std::string folder = NewFolder();
  WriteText(folder);
  Process whole(Tiny({"--data=text.txt", "--steps=6", "--save_every=0", "--out=whole"}), folder);
  ASSERT_EQ(whole.Wait(), 0) << whole.err();
  const auto command = [](const char* steps) {
    return Tiny({"--data=text.txt", steps, "--save_every=0", "--out=run", "--resume=auto"});
  };
  // A schedule of 6 steps that is stopped after 3 is what a killed job leaves.
  Process first(
      Tiny({"--data=text.txt", "--steps=6", "--save_every=3", "--out=run", "--resume=auto"}),
      folder);
  ASSERT_EQ(first.Wait(), 0) << first.err();
  EXPECT_EQ(first.out().find("resuming: "), std::string::npos);
  fs::remove_all(folder + "/run/step-00000006");
  Process second(command("--steps=6"), folder);
  ASSERT_EQ(second.Wait(), 0) << second.err();
  EXPECT_NE(second.out().find("run/step-00000003, after step 3"), std::string::npos);
  EXPECT_TRUE(ReadAll(folder + "/whole/step-00000006/model.safetensors") ==
              ReadAll(folder + "/run/step-00000006/model.safetensors"));
  // States that are all damaged are no reason to start anew over them.
  for (const auto& state : fs::directory_iterator(folder + "/run")) {
    fs::resize_file(state.path() / "model.safetensors", 10);
  }
  Process damaged(command("--steps=6"), folder);
  EXPECT_EQ(damaged.Wait(), 1);
  EXPECT_NE(damaged.err().find("step-00000006"), std::string::npos) << damaged.err();
}

// float16 has a scaler, whose state is part of the training's; float32 goes on from there too.
TEST(TrainGptTest, MixedPrecisionWithMicroBatchesResumesBitwise) {
  const std::string folder = NewFolder();
  WriteText(folder);
  Process whole(Tiny({"--data=text.txt", "--steps=6", "--save_every=3", "--out=whole", "--amp=fp16",
                      "--micro_batches=3"}),
                folder);
  ASSERT_EQ(whole.Wait(), 0) << whole.err();
  EXPECT_NE(whole.out().find(", 3 micro-batches, autocast fp16"), std::string::npos);
  Process second({"--resume=whole/step-00000003", "--out=second"}, folder);
  ASSERT_EQ(second.Wait(), 0) << second.err();
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(ReadAll(folder + "/whole/step-00000006/" + file) ==
                ReadAll(folder + "/second/step-00000006/" + file))
        << file;
  }
  EXPECT_NE(ReadAll(folder + "/whole/step-00000006/state.json").find("scaler.growth_tracker"),
            std::string::npos);
  Process wide({"--resume=whole/step-00000003", "--out=wide", "--amp="}, folder);
  ASSERT_EQ(wide.Wait(), 0) << wide.err();
  EXPECT_FALSE(ReadAll(folder + "/whole/step-00000006/model.safetensors") ==
               ReadAll(folder + "/wide/step-00000006/model.safetensors"));
  Process other({"--resume=whole/step-00000003", "--out=other", "--micro_batches=1"}, folder);
  EXPECT_EQ(other.Wait(), 1);
}

// Neither changes a bit of the result.
TEST(TrainGptTest, CheckpointingAndOffloadTrainTheSame) {
  const std::string folder = NewFolder();
  WriteText(folder);
  std::string plain;
  for (const char* flags : {"--checkpoint=none", "--checkpoint=block", "--checkpoint=selective",
                            "--checkpoint=budget:256KiB", "--offload_activations"}) {
    Process process(Tiny({"--data=text.txt", "--steps=3", "--amp=bf16", "--out=run", flags}),
                    folder);
    ASSERT_EQ(process.Wait(), 0) << flags << ": " << process.err();
    const bool checkpointed =
        std::string(flags) != "--checkpoint=none" && std::string(flags) != "--offload_activations";
    EXPECT_EQ(process.out().find("\nmemory: ") != std::string::npos, checkpointed) << flags;
    const std::string model = ReadAll(folder + "/run/step-00000003/model.safetensors");
    if (plain.empty()) plain = model;
    EXPECT_TRUE(model == plain) << flags;
    fs::remove_all(folder + "/run");
  }
  EXPECT_FALSE(plain.empty());
}

// What does not change a bit, and what does and trains all the same.
TEST(TrainGptTest, OptionsOfDataParallelTraining) {
  const std::string folder = NewFolder();
  WriteText(folder);
  const auto train = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--data=text.txt", "--steps=4", "--out=run"});
    Process process(Tiny(flags), folder);
    EXPECT_EQ(process.Wait(), 0) << flags.back() << ": " << process.err();
    std::string model = ReadAll(folder + "/run/step-00000004/model.safetensors");
    EXPECT_FALSE(model.empty());
    fs::remove_all(folder + "/run");
    return model;
  };
  const std::string plain = train({"--bucket_cap_mb=1"});
  EXPECT_TRUE(train({"--static_graph", "--gradient_as_bucket_view"}) == plain);
  EXPECT_TRUE(train({"--find_unused_parameters", "--bucket_cap_mb=1048576"}) == plain);
  EXPECT_FALSE(train({"--comm_hook=bf16"}) == plain);
  EXPECT_FALSE(train({"--comm_hook=powersgd:1:2", "--accumulate=2"}) == plain);
  EXPECT_FALSE(train({"--local_sgd_period=2", "--gradient_as_bucket_view"}) == plain);
  EXPECT_FALSE(train({"--staleness=1", "--amp=bf16"}) == plain);
}

// The optimizer's state in parts changes no bit, neither of the model nor of the files.
TEST(TrainGptTest, ZeroTrainsSavesAndResumesAsDdpDoes) {
  const std::string folder = NewFolder();
  WriteText(folder);
  const auto train = [&](const std::vector<std::string>& flags) {
    Process process(flags, folder);
    EXPECT_EQ(process.Wait(), 0) << flags.back() << ": " << process.err();
    return process.out();
  };
  const auto expect_same = [&](const char* a, const char* b) {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string bytes = ReadAll(absl::StrCat(folder, "/", a, "/", file));
      EXPECT_FALSE(bytes.empty());
      EXPECT_TRUE(bytes == ReadAll(absl::StrCat(folder, "/", b, "/", file)))
          << a << " and " << b << ", " << file;
    }
  };
  for (const char* ranks : {"--ranks=2", "--ranks=3"}) {
    const auto flags = [&](const char* strategy, const char* out) {
      return Tiny(
          {"--data=text.txt", "--steps=6", "--save_every=3", "--amp=fp16", ranks, strategy, out});
    };
    train(flags("--strategy=ddp", "--out=ddp"));
    EXPECT_EQ(Summary(train(flags("--strategy=zero1", "--out=zero")))["strategy"], "zero1");
    expect_same("zero/step-00000003", "ddp/step-00000003");
    expect_same("zero/step-00000006", "ddp/step-00000006");
    // In new processes, and from one strategy to the other.
    train({"--resume=zero/step-00000003", "--out=second"});
    expect_same("second/step-00000006", "ddp/step-00000006");
    train({"--resume=zero/step-00000003", "--out=third", "--strategy=ddp"});
    expect_same("third/step-00000006", "ddp/step-00000006");
    for (const char* run : {"ddp", "zero", "second", "third"}) {
      fs::remove_all(absl::StrCat(folder, "/", run));
    }
  }
}

// Clipping sums squares in another order than ddp does; all else is the same, and so are the files.
TEST(TrainGptTest, ShardedStrategiesTrainSaveAndResume) {
  const std::string folder = NewFolder();
  WriteText(folder);
  const auto train = [&](const std::vector<std::string>& flags) {
    Process process(flags, folder);
    EXPECT_EQ(process.Wait(), 0) << flags.back() << ": " << process.err();
    return process.out();
  };
  const auto loss = [&](const std::vector<std::string>& flags) {
    return std::stod(Summary(train(flags))["validation_loss"]);
  };
  const auto flags = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--data=text.txt", "--steps=6", "--save_every=3"});
    return Tiny(more);
  };
  const double wanted = loss(flags({"--ranks=2", "--strategy=ddp", "--out=ddp"}));
  const std::string out = train(flags({"--ranks=2", "--strategy=fsdp", "--out=fsdp"}));
  EXPECT_NEAR(std::stod(Summary(out)["validation_loss"]), wanted, 1e-4);
  EXPECT_NE(out.find("peak MB"), std::string::npos) << out;
  EXPECT_NE(out.find("  1 host"), std::string::npos) << out;
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--strategy=zero2", "--ranks=3"},
           {"--strategy=zero3", "--ranks=2", "--cpu_offload", "--wrap=none"},
           {"--strategy=no_shard", "--ranks=2"},
           {"--strategy=fsdp", "--ranks=2", "--deferred_init", "--wrap=size:1000",
            "--backward_prefetch=post", "--forward_prefetch=false", "--checkpoint=block"}}) {
    std::vector<std::string> all = more;
    all.push_back(absl::StrCat("--out=", more[0].substr(2)));
    EXPECT_NEAR(loss(flags(all)), wanted, 2e-4) << more[0];
    fs::remove_all(absl::StrCat(folder, "/", more[0].substr(2)));
  }
  const auto of_four = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--ranks=4", "--batch=8"});
    return loss(flags(more));
  };
  EXPECT_NEAR(of_four({"--strategy=hybrid", "--replicas=2", "--out=hybrid"}),
              of_four({"--strategy=ddp", "--out=four"}), 2e-4);
  // The rest of a run in new processes, by the same strategy bit for bit, and by others.
  train({"--resume=fsdp/step-00000003", "--out=again"});
  EXPECT_TRUE(ReadAll(folder + "/again/step-00000006/model.safetensors") ==
              ReadAll(folder + "/fsdp/step-00000006/model.safetensors"));
  EXPECT_TRUE(ReadAll(folder + "/again/step-00000006/optimizer.safetensors") ==
              ReadAll(folder + "/fsdp/step-00000006/optimizer.safetensors"));
  for (const char* strategy : {"--strategy=ddp", "--strategy=zero1", "--strategy=fsdp_grad_op"}) {
    EXPECT_NEAR(loss({"--resume=fsdp/step-00000003", "--out=other", strategy}), wanted, 1e-4);
    fs::remove_all(folder + "/other");
  }
}

TEST(TrainGptTest, LatestFallsBackToAGoodStateAndSaysSo) {
  const std::string folder = NewFolder();
  WriteText(folder);
  Process process(Tiny({"--data=text.txt", "--steps=4", "--save_every=2", "--out=run"}), folder);
  ASSERT_EQ(process.Wait(), 0) << process.err();
  const std::string newest = folder + "/run/step-00000004/model.safetensors";
  fs::resize_file(newest, fs::file_size(newest) - 1);
  Process damaged({"--resume=run/step-00000004"}, folder);
  EXPECT_EQ(damaged.Wait(), 1);
  EXPECT_NE(damaged.err().find("step-00000004/model.safetensors"), std::string::npos);
  Process latest({"--resume=latest", "--out=run"}, folder);
  EXPECT_EQ(latest.Wait(), 0) << latest.err();
  EXPECT_NE(latest.err().find("skipped a newer state"), std::string::npos) << latest.err();
  EXPECT_NE(latest.out().find("after step 2"), std::string::npos);
}

TEST(TrainGptTest, TheFirstSignalSavesOnAllRanksAndExitsZero) {
  for (int number : {SIGINT, SIGTERM}) {
    const std::string folder = NewFolder();
    WriteText(folder);
    Process process(Tiny({"--data=text.txt", "--steps=1000000", "--save_every=0", "--out=run",
                          absl::StrCat("--seed=", getpid())}),
                    folder);
    ASSERT_TRUE(process.WaitForOutput("step 100/")) << process.err();
    process.Signal(number);
    EXPECT_EQ(process.Wait(), 0) << process.err();
    EXPECT_NE(process.out().find("stopped by a signal"), std::string::npos);
    const std::vector<std::string> states = LinesWith(process.out(), "state: ");
    ASSERT_EQ(states.size(), 1u);
    EXPECT_TRUE(fs::exists(states[0] + "/state.json"));
    EXPECT_EQ(RunningCopies(folder), 0);
  }
}

TEST(TrainGptTest, TheSecondSignalEndsAtOnceAndLeavesNoProcess) {
  const std::string folder = NewFolder();
  WriteText(folder);
  // A model that needs long for a step, so that the second signal comes before the border.
  Process process({"--data=text.txt", "--layers=2", "--heads=2", "--width=256", "--block=256",
                   "--batch=64", "--steps=1000000", "--out=run"},
                  folder);
  ASSERT_TRUE(process.WaitForOutput("states: ")) << process.err();
  process.Signal(SIGTERM);
  process.Signal(SIGINT);
  EXPECT_NE(process.Wait(), -1);
  EXPECT_EQ(RunningCopies(folder), 0);
}

TEST(TrainGptTest, OneRankAndThreeRanksTrainToo) {
  const std::string folder = NewFolder();
  WriteText(folder);
  std::vector<double> losses;
  for (const char* strategy : {"--strategy=single", "--ranks=1", "--ranks=3"}) {
    Process process(Tiny({"--data=text.txt", "--steps=5", strategy}), folder);
    ASSERT_EQ(process.Wait(), 0) << process.err();
    double loss = 0;
    EXPECT_TRUE(absl::SimpleAtod(Summary(process.out())["validation_loss"], &loss));
    losses.push_back(loss);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NEAR(losses[0], losses[2], 1e-3);
}

TEST(TrainGptTest, OneProcessWithSeveralDevicesTrainsAndResumes) {
  const std::string folder = NewFolder();
  WriteText(folder);
  std::vector<double> losses;
  const auto train = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "--data=text.txt");
    Process process(Tiny(arguments), folder);
    ASSERT_EQ(process.Wait(), 0) << process.err();
    double loss = 0;
    EXPECT_TRUE(absl::SimpleAtod(Summary(process.out())["validation_loss"], &loss));
    losses.push_back(loss);
  };
  train({"--steps=6", "--strategy=single"});
  train({"--steps=6", "--strategy=dp", "--devices=1"});
  train({"--steps=6", "--strategy=dp", "--devices=3", "--save_every=3", "--out=run"});
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NEAR(losses[0], losses[2], 1e-3);
  // From the middle again, also on other devices and on ranks.
  train({"--resume=run/step-00000003", "--out=same"});
  EXPECT_EQ(losses[2], losses[3]);
  train({"--resume=run/step-00000003", "--out=two", "--devices=2"});
  EXPECT_NEAR(losses[2], losses[4], 1e-3);
  train({"--resume=run/step-00000003", "--out=ranks", "--strategy=ddp", "--ranks=2"});
  EXPECT_NEAR(losses[2], losses[5], 1e-3);
}

// The bytes that the table gives for a rank and device, by its columns.
std::map<std::string, double> MemoryRow(const std::string& out, const std::string& row) {
  std::map<std::string, double> cells;
  const std::vector<std::string> header = LinesWith(out, "peak MB"), line = LinesWith(out, row);
  EXPECT_EQ(header.size(), 1u) << out;
  EXPECT_EQ(line.size(), 1u) << row << "\n" << out;
  if (header.empty() || line.empty()) return cells;
  const std::vector<std::string> names = absl::StrSplit(header[0], ' ', absl::SkipEmpty());
  const std::vector<std::string> values = absl::StrSplit(line[0], ' ', absl::SkipEmpty());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(absl::SimpleAtod(values[i], &cells[names[i]])) << values[i];
  }
  return cells;
}

TEST(TrainGptTest, BlocksOverDevicesTrainBitForBitAndResumeElsewhere) {
  const std::string folder = NewFolder();
  WriteText(folder);
  const auto train = [&](std::vector<std::string> arguments) {
    const bool resumes = absl::StartsWith(arguments[0], "--resume");
    arguments.push_back("--data=text.txt");
    if (!resumes) {
      arguments.insert(arguments.end(), {"--steps=6", "--save_every=3", "--layers=5", "--heads=2",
                                         "--width=64", "--block=16", "--batch=6"});
    }
    arguments.push_back("--threads_per_rank=1");
    Process process(arguments, folder);
    EXPECT_EQ(process.Wait(), 0) << process.err();
    return process.out();
  };
  const auto same = [&](const std::string& a, const std::string& b) {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_TRUE(ReadAll(absl::StrCat(folder, "/", a, "/step-00000006/", file)) ==
                  ReadAll(absl::StrCat(folder, "/", b, "/step-00000006/", file)))
          << a << " and " << b << ": " << file;
    }
  };
  train({"--strategy=single", "--out=single"});
  const std::string out = train({"--strategy=model_parallel", "--stages=3", "--out=parts"});
  same("single", "parts");
  EXPECT_NE(out.find("parts on cpu:0: transformer.wte, transformer.wpe, transformer.h.0, "
                     "transformer.h.1; cpu:1: transformer.h.2, transformer.h.3; cpu:2: "
                     "transformer.h.4, transformer.ln_f, lm_head"),
            std::string::npos)
      << out;
  // Of its own layers only: 12 * 64^2 numbers and 13 * 64 more a block, in float32.
  const double block = (12 * 64 * 64 + 13 * 64) * 4 / 1e6;
  const double embeddings = (256 + 16) * 64 * 4 / 1e6, norm = 2 * 64 * 4 / 1e6;
  const double own[] = {2 * block + embeddings, 2 * block, block + norm};
  for (int device = 0; device < 3; ++device) {
    std::map<std::string, double> row = MemoryRow(out, absl::StrCat("  0 cpu:", device));
    EXPECT_NEAR(row["parameter"] / own[device], 1, 0.03) << device;
    EXPECT_NEAR(row["gradient"] / own[device], 1, 0.03) << device;
    EXPECT_NEAR(row["optimizer"] / own[device], 2, 0.06) << device;
  }
  // The rest of each run in new processes, by the other strategy.
  train({"--resume=parts/step-00000003", "--strategy=single", "--out=back"});
  same("single", "back");
  train({"--resume=single/step-00000003", "--strategy=model_parallel", "--stages=2", "--out=on"});
  same("single", "on");
  train({"--resume=parts/step-00000003", "--out=again"});
  same("single", "again");
  const std::vector<std::string> harder = {"--amp=bf16", "--checkpoint=block", "--accumulate=2"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), harder.begin(), harder.end());
    return train(arguments);
  };
  with({"--strategy=single", "--out=harder"});
  with({"--strategy=model_parallel", "--stages=2", "--out=harder_parts"});
  same("harder", "harder_parts");
  // Under DistributedDataParallel.
  train({"--strategy=ddp", "--ranks=2", "--out=ddp"});
  const std::string ranks = train({"--strategy=ddp", "--ranks=2", "--stages=2", "--out=ddp_parts"});
  same("ddp", "ddp_parts");
  EXPECT_GT(MemoryRow(ranks, "  1 cpu:1")["parameter"], 0);
}

}  // namespace
}  // namespace lockstep::examples
