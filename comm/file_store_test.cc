// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Folders shared by processes. What one process sees of a FileStore is in store_test.cc.
#include "lockstep/comm/file_store.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

Deadline In(double seconds) { return Deadline::After(absl::Seconds(seconds)); }

void Require(bool condition, absl::string_view text) {
  if (!condition) throw lockstep::InternalError(text);
}

void ExpectSays(const std::string& text, const std::string& part) {
  EXPECT_TRUE(absl::StrContains(text, part)) << text;
}

FileStoreOptions OptionsOf(const RankContext& context) {
  return {.folder = context.argument,
          .rank = context.rank,
          .world_size = context.world_size,
          .timeout = absl::Seconds(60)};
}

// ---- Several processes ----

void CountTogether(RankContext& context) {
  FileStore store(OptionsOf(context));
  constexpr int kAdds = 100;
  int64_t last = 0;
  for (int i = 0; i < kAdds; ++i) {
    const int64_t sum = store.Add("n", 1, In(60));
    Require(sum > last, "sums must grow");
    last = sum;
  }
  store.Set(absl::StrCat("done/", context.rank), absl::StrCat("from ", context.rank), In(60));
  for (int rank = 0; rank < context.world_size; ++rank) {
    Require(store.Get(absl::StrCat("done/", rank), In(60)) == absl::StrCat("from ", rank), "value");
  }
  Require(store.Add("n", 0, In(60)) == kAdds * context.world_size, "an Add was lost");
}

TEST(FileStoreProcesses, CountTogether) {
  Spawn(3, CountTogether, {.argument = NewFolder()}).ThrowIfFailed();
}

// Writes until it is killed.
void WriteForever(FileStore& store) {
  std::thread killer([&] {
    store.Get("kill", Deadline());
    kill(getpid(), SIGKILL);
  });
  for (int64_t i = 0;; ++i) {
    store.Add("n", 1, Deadline());
    store.Set("text", std::string(static_cast<size_t>(i * 7919 % 300000), 'x'), Deadline());
    store.Delete("text", Deadline());
  }
}

void KillAWriter(RankContext& context) {
  FileStore store(OptionsOf(context));
  if (context.rank == 1) {
    store.Set("pid", absl::StrCat(getpid()), Deadline());
    WriteForever(store);
  }
  int pid = 0;
  Require(absl::SimpleAtoi(store.Get("pid", In(60)), &pid), "pid");
  const Deadline deadline = In(60);
  while (store.Add("n", 0, In(60)) < 20 && !deadline.Expired()) {
  }
  store.Set("kill", "", In(60));
  while (kill(pid, 0) == 0 || errno != ESRCH) Require(!deadline.Expired(), "still alive");
  // Whatever rank 1 was doing, nothing is locked and everything is whole.
  const int64_t n = store.Add("n", 0, In(60));
  for (int64_t i = 1; i <= 50; ++i) Require(store.Add("n", 1, In(60)) == n + i, "sum");
  store.Set("text", "mine", In(60));
  Require(store.Get("text", In(60)) == "mine", "text");
}

TEST(FileStoreProcesses, AKilledWriterLeavesNothingLocked) {
  for (int round = 0; round < 3; ++round) {
    const std::string folder = NewFolder();
    const SpawnResult result = Spawn(2, KillAWriter, {.argument = folder});
    EXPECT_EQ(result.ranks[1].signal, SIGKILL);
    EXPECT_TRUE(result.ranks[0].ok()) << result.ranks[0].ToString();
    fs::remove_all(folder);
  }
}

void MakeAGroup(RankContext& context) {
  const auto world = InitProcessGroup({.rank = context.rank,
                                       .world_size = context.world_size,
                                       .local_rank = context.rank,
                                       .local_world_size = context.world_size,
                                       .rendezvous = "file://" + context.argument,
                                       .timeout = absl::Seconds(60)});
  world->Barrier().Wait();
}

TEST(FileStoreProcesses, MakeAGroup) {
  Spawn(3, MakeAGroup, {.argument = NewFolder() + "/made"}).ThrowIfFailed();
}

// ---- Meeting ----

TEST(FileStoreMeeting, NamesTheRanksThatDoNotCome) {
  const std::string folder = NewFolder();
  const auto meet = [&](int rank) {
    FileStore store(
        {.folder = folder, .rank = rank, .world_size = 4, .timeout = absl::Milliseconds(200)});
  };
  std::thread other([&] {
    ExpectSays(MessageOf(absl::StatusCode::kDeadlineExceeded, [&] { meet(2); }),
               "1, 3 did not come");
  });
  const Deadline patience = In(60);
  while (!fs::exists(folder + "/rank.2") && !patience.Expired()) std::this_thread::yield();
  const std::string text = MessageOf(absl::StatusCode::kDeadlineExceeded, [&] { meet(0); });
  ExpectSays(text, "of 4 ranks, rank 1, 3 did not come to the folder " + folder + " within ");
  other.join();
}

TEST(FileStoreMeeting, RefusesTheFolderOfAnEarlierStart) {
  const std::string folder = NewFolder();
  {
    FileStore store({.folder = folder});
    store.Set("k", "old", In(5));
  }
  ExpectSays(MessageOf(absl::StatusCode::kFailedPrecondition,
                       [&] { FileStore store({.folder = folder}); }),
             "rank 0 has been here already");
  const std::string text = MessageOf(absl::StatusCode::kFailedPrecondition, [&] {
    FileStore store({.folder = folder, .rank = 1, .world_size = 2});
  });
  ExpectSays(text, "it is for 1 ranks, and this job has 2");
  ExpectSays(text, "use a new folder for each start");
}

// The earlier start died before its ranks had met: one name is there, and nobody behind it.
TEST(FileStoreMeeting, NobodyMeetsLeftovers) {
  const std::string folder = NewFolder();
  const auto meet = [&](int rank) {
    FileStore store(
        {.folder = folder, .rank = rank, .world_size = 2, .timeout = absl::Milliseconds(300)});
  };
  ExpectSays(MessageOf(absl::StatusCode::kDeadlineExceeded, [&] { meet(1); }), "rank 0 did not");
  std::thread second([&] {
    ExpectSays(MessageOf(absl::StatusCode::kFailedPrecondition, [&] { meet(1); }),
               "rank 1 has been");
  });
  const std::string text = MessageOf(absl::StatusCode::kDeadlineExceeded, [&] { meet(0); });
  ExpectSays(text, "rank 1 did not come");
  ExpectSays(text, "an earlier start's?");
  second.join();
}

TEST(FileStoreMeeting, RefusesBadArguments) {
  const auto open = [](const std::string& folder) { FileStore store({.folder = folder}); };
  ExpectSays(
      MessageOf(absl::StatusCode::kInvalidArgument,
                [] { FileStore store({.folder = NewFolder(), .rank = 2, .world_size = 2}); }),
      "rank 2 is not in [0, 2)");
  ExpectSays(MessageOf(absl::StatusCode::kInvalidArgument, [&] { open(""); }), "no folder");
  const std::string folder = NewFolder();
  ExpectSays(MessageOf(absl::StatusCode::kNotFound, [&] { open(folder + "/a/b"); }),
             folder + "/a/b");
  std::ofstream(folder + "/notes.txt") << "mine";
  ExpectSays(MessageOf(absl::StatusCode::kInvalidArgument, [&] { open(folder); }), "notes.txt");
  ExpectSays(MessageOf(absl::StatusCode::kUnavailable, [&] { open(folder + "/notes.txt"); }),
             "Not a directory");
  fs::remove(folder + "/notes.txt");
  chmod(folder.c_str(), 0770);
  ExpectSays(MessageOf(absl::StatusCode::kInvalidArgument, [&] { open(folder); }), "chmod 700");
  chmod(folder.c_str(), 0755);
  open(folder);  // that others can see it does no harm: its files are private
}

TEST(FileStoreMeeting, RefusesAnotherUsersFolder) {
  const std::string folder = NewFolder();
  if (chown(folder.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root can make one";
  ExpectSays(
      MessageOf(absl::StatusCode::kInvalidArgument, [&] { FileStore store({.folder = folder}); }),
      "belongs to user 12345");
}

TEST(FileStoreMeeting, Urls) {
  EXPECT_EQ(FolderOfFileUrl("file:///shared/job 1%20"), "/shared/job 1%20");
  for (const char* url :
       {"", "file://", "file:///", "file://host/folder", "/shared", "tcp://h:1"}) {
    ExpectSays(MessageOf(absl::StatusCode::kInvalidArgument, [&] { FolderOfFileUrl(url); }),
               "file:///absolute/folder");
  }
}

// ---- Faults of the folder ----

TEST(FileStoreFaults, AFolderThatGoesIsAnErrorAtOnce) {
  const std::string folder = NewFolder();
  FileStore store({.folder = folder});
  std::string text;
  std::thread waiter([&] {
    text = MessageOf(absl::StatusCode::kUnavailable, [&] { store.Get("never", Deadline()); });
  });
  fs::remove_all(folder);
  waiter.join();
  ExpectSays(text, folder);
  fs::create_directory(folder);
  ExpectSays(MessageOf(absl::StatusCode::kUnavailable, [&] { store.Set("k", "v", Deadline()); }),
             "replaced by another one");
}

TEST(FileStoreFaults, UnfinishedAndDamagedFiles) {
  const std::string folder = NewFolder();
  std::ofstream(folder + "/tmp.0123") << "half of a";  // what a killed writer leaves
  FileStore store({.folder = folder});
  store.Set("k", "first", In(5));
  store.Set("k", "second", In(5));
  EXPECT_EQ(store.Get("k", In(5)), "second");
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (absl::StartsWith(name, "key.") && absl::EndsWith(name, ".1")) {
      EXPECT_EQ(entry.file_size(), 0u);  // an older version
    } else if (absl::StartsWith(name, "key.")) {
      fs::resize_file(entry.path(), entry.file_size() - 1);
    }
  }
  ExpectSays(MessageOf(absl::StatusCode::kDataLoss, [&] { store.Get("k", In(5)); }), "key k in ");
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
