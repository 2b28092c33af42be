// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of comm.md.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/work.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {
namespace {

void RankMain(comm::RankContext& context) {
  std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(context.group_options());
  const float mine = static_cast<float>(world->rank());
  Tensor values = FromVector<float>({mine, 10 * mine, 1}, {3});
  comm::Work work = world->AllReduce(values, {.op = comm::ReduceOp::kAverage});
  // ... compute something else ...
  work.Wait();

  comm::Work checked = world->Barrier().Then([] { /* runs when every rank has come */ });
  checked.Wait(Deadline::After(absl::Seconds(10)));

  Tensor all = Empty({world->size(), 1}, {.dtype = DType::kFloat32});
  world->AllGather(FromVector<float>({mine}, {1}), all).Wait();
  world->Barrier().Wait();

  const std::vector<int64_t> counts = {2, 0, 1};
  const int64_t count = counts[static_cast<size_t>(world->rank())];
  Tensor part = FromVector<float>(std::vector<float>(count, 1), {count});
  Tensor parts = Empty({3});
  world->AllGather(part, parts, {.counts = counts}).Wait();

  const int next = (world->rank() + 1) % world->size();
  const int last = (world->rank() + world->size() - 1) % world->size();
  Tensor theirs = Empty({3});
  world->Batch({comm::Transfer::Send(values, next), comm::Transfer::Recv(theirs, last)}).Wait();

  RefPtr<Storage> storage = world->Allocate(1 << 20);
  Tensor fast = FromStorage(storage, {1 << 18}, DType::kFloat32);
  world->Broadcast(fast, {.root = 0}).Wait();

  if (all.Item<float>({2, 0}) != 2 || parts.Item<float>({2}) != 1 ||
      values.Item<float>({1}) != 10 || theirs.Item<float>({1}) != 10) {
    throw InternalError("wrong values");
  }
}

TEST(CommExample, PageIsThisFile) {
  docs::ExpectSnippetsCompiled("docs/comm.md", "docs/comm_example_test.cc");
}

TEST(CommExample, ThreeProcesses) { comm::Spawn(3, RankMain).ThrowIfFailed(); }

TEST(CommExample, ThreeThreads) {
  comm::SpawnOptions options;
  options.mode = comm::SpawnMode::kThreads;
  comm::Spawn(3, RankMain, options).ThrowIfFailed();
}

TEST(CommExample, LaunchersVariables) {
  std::map<std::string, std::string> environment = {{"RANK", "1"},
                                                    {"WORLD_SIZE", "2"},
                                                    {"LOCAL_RANK", "1"},
                                                    {"MASTER_ADDR", "127.0.0.1"},
                                                    {"MASTER_PORT", "29500"}};
  comm::ProcessGroupOptions options = comm::ProcessGroupOptionsFromEnvironment(environment);
  options.timeout = absl::Seconds(60);
  EXPECT_EQ(options.rank, 1);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
