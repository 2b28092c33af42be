// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Byte strings, groups made of groups, and device meshes.

#include "lockstep/comm/subgroups.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/backend_tests/backend_test.h"
#include "lockstep/comm/byte_strings.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {
namespace {

// Of this length, with zeros and bytes above 127, and different for each rank.
std::string Bytes(int rank, size_t length) {
  std::string text(length, '\0');
  for (size_t i = 0; i < length; ++i) {
    text[i] = static_cast<char>((i * 7 + i / 251 + static_cast<size_t>(rank) * 13) % 256);
  }
  return text;
}

void CheckByteStrings(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const int me = comm->rank();
  const int size = comm->size();
  // The length of rank r's string in each round.
  const std::vector<std::vector<size_t>> rounds = {
      {0, 0, 0}, {1, 0, 5}, {0, 70001, 3}, {20000, 20000, 20000}, {3000000, 0, 1}};
  for (const std::vector<size_t>& lengths : rounds) {
    const auto of = [&](int rank) { return Bytes(rank, lengths[static_cast<size_t>(rank)]); };
    std::vector<std::string> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(of(rank));
    for (int root = 0; root < size; ++root) {
      Require(BroadcastBytes(*comm, of(me), root) == of(root), "BroadcastBytes");
      Require(GatherBytes(*comm, of(me), root) == (me == root ? all : std::vector<std::string>()),
              "GatherBytes");
      Require(ScatterBytes(*comm, me == root ? all : std::vector<std::string>(), root) == of(me),
              "ScatterBytes");
    }
    Require(AllGatherBytes(*comm, of(me)) == all, "AllGatherBytes");
  }
}

void CheckByteStringFaults(RankContext& context) {
  const auto a = MakeTestGroup(context, absl::Milliseconds(500), "a");
  const auto b = MakeTestGroup(context, absl::Seconds(60), "b");
  RequireError(absl::StatusCode::kInvalidArgument, {"root 7 is not in [0, 2)"},
               [&] { BroadcastBytes(*a, "x", 7); });
  // The root's mistake is told to all, at once, and does no harm to the group.
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"a", "b", "c"}, std::vector<std::string>{"a"}}) {
    RequireError(
        absl::StatusCode::kInvalidArgument,
        {absl::StrCat("ScatterBytes: rank 1 gives ", wrong.size(), " parts for 2 ranks")},
        [&] { ScatterBytes(*b, context.rank == 1 ? wrong : std::vector<std::string>(), 1); });
  }
  Require(ScatterBytes(*b, {"x", "y"}) == (context.rank == 0 ? "x" : "y"), "the group goes on");
  if (context.rank == 0) {
    RequireError(absl::StatusCode::kDeadlineExceeded, {"rank 1 did not call AllGather"},
                 [&] { AllGatherBytes(*a, "x"); });
  }
  RequireError(absl::StatusCode::kInvalidArgument, {"root 0", "root 1"},
               [&] { BroadcastBytes(*b, "x", context.rank); });
}

float SumOver(Communicator& comm, int value) {
  const Tensor x = Empty({1});
  FillWith(x, [&](int64_t) { return value; });
  comm.AllReduce(x).Wait();
  return x.Item<float>({0});
}

void CheckSplit(RankContext& context) {
  auto world = MakeTestGroup(context);
  const int me = world->rank();
  // Twice, with other members of the same colour: groups of one colour do not meet by mistake.
  for (const int modulus : {2, 3, 2}) {
    const int color = me % modulus;
    const auto group = Split(*world, color, /*key=*/-me);
    int members = 0;
    int sum = 0;
    int above = 0;
    for (int rank = color; rank < world->size(); rank += modulus) {
      ++members;
      sum += rank;
      if (rank > me) ++above;
    }
    Require(group->size() == members && group->rank() == above, "ordered by key");
    Require(SumOver(*group, me) == static_cast<float>(sum), "sum in a group");
    Require(group->timeout() == world->timeout(), "timeout");
  }
  const auto some = Split(*world, me == 1 ? kNoColor : 5);
  Require((some == nullptr) == (me == 1), "no color");
  // Of equal keys by rank; subgroups of subgroups; the parent may go first.
  const auto all = Split(*world, 0);
  Require(all->rank() == me, "by rank");
  const auto pairs = Split(*all, me / 2);
  Require(SumOver(*all, 1) == static_cast<float>(world->size()), "before the parent goes");
  world->Barrier().Wait();
  world.reset();
  Require(SumOver(*all, 1) == static_cast<float>(all->size()), "after the parent has gone");
  Require(SumOver(*pairs, 1) == static_cast<float>(pairs->size()), "pairs");
  all->Barrier().Wait();
  RequireError(absl::StatusCode::kInvalidArgument, {"rank 2 of group", "gives color -2"},
               [&] { Split(*all, me == 2 ? -2 : 0); });
  Require(SumOver(*all, 1) == static_cast<float>(all->size()), "a refused color does no harm");
}

void CheckSubgroup(RankContext& context) {
  const auto world = MakeTestGroup(context);
  const int me = world->rank();
  const auto group = Subgroup(*world, {3, 0});
  Require((group != nullptr) == (me == 3 || me == 0), "members");
  if (group != nullptr) {
    Require(group->rank() == (me == 3 ? 0 : 1), "order of the list");
    Require(SumOver(*group, me) == 3, "sum");
    // A fault of the subgroup is no fault of the parent.
    RequireError(absl::StatusCode::kInvalidArgument, {"ranks disagree", "group \"world/"},
                 [&] { group->AllReduce(Empty({me + 1})).Wait(); });
  }
  Require(SumOver(*world, 1) == 4, "the parent goes on");
  for (const std::vector<int>& wrong :
       {std::vector<int>{}, std::vector<int>{1, 1}, std::vector<int>{0, 4}, std::vector<int>{-1}}) {
    RequireError(absl::StatusCode::kInvalidArgument, {"are not different ranks in [0, 4)"},
                 [&] { Subgroup(*world, wrong); });
  }
  RequireError(absl::StatusCode::kInvalidArgument, {"rank 0", "gives ranks [0] and rank 1 [1]"},
               [&] { Subgroup(*world, {me == 1 ? 1 : 0}); });
  Require(SumOver(*world, 1) == 4, "refused lists leave the parent as it was");
}

void CheckMesh(RankContext& context) {
  const auto world = MakeTestGroup(context);
  const int me = world->rank();
  const DeviceMesh mesh(world, {{"replicate", 2}, {"shard", 3}});
  Require(mesh.Coordinate("replicate") == me / 3 && mesh.Coordinate("shard") == me % 3,
          "row-major coordinates");
  Require(mesh.size("shard") == 3 && mesh.RankAt({1, 2}) == 5, "sizes");
  Require(mesh.Group("shard")->rank() == me % 3 && mesh.Group("shard")->size() == 3, "shard");
  Require(mesh.Group("replicate")->rank() == me / 3, "replicate");
  Require(SumOver(*mesh.Group("shard"), me) == static_cast<float>(me / 3 * 9 + 3), "shard sum");
  Require(SumOver(*mesh.Group("replicate"), me) == static_cast<float>(me % 3 * 2 + 3),
          "replicate sum");
  RequireError(absl::StatusCode::kNotFound, {"no dimension \"tensor\" in {replicate: 2, shard: 3}"},
               [&] { mesh.Group("tensor"); });
  RequireError(absl::StatusCode::kOutOfRange, {"[2, 0] is not a point"}, [&] {
    mesh.RankAt({2, 0});
  });
  const auto refuses = [&](const std::string& part, std::vector<MeshDimension> dimensions) {
    RequireError(absl::StatusCode::kInvalidArgument, {part},
                 [&] { DeviceMesh(world, dimensions); });
  };
  refuses("{a: 2, b: 2} do not multiply to the 6 ranks of group \"world\"", {{"a", 2}, {"b", 2}});
  refuses("do not multiply", {});
  refuses("come once", {{"a", 2}, {"a", 3}});
  refuses("at least 1", {{"a", 6}, {"b", 0}});
  refuses("rank 0 has dimensions {a: 6} and rank 1 {b: 6}", {{me == 1 ? "b" : "a", 6}});
  const DeviceMesh cube(world, {{"a", 1}, {"b", 6}, {"c", 1}});
  Require(cube.Group("b")->size() == 6 && cube.Group("a")->size() == 1, "sizes of one");
}

constexpr SpawnMode kThreads = SpawnMode::kThreads;

LOCKSTEP_BACKEND_SUITE(ByteStringsTest);

TEST_P(ByteStringsTest, AnyLength) {
  for (const int ranks : {1, 3}) {
    ExpectAllOk(Spawn(ranks, CheckByteStrings, {.mode = kThreads}));
  }
  ExpectAllOk(Spawn(3, CheckByteStrings));
}

TEST_P(ByteStringsTest, Faults) {
  ExpectAllOk(Spawn(2, CheckByteStringFaults, {.mode = kThreads}));
}

LOCKSTEP_BACKEND_SUITE(SplitTest);

TEST_P(SplitTest, ThreadsAndProcesses) {
  ExpectAllOk(Spawn(5, CheckSplit, {.mode = kThreads}));
  ExpectAllOk(Spawn(4, CheckSplit));
}

LOCKSTEP_BACKEND_SUITE(SubgroupTest);

TEST_P(SubgroupTest, ThreadsAndProcesses) {
  ExpectAllOk(Spawn(4, CheckSubgroup, {.mode = kThreads}));
  ExpectAllOk(Spawn(4, CheckSubgroup));
}

LOCKSTEP_BACKEND_SUITE(DeviceMeshTest);

TEST_P(DeviceMeshTest, TwoByThree) { ExpectAllOk(Spawn(6, CheckMesh, {.mode = kThreads})); }

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
