// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads that meet at a barrier.
#include "lockstep/state/sharded_state.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/state/file_io.h"
#include "lockstep/state/safetensors_reader.h"
#include "lockstep/state/state_folder.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Where threads meet and learn whether all of them were good.
class Meeting {
 public:
  explicit Meeting(int count) : count_(count) {}

  bool Agree(bool good) {
    std::unique_lock<std::mutex> lock(mutex_);
    all_good_ = all_good_ && good;
    const int round = round_;
    if (++here_ == count_) {
      result_ = all_good_;
      all_good_ = true;
      here_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round; });
    }
    return result_;
  }

 private:
  const int count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0, round_ = 0;
  bool all_good_ = true, result_ = true;
};

// What each rank met: its error's message, or "".
std::vector<std::string> OnRanks(int ranks, const std::function<void(const ShardingRank&)>& body) {
  Meeting meeting(ranks);
  std::vector<std::string> messages(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body({rank, ranks, [&](bool good) { return meeting.Agree(good); }});
      } catch (const Error& error) {
        messages[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return messages;
}

// Of a matrix [7, 5], rank r's piece when it is cut as evenly as can be; all values tell their
// position and the step.
Shard MatrixPiece(const ShardingRank& rank, int64_t step) {
  const int64_t begin = 35 * rank.rank / rank.world_size;
  const int64_t end = 35 * (rank.rank + 1) / rank.world_size;
  std::vector<float> values;
  for (int64_t i = begin; i < end; ++i) values.push_back(static_cast<float>(1000 * step + i));
  return {"matrix", {7, 5}, begin, end, FromVector<float>(values, {end - begin})};
}

// The matrix, what every rank has, what the last one alone has, and a piece of no elements. For one
// more matrix the piece is two-dimensional and not row-major.
std::vector<Shard> Shards(const ShardingRank& rank, int64_t step) {
  std::vector<Shard> shards = {MatrixPiece(rank, step)};
  shards.push_back({"both", {}, 0, 1, FromVector<int64_t>({step}, {})});
  if (rank.rank == rank.world_size - 1) {
    const Tensor t = FromVector<double>({1, 2, 3, 4, 5, 6}, {2, 3}, {.dtype = DType::kBFloat16});
    shards.push_back({"last", {3, 2}, 0, 6, Transpose(t, 0, 1)});
  }
  shards.push_back({"none", {0, 4}, 0, 0, Empty({0})});
  return shards;
}

void Save(const std::string& root, int64_t step, const ShardingRank& rank, int64_t keep = 0) {
  // Values are rank 0's.
  const Values values = {{"step", step}, {"third", 1.0 / 3}, {"rank", int64_t{rank.rank}}};
  EXPECT_EQ(SaveShardedState(root, step, Shards(rank, step), values, rank, {.keep = keep}),
            absl::StrCat(root, "/step-0000000", step));
}

void SaveOn(int ranks, const std::string& root, std::vector<int64_t> steps, int64_t keep = 0) {
  const auto messages = OnRanks(ranks, [&](const ShardingRank& rank) {
    for (const int64_t step : steps) Save(root, step, rank, keep);
  });
  for (const std::string& message : messages) EXPECT_EQ(message, "");
}

void ExpectWhole(const ShardedState& state, int64_t step, const ShardingRank& rank) {
  EXPECT_EQ(state.step, step);
  EXPECT_EQ(state.values, (Values{{"step", step}, {"third", 1.0 / 3}, {"rank", int64_t{0}}}));
  const std::vector<Shard> expected = Shards(rank, step);
  ASSERT_EQ(state.shards.size(), expected.size());
  for (const Shard& shard : state.shards) {
    const auto other = std::find_if(expected.begin(), expected.end(),
                                    [&](const Shard& e) { return e.name == shard.name; });
    ASSERT_NE(other, expected.end());
    EXPECT_EQ(shard.full_shape, other->full_shape);
    EXPECT_EQ(shard.begin, other->begin);
    EXPECT_EQ(shard.end, other->end);
    EXPECT_EQ(shard.tensor.shape(), Shape{shard.end - shard.begin});
    EXPECT_EQ(shard.tensor.dtype(), other->tensor.dtype());
    EXPECT_EQ(shard.tensor.ToVector<double>(), other->tensor.ToVector<double>()) << shard.name;
  }
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ShardedStateTest, EachRankGetsItsPiecesBack) {
  for (const int ranks : {1, 2, 3, 8}) {
    const std::string root = NewFolder() + "/run";
    SaveOn(ranks, root, {3});
    std::vector<std::string> files = {"manifest.json"};
    for (int rank = 0; rank < ranks; ++rank) files.push_back(RankFileName(rank));
    EXPECT_EQ(NamesIn(root + "/step-00000003"), files);
    EXPECT_THAT(NamesIn(root), ElementsAre("step-00000003"));
    const auto messages = OnRanks(ranks, [&](const ShardingRank& rank) {
      ExpectWhole(LoadShardedState(root + "/step-00000003", rank), 3, rank);
    });
    for (const std::string& message : messages) EXPECT_EQ(message, "");
  }
  // One rank needs nobody to agree with.
  const std::string root = NewFolder();
  Save(root, 4, {});
  ExpectWhole(LoadShardedState(root + "/step-00000004", {}), 4, {});
}

// What loading on another number of ranks needs: any range, from whichever files have it.
TEST(ShardedStateTest, TheManifestSaysWhereEachElementIs) {
  const std::string root = NewFolder();
  SaveOn(3, root, {2});
  const std::string path = root + "/step-00000002";
  const ShardedManifest manifest = ReadShardedManifest(path);
  EXPECT_EQ(manifest.world_size(), 3);
  for (const auto& [from, to] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 35}, {5, 30}, {20, 21}}) {
    std::vector<float> found;
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(manifest.tensors[0].name, "matrix");
      const ShardRange range = *manifest.tensors[0].ranges[static_cast<size_t>(rank)];
      const int64_t begin = std::max(from, range.begin), end = std::min(to, range.end);
      if (begin >= end) continue;
      const SafetensorsReader reader(path + "/" + RankFileName(rank));
      const Tensor part = reader.LoadRange("matrix", begin - range.begin, end - range.begin);
      for (const float value : part.ToVector<float>()) found.push_back(value);
    }
    ASSERT_EQ(static_cast<int64_t>(found.size()), to - from);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i], static_cast<float>(2000 + from + static_cast<int64_t>(i)));
    }
  }
}

TEST(ShardedStateTest, KeepsTheNewestAndReplacesTheSameStep) {
  const std::string root = NewFolder();
  SaveOn(2, root, {1, 2, 3, 4, 4, 5}, /*keep=*/2);
  EXPECT_THAT(NamesIn(root), ElementsAre("step-00000004", "step-00000005"));
  OnRanks(2, [&](const ShardingRank& rank) {
    ExpectWhole(LoadLatestShardedState(root, rank).state, 5, rank);
  });
}

TEST(ShardedStateTest, AnotherNumberOfRanksIsToldWhatToDo) {
  const std::string root = NewFolder();
  SaveOn(3, root, {1});
  for (const bool latest : {false, true}) {
    const auto messages = OnRanks(2, [&](const ShardingRank& rank) {
      if (latest) {
        LoadLatestShardedState(root, rank);
      } else {
        LoadShardedState(root + "/step-00000001", rank);
      }
    });
    for (const std::string& message : messages) {
      EXPECT_THAT(message, AllOf(HasSubstr("was saved by 3 ranks and this run has 2"),
                                 HasSubstr("resume it on 3 ranks")));
    }
  }
}

// Damages a good state of two ranks and returns what they say.
std::vector<std::string> AfterDamage(const std::function<void(const std::string& path)>& damage) {
  const std::string root = NewFolder();
  SaveOn(2, root, {1, 2});
  damage(root + "/step-00000002");
  auto messages = OnRanks(
      2, [&](const ShardingRank& rank) { LoadShardedState(root + "/step-00000002", rank); });
  // All of them go back to the older one.
  const auto latest = OnRanks(2, [&](const ShardingRank& rank) {
    const LoadedShardedState loaded = LoadLatestShardedState(root, rank);
    ExpectWhole(loaded.state, 1, rank);
    EXPECT_EQ(loaded.path, root + "/step-00000001");
    EXPECT_EQ(loaded.skipped.size(), 1u);
  });
  EXPECT_THAT(latest, ElementsAre("", ""));
  return messages;
}

void Flip(const std::string& path, int64_t at) {
  std::string bytes = ReadFile(path, 1 << 20);
  const size_t index = at < 0 ? bytes.size() - static_cast<size_t>(-at) : static_cast<size_t>(at);
  bytes[index] = static_cast<char>(bytes[index] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
}

// By one reader, of all ranks' files.
TEST(ShardedStateTest, AnyoneVerifiesAllOfIt) {
  const std::string root = NewFolder();
  SaveOn(3, root, {2});
  const std::string path = root + "/step-00000002";
  EXPECT_EQ(VerifyShardedState(path).step, 2);
  Flip(path + "/rank-00002.safetensors", 300);
  EXPECT_EQ(ReadShardedManifest(path).step, 2);
  EXPECT_THAT(MessageOf([&] { VerifyShardedState(path); }), HasSubstr("rank-00002.safetensors"));
}

TEST(ShardedStateTest, DamageIsNoticedByAllRanks) {
  const auto of_rank_1 = [](const char* what) {
    return ElementsAre(
        AllOf(HasSubstr("ABORTED"), HasSubstr("another rank failed")),
        AllOf(HasSubstr("DATA_LOSS"), HasSubstr("rank-00001.safetensors"), HasSubstr(what)));
  };
  const auto of_both = [](const char* file, const char* what) {
    const auto each = AllOf(HasSubstr("DATA_LOSS"), HasSubstr(file), HasSubstr(what));
    return ElementsAre(each, each);
  };
  for (const int64_t at : {0, 10, 60, -1}) {
    EXPECT_THAT(AfterDamage([&](auto path) { Flip(path + "/rank-00001.safetensors", at); }),
                of_rank_1("its checksum is not the one in manifest.json"));
  }
  EXPECT_THAT(AfterDamage([](auto path) {
                const std::string file = path + "/rank-00001.safetensors";
                fs::resize_file(file, fs::file_size(file) - 1);
              }),
              of_both("rank-00001.safetensors", "bytes and not the"));
  EXPECT_THAT(AfterDamage([](auto path) { fs::remove(path + "/rank-00000.safetensors"); }),
              of_both("rank-00000.safetensors", "is missing"));
  // Of the same sizes, from another step, or from the other rank.
  EXPECT_THAT(AfterDamage([](auto path) {
                fs::copy_file(fs::path(path).parent_path() / "step-00000001/rank-00001.safetensors",
                              path + "/rank-00001.safetensors",
                              fs::copy_options::overwrite_existing);
              }),
              of_rank_1("belongs to another step"));
  EXPECT_THAT(
      AfterDamage([](auto path) {
        fs::copy_file(fs::path(path).parent_path() / "step-00000001/manifest.json",
                      path + "/manifest.json", fs::copy_options::overwrite_existing);
      }),
      ElementsAre(HasSubstr("belongs to another step"), HasSubstr("belongs to another step")));
  EXPECT_THAT(AfterDamage([](auto path) { Flip(path + "/manifest.json", 60); }),
              of_both("manifest.json", "do not have its checksum"));
  EXPECT_THAT(AfterDamage([](auto path) { fs::resize_file(path + "/manifest.json", 100); }),
              of_both("manifest.json", "not a 'lockstep sharded state 1'"));
  EXPECT_THAT(AfterDamage([](auto path) { fs::remove(path + "/manifest.json"); }),
              of_both("step-00000002", "is no sharded state"));
}

// What a rank that fails leaves: the state before, and nothing of its own.
void ExpectOnlyTheFirst(const std::string& root) {
  EXPECT_THAT(NamesIn(root), ElementsAre("step-00000001"));
  OnRanks(2, [&](const ShardingRank& rank) {
    ExpectWhole(LoadLatestShardedState(root, rank).state, 1, rank);
  });
}

TEST(ShardedStateTest, ARankThatFailsLeavesTheStateBefore) {
  const std::string root = NewFolder();
  SaveOn(2, root, {1});
  // Before it has written.
  auto messages = OnRanks(2, [&](const ShardingRank& rank) {
    std::vector<Shard> shards = Shards(rank, 2);
    if (rank.rank == 1) shards[0].end += 1;
    SaveShardedState(root, 2, shards, {}, rank);
  });
  EXPECT_THAT(messages,
              ElementsAre(AllOf(HasSubstr("ABORTED"), HasSubstr("another rank failed")),
                          AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("[17, 36) of shape"))));
  ExpectOnlyTheFirst(root);

  // When it writes: a folder is where its file should go.
  messages = OnRanks(2, [&](const ShardingRank& rank) {
    ShardingRank failing = rank;
    int calls = 0;
    failing.agree = [&](bool good) {
      const bool result = rank.agree(good);
      if (rank.rank == 1 && calls++ == 0) {
        fs::create_directories(root + "/.saving-step-00000002/rank-00001.safetensors");
      }
      return result;
    };
    Save(root, 2, failing);
  });
  EXPECT_THAT(messages,
              ElementsAre(HasSubstr("ABORTED"), AllOf(HasSubstr("FAILED_PRECONDITION"),
                                                      HasSubstr("rank-00001.safetensors"))));
  ExpectOnlyTheFirst(root);

  // When rank 0 puts the parts together: an element that nobody has.
  messages = OnRanks(2, [&](const ShardingRank& rank) {
    std::vector<Shard> shards = {MatrixPiece(rank, 2)};
    if (rank.rank == 0) {
      shards[0].end -= 1;
      shards[0].tensor = Slice(shards[0].tensor, 0, 0, 16);
    }
    SaveShardedState(root, 2, shards, {}, rank);
  });
  EXPECT_THAT(messages,
              ElementsAre(AllOf(HasSubstr("INVALID_ARGUMENT"),
                                HasSubstr("no rank has the elements [16, 17) of 'matrix'")),
                          HasSubstr("ABORTED")));
  ExpectOnlyTheFirst(root);

  // When it is gone: nobody comes to an agreement, at each of the three.
  for (const int last : {0, 1, 2}) {
    messages = OnRanks(2, [&](const ShardingRank& rank) {
      ShardingRank dying = rank;
      int calls = 0;
      dying.agree = [&, last](bool good) -> bool {
        if (calls++ < last) return rank.agree(good);
        rank.agree(good);  // so that rank 1 is not removing files that rank 0 still looks at
        throw UnavailableError("a rank died");
      };
      SaveShardedState(root, 2, Shards(rank, 2), {}, dying);
    });
    EXPECT_THAT(messages, ElementsAre(HasSubstr("a rank died"), HasSubstr("a rank died")));
    if (last < 2) {
      ExpectOnlyTheFirst(root);
    } else {
      EXPECT_THAT(NamesIn(root), ElementsAre("step-00000001", "step-00000002")) << "it was whole";
    }
  }
}

TEST(ShardedStateTest, BadInputWritesNothing) {
  const std::string root = NewFolder() + "/run";
  const auto refusal = [&](std::vector<Shard> shards, const Values& values = {}, int64_t step = 1,
                           int64_t keep = 1) {
    return MessageOf([&] { SaveShardedState(root, step, shards, values, {}, {.keep = keep}); });
  };
  const Tensor two = FromVector<float>({1, 2}, {2});
  EXPECT_THAT(refusal({{"a", {2}, 0, 2, two}, {"a", {2}, 0, 2, two}}),
              HasSubstr("'a': given twice"));
  EXPECT_THAT(refusal({{"a", {2}, 0, 2, Tensor()}}), HasSubstr("'a': the piece is undefined"));
  EXPECT_THAT(refusal({{"a", {2}, 1, 2, two}}),
              HasSubstr("float32[2] on cpu:0 for the elements [1, 2) of shape [2]"));
  EXPECT_THAT(refusal({{"a", {2}, -1, 1, two}}), HasSubstr("[-1, 1)"));
  EXPECT_THAT(refusal({{"", {2}, 0, 2, two}}), HasSubstr("cannot be a tensor's name"));
  EXPECT_THAT(refusal({}, {{"x", std::numeric_limits<double>::quiet_NaN()}}),
              HasSubstr("value 'x' is nan"));
  EXPECT_THAT(refusal({}, {}, -1), HasSubstr("step -1"));
  EXPECT_THAT(refusal({}, {}, 1, -1), HasSubstr("keep -1"));
  EXPECT_THAT(MessageOf([&] {
                SaveShardedState(root, 1, {}, {}, {2, 2, nullptr});
              }),
              HasSubstr("rank 2 of 2"));
  EXPECT_THAT(MessageOf([&] {
                SaveShardedState(root, 1, {}, {}, {0, 2, nullptr});
              }),
              HasSubstr("no `agree` for 2 ranks"));
  EXPECT_THAT(MessageOf([&] {
                LoadShardedState(root, {0, 0, nullptr});
              }),
              HasSubstr("rank 0 of 0"));
  EXPECT_EQ(ErrorOf([&] { LoadShardedState(root + "/none", {}); }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([&] { ReadShardedManifest(root + "/none"); }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([&] { LoadLatestShardedState(root, {}); }).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(!fs::exists(root) || fs::is_empty(root));
}

}  // namespace

// Two ranks save states `first`, first + 1, ... until the process is killed; a byte goes to
// standard output after each.
[[noreturn]] void SaveForEver(const std::string& root, int64_t first) {
  OnRanks(2, [&](const ShardingRank& rank) {
    for (int64_t step = first;; ++step) {
      const Shard piece = MatrixPiece(rank, step);
      SaveShardedState(root, step, {piece}, {}, rank, {.keep = 2});
      if (rank.rank == 0 && write(STDOUT_FILENO, ".", 1) != 1) _exit(1);
    }
  });
  _exit(1);
}

namespace {

TEST(ShardedStateTest, KilledAtAnyMomentTheLatestStateIsWhole) {
  const std::string root = NewFolder();
  int64_t newest = 0;
  for (int kill_number = 0; kill_number < 30; ++kill_number) {
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
    const timespec moment = {0, kill_number * 250'000L};
    nanosleep(&moment, nullptr);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(saved[0]);
    int64_t found = 0;
    const auto messages = OnRanks(2, [&](const ShardingRank& rank) {
      const LoadedShardedState loaded = LoadLatestShardedState(root, rank);
      EXPECT_TRUE(loaded.skipped.empty()) << loaded.skipped[0];
      const Shard expected = MatrixPiece(rank, loaded.state.step);
      ASSERT_EQ(loaded.state.shards.size(), 1u);
      EXPECT_EQ(loaded.state.shards[0].tensor.ToVector<float>(), expected.tensor.ToVector<float>());
      if (rank.rank == 0) found = loaded.state.step;
    });
    EXPECT_THAT(messages, ElementsAre("", ""));
    EXPECT_GT(found, newest);
    newest = found;
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
