// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The examples of comm.md.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/byte_strings.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/comm/flight_record_file.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/store_token.h"
#include "lockstep/comm/subgroups.h"
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

  world->AllReduceCoalesced({values, parts}).Wait();

  const std::string config = comm::BroadcastBytes(*world, world->rank() == 0 ? "layers: 12" : "");
  std::vector<std::string> hosts =
      comm::AllGatherBytes(*world, absl::StrCat("host", world->rank()));

  std::shared_ptr<comm::Communicator> half = comm::Split(*world, /*color=*/world->rank() % 2);
  std::shared_ptr<comm::Communicator> ends = comm::Subgroup(*world, {0, 2});
  comm::DeviceMesh mesh(world, {{"replicate", 1}, {"shard", 3}});
  mesh.Group("shard")->Barrier().Wait();

  RefPtr<Storage> storage = world->Allocate(1 << 20);
  Tensor fast = FromStorage(storage, {1 << 18}, DType::kFloat32);
  world->Broadcast(fast, {.root = 0}).Wait();

  const std::string folder = absl::StrCat(testing::TempDir(), "/flight_records");
  comm::ProcessGroupOptions patient = context.group_options("patient");
  patient.slow_warning = absl::Seconds(30);
  patient.on_slow = [](const std::string& warning) {
    std::fprintf(stderr, "%s\n", warning.c_str());
  };
  patient.verify_payload = true;
  patient.flight_recorder.folder = folder;
  std::shared_ptr<comm::Communicator> recorded = comm::InitProcessGroup(patient);
  recorded->AllReduce(values).Wait();
  comm::WriteFlightRecord(recorded->flight_record(), folder);  // at any other time
  const std::string path =
      absl::StrCat(folder, "/", comm::FlightRecordFileName("patient", world->rank()));
  if (comm::ReadFlightRecord(path).calls.size() != 1) throw InternalError("wrong record");

  const bool is_odd = world->rank() == 1;
  if (all.Item<float>({2, 0}) != 2 || parts.Item<float>({2}) != 3 ||
      values.Item<float>({1}) != 90 || theirs.Item<float>({1}) != 10 || config != "layers: 12" ||
      hosts[2] != "host2" || half->size() != (is_odd ? 1 : 2) || (ends == nullptr) != is_odd) {
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
  const std::string token_path = testing::TempDir() + "/token";
  std::ofstream(token_path) << "secret\n";
  ASSERT_EQ(chmod(token_path.c_str(), 0600), 0);
  options.token = comm::ReadTokenFile(token_path);
  EXPECT_EQ(options.token, "secret");
  comm::ProcessGroupOptions with_folder =
      comm::ProcessGroupOptionsFromEnvironment(environment, "file:///shared/jobs/1234-0");
  EXPECT_EQ(with_folder.rendezvous, "file:///shared/jobs/1234-0");
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
