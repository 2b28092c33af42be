// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Many ranks on this machine: a thousand meet through one server and pass three barriers, a hundred
// and twenty-eight do in a folder.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/comm/file_store.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm {
namespace {

constexpr int kClients = 1000;
constexpr int kBarriers = 3;
// Both ends of each connection, and what a test has open anyway.
constexpr rlim_t kDescriptors = 2 * kClients + 100;

Deadline In(double seconds) { return Deadline::After(absl::Seconds(seconds)); }

// Differs from rank to rank in length and in every digit.
std::string AddressOf(int rank) {
  return absl::StrCat("host", rank * 7919, ":", std::string(static_cast<size_t>(rank % 31), 'x'));
}

bool RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < kDescriptors) return false;
  limit.rlim_cur = std::max(limit.rlim_cur, kDescriptors);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

// When the last client was through with each phase.
class Phases {
 public:
  Phases(int count) : done_(static_cast<size_t>(count)) {}
  void Done(int phase) {
    const int64_t now = watch_.ElapsedNanoseconds();
    std::lock_guard<std::mutex> lock(mutex_);
    done_[static_cast<size_t>(phase)] = std::max(done_[static_cast<size_t>(phase)], now);
  }
  double Seconds(int phase) const {
    return static_cast<double>(done_[static_cast<size_t>(phase)]) * 1e-9;
  }

 private:
  Stopwatch watch_;
  std::mutex mutex_;
  std::vector<int64_t> done_;
};

class Job {
 public:
  Job(int port, const std::string& token) : port_(port), token_(token) {}

  // One client's life.
  void Run(int rank) {
    StoreClient store({.port = port_, .token = token_, .connect_timeout = absl::Seconds(50)});
    phases_.Done(0);
    store.Set(absl::StrCat("address/", rank), AddressOf(rank), In(50));
    for (const int step : {1, 13, 500, 999}) {
      const int peer = (rank + step) % kClients;
      if (store.Get(absl::StrCat("address/", peer), In(50)) != AddressOf(peer)) wrong_.fetch_add(1);
    }
    if (rank % 50 == 0) WaitForAll(store);
    phases_.Done(1);
    for (int barrier = 0; barrier < kBarriers; ++barrier) {
      arrived_[barrier].fetch_add(1);
      Barrier(store, barrier, rank);
      if (arrived_[barrier].load() != kClients) early_.fetch_add(1);
      phases_.Done(2 + barrier);
    }
  }

  void ExpectRight() const {
    EXPECT_EQ(wrong_.load(), 0) << "values of another key";
    EXPECT_EQ(early_.load(), 0) << "clients that passed a barrier before all had come";
    std::printf(
        "%d clients: connected after %.2f s, addresses exchanged after %.2f s, barriers "
        "passed after %.2f, %.2f and %.2f s\n",
        kClients, phases_.Seconds(0), phases_.Seconds(1), phases_.Seconds(2), phases_.Seconds(3),
        phases_.Seconds(4));
  }

 private:
  static void WaitForAll(Store& store) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < kClients; ++rank) keys.push_back(absl::StrCat("address/", rank));
    store.Wait(keys, In(50));
  }

  void Barrier(Store& store, int barrier, int rank) {
    const std::string prefix = absl::StrCat("barrier/", barrier);
    const int64_t count = store.Add(prefix + "/came", 1, In(50));
    // The last one to come opens, and says who it was.
    if (count == kClients) store.Set(prefix + "/open", absl::StrCat(rank), In(50));
    int opener = -1;
    if (!absl::SimpleAtoi(store.Get(prefix + "/open", In(50)), &opener) || opener < 0 ||
        opener >= kClients || (count == kClients && opener != rank)) {
      wrong_.fetch_add(1);
    }
  }

  const int port_;
  const std::string token_;
  Phases phases_{2 + kBarriers};
  std::atomic<int> arrived_[kBarriers] = {};
  std::atomic<int> wrong_{0};
  std::atomic<int> early_{0};
};

TEST(StoreScale, AThousandClientsMeetAndPassThreeBarriers) {
  if (!RaiseDescriptorLimit()) {
    GTEST_SKIP() << "this process may not open " << kDescriptors << " files (ulimit -Hn)";
  }
  StoreServer server({.token = "secret"});
  Job job(server.port(), "secret");
  std::atomic<int> failed{0};
  std::vector<std::thread> clients;
  for (int rank = 0; rank < kClients; ++rank) {
    clients.emplace_back([&, rank] {
      try {
        job.Run(rank);
      } catch (const std::exception& error) {
        if (failed.fetch_add(1) == 0) ADD_FAILURE() << "client " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(failed.load(), 0);
  job.ExpectRight();
  // The server goes on with the clients gone.
  server.local()->Set("after", "1", In(20));
  EXPECT_EQ(server.local()->Get("after", In(20)), "1");
}

// ---- In a folder ----

constexpr int kFolderRanks = 128;

void LiveInFolder(const std::string& folder, int rank, Phases* phases) {
  FileStore store(
      {.folder = folder, .rank = rank, .world_size = kFolderRanks, .timeout = absl::Seconds(50)});
  phases->Done(0);
  store.Set(absl::StrCat("address/", rank), AddressOf(rank), In(50));
  std::vector<std::string> keys;
  for (int peer = 0; peer < kFolderRanks; ++peer) keys.push_back(absl::StrCat("address/", peer));
  store.Wait(keys, In(50));
  for (const int step : {1, 13, 127}) {
    const int peer = (rank + step) % kFolderRanks;
    const std::string address = store.Get(absl::StrCat("address/", peer), In(50));
    if (address != AddressOf(peer)) throw InternalError(absl::StrCat(peer, ": ", address));
  }
  phases->Done(1);
  if (store.Add("came", rank, In(50)) == kFolderRanks * (kFolderRanks - 1) / 2) {
    // Rank 0 adds nothing: two ranks may find the sum complete, and both say so.
    store.Set("open", "yes", In(50));
  }
  if (store.Get("open", In(50)) != "yes") throw InternalError("what opened the barrier?");
  phases->Done(2);
}

TEST(StoreScale, ManyRanksMeetInAFolder) {
  const std::string folder = NewFolder();
  Phases phases(3);
  std::atomic<int> failed{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kFolderRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        LiveInFolder(folder, rank, &phases);
      } catch (const std::exception& error) {
        if (failed.fetch_add(1) == 0) ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(failed.load(), 0);
  std::printf(
      "%d ranks in a folder: met after %.2f s, addresses exchanged after %.2f s, barrier "
      "passed after %.2f s\n",
      kFolderRanks, phases.Seconds(0), phases.Seconds(1), phases.Seconds(2));
}

}  // namespace
}  // namespace lockstep::comm
