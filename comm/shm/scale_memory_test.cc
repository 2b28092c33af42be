// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// A group of many ranks takes addresses for all that its ranks might send each other, and memory
// for what they do. Not for sanitizers, whose own memory is in the way.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {
namespace {

constexpr int kRanks = 64;

int64_t ResidentBytes() {
  int64_t pages = 0;
  int64_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

void SendToAll(Communicator& comm) {
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < comm.size(); ++peer) {
    transfers.push_back(Transfer::Send(FromVector<float>({1, 2}, {2}), peer));
    transfers.push_back(Transfer::Recv(Empty({2}), peer));
  }
  comm.Batch(transfers).Wait();
}

TEST(ScaleMemoryTest, AGroupOfSixtyFourTakesMemoryForWhatItUses) {
  constexpr int64_t kMiB = 1 << 20;
  const int64_t before = ResidentBytes();
  int64_t made = 0;
  int64_t reduced = 0;
  int64_t sent = 0;
  ExpectAllOk(SpawnThreads(kRanks, [&](RankContext& context) {
    const auto comm = MakeTestGroup(context);
    const auto measure = [&](int64_t* bytes) {
      comm->Barrier().Wait();
      if (context.rank == 0) *bytes = ResidentBytes() - before;
      comm->Barrier().Wait();
    };
    measure(&made);
    const Tensor x = FromVector<float>(std::vector<float>(64, 1), {64});
    for (int i = 0; i < 3; ++i) comm->AllReduce(x).Wait();
    measure(&reduced);
    SendToAll(*comm);
    measure(&sent);
  }));
  std::printf(
      "%d ranks, resident: %.1f MiB for the group and its threads, %.1f MiB after small "
      "reductions, %.1f MiB after every rank has sent to every other\n",
      kRanks, static_cast<double>(made) / kMiB, static_cast<double>(reduced) / kMiB,
      static_cast<double>(sent) / kMiB);
  EXPECT_LT(made, 32 * kMiB);
  EXPECT_LT(reduced, 40 * kMiB);
  EXPECT_LT(sent, 128 * kMiB);
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
