// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Collectives of lists: the values of one call a tensor, in one meeting of the ranks.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/backend_tests/backend_test.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/serial_reference.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {
namespace {

const std::vector<int64_t> kSmall = {5, 0, 1, 33, 7};
const std::vector<int64_t> kLarge = {5, 60001, 0, 7, 1};

double At(DType dtype, size_t k, int rank, int64_t i) {
  return Value(dtype, rank, i + 11 * static_cast<int64_t>(k));
}
double SumAt(DType dtype, size_t k, int size, int64_t i) {
  return Reduced(ReduceOp::kSum, dtype, size, i + 11 * static_cast<int64_t>(k));
}

// One tensor for each count, times `parts`; the first is strided if `strided`.
std::vector<Tensor> NewList(DType dtype, const std::vector<int64_t>& counts, int64_t parts,
                            bool strided) {
  std::vector<Tensor> list;
  for (const int64_t count : counts) {
    if (strided && list.empty() && dtype == DType::kFloat32) {
      list.push_back(StridedView({count * parts}, {2}, 2 * count * parts + 1));
    } else {
      list.push_back(Empty({count * parts}, {dtype, {}}));
    }
  }
  return list;
}

void FillList(const std::vector<Tensor>& list, DType dtype, int rank) {
  for (size_t k = 0; k < list.size(); ++k) {
    FillWith(list[k], [&](int64_t i) { return At(dtype, k, rank, i); });
  }
}

void CheckValues(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const int me = comm->rank();
  const int size = comm->size();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kUInt8}) {
    for (const std::vector<int64_t>& counts :
         {kSmall, kLarge, std::vector<int64_t>{0}, std::vector<int64_t>{9}}) {
      const std::vector<Tensor> reduced = NewList(dtype, counts, 1, true);
      FillList(reduced, dtype, me);
      const std::vector<Tensor> inputs = NewList(dtype, counts, 1, true);
      FillList(inputs, dtype, me);
      const std::vector<Tensor> gathered = NewList(dtype, counts, size, false);
      const std::vector<Tensor> wholes = NewList(dtype, counts, size, false);
      FillList(wholes, dtype, me);
      const std::vector<Tensor> scattered = NewList(dtype, counts, 1, true);
      const Work a = comm->AllReduceCoalesced(reduced);
      const Work b = comm->AllGatherCoalesced(inputs, gathered);
      const Work c = comm->ReduceScatterCoalesced(wholes, scattered);
      c.Wait();
      a.Wait();
      b.Wait();
      for (size_t k = 0; k < counts.size(); ++k) {
        const std::string what = absl::StrCat("tensor ", k, " of ", DTypeName(dtype));
        RequireValues(
            reduced[k], [&](int64_t i) { return SumAt(dtype, k, size, i); }, "AllReduce " + what);
        RequireValues(
            gathered[k],
            [&](int64_t i) { return At(dtype, k, static_cast<int>(i / counts[k]), i % counts[k]); },
            "AllGather " + what);
        RequireValues(
            scattered[k], [&](int64_t i) { return SumAt(dtype, k, size, me * counts[k] + i); },
            "ReduceScatter " + what);
        if (dtype == DType::kFloat32 && k == 0) RequireGapsUntouched(reduced[0], 2 * counts[0] + 1);
      }
    }
  }
}

// Twenty tensors: as many messages as for one.
void CheckMessages(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const std::vector<int64_t> counts(20, 40);
  const int size = comm->size();
  const std::vector<Tensor> parts = NewList(DType::kFloat32, counts, 1, false);
  const std::vector<Tensor> wholes = NewList(DType::kFloat32, counts, size, false);
  int64_t before = comm->traffic().messages;
  const auto messages = [&] {
    const int64_t now = comm->traffic().messages;
    return now - std::exchange(before, now);
  };
  for (const Tensor& part : parts) comm->AllReduce(part).Wait();
  Require(messages() == 20, "one by one");
  comm->AllReduceCoalesced(parts).Wait();
  Require(messages() == 1, "AllReduceCoalesced");
  comm->AllGatherCoalesced(parts, wholes).Wait();
  Require(messages() == 1, "AllGatherCoalesced");
  comm->ReduceScatterCoalesced(wholes, parts).Wait();
  Require(messages() == 1, "ReduceScatterCoalesced");
  comm->AllReduceCoalesced(NewList(DType::kFloat32, kLarge, 1, false)).Wait();
  Require(messages() == 2, "beyond the inline size");
}

void CheckArguments(RankContext& context) {
  const auto comm = MakeTestGroup(context);
  const Tensor x = Empty({6});
  const Tensor y = Empty({12});
  const Tensor i = Empty({6}, {DType::kInt32, {}});
  const auto refuses = [](const std::string& part, const std::function<void()>& call) {
    RequireError(absl::StatusCode::kInvalidArgument, {part}, call);
  };
  refuses("0 inputs and 0 outputs", [&] { comm->AllReduceCoalesced({}); });
  refuses("2 inputs and 1 outputs", [&] { comm->AllGatherCoalesced({x, x}, {y}); });
  refuses("tensor 1 of the list is an undefined", [&] { comm->AllReduceCoalesced({x, Tensor()}); });
  refuses("tensor 0 of the list is float32 and tensor 1 is int32", [&] {
    comm->AllReduceCoalesced({x, i});
  });
  refuses("tensors 0 and 1 of the list share memory", [&] { comm->AllReduceCoalesced({x, x}); });
  refuses("tensor 0 of the list: 6 elements, but 2 ranks times [6] is 12",
          [&] { comm->AllGatherCoalesced({x}, {Empty({6})}); });
  refuses("it must be row-major",
          [&] { comm->AllGatherCoalesced({x}, {StridedView({12}, {2}, 30)}); });
  refuses("give counts", [&] { comm->ReduceScatterCoalesced({y}, {x}, {.counts = {6, 6}}); });
  refuses("the average of int32",
          [&] { comm->AllReduceCoalesced({i}, {.op = ReduceOp::kAverage}); });
  Require(comm->sequence() == 0, "a refused call takes no number");
}

// The same elements in all, cut otherwise; and one tensor against a list.
void Disagree(RankContext& context) {
  const bool odd = context.rank == 1;
  const auto a = MakeTestGroup(context, absl::Seconds(60), "a");
  RequireError(absl::StatusCode::kInvalidArgument,
               {"ranks disagree", "AllReduce(float32 x 12 in 2 tensors, list "}, [&] {
                 a->AllReduceCoalesced({Empty({odd ? 5 : 6}), Empty({odd ? 7 : 6})}).Wait();
               });
  const auto b = MakeTestGroup(context, absl::Seconds(60), "b");
  RequireError(absl::StatusCode::kInvalidArgument,
               {"AllReduce(float32 x 12, sum)", "AllReduce(float32 x 12 in 1 tensors, list "}, [&] {
                 const Tensor x = Empty({12});
                 (odd ? b->AllReduce(x) : b->AllReduceCoalesced({x})).Wait();
               });
}

// Field report C-4.
void MissRank(RankContext& context) {
  const auto comm = MakeTestGroup(context, absl::Seconds(20));
  if (context.rank == 1) {
    return context.store->Wait({"done"}, Deadline::After(absl::Seconds(30)));
  }
  RequireError(
      absl::StatusCode::kDeadlineExceeded,
      {"rank 1 did not call AllReduce(float32 x 2 in 1 tensors"},
      [&] { comm->AllReduceCoalesced({Empty({2})}, {.timeout = absl::Milliseconds(300)}).Wait(); });
  context.store->Set("done", "", Deadline());
}

constexpr SpawnMode kThreads = SpawnMode::kThreads;

LOCKSTEP_BACKEND_SUITE(CoalescedTest);

TEST_P(CoalescedTest, Values) {
  for (const int ranks : {1, 2, 3}) ExpectAllOk(Spawn(ranks, CheckValues, {.mode = kThreads}));
  ExpectAllOk(Spawn(2, CheckValues));
  ExpectAllOk(Spawn(2, CheckValues, {.argument = "staged"}));
}

TEST_P(CoalescedTest, OneMeeting) {
  if (!IsShm()) GTEST_SKIP();
  ExpectAllOk(Spawn(3, CheckMessages, {.mode = kThreads}));
}
TEST_P(CoalescedTest, RefusesArguments) {
  ExpectAllOk(Spawn(2, CheckArguments, {.mode = kThreads}));
}
TEST_P(CoalescedTest, ListsThatDiffer) { ExpectAllOk(Spawn(2, Disagree, {.mode = kThreads})); }
TEST_P(CoalescedTest, MissingRank) { ExpectAllOk(Spawn(2, MissRank, {.mode = kThreads})); }

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
