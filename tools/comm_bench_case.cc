// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/comm_bench_case.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/median.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm_bench {

using comm::Communicator;
using comm::Transfer;
using comm::Work;

namespace {

// Element i of a rank's input: sums over 64 ranks are exact.
float InputAt(int rank, int64_t i) { return static_cast<float>((i * 3 + rank * 5 + i / 64) % 17); }

}  // namespace

Case::Case(Communicator& comm, const std::string& op, int64_t bytes, bool in_place, bool allocated)
    : comm_(comm), op_(op), ranks_(comm.size()), me_(comm.rank()) {
  // Whole parts for each rank where there are parts; at least one element in each.
  part_ = std::max<int64_t>(1, bytes / 4 / ranks_);
  const bool parts = op != "all_reduce" && op != "broadcast" && op != "reduce" && op != "send_recv";
  whole_ = parts ? part_ * ranks_ : std::max<int64_t>(1, bytes / 4);
  const bool gathers = op == "all_gather" || op == "gather";
  const bool scatters = op == "reduce_scatter" || op == "scatter";
  input_ = New(gathers && !in_place ? part_ : whole_, allocated);
  output_ = in_place ? input_ : New(scatters ? part_ : whole_, allocated);
  if (in_place && gathers) input_ = MyPart(output_);
  if (in_place && scatters) output_ = MyPart(input_);
}

bool Case::HasInPlace(const std::string& op) { return op != "all_to_all" && op != "send_recv"; }

void Case::Fill() {
  float* data = MutableData<float>(input_);
  for (int64_t i = 0; i < input_.numel(); ++i) data[i] = InputAt(me_, i);
}

Work Case::Call() {
  const bool root = me_ == 0;
  if (op_ == "all_reduce") return comm_.AllReduce(input_, output_);
  if (op_ == "all_gather") return comm_.AllGather(input_, output_);
  if (op_ == "reduce_scatter") return comm_.ReduceScatter(input_, output_);
  if (op_ == "broadcast") return comm_.Broadcast(root ? input_ : output_);
  if (op_ == "reduce") return comm_.Reduce(input_, root ? output_ : Tensor());
  if (op_ == "gather") return comm_.Gather(input_, root ? output_ : Tensor());
  if (op_ == "scatter") return comm_.Scatter(root ? input_ : Tensor(), output_);
  if (op_ == "all_to_all") return comm_.AllToAll(input_, output_);
  return comm_.Batch({Transfer::Send(input_, (me_ + 1) % ranks_),
                      Transfer::Recv(output_, (me_ + ranks_ - 1) % ranks_)});
}

int64_t Case::Errors() const {
  const bool only_root = op_ == "reduce" || op_ == "gather";
  if ((only_root && me_ != 0) || (op_ == "broadcast" && me_ == 0)) return 0;
  const float* data = Data<float>(output_);
  int64_t errors = 0;
  for (int64_t i = 0; i < output_.numel(); ++i) errors += data[i] != Expected(i) ? 1 : 0;
  return errors;
}

Tensor Case::New(int64_t count, bool allocated) {
  if (!allocated) return Empty({count});
  return FromStorage(comm_.Allocate(count * 4), ShapeSpan({count}), DType::kFloat32);
}

Tensor Case::MyPart(const Tensor& whole) const {
  return FromStorage(whole.storage(), ShapeSpan({part_}), DType::kFloat32,
                     whole.offset() + part_ * me_);
}

float Case::Sum(int64_t i) const {
  float sum = 0;
  for (int rank = 0; rank < ranks_; ++rank) sum += InputAt(rank, i);
  return sum;
}

float Case::Expected(int64_t i) const {
  if (op_ == "all_reduce" || op_ == "reduce") return Sum(i);
  if (op_ == "reduce_scatter") return Sum(me_ * part_ + i);
  if (op_ == "broadcast") return InputAt(0, i);
  if (op_ == "scatter") return InputAt(0, me_ * part_ + i);
  if (op_ == "send_recv") return InputAt((me_ + ranks_ - 1) % ranks_, i);
  const int from = static_cast<int>(i / part_);
  if (op_ == "all_to_all") return InputAt(from, me_ * part_ + i % part_);
  return InputAt(from, i % part_);
}

Measurement Measure(Communicator& comm, Case& c) {
  Measurement result;
  c.Fill();
  c.Call().Wait();
  const Tensor errors = FromVector<int64_t>({c.Errors()}, {1});
  comm.AllReduce(errors).Wait();
  result.errors = errors.Item<int64_t>({0});
  const int repeats = c.bytes() >= (8 << 20) ? 4 : c.bytes() >= (128 << 10) ? 40 : 300;
  for (int i = 0; i < repeats / 10 + 1; ++i) c.Call().Wait();
  std::vector<double> seconds;
  for (int batch = 0; batch < 5; ++batch) {
    comm.Barrier().Wait();
    const Stopwatch watch;
    for (int i = 0; i < repeats; ++i) c.Call().Wait();
    seconds.push_back(watch.ElapsedSeconds() / repeats);
  }
  result.seconds = Median(seconds);
  return result;
}

}  // namespace lockstep::comm_bench
