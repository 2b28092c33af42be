// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// train_gpt under a pipeline, run as a user does.
#include <signal.h>
#include <sys/types.h>

#include <cmath>
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
#include "lockstep/state/safetensors.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::examples {
namespace {

// A cell of the table of memory: megabytes of a category, in the row that begins with `row`.
double PeakMegabytes(const std::string& out, const std::string& row, const std::string& category) {
  const std::vector<std::string> header =
      absl::StrSplit(LinesWith(out, "peak MB").at(0), ' ', absl::SkipEmpty());
  const std::vector<std::string> cells =
      absl::StrSplit(LinesWith(out, row).at(0), ' ', absl::SkipEmpty());
  double megabytes = -1;
  for (size_t i = 0; i < header.size() && i < cells.size(); ++i) {
    if (header[i] != category) continue;
    EXPECT_TRUE(absl::SimpleAtod(cells[i], &megabytes)) << cells[i];
  }
  EXPECT_GE(megabytes, 0) << "no " << category << " in " << out;
  return megabytes;
}

class TrainGptPipelineTest : public ::testing::Test {
 protected:
  TrainGptPipelineTest() : folder_(NewFolder()) { WriteText(folder_); }

  // The output of a run of 4 steps with 5 blocks, or of one that is resumed.
  std::string Train(std::vector<std::string> flags) const {
    if (!absl::StartsWith(flags[0], "--resume")) {
      // The last one of a flag counts.
      flags.insert(flags.begin(), {"--steps=4", "--save_every=2", "--layers=5", "--heads=2",
                                   "--width=32", "--block=16", "--batch=8", "--micro_batches=4"});
    }
    flags.insert(flags.end(), {"--data=text.txt", "--threads_per_rank=1"});
    Process process(flags, folder_);
    EXPECT_EQ(process.Wait(), 0) << process.err();
    return process.out();
  }

  std::string PathOf(const std::string& run, const std::string& file = "model.safetensors") const {
    return absl::StrCat(folder_, "/", run, "/step-00000004/", file);
  }

  void ExpectSameModel(const std::string& a, const std::string& b) const {
    EXPECT_TRUE(ReadAll(PathOf(a)) == ReadAll(PathOf(b))) << a << " and " << b;
  }

  // The sum of gradients of a tied head is made in another order than in one piece.
  void ExpectNear(const std::string& a, const std::string& b) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      const NamedTensors x = state::SafetensorsFile::Open(PathOf(a, file)).LoadAll();
      const NamedTensors y = state::SafetensorsFile::Open(PathOf(b, file)).LoadAll();
      EXPECT_EQ(x.size(), y.size()) << file;
      for (const auto& [name, tensor] : x) {
        const double largest = Max(Abs(tensor)).Item<double>();
        EXPECT_LE(Max(Abs(tensor - y.At(name))).Item<double>(), 1e-4 * largest + 1e-6) << name;
      }
    }
  }

  const std::string folder_;
};

TEST_F(TrainGptPipelineTest, ThreadsAndRanksAndSchedulesTrainBitForBitAndAsOnePiece) {
  Train({"--strategy=single", "--out=single"});
  const std::string out = Train({"--strategy=pipeline", "--stages=3", "--out=threads"});
  ExpectNear("single", "threads");
  const std::string ranks =
      Train({"--strategy=pipeline", "--stages=3", "--ranks=3", "--out=ranks"});
  ExpectSameModel("threads", "ranks");
  ExpectNear("threads", "ranks");
  for (const char* schedule : {"gpipe", "zb_h1"}) {
    Train({"--strategy=pipeline", "--stages=3", absl::StrCat("--schedule=", schedule),
           absl::StrCat("--out=", schedule)});
    ExpectSameModel("threads", schedule);
  }
  Train({"--strategy=pipeline", "--schedule=interleaved", "--ranks=2", "--out=interleaved"});
  ExpectNear("single", "interleaved");
  // The timeline, a lane a rank, and the bubble with and without what the machine adds.
  for (const std::string& text : {out, ranks}) {
    EXPECT_EQ(LinesWith(text, "rank 0 |").size(), 1u) << text;
    EXPECT_EQ(LinesWith(text, "rank 2 |").size(), 1u) << text;
    const std::vector<std::string> bubble = LinesWith(text, "bubble: ");
    ASSERT_EQ(bubble.size(), 1u) << text;
    EXPECT_TRUE(absl::StrContains(bubble[0], "33.3 % if all actions were alike")) << bubble[0];
    // A backward that is short beside a wait for a processor is drawn without its name.
    int backwards = 0;
    for (const char* name : {"B0", "B1", "B2", "B3"}) backwards += absl::StrContains(text, name);
    EXPECT_GT(backwards, 0) << "a step, not a validation: " << text;
  }
  EXPECT_TRUE(absl::StrContains(out, "1f1b, 3 stages on 3 devices")) << out;
  EXPECT_TRUE(absl::StrContains(ranks, "1f1b, 3 stages on 3 ranks")) << ranks;
}

// A device or rank has the parameters of its own blocks, and nothing of the others'.
TEST_F(TrainGptPipelineTest, EachStageHoldsItsOwnPart) {
  for (const bool ranks : {false, true}) {
    const std::string out =
        Train({"--strategy=pipeline", "--stages=5", absl::StrCat("--ranks=", ranks ? 5 : 1),
               absl::StrCat("--out=", ranks ? "ranks" : "threads")});
    const double block = (12 * 32 * 32 + 13 * 32) * 4 / 1e6;
    const double tokens = 256 * 32 * 4 / 1e6;
    for (int stage = 0; stage < 5; ++stage) {
      const std::string row =
          ranks ? absl::StrCat("  ", stage, " cpu:0") : absl::StrCat("  0 cpu:", stage);
      const double own = block + (stage == 0 || stage == 4 ? tokens : 0);
      for (const std::string category : {"parameter", "gradient", "optimizer"}) {
        const bool gradient = category == "gradient";
        const double megabytes = PeakMegabytes(out, row, category);
        // A parameter's gradient may be there beside the sum that it is added to, and so is the sum
        // of both uses' gradients of the token embedding. Two decimals, and positions and a norm.
        const double largest = own > block ? tokens : 4 * 32 * 32 * 4 / 1e6;
        const double most = gradient ? own + largest : own;
        const double copies = category == "optimizer" ? 2 : 1;
        EXPECT_GT(megabytes, copies * own - 0.006) << category << row;
        EXPECT_LT(megabytes, copies * most + 0.011) << category << row;
      }
    }
  }
}

TEST_F(TrainGptPipelineTest, StatesGoToOneRankAndBackAndModelsBegin) {
  Train({"--strategy=single", "--out=single"});
  const std::vector<std::string> pipeline = {"--strategy=pipeline", "--stages=3", "--ranks=3"};
  Train({pipeline[0], pipeline[1], pipeline[2], "--out=ranks"});
  Train({"--resume=ranks/step-00000002", "--out=again"});
  ExpectSameModel("ranks", "again");
  Train({"--resume=ranks/step-00000002", "--strategy=single", "--out=back"});
  ExpectNear("single", "back");
  Train({"--resume=single/step-00000002", "--strategy=pipeline", "--stages=2", "--schedule=gpipe",
         "--out=on"});
  ExpectNear("single", "on");
  const auto begins = [&](const std::string& ranks, const std::string& out) {
    Process process(
        {"--strategy=pipeline", "--stages=3", "--layers=5", "--heads=2", "--width=32", "--block=16",
         "--batch=8", "--steps=1", "--lr=1e-30", "--data=text.txt",
         "--init_from=single/step-00000004/model.safetensors", "--ranks=" + ranks, "--out=" + out},
        folder_);
    EXPECT_EQ(process.Wait(), 0) << process.err();
    EXPECT_TRUE(ReadAll(absl::StrCat(folder_, "/", out, "/step-00000001/model.safetensors")) ==
                ReadAll(PathOf("single")));
  };
  begins("1", "begun");
  begins("3", "begun_on_ranks");
}

TEST_F(TrainGptPipelineTest, SchedulesMayChangeWhereARunGoesOn) {
  Train({"--strategy=pipeline", "--stages=2", "--out=run"});
  const std::string out = Train(
      {"--resume=run/step-00000002", "--schedule=interleaved", "--stages=4", "--out=interleaved"});
  EXPECT_TRUE(absl::StrContains(out, "interleaved, 4 stages on 2 devices")) << out;
  ExpectNear("run", "interleaved");
  const auto refuses = [&](const std::string& run, const std::vector<std::string>& flags,
                           const std::string& words) {
    std::vector<std::string> all = {"--resume=" + run, "--steps=6", "--data=text.txt",
                                    "--out=none"};
    all.insert(all.end(), flags.begin(), flags.end());
    Process process(all, folder_);
    EXPECT_EQ(process.Wait(), 1) << words;
    EXPECT_TRUE(absl::StrContains(process.err(), words)) << process.err();
  };
  refuses("run", {"--stages_per_rank=2"}, "is for --schedule=interleaved");
  refuses("interleaved", {"--stages_per_rank=4"}, "are all on one rank");
  // The rows of a step are the state's.
  refuses("run", {"--ranks=8", "--replicas=4"}, "go on with fewer --replicas or --shards");
  // 8 rows in 3 are a pipeline's alone, and what a run was cut into stays.
  Process uneven(
      {"--strategy=pipeline", "--steps=2", "--layers=2", "--heads=2", "--width=32", "--block=16",
       "--batch=8", "--micro_batches=3", "--data=text.txt", "--out=uneven"},
      folder_);
  ASSERT_EQ(uneven.Wait(), 0) << uneven.err();
  refuses("uneven", {"--strategy=single"}, "go on with --strategy=pipeline");
}

TEST_F(TrainGptPipelineTest, ReplicasPrecisionCheckpointsAndAccumulation) {
  // Two replicas of 4 rows are one pipeline of 8 but for the order of a sum.
  Train({"--strategy=pipeline", "--stages=2", "--ranks=1", "--out=one"});
  Train({"--strategy=pipeline", "--stages=2", "--ranks=4", "--replicas=2", "--out=replicas"});
  const auto loss = [&](const std::string& out) {
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(Summary(out)["validation_loss"], &value)) << out;
    return value;
  };
  ExpectNear("one", "replicas");
  // One stage, which has the tied weight under two names.
  Train({"--strategy=pipeline", "--stages=1", "--ranks=2", "--replicas=2", "--out=one_stage"});
  ExpectNear("one", "one_stage");
  for (const char* amp : {"bf16", "fp16"}) {
    const std::vector<std::string> more = {absl::StrCat("--amp=", amp), "--accumulate=2",
                                           "--checkpoint=block"};
    const double single = loss(
        Train({"--strategy=single", more[0], more[1], more[2], absl::StrCat("--out=s_", amp)}));
    const double threads = loss(Train({"--strategy=pipeline", "--stages=2", more[0], more[1],
                                       more[2], absl::StrCat("--out=t_", amp)}));
    const double ranks = loss(Train({"--strategy=pipeline", "--stages=2", "--ranks=2", more[0],
                                     more[1], more[2], absl::StrCat("--out=r_", amp)}));
    EXPECT_EQ(threads, ranks) << amp;
    EXPECT_NEAR(single, threads, 2e-2) << amp;
  }
}

// The ranks of a stage have a part of it each, and train and save as those that have it whole.
TEST_F(TrainGptPipelineTest, RanksThatShareAStageTrainAndSaveAsOne) {
  Train({"--strategy=pipeline", "--stages=2", "--out=one"});
  const auto optimizer_megabytes = [](const std::string& out) {
    return PeakMegabytes(out, "  0 cpu:0", "optimizer");
  };
  const double whole = optimizer_megabytes(
      Train({"--strategy=pipeline", "--stages=2", "--ranks=4", "--replicas=2", "--out=replicas"}));
  const std::string shared =
      Train({"--strategy=pipeline", "--stages=2", "--ranks=4", "--shards=2", "--out=shared"});
  EXPECT_TRUE(absl::StrContains(shared, "each stage shared by 2 ranks")) << shared;
  EXPECT_NEAR(optimizer_megabytes(shared), whole / 2, 0.011);
  ExpectNear("one", "shared");
  // Several stages a rank; replicas beside; one stage, which has the tied weight under two names.
  Train({"--strategy=pipeline", "--schedule=interleaved", "--ranks=4", "--shards=2",
         "--out=interleaved"});
  ExpectNear("one", "interleaved");
  Train({"--strategy=pipeline", "--stages=1", "--ranks=4", "--shards=2", "--replicas=2",
         "--micro_batches=2", "--out=hybrid"});
  ExpectNear("one", "hybrid");
  // Accumulation with a scaler that all ranks share.
  const std::vector<std::string> more = {"--amp=fp16", "--accumulate=2", "--checkpoint=block"};
  const auto loss = [&](const std::string& ranks, const std::string& shards) {
    double value = 0;
    const std::string out = Train({"--strategy=pipeline", "--stages=2", ranks, shards, more[0],
                                   more[1], more[2], absl::StrCat("--out=amp_", ranks)});
    EXPECT_TRUE(absl::SimpleAtod(Summary(out)["validation_loss"], &value)) << out;
    return value;
  };
  EXPECT_NEAR(loss("--ranks=2", "--shards=1"), loss("--ranks=4", "--shards=2"), 1e-3);
  // States go on as they were, and on other ranks.
  Train({"--resume=shared/step-00000002", "--out=again"});
  ExpectSameModel("shared", "again");
  Train({"--resume=shared/step-00000002", "--strategy=single", "--out=single"});
  ExpectNear("one", "single");
  Train({"--resume=one/step-00000002", "--strategy=pipeline", "--stages=2", "--ranks=4",
         "--shards=2", "--out=on"});
  ExpectNear("one", "on");
  Process begun(
      {"--strategy=pipeline", "--stages=2", "--ranks=4", "--shards=2", "--layers=5", "--heads=2",
       "--width=32", "--block=16", "--batch=8", "--steps=1", "--lr=1e-30", "--data=text.txt",
       "--init_from=one/step-00000004/model.safetensors", "--out=begun"},
      folder_);
  EXPECT_EQ(begun.Wait(), 0) << begun.err();
  EXPECT_TRUE(ReadAll(absl::StrCat(folder_, "/begun/step-00000001/model.safetensors")) ==
              ReadAll(PathOf("one")));
}

// A rank that goes on from a state reads what its stage has. Rank 0 saves, and has all of it then.
TEST_F(TrainGptPipelineTest, ARankReadsItsOwnPartOfAState) {
  const std::vector<std::string> wide = {"--strategy=pipeline", "--stages=4", "--ranks=4",
                                         "--layers=8", "--width=64"};
  const auto reads_own = [&](const std::string& run, std::vector<std::string> flags) {
    flags.push_back(absl::StrCat("--out=", run));
    Train(flags);
    const std::string out =
        Train({absl::StrCat("--resume=", run, "/step-00000002"), absl::StrCat("--out=on_", run)});
    ExpectSameModel(run, "on_" + run);
    // Parameters and two moments.
    const double state = 3 * 8 * (12 * 64 * 64 + 13 * 64) * 4 / 1e6;
    for (int rank = 1; rank < 4; ++rank) {
      EXPECT_LT(PeakMegabytes(out, absl::StrCat("  ", rank, " cpu:0"), "other"), state / 2) << out;
    }
  };
  reads_own("stages", wide);
  reads_own("shards", {wide[0], "--stages=2", wide[2], "--shards=2", wide[3], wide[4]});
}

// A rank that is killed in mid run ends all, and is named; a signal saves on all.
TEST_F(TrainGptPipelineTest, ARankThatDiesEndsAllAndASignalSaves) {
  for (const int number : {SIGKILL, SIGINT}) {
    Process process({"--strategy=pipeline", "--stages=3", "--ranks=3", "--layers=3", "--heads=2",
                     "--width=16", "--block=16", "--batch=8", "--steps=1000000", "--save_every=0",
                     "--data=text.txt", absl::StrCat("--out=signal_", number)},
                    folder_);
    ASSERT_TRUE(process.WaitForOutput("step 100/")) << process.err();
    const std::vector<pid_t> ranks = process.Children();
    ASSERT_EQ(ranks.size(), 3u);
    if (number == SIGKILL) {
      kill(ranks[1], SIGKILL);
      EXPECT_EQ(process.Wait(), 1);
      EXPECT_TRUE(absl::StrContains(process.err(), "rank 1 was killed by signal 9"))
          << process.err();
    } else {
      process.Signal(number);
      EXPECT_EQ(process.Wait(), 0) << process.err();
      EXPECT_TRUE(absl::StrContains(process.out(), "all ranks saved")) << process.out();
    }
    EXPECT_EQ(RunningCopies(folder_), 0);
  }
}

TEST_F(TrainGptPipelineTest, WrongInputIsOneLineAndStatusOne) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--strategy=pipeline", "--schedule=2f2b"}, "--schedule=2f2b"},
      {{"--strategy=pipeline", "--stages=5"}, "--stages=5"},
      {{"--strategy=pipeline", "--micro_batches=13"}, "more than the 12 rows"},
      {{"--strategy=pipeline", "--stages=3", "--ranks=2"}, "one for each of 3 parts"},
      {{"--strategy=pipeline", "--stages=2", "--ranks=2", "--replicas=2"}, "--replicas=2"},
      {{"--strategy=pipeline", "--schedule=interleaved", "--micro_batches=3"},
       "no multiple of the 2 ranks"},
      {{"--strategy=pipeline", "--schedule=interleaved", "--stages=2"}, "use --stages=4 or more"},
      {{"--strategy=pipeline", "--stages_per_rank=-1"}, "--stages_per_rank=-1"},
      {{"--strategy=pipeline", "--schedule=interleaved", "--stages=3"}, "do not divide"},
      {{"--strategy=pipeline", "--stages_per_rank=2"}, "is for --schedule=interleaved"},
      {{"--strategy=pipeline", "--offload_activations"}, "--checkpoint=block"},
      {{"--strategy=pipeline", "--ranks=4", "--shards=3"}, "give --ranks=6"},
      {{"--strategy=pipeline", "--shards=2"}, "give --ranks=4"},
      {{"--strategy=pipeline", "--shards=0"}, "--shards=0"},
      {{"--strategy=pipeline", "--ranks=4", "--shards=4294967296", "--replicas=64"},
       "--shards=4294967296: give a count of ranks, 1 to 64"},
      {{"--strategy=pipeline", "--ranks=4", "--replicas=9223372036854775807"}, "1 to 64"},
      {{"--strategy=pipeline", "--ranks=4", "--shards=2", "--schedule=zb_h1"},
       "use --schedule=1f1b"},
      {{"--strategy=fsdp", "--shards=2"}, "is for --strategy=pipeline"},
      {{"--strategy=ddp", "--schedule=gpipe"}, "is for --strategy=pipeline"},
      {{"--strategy=fsdp", "--stages_per_rank=2"}, "is for --strategy=pipeline"},
  };
  for (const auto& [flags, words] : cases) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), {"--data=text.txt", "--out=none"});
    Process process(all, folder_);
    EXPECT_EQ(process.Wait(), 1) << words;
    EXPECT_TRUE(absl::StrContains(process.err(), words)) << words << ": " << process.err();
  }
}

}  // namespace
}  // namespace lockstep::examples
