// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// train_gpt set by a file in DeepSpeed's vocabulary, run as a user does.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/examples/train_gpt_testing.h"

namespace lockstep::examples {
namespace {

namespace fs = std::filesystem;

TEST(TrainGptConfigTest, AFileInDeepSpeedsVocabularySaysHowToTrain) {
  const std::string folder = NewFolder();
  WriteText(folder);
  std::map<int, double> losses;
  for (const int stage : {0, 1, 2, 3}) {
    std::ofstream(folder + "/ds_config.json")
        << R"({"train_batch_size": 12, "gradient_accumulation_steps": 2, "steps_per_print": 10,
              "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": 1.0,
              "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
              "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": "auto",
                            "total_num_steps": "auto", "warmup_max_lr": "auto"}},
              "zero_optimization": {"stage": )"
        << stage << "}}";
    Process process(Tiny({"--data=text.txt", "--steps=4", "--config=ds_config.json", "--ranks=2",
                          "--batch=12", absl::StrCat("--out=stage", stage)}),
                    folder);
    EXPECT_EQ(process.Wait(), 0) << process.err();
    EXPECT_NE(process.out().find(absl::StrCat("ZeRO stage ", stage)), std::string::npos)
        << process.out();
    std::map<std::string, std::string> summary = Summary(process.out());
    EXPECT_EQ(summary["strategy"], "config");
    EXPECT_GT(std::stod(summary["communication_share"]), 0);
    losses[stage] = std::stod(summary["validation_loss"]);
    EXPECT_NEAR(losses[stage], losses[0], 2e-4) << stage;
  }
  EXPECT_LT(losses[0], std::log(256.0));
  // The state has the settings, whatever has become of the file; in parts too.
  fs::rename(folder + "/ds_config.json", folder + "/moved.json");
  Process resumed({"--resume=stage3/step-00000004", "--steps=6", "--out=more", "--state=sharded"},
                  folder);
  EXPECT_EQ(resumed.Wait(), 0) << resumed.err();
  EXPECT_NE(resumed.out().find("ZeRO stage 3"), std::string::npos);
  Process again({"--resume=more/step-00000006", "--steps=8"}, folder);
  EXPECT_EQ(again.Wait(), 0) << again.err();
  fs::rename(folder + "/moved.json", folder + "/ds_config.json");
  Process both(Tiny({"--data=text.txt", "--config=ds_config.json", "--strategy=ddp"}), folder);
  EXPECT_EQ(both.Wait(), 1);
  EXPECT_NE(both.err().find("leave --strategy out"), std::string::npos) << both.err();
}

// What DeepSpeed takes and train_gpt had no use for.
TEST(TrainGptConfigTest, FilesAsFoundInTheWildTrain) {
  const std::string folder = NewFolder();
  WriteText(folder);
  const auto train = [&](const std::string& json, std::vector<std::string> more) {
    std::ofstream(folder + "/ds_config.json") << json;
    more.insert(more.end(), {"--data=text.txt", "--steps=4", "--config=ds_config.json", "--ranks=2",
                             "--batch=12"});
    Process process(Tiny(more), folder);
    EXPECT_EQ(process.Wait(), 0) << json << ": " << process.err();
    return std::make_pair(process.out(), process.err());
  };
  using testing::HasSubstr;
  // Without an optimizer it is train_gpt's own, on every stage.
  std::vector<double> losses;
  for (const int stage : {0, 1, 2, 3}) {
    const std::string out = train(absl::StrCat(R"({"train_batch_size": 12, "gradient_clipping": 1.0,
                              "zero_optimization": {"stage": )",
                                               stage, "}}"),
                                  {absl::StrCat("--out=stage", stage), "--lr=0.004"})
                                .first;
    EXPECT_THAT(out, HasSubstr("AdamW 0.004"));
    losses.push_back(std::stod(Summary(out)["validation_loss"]));
    EXPECT_NEAR(losses.back(), losses[0], 2e-4) << stage;
  }
  EXPECT_LT(losses[0], std::log(256.0));
  const std::pair<std::string, std::string> many = train(R"({"train_batch_size": 12,
               "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2},
               "activation_checkpointing": {"partition_activations": true,
                                            "cpu_checkpointing": true,
                                            "number_checkpoints": 4}})",
                                                         {"--out=many"});
  std::vector<std::string> listed = absl::StrSplit(many.second, '\n', absl::SkipEmpty());
  EXPECT_THAT(listed, testing::ElementsAre(
                          HasSubstr("zero_optimization.zero_hpz_partition_size has no "),
                          HasSubstr("partition_activations has no effect here; "
                                    "--checkpoint=block"),
                          HasSubstr("cpu_checkpointing"), HasSubstr("number_checkpoints")));
  EXPECT_THAT(train(R"({"train_batch_size": 12, "zero_optimization": {"stage": 1,
                       "offload_optimizer": {"device": "cpu"}}})",
                    {"--out=offloaded", "--state=sharded"})
                  .first,
              HasSubstr("ZeRO stage 1 on 2 ranks, states on the host"));
}

// What cannot be done is known before any rank is there.
TEST(TrainGptConfigTest, FilesThatCannotBeHonouredAreOneLine) {
  const std::string folder = NewFolder();
  WriteText(folder);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("gradient_predivide_factor": 2)", "gradient_predivide_factor 2: leave it out"},
      {R"("communication_data_type": "bf16")", "use stage 2 or 3"},
      {R"("fp16": {"enabled": true, "auto_cast": true})", "fp16.auto_cast"},
      {R"("zero_optimization": {"stage": 3, "mics_shard_size": 3})", "it must divide the 2 ranks"},
      {R"("zero_optimisation": {"stage": 3})", "the nearest is zero_optimization"},
  };
  for (const auto& [member, expected] : cases) {
    std::ofstream(folder + "/ds_config.json") << R"({"train_batch_size": 12, )" << member << "}";
    Process process({"--data=text.txt", "--config=ds_config.json"}, folder);
    EXPECT_EQ(process.Wait(), 1) << member;
    EXPECT_EQ(process.out(), "") << member;
    const std::vector<std::string> lines = absl::StrSplit(process.err(), '\n', absl::SkipEmpty());
    EXPECT_EQ(lines.size(), 1u) << process.err();
    EXPECT_THAT(process.err(), testing::HasSubstr(folder + "/ds_config.json: ")) << member;
    EXPECT_THAT(process.err(), testing::HasSubstr(expected)) << member;
  }
}

// A flag that a file overrides would be a wish that nobody hears.
TEST(TrainGptConfigTest, FlagsCountWhereTheFileSaysAutoAndAreRefusedElsewhere) {
  const std::string folder = NewFolder();
  WriteText(folder);
  std::ofstream(folder + "/says.json")
      << R"({"train_batch_size": 8, "gradient_accumulation_steps": 2,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})";
  std::ofstream(folder + "/schedule.json")
      << R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.02}}})";
  std::ofstream(folder + "/auto.json")
      << R"({"train_batch_size": "auto", "gradient_accumulation_steps": "auto",
            "train_micro_batch_size_per_gpu": "auto",
            "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})";
  std::ofstream(folder + "/more_rows.json")
      << R"({"train_batch_size": 12, "gradient_accumulation_steps": 2,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})";
  std::ofstream(folder + "/by_rank.json")
      << R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})";
  const std::vector<std::string> model = {"--data=text.txt", "--layers=1", "--heads=2",
                                          "--width=16",      "--block=16", "--steps=2"};
  const auto train = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), model.begin(), model.end());
    Process process(flags, folder);
    EXPECT_EQ(process.Wait(), 0) << flags[0] << ": " << process.err();
    return process.out();
  };
  const auto refusal = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), model.begin(), model.end());
    Process process(flags, folder);
    EXPECT_EQ(process.Wait(), 1) << flags[1];
    EXPECT_EQ(process.out(), "");
    const std::vector<std::string> lines = absl::StrSplit(process.err(), '\n', absl::SkipEmpty());
    EXPECT_EQ(lines.size(), 1u) << process.err();
    return process.err();
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal({"--config=says.json", "--batch=3", "--micro_batches=99"}),
              HasSubstr("--batch=3: --config=" + folder +
                        "/says.json makes it 8; leave the flag "
                        "out, or write \"train_batch_size\": \"auto\""));
  EXPECT_THAT(refusal({"--config=says.json", "--micro_batches=4"}),
              HasSubstr("--micro_batches=4: "));
  EXPECT_THAT(refusal({"--config=says.json", "--lr=0.5"}),
              HasSubstr("makes it 0.01; leave the flag out, or write \"optimizer.params.lr\""));
  EXPECT_THAT(refusal({"--config=schedule.json", "--lr=0.5"}),
              HasSubstr("\"scheduler.params.warmup_max_lr\""));
  // The same value twice is no contradiction.
  train({"--config=says.json", "--batch=8", "--micro_batches=2", "--lr=0.01", "--out=says"});
  const std::string out =
      train({"--config=auto.json", "--batch=4", "--micro_batches=2", "--lr=0.01", "--out=auto"});
  EXPECT_THAT(out, HasSubstr("2 steps of 4 rows"));
  EXPECT_THAT(out, HasSubstr("2 micro-batches of 1"));

  // What goes on has the rows and the rate of what was.
  EXPECT_THAT(refusal({"--config=more_rows.json", "--resume=says"}),
              HasSubstr("more_rows.json: makes the rows of a step 12 on --ranks=2, and the state "
                        "to resume was made with 8 on 2"));
  EXPECT_THAT(refusal({"--config=schedule.json", "--resume=says"}),
              HasSubstr("the learning rate 0.02"));
  train({"--config=by_rank.json", "--resume=says", "--out=by_rank"});
  EXPECT_THAT(refusal({"--config=by_rank.json", "--resume=says", "--ranks=4"}),
              HasSubstr("the rows of a step 16 on --ranks=4"));
  train({"--config=auto.json", "--resume=says", "--out=as_saved"});
  EXPECT_THAT(refusal({"--lr=0.5", "--resume=says"}), HasSubstr("was made with 0.01"));
  train({"--ranks=4", "--resume=says", "--out=four"});
}

}  // namespace
}  // namespace lockstep::examples
