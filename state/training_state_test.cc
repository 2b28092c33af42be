// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/training_state.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/state/file_io.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {
namespace {

namespace fs = std::filesystem;

// A state whose every part tells its step.
TrainingState StateOf(int64_t step, int64_t size = 1000) {
  TrainingState state;
  state.step = step;
  const std::vector<float> values(static_cast<size_t>(size), static_cast<float>(step));
  state.model = {{"w", FromVector<float>(values, {size})}};
  state.optimizer = {{"w.exp_avg", FromVector<float>(values, {size})}};
  state.Set("data.batch", step);
  return state;
}

void ExpectWhole(const TrainingState& state, int64_t step) {
  EXPECT_EQ(state.step, step);
  EXPECT_EQ(state.Integer("data.batch"), step);
  EXPECT_EQ(state.model.At("w").Item<float>({-1}), static_cast<float>(step));
  EXPECT_EQ(state.optimizer.At("w.exp_avg").Item<float>({-1}), static_cast<float>(step));
}

TEST(TrainingStateTest, ValuesComeBackBitForBit) {
  TrainingState state = StateOf(7);
  state.Set("third", 1.0 / 3);
  state.Set("whole", 5.0);
  state.Set("tiny", 5e-324);
  state.Set("negative zero", -0.0);
  state.Set("least", std::numeric_limits<int64_t>::min());
  state.Set("text", std::string("q\"\n\xc3\xa4"));
  const TrainingState back = LoadTrainingState(SaveTrainingState(NewFolder(), state));
  ExpectWhole(back, 7);
  EXPECT_EQ(back.Real("third"), 1.0 / 3);
  EXPECT_EQ(back.Real("whole"), 5.0);
  EXPECT_EQ(back.Real("tiny"), 5e-324);
  EXPECT_TRUE(std::signbit(back.Real("negative zero")));
  EXPECT_EQ(back.Integer("least"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(back.Text("text"), "q\"\n\xc3\xa4");
  EXPECT_EQ(ErrorOf([&] { back.Integer("third"); }).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ErrorOf([&] { back.Integer("none"); }).code(), absl::StatusCode::kDataLoss);
}

TEST(TrainingStateTest, RandomStateComesBackForEachRank) {
  RandomStreams random;
  random.parameters.key = {~uint64_t{5}, kParameterStream, 12};
  random.data.key = {~uint64_t{5}, kDataStream, 8};
  random.dropout.key = {~uint64_t{5}, kDropoutStreamBase, 400};
  TrainingState state = StateOf(1);
  SaveRandomState(random, state);
  const TrainingState saved = LoadTrainingState(SaveTrainingState(NewFolder(), state));
  const RandomStreams back = LoadRandomState(saved, 3);
  EXPECT_TRUE(back.parameters.key == random.parameters.key);
  EXPECT_TRUE(back.data.key == random.data.key);
  EXPECT_EQ(back.dropout.key.stream, kDropoutStreamBase + 3);
  EXPECT_EQ(back.dropout.key.offset, 400u);
}

TEST(TrainingStateTest, KeepsTheNewestAndReplacesTheSameStep) {
  const std::string root = NewFolder();
  std::ofstream(root + "/notes.txt") << "mine";
  fs::create_directories(root + "/step-x");
  for (int64_t step : {1, 2, 3, 4, 5}) SaveTrainingState(root, StateOf(step), {.keep = 2});
  EXPECT_EQ(ListTrainingStates(root),
            (std::vector<std::string>{root + "/step-00000004", root + "/step-00000005"}));
  TrainingState again = StateOf(5);
  again.Set("again", int64_t{1});
  SaveTrainingState(root, again, {.keep = 2});
  EXPECT_EQ(LoadLatestTrainingState(root).state.Integer("again"), 1);
  EXPECT_EQ(ListTrainingStates(root).size(), 2u);
  SaveTrainingState(root, StateOf(6), {.keep = 0});
  EXPECT_EQ(ListTrainingStates(root).size(), 3u);
  EXPECT_TRUE(fs::exists(root + "/notes.txt"));
  EXPECT_TRUE(fs::exists(root + "/step-x"));
  int entries = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    (void)entry;
    ++entries;
  }
  EXPECT_EQ(entries, 5) << "no temporary folder is left";
}

TEST(TrainingStateTest, LatestFallsBackToTheNewestGoodOneAndSaysWhy) {
  const std::string root = NewFolder();
  for (int64_t step : {1, 2, 3, 4, 5}) SaveTrainingState(root, StateOf(step), {.keep = 0});
  // Truncated, mixed with another step's file, and foreign.
  fs::resize_file(root + "/step-00000005/model.safetensors",
                  fs::file_size(root + "/step-00000005/model.safetensors") - 1);
  fs::copy_file(root + "/step-00000003/optimizer.safetensors",
                root + "/step-00000004/optimizer.safetensors",
                fs::copy_options::overwrite_existing);
  std::ofstream(root + "/step-00000003/state.json") << "{\"format\": \"something else\"}";
  const LoadedState loaded = LoadLatestTrainingState(root);
  ExpectWhole(loaded.state, 2);
  EXPECT_EQ(loaded.path, root + "/step-00000002");
  ASSERT_EQ(loaded.skipped.size(), 3u);
  EXPECT_NE(loaded.skipped[0].find("step-00000005/model.safetensors"), std::string::npos);
  EXPECT_NE(loaded.skipped[1].find("step-00000004/optimizer.safetensors"), std::string::npos);
  EXPECT_NE(loaded.skipped[2].find("step-00000003/state.json"), std::string::npos);
}

TEST(TrainingStateTest, ForeignAndMissingFilesAreNamed) {
  const std::string root = NewFolder();
  EXPECT_EQ(ErrorOf([&] { LoadLatestTrainingState(root); }).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([&] { LoadLatestTrainingState(root + "/none"); }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([&] { LoadTrainingState(root + "/none"); }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([&] { LoadTrainingState(root); }).code(), absl::StatusCode::kDataLoss);
  const std::string path = SaveTrainingState(root, StateOf(1));
  for (const char* json : {"", "[", "[]", "{}", "{\"format\":1}",
                           "{\"format\":\"lockstep training state 1\",\"step\":\"x\"}",
                           "{\"format\":\"lockstep training state 1\",\"step\":1,\"values\":{},"
                           "\"files\":{}}",
                           "{\"format\":\"lockstep training state 1\",\"step\":1,"
                           "\"values\":{\"a\":[1]},\"files\":{}}"}) {
    std::ofstream(path + "/state.json") << json;
    EXPECT_EQ(ErrorOf([&] { LoadTrainingState(path); }).code(), absl::StatusCode::kDataLoss)
        << json;
  }
  for (const char* ranks : {"-1", "1.5", "\"2\"", "65537", "18446744073709551615"}) {
    std::ofstream(path + "/state.json") << "{\"format\":\"lockstep training state "
                                           "1\",\"step\":1,\"values\":{},\"files\":{},\"ranks\":"
                                        << ranks << "}";
    EXPECT_NE(MessageOf([&] { LoadTrainingState(path); }).find("a number of ranks that cannot be"),
              std::string::npos)
        << ranks;
  }
  fs::remove(SaveTrainingState(root, StateOf(2)) + "/optimizer.safetensors");
  EXPECT_EQ(ErrorOf([&] { LoadTrainingState(root + "/step-00000002"); }).code(),
            absl::StatusCode::kDataLoss);
}

TEST(TrainingStateTest, BadInputWritesNothing) {
  const std::string root = NewFolder() + "/run";
  TrainingState state = StateOf(1);
  state.Set("loss", std::nan(""));
  EXPECT_EQ(ErrorOf([&] { SaveTrainingState(root, state); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { SaveTrainingState(root, StateOf(1), {.keep = -1}); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([&] { SaveTrainingState(root, StateOf(-1)); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(fs::exists(root));
  std::ofstream(root) << "a file";
  EXPECT_EQ(ErrorOf([&] { SaveTrainingState(root, StateOf(1)); }).code(),
            absl::StatusCode::kFailedPrecondition);
}

// Writes that the system refuses half-way (a full disk, a limit) leave the older state, and nothing
// half-written.
TEST(TrainingStateTest, AWriteThatFailsLeavesTheOlderState) {
  const std::string root = NewFolder();
  SaveTrainingState(root, StateOf(1));
  struct rlimit old_limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = old_limit;
  small.rlim_cur = 2000;
  setrlimit(RLIMIT_FSIZE, &small);
  const Error error = ErrorOf([&] { SaveTrainingState(root, StateOf(2)); });
  setrlimit(RLIMIT_FSIZE, &old_limit);
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ListTrainingStates(root).size(), 1u);
  ExpectWhole(LoadLatestTrainingState(root).state, 1);
}

}  // namespace

// Saves states `first`, first + 1, ... until it is killed; writes a byte to standard output after
// each.
[[noreturn]] void SaveForEver(const std::string& root, int64_t first) {
  for (int64_t step = first;; ++step) {
    SaveTrainingState(root, StateOf(step, 20000), {.keep = 2});
    if (write(STDOUT_FILENO, ".", 1) != 1) _exit(1);
  }
}

namespace {

TEST(TrainingStateTest, KilledAtAnyMomentTheLatestStateIsWhole) {
  const std::string root = NewFolder();
  SaveTrainingState(root, StateOf(1, 20000));
  int64_t newest = 1;
  for (int kill_number = 0; kill_number < 50; ++kill_number) {
    int saved[2];
    ASSERT_EQ(pipe(saved), 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(saved[1], STDOUT_FILENO);
      const std::string first = absl::StrCat(newest + 1);
      execl("/proc/self/exe", "saver", root.c_str(), first.c_str(), nullptr);
      _exit(127);
    }
    close(saved[1]);
    char byte;
    ASSERT_EQ(read(saved[0], &byte, 1), 1) << "the child ended before its first save";
    // A different moment of the saves after the first: the wait is this test's input, not a
    // synchronisation.
    const timespec moment = {0, kill_number * 150'000L};
    nanosleep(&moment, nullptr);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(saved[0]);
    const LoadedState loaded = LoadLatestTrainingState(root);
    EXPECT_TRUE(loaded.skipped.empty()) << loaded.skipped[0];
    ExpectWhole(loaded.state, loaded.state.step);
    EXPECT_GT(loaded.state.step, newest);
    newest = loaded.state.step;
  }
}

}  // namespace
}  // namespace lockstep::state

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[0]) == "saver") {
    lockstep::state::SaveForEver(argv[1], std::atoll(argv[2]));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
