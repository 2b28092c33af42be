// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Every collective against a serial reference: world sizes, counts, dtypes, reductions, in place
// and not, ordinary and allocated memory, strided tensors, all paths to a peer's memory, threads
// and processes. Data depend on rank and position, and results are exact.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/backend_tests/backend_test.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/serial_reference.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                             DType::kInt64,   DType::kInt32,    DType::kUInt8,   DType::kBool};

// A thread sanitizer looks for races, which the values of the elements do not change, and making
// and comparing instrumented values is nearly all that this test does. In such a build the many
// large tensors go through one dtype of each size (slices are cut by bytes), and at most three
// ranks are processes: it does not see across processes, only the threads in each.
#ifdef ABSL_HAVE_THREAD_SANITIZER
constexpr bool kThreadSanitizer = true;
constexpr int kMaxProcesses = 3;
#else
constexpr bool kThreadSanitizer = false;
constexpr int kMaxProcesses = 4;
#endif

bool IsFirstOfItsSize(DType dtype) {
  const auto same_size = [&](DType other) { return ItemSize(other) == ItemSize(dtype); };
  return *std::find_if(std::begin(kDTypes), std::end(kDTypes), same_size) == dtype;
}

enum class Place { kOrdinary, kAllocated };

Tensor NewTensor(Communicator& comm, Place place, int64_t count, DType dtype) {
  if (place == Place::kOrdinary) return Empty({count}, {dtype, {}});
  return FromStorage(comm.Allocate(count * ItemSize(dtype)), ShapeSpan({count}), dtype);
}

struct Case {
  DType dtype;
  int64_t count;
  Place place;
  bool in_place;

  std::string ToString() const {
    return absl::StrCat(DTypeName(dtype), " x ", count,
                        place == Place::kAllocated ? ", allocated" : "",
                        in_place ? ", in place" : "");
  }
};

void CheckAllReduce(Communicator& comm, const Case& c, ReduceOp op) {
  Tensor input = NewTensor(comm, c.place, c.count, c.dtype);
  Tensor output = c.in_place ? input : NewTensor(comm, c.place, c.count, c.dtype);
  FillWith(input, [&](int64_t i) { return Value(c.dtype, comm.rank(), i); });
  comm.AllReduce(input, output, {.op = op}).Wait();
  const std::string what = absl::StrCat("AllReduce ", ReduceOpName(op), " ", c.ToString());
  RequireValues(
      output, [&](int64_t i) { return Reduced(op, c.dtype, comm.size(), i); }, what);
  if (c.in_place) return;
  RequireValues(
      input, [&](int64_t i) { return Value(c.dtype, comm.rank(), i); }, what + ": the input");
}

void CheckBroadcast(Communicator& comm, const Case& c) {
  for (int root = 0; root < comm.size(); ++root) {
    Tensor tensor = NewTensor(comm, c.place, c.count, c.dtype);
    FillWith(tensor, [&](int64_t i) { return Value(c.dtype, comm.rank(), i); });
    comm.Broadcast(tensor, {.root = root}).Wait();
    RequireValues(
        tensor, [&](int64_t i) { return Value(c.dtype, root, i); },
        absl::StrCat("Broadcast from ", root, " ", c.ToString()));
  }
}

Tensor Part(const Tensor& whole, int64_t count, int rank) {
  return FromStorage(whole.storage(), ShapeSpan({count}), whole.dtype(),
                     whole.offset() + count * rank);
}

void CheckAllGather(Communicator& comm, const Case& c) {
  Tensor output = NewTensor(comm, c.place, c.count * comm.size(), c.dtype);
  Tensor input =
      c.in_place ? Part(output, c.count, comm.rank()) : NewTensor(comm, c.place, c.count, c.dtype);
  FillWith(output, [](int64_t) { return 1; });
  FillWith(input, [&](int64_t i) { return Value(c.dtype, comm.rank(), i); });
  comm.AllGather(input, output).Wait();
  RequireValues(
      output, [&](int64_t i) { return Value(c.dtype, static_cast<int>(i / c.count), i % c.count); },
      "AllGather " + c.ToString());
}

void CheckReduceScatter(Communicator& comm, const Case& c, ReduceOp op) {
  Tensor input = NewTensor(comm, c.place, c.count * comm.size(), c.dtype);
  Tensor output =
      c.in_place ? Part(input, c.count, comm.rank()) : NewTensor(comm, c.place, c.count, c.dtype);
  FillWith(output, [](int64_t) { return 1; });
  FillWith(input, [&](int64_t i) { return Value(c.dtype, comm.rank(), i); });
  comm.ReduceScatter(input, output, {.op = op}).Wait();
  RequireValues(
      output,
      [&](int64_t i) { return Reduced(op, c.dtype, comm.size(), comm.rank() * c.count + i); },
      absl::StrCat("ReduceScatter ", ReduceOpName(op), " ", c.ToString()));
}

// All combinations of the small counts; the large ones go through each dtype with one reduction.
void CheckEverything(RankContext& context) {
  const std::shared_ptr<Communicator> comm = MakeTestGroup(context);
  for (const DType dtype : kDTypes) {
    for (const int64_t count : {0, 1, 3, 5, 1000, 65537}) {
      if (kThreadSanitizer && count > 1000 && !IsFirstOfItsSize(dtype)) continue;
      for (const Place place : {Place::kOrdinary, Place::kAllocated}) {
        for (const bool in_place : {false, true}) {
          const Case c = {dtype, count, place, in_place};
          if (count > 1000 && in_place == (place == Place::kOrdinary)) continue;  // to save time
          for (int op = 0; op < kReduceOpCount; ++op) {
            const auto reduce_op = static_cast<ReduceOp>(op);
            if (!IsDefined(reduce_op, dtype) || (count > 1000 && op > 0)) continue;
            CheckAllReduce(*comm, c, reduce_op);
            CheckReduceScatter(*comm, c, reduce_op);
          }
          CheckBroadcast(*comm, c);
          CheckAllGather(*comm, c);
        }
      }
    }
  }
  comm->Barrier().Wait();
}

constexpr int64_t kStagedFloats = (1 << 20) / 4;

// Several blocks of each path.
void CheckLarge(RankContext& context) {
  const std::shared_ptr<Communicator> comm = MakeTestGroup(context);
  for (const Place place : {Place::kOrdinary, Place::kAllocated}) {
    // More than one chunk of the staged path.
    const Case c = {DType::kFloat32, kStagedFloats + 7777, place, place == Place::kAllocated};
    CheckAllReduce(*comm, c, ReduceOp::kAverage);
    CheckBroadcast(*comm, c);
    CheckAllGather(*comm, c);
    CheckReduceScatter(*comm, c, ReduceOp::kSum);
  }
}

// A view with strides over new memory: [rows, columns] of a wider or transposed matrix.
Tensor Strided(ShapeSpan shape, ShapeSpan strides, int64_t elements) {
  const Tensor base = Empty({elements});
  FillWith(base, [](int64_t) { return -99; });
  return Tensor(MakeRef<TensorImpl>(base.storage(), shape, strides, int64_t{1}, DType::kFloat32,
                                    base.device()));
}

// Field report C-1: strides are honoured, and memory between the elements is left alone.
void CheckStrided(RankContext& context) {
  const std::shared_ptr<Communicator> comm = MakeTestGroup(context);
  const int size = comm->size();
  const int rank = comm->rank();
  const auto mine = [rank](int64_t i) { return Value(DType::kFloat32, rank, i); };
  const auto sum = [size](int64_t i) { return Reduced(ReduceOp::kSum, DType::kFloat32, size, i); };
  struct Layout {
    std::vector<int64_t> shape, strides;
    int64_t elements;
  };
  const Layout layouts[] = {{{2}, {2}, 5},                  // column 0 of a 2x2
                            {{3, 2}, {1, 3}, 8},            // transposed
                            {{5, 3}, {7, 2}, 40},           // a chunk with gaps
                            {{100, 80}, {160, 2}, 16001}};  // beyond the inline size
  for (const Layout& layout : layouts) {
    const int64_t count = NumElements(layout.shape);
    const Tensor in = Strided(layout.shape, layout.strides, layout.elements);
    FillWith(in, mine);
    const Tensor out = Strided(layout.shape, layout.strides, layout.elements);
    comm->AllReduce(in, out).Wait();
    RequireValues(out, sum, "strided AllReduce");
    const std::vector<float> all =
        FromStorage(out.storage(), ShapeSpan({layout.elements}), DType::kFloat32).ToVector<float>();
    Require(std::count(all.begin(), all.end(), -99.0f) == layout.elements - count,
            "AllReduce wrote between the elements of a strided output");
    comm->AllReduce(in).Wait();
    RequireValues(in, sum, "strided AllReduce in place");
    FillWith(in, mine);
    comm->Broadcast(in, {.root = size - 1}).Wait();
    RequireValues(
        in, [&](int64_t i) { return Value(DType::kFloat32, size - 1, i); }, "strided Broadcast");
    FillWith(in, mine);
    const Tensor gathered = Empty({size * count});
    comm->AllGather(in, gathered).Wait();
    RequireValues(
        gathered,
        [&](int64_t i) { return Value(DType::kFloat32, static_cast<int>(i / count), i % count); },
        "strided AllGather");
    const Tensor parts = Empty({size * count});
    FillWith(parts, mine);
    comm->ReduceScatter(parts, in).Wait();
    RequireValues(
        in, [&](int64_t i) { return sum(rank * count + i); }, "strided ReduceScatter");
  }
  // An expanded tensor may be read, but not written.
  const Tensor expanded = Strided(std::vector<int64_t>{3, 2}, std::vector<int64_t>{0, 1}, 3);
  FillWith(FromStorage(expanded.storage(), ShapeSpan({3}), DType::kFloat32), mine);
  const Tensor out = Empty({3, 2});
  comm->AllReduce(expanded, out).Wait();
  RequireValues(
      out, [&](int64_t i) { return sum(1 + i % 2); }, "expanded AllReduce");
  try {
    comm->AllReduce(expanded).Wait();
  } catch (const Error& error) {
    Require(error.code() == absl::StatusCode::kInvalidArgument, error.message());
    return;
  }
  Require(false, "an expanded tensor was written");
}

// Field report C-2.
void CheckEmpty(RankContext& context) {
  const std::shared_ptr<Communicator> comm = MakeTestGroup(context);
  const int64_t size = comm->size();
  const Tensor empty = Empty({1, 0, 2});
  const Tensor gathered = Empty({size, 1, 0, 2});
  comm->AllGather(empty, gathered).Wait();
  comm->AllReduce(empty).Wait();
  comm->Broadcast(empty).Wait();
  comm->ReduceScatter(gathered, empty).Wait();
  comm->Barrier().Wait();
  Require(comm->sequence() == 5, "collectives without elements count in the sequence");
  const Tensor ones = FromVector<float>({1, 1, 1}, {3});
  comm->AllReduce(ones).Wait();
  RequireValues(
      ones, [&](int64_t) { return static_cast<double>(size); }, "after empty ones");
}

// Field report D-7: no overflow of the sum, no underflow of the parts.
void CheckHalfAverage(RankContext& context) {
  const std::shared_ptr<Communicator> comm = MakeTestGroup(context);
  const DType half = DType::kFloat16;
  for (const double value : {40000.0, std::ldexp(1.0, -24)}) {
    for (const int64_t count : {5, 20001}) {
      const Tensor tensor = NewTensor(*comm, Place::kAllocated, count, half);
      FillWith(tensor, [&](int64_t) { return value; });
      comm->AllReduce(tensor, {.op = ReduceOp::kAverage}).Wait();
      RequireValues(
          tensor, [&](int64_t) { return RoundTo(half, value); }, "average of float16");
    }
  }
}

// Issued together, waited for in another order; the tensors' own handles are dropped at once.
void CheckAsync(RankContext& context) {
  const std::shared_ptr<Communicator> comm = MakeTestGroup(context);
  std::vector<Tensor> outputs;
  std::vector<Work> works;
  for (int64_t k = 0; k < 40; ++k) {
    const int64_t count = k % 4 == 3 ? 9000 + k : 3 + k;
    Tensor input =
        NewTensor(*comm, k % 2 == 0 ? Place::kOrdinary : Place::kAllocated, count, DType::kFloat32);
    FillWith(input, [&](int64_t i) { return Value(DType::kFloat32, comm->rank(), i + k); });
    outputs.push_back(Empty({count}));
    works.push_back(comm->AllReduce(input, outputs.back()));
  }
  for (size_t k = works.size(); k-- > 0;) {
    works[k].Wait();
    Require(works[k].IsCompleted(), "a work that was waited for is not completed");
    RequireValues(
        outputs[k],
        [&](int64_t i) {
          return Reduced(ReduceOp::kSum, DType::kFloat32, comm->size(),
                         i + static_cast<int64_t>(k));
        },
        absl::StrCat("asynchronous AllReduce ", k));
  }
  for (const Work& work : works) work.Wait();  // again: returns at once
}

// Programs of collectives that all ranks derive from the same numbers.
void CheckRandomPrograms(RankContext& context) {
  const std::shared_ptr<Communicator> comm = MakeTestGroup(context);
  uint64_t state = 12345;
  const auto next = [&state](int64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(bound));
  };
  for (int step = 0; step < 150; ++step) {
    const int64_t count = next(3) == 0 ? next(40000) : next(60);
    const Case c = {kDTypes[next(8)], count, next(2) == 0 ? Place::kOrdinary : Place::kAllocated,
                    next(2) == 0};
    const auto op = static_cast<ReduceOp>(next(kReduceOpCount));
    const ReduceOp defined = IsDefined(op, c.dtype) ? op : ReduceOp::kMax;
    switch (next(5)) {
      case 0:
        CheckAllReduce(*comm, c, defined);
        break;
      case 1:
        CheckBroadcast(*comm, c);
        break;
      case 2:
        CheckAllGather(*comm, c);
        break;
      case 3:
        CheckReduceScatter(*comm, c, defined);
        break;
      default:
        comm->Barrier().Wait();
    }
  }
}

// Field report C-7: groups progress by themselves.
void CheckTwoGroups(RankContext& context) {
  const std::shared_ptr<Communicator> a = MakeTestGroup(context, absl::Seconds(30), "a");
  const std::shared_ptr<Communicator> b = MakeTestGroup(context, absl::Seconds(30), "b");
  for (int round = 0; round < 20; ++round) {
    const Tensor x = Empty({round % 2 == 0 ? 5 : 50000});
    const Tensor y = Empty({5});
    FillWith(x, [&](int64_t i) { return Value(DType::kFloat32, a->rank(), i); });
    FillWith(y, [&](int64_t i) { return Value(DType::kFloat32, b->rank(), i + 1); });
    Work on_a, on_b;
    if (a->rank() == 0) {
      on_a = a->AllReduce(x);
      on_b = b->AllReduce(y);
      on_a.Wait();
      on_b.Wait();
    } else {
      on_b = b->AllReduce(y);
      on_b.Wait();
      on_a = a->AllReduce(x);
      on_a.Wait();
    }
    const auto sum = [&](int64_t i) {
      return Reduced(ReduceOp::kSum, DType::kFloat32, a->size(), i);
    };
    RequireValues(x, sum, "group a");
    RequireValues(
        y, [&](int64_t i) { return sum(i + 1); }, "group b");
  }
}

void CheckStress(RankContext& context) {
  const std::shared_ptr<Communicator> comm = MakeTestGroup(context);
  constexpr int64_t kCounts[] = {1, 7, 1024, 65537};
  std::vector<Tensor> tensors;
  for (const int64_t count : kCounts) {
    tensors.push_back(NewTensor(*comm, Place::kAllocated, count, DType::kInt32));
  }
  const int64_t ranks = comm->size();
  const int64_t rounds = comm->backend() == "shm" ? 10000 : 2000;
  for (int64_t k = 0; k < rounds; ++k) {
    // Large ones are rarer, to keep the test short.
    const size_t which = k % 100 == 99 ? 3 : static_cast<size_t>(k % 3);
    const Tensor& tensor = tensors[which];
    int32_t* data = MutableData<int32_t>(tensor);
    const int64_t count = kCounts[which];
    const auto base = static_cast<int32_t>(k * 3);
    data[0] = base + comm->rank();
    data[count - 1] = base + comm->rank();
    comm->AllReduce(tensor).Wait();
    const auto expected = static_cast<int32_t>(ranks * base + ranks * (ranks - 1) / 2);
    Require(data[0] == expected && data[count - 1] == expected,
            absl::StrCat("AllReduce ", k, " gave ", data[0], ", not ", expected));
  }
}

// Storages come and go; peers follow.
void CheckAllocate(RankContext& context) {
  std::shared_ptr<Communicator> comm = MakeTestGroup(context);
  Tensor survivor;
  for (int64_t k = 0; k < 60; ++k) {
    const Tensor tensor = NewTensor(*comm, Place::kAllocated, 5000 + 37 * k, DType::kFloat32);
    const auto address = reinterpret_cast<uintptr_t>(RawData(tensor));
    Require(address % kStorageAlignment == 0, "allocated memory is not aligned");
    FillWith(tensor, [&](int64_t i) { return Value(DType::kFloat32, comm->rank(), i + k); });
    comm->AllReduce(tensor).Wait();
    RequireValues(
        tensor,
        [&](int64_t i) { return Reduced(ReduceOp::kSum, DType::kFloat32, comm->size(), i + k); },
        "AllReduce of new memory");
    if (k == 30) survivor = tensor;
  }
  Require(comm->Allocate(0)->bytes() == 0, "an empty storage");
  const double before = survivor.Item<double>({3});
  comm->Barrier().Wait();
  comm.reset();
  Require(survivor.Item<double>({3}) == before, "memory outlives its communicator");
}

void CheckArguments(RankContext& context) {
  const std::shared_ptr<Communicator> comm = MakeTestGroup(context);
  const auto refuses = [](const char* what, const std::string& part,
                          const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      Require(error.code() == absl::StatusCode::kInvalidArgument, error.message());
      Require(absl::StrContains(error.message(), part),
              absl::StrCat(what, ": the message lacks \"", part, "\": ", error.message()));
      return;
    }
    Require(false, absl::StrCat(what, " was accepted"));
  };
  const int size = comm->size();
  const Tensor x = Empty({6});
  const Tensor y = Empty({7});
  const Tensor i = Empty({6}, {DType::kInt32, {}});
  const Tensor big = Empty({6 * size + 1});
  refuses("undefined", "undefined", [&] { comm->AllReduce(Tensor()).Wait(); });
  refuses("counts", "[6]", [&] { comm->AllReduce(x, y).Wait(); });
  refuses("dtypes", "int32", [&] { comm->AllReduce(x, i).Wait(); });
  refuses("average of integers", "average",
          [&] { comm->AllReduce(i, {.op = ReduceOp::kAverage}).Wait(); });
  refuses("bits of floats", "bitwise",
          [&] { comm->AllReduce(x, {.op = ReduceOp::kBitXor}).Wait(); });
  refuses("root", "root 9", [&] { comm->Broadcast(x, {.root = 9}).Wait(); });
  refuses("gather", absl::StrCat(6 * size + 1), [&] { comm->AllGather(x, big).Wait(); });
  refuses("scatter", absl::StrCat(6 * size + 1), [&] { comm->ReduceScatter(big, x).Wait(); });
  refuses("device", "meta", [&] { comm->AllReduce(Empty({2}, {{}, kMeta})).Wait(); });
  refuses("overlap", "overlap", [&] {
    const Tensor a = FromStorage(x.storage(), ShapeSpan({3}), DType::kFloat32, 0);
    const Tensor b = FromStorage(x.storage(), ShapeSpan({3}), DType::kFloat32, 1);
    comm->AllReduce(a, b).Wait();
  });
  refuses("timeout", "timeout", [&] { comm->Barrier({.timeout = absl::ZeroDuration()}).Wait(); });
  refuses("bytes", "-1", [&] { comm->Allocate(-1); });
  Require(comm->sequence() == 0, "a refused call must not take a number");
  comm->Barrier().Wait();
}

constexpr SpawnMode kThreads = SpawnMode::kThreads;

class CollectivesTest : public BackendTest {
 protected:
  void InThreads(RankFunction function, const std::string& argument = "") const {
    for (const int ranks : {1, 2, 3, 4}) {
      SCOPED_TRACE(absl::StrCat(ranks, " threads"));
      ExpectAllOk(Spawn(ranks, function, {.mode = kThreads, .argument = argument}));
    }
  }
  void InProcesses(RankFunction function, const std::string& argument = "") const {
    for (int ranks = 1; ranks <= kMaxProcesses; ++ranks) {
      SCOPED_TRACE(absl::StrCat(ranks, " processes"));
      ExpectAllOk(Spawn(ranks, function, {.argument = argument}));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Variants, CollectivesTest, testing::ValuesIn(BackendVariants()),
                         VariantName);

TEST_P(CollectivesTest, Everything) {
  for (const SpawnMode mode : Modes()) {
    if (mode == SpawnMode::kThreads) InThreads(CheckEverything);
    if (mode == SpawnMode::kProcesses) InProcesses(CheckEverything, "direct");
  }
}
TEST_P(CollectivesTest, RandomInThreads) { InThreads(CheckRandomPrograms); }
TEST_P(CollectivesTest, RandomStagedInThreads) { InThreads(CheckRandomPrograms, "staged"); }
TEST_P(CollectivesTest, LargeStagedInThreads) { InThreads(CheckLarge, "staged"); }
TEST_P(CollectivesTest, EverythingStaged) { InProcesses(CheckEverything, "staged"); }
TEST_P(CollectivesTest, Large) { InProcesses(CheckLarge, "direct"); }
TEST_P(CollectivesTest, LargeStaged) { InProcesses(CheckLarge, "staged"); }
TEST_P(CollectivesTest, Arguments) { InThreads(CheckArguments); }

TEST_P(CollectivesTest, Strided) {
  InThreads(CheckStrided);
  InProcesses(CheckStrided);
}
TEST_P(CollectivesTest, Empty) {
  InThreads(CheckEmpty);
  InProcesses(CheckEmpty);
}
TEST_P(CollectivesTest, HalfAverage) {
  InThreads(CheckHalfAverage);
  InProcesses(CheckHalfAverage);
}
TEST_P(CollectivesTest, Async) {
  InThreads(CheckAsync);
  InProcesses(CheckAsync);
}
TEST_P(CollectivesTest, RandomInProcesses) { InProcesses(CheckRandomPrograms); }
TEST_P(CollectivesTest, TwoGroups) {
  InThreads(CheckTwoGroups);
  InProcesses(CheckTwoGroups);
}
TEST_P(CollectivesTest, Allocate) {
  InThreads(CheckAllocate);
  InProcesses(CheckAllocate);
}

TEST_P(CollectivesTest, ThousandsInThreads) {
  for (const int ranks : {2, 4}) ExpectAllOk(Spawn(ranks, CheckStress, {.mode = kThreads}));
}
TEST_P(CollectivesTest, ThousandsInProcesses) {
  for (const int ranks : {2, kMaxProcesses}) ExpectAllOk(Spawn(ranks, CheckStress));
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
