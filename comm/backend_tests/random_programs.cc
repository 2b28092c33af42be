// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/backend_tests/random_programs.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/rank_checks.h"
#include "lockstep/comm/serial_reference.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {
namespace {

// The same numbers on all ranks.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  int64_t Below(int64_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(bound));
  }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  int64_t Size(int64_t bound) {
    switch (Below(8)) {
      case 0:
        return 0;
      case 1:
        return Below(bound);
      case 2:
        return Below(std::min<int64_t>(bound, 6000));
      default:
        return Below(std::min<int64_t>(bound, 60));
    }
  }

 private:
  uint64_t state_;
};

enum class Layout { kOrdinary, kAllocated, kStrided };

// One call, as all ranks know it.
struct Step {
  CollectiveId op = CollectiveId::kAllReduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  double factor = 1;
  int root = 0;
  bool uneven = false;
  bool in_place = false;
  Layout input = Layout::kOrdinary;
  Layout output = Layout::kOrdinary;
  // Elements that rank a has for rank b. Of ops with one part a rank: [0][r].
  std::vector<std::vector<int64_t>> counts;
  int64_t salt = 0;  // so that two steps have different data

  std::string ToString() const {
    return absl::StrCat(CollectiveName(op), " ", DTypeName(dtype), " ", ReduceOpName(reduce),
                        ", root ", root, uneven ? ", uneven" : "", in_place ? ", in place" : "",
                        ", layouts ", static_cast<int>(input), static_cast<int>(output),
                        ", counts ", absl::StrJoin(counts.front(), ","));
  }
};

constexpr CollectiveId kOps[] = {CollectiveId::kAllReduce, CollectiveId::kBroadcast,
                                 CollectiveId::kAllGather, CollectiveId::kReduceScatter,
                                 CollectiveId::kBarrier,   CollectiveId::kReduce,
                                 CollectiveId::kGather,    CollectiveId::kScatter,
                                 CollectiveId::kAllToAll,  CollectiveId::kSend};

Step RandomStep(Random& random, int size) {
  Step step;
  step.op = kOps[random.Below(std::size(kOps))];
  step.dtype = static_cast<DType>(random.Below(kDTypeCount));
  step.reduce = static_cast<ReduceOp>(random.Below(kReduceOpCount));
  if (!IsDefined(step.reduce, step.dtype)) step.reduce = ReduceOp::kMax;
  if (step.reduce == ReduceOp::kPreMultipliedSum) step.factor = random.OneIn(2) ? 0.5 : 3;
  step.root = static_cast<int>(random.Below(size));
  step.uneven = random.OneIn(3);
  step.in_place = random.OneIn(3);
  step.input = static_cast<Layout>(random.Below(3));
  step.output = static_cast<Layout>(random.Below(3));
  step.salt = random.Below(1000);
  const int64_t bound = step.op == CollectiveId::kAllReduce ? 100001 : 100001 / size;
  const int64_t even = random.Size(bound);
  for (int a = 0; a < size; ++a) {
    step.counts.emplace_back();
    for (int b = 0; b < size; ++b) {
      step.counts.back().push_back(step.uneven ? random.Size(bound) : even);
    }
  }
  return step;
}

// A call under way on this rank: what to wait for, and how to check it.
struct Running {
  Work work;
  std::function<void()> check;
};

class Runner {
 public:
  Runner(Communicator& comm, const Step& step)
      : comm_(comm), step_(step), rank_(comm.rank()), size_(comm.size()) {}

  Running Start() {
    switch (step_.op) {
      case CollectiveId::kAllReduce:
      case CollectiveId::kReduce:
        return StartReduction();
      case CollectiveId::kBroadcast:
        return StartBroadcast();
      case CollectiveId::kAllGather:
      case CollectiveId::kGather:
        return StartGather();
      case CollectiveId::kReduceScatter:
      case CollectiveId::kScatter:
        return StartScatter();
      case CollectiveId::kAllToAll:
        return StartAllToAll();
      case CollectiveId::kSend:
        return StartRing();
      default:
        return {comm_.Barrier(), [] {}};
    }
  }

 private:
  using Values = std::function<double(int64_t)>;

  Tensor New(Layout layout, int64_t count) {
    switch (layout) {
      case Layout::kOrdinary:
        return Empty({count}, {step_.dtype, {}});
      case Layout::kAllocated:
        return FromStorage(comm_.Allocate(count * ItemSize(step_.dtype)), ShapeSpan({count}),
                           step_.dtype);
      case Layout::kStrided: {
        const Tensor base = Empty({3 * count + 2}, {step_.dtype, {}});
        const std::vector<int64_t> shape = {count};
        const std::vector<int64_t> strides = {3};
        return Tensor(MakeRef<TensorImpl>(base.storage(), shape, strides, int64_t{2}, step_.dtype,
                                          base.device()));
      }
    }
    return {};
  }
  // A row-major tensor and its part [begin, begin + count).
  std::pair<Tensor, Tensor> WholeAndPart(int64_t total, int64_t begin, int64_t count) {
    const Layout layout = step_.input == Layout::kAllocated ? step_.input : Layout::kOrdinary;
    const Tensor whole = New(layout, total);
    return {whole,
            FromStorage(whole.storage(), ShapeSpan({count}), step_.dtype, whole.offset() + begin)};
  }
  Values Of(int rank) {
    return [this, rank](int64_t i) { return Value(step_.dtype, rank, i + step_.salt); };
  }
  Tensor Filled(Layout layout, int64_t count, const Values& values) {
    const Tensor tensor = New(layout, count);
    FillWith(tensor, values);
    return tensor;
  }
  std::function<void()> Check(Tensor output, Values expected) {
    return [output = std::move(output), expected = std::move(expected), text = step_.ToString()] {
      RequireValues(output, expected, text);
    };
  }
  double ReducedAt(int64_t i) {
    return Reduced(step_.reduce, step_.dtype, size_, i + step_.salt, step_.factor);
  }
  // Sizes of the parts, where each rank has one; their beginnings, and the end of the last.
  const std::vector<int64_t>& Parts() const { return step_.counts.front(); }
  std::vector<int64_t> CountsOption() const {
    return step_.uneven ? Parts() : std::vector<int64_t>();
  }
  static std::vector<int64_t> Begins(const std::vector<int64_t>& counts) {
    std::vector<int64_t> begins(counts.size() + 1, 0);
    std::partial_sum(counts.begin(), counts.end(), begins.begin() + 1);
    return begins;
  }

  Running StartReduction() {
    const int64_t count = Parts().front();
    const Tensor input = Filled(step_.input, count, Of(rank_));
    const bool has_output = step_.op == CollectiveId::kAllReduce || rank_ == step_.root;
    Tensor output;
    if (has_output) output = step_.in_place ? input : New(step_.output, count);
    Work work =
        step_.op == CollectiveId::kAllReduce
            ? comm_.AllReduce(input, output, {.op = step_.reduce, .factor = step_.factor})
            : comm_.Reduce(input, output,
                           {.root = step_.root, .op = step_.reduce, .factor = step_.factor});
    return {work, [this, input, output, step = step_] {
              if (output.defined()) {
                RequireValues(
                    output, [this](int64_t i) { return ReducedAt(i); }, step.ToString());
              }
              if (!output.defined() || !step.in_place) {
                RequireValues(input, Of(rank_), step.ToString() + ": the input");
              }
            }};
  }

  Running StartBroadcast() {
    const Tensor tensor = Filled(step_.input, Parts().front(), Of(rank_));
    return {comm_.Broadcast(tensor, {.root = step_.root}), Check(tensor, Of(step_.root))};
  }

  Running StartGather() {
    const bool all = step_.op == CollectiveId::kAllGather;
    const std::vector<int64_t> begins = Begins(Parts());
    const int64_t mine = Parts()[static_cast<size_t>(rank_)];
    const bool has_output = all || rank_ == step_.root;
    Tensor input, output;
    if (has_output && step_.in_place) {
      std::tie(output, input) =
          WholeAndPart(begins.back(), begins[static_cast<size_t>(rank_)], mine);
    } else {
      input = New(step_.input, mine);
      if (has_output) output = New(step_.output, begins.back());
    }
    FillWith(input, Of(rank_));
    Work work = all ? comm_.AllGather(input, output, {.counts = CountsOption()})
                    : comm_.Gather(input, output, {.root = step_.root, .counts = CountsOption()});
    if (!has_output) return {work, Check(input, Of(rank_))};
    return {work, Check(output, [this, begins](int64_t i) {
              const auto next = std::upper_bound(begins.begin(), begins.end(), i);
              const auto rank = static_cast<int>(next - begins.begin()) - 1;
              return Of(rank)(i - begins[static_cast<size_t>(rank)]);
            })};
  }

  Running StartScatter() {
    const bool reduces = step_.op == CollectiveId::kReduceScatter;
    const std::vector<int64_t> begins = Begins(Parts());
    const int64_t begin = begins[static_cast<size_t>(rank_)];
    const int64_t mine = Parts()[static_cast<size_t>(rank_)];
    const bool has_input = reduces || rank_ == step_.root;
    Tensor input, output;
    if (has_input && step_.in_place) {
      std::tie(input, output) = WholeAndPart(begins.back(), begin, mine);
    } else {
      if (has_input) input = New(step_.input, begins.back());
      output = New(step_.output, mine);
    }
    if (has_input) FillWith(input, Of(rank_));
    if (reduces) {
      return {comm_.ReduceScatter(
                  input, output,
                  {.op = step_.reduce, .factor = step_.factor, .counts = CountsOption()}),
              Check(output, [this, begin](int64_t i) { return ReducedAt(begin + i); })};
    }
    return {comm_.Scatter(input, output, {.root = step_.root, .counts = CountsOption()}),
            Check(output, [this, begin](int64_t i) { return Of(step_.root)(begin + i); })};
  }

  Running StartAllToAll() {
    std::vector<int64_t> sent = step_.counts[static_cast<size_t>(rank_)];
    std::vector<int64_t> received;
    std::vector<int64_t> theirs;  // where what this rank gets begins in each rank's input
    for (int peer = 0; peer < size_; ++peer) {
      const std::vector<int64_t>& counts = step_.counts[static_cast<size_t>(peer)];
      received.push_back(counts[static_cast<size_t>(rank_)]);
      theirs.push_back(Begins(counts)[static_cast<size_t>(rank_)]);
    }
    const std::vector<int64_t> begins = Begins(received);
    const Tensor input = Filled(step_.input, Begins(sent).back(), Of(rank_));
    const Tensor output = New(step_.output, begins.back());
    AllToAllOptions options;
    if (step_.uneven) options = {.send_counts = sent, .receive_counts = received};
    return {comm_.AllToAll(input, output, options),
            Check(output, [this, begins, theirs](int64_t i) {
              const auto next = std::upper_bound(begins.begin(), begins.end(), i);
              const auto peer = static_cast<size_t>(next - begins.begin()) - 1;
              return Of(static_cast<int>(peer))(theirs[peer] + i - begins[peer]);
            })};
  }

  Running StartRing() {
    const int next = (rank_ + 1) % size_;
    const int last = (rank_ + size_ - 1) % size_;
    const Tensor mine = Filled(step_.input, Parts()[static_cast<size_t>(rank_)], Of(rank_));
    const Tensor theirs = New(step_.output, Parts()[static_cast<size_t>(last)]);
    return {comm_.Batch(
                {Transfer::Send(mine, next, step_.salt), Transfer::Recv(theirs, last, step_.salt)}),
            Check(theirs, Of(last))};
  }

  Communicator& comm_;
  const Step step_;
  const int rank_;
  const int size_;
};

}  // namespace

void RunProgram(Communicator& comm, uint64_t seed) {
  Random random(seed);
  std::vector<std::unique_ptr<Runner>> runners;  // checks refer to them
  std::vector<Running> running;
  const auto finish = [&running] {
    for (const Running& call : running) call.work.Wait();
    for (const Running& call : running) call.check();
    running.clear();
  };
  try {
    for (int s = 0; s < kStepsPerProgram; ++s) {
      const Step step = RandomStep(random, comm.size());
      runners.push_back(std::make_unique<Runner>(comm, step));
      running.push_back(runners.back()->Start());
      if (random.OneIn(2)) finish();
    }
    finish();
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat("program --seed=", seed, " --ranks=", comm.size()));
  }
}

}  // namespace lockstep::comm
