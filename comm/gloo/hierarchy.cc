// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/hierarchy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/reduce.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm::gloo {
namespace {

size_t At(int64_t index) { return static_cast<size_t>(index); }

char* BytesOf(const Tensor& tensor) {
  return tensor.defined() ? static_cast<char*>(KernelRawData(tensor)) : nullptr;
}

std::vector<int64_t> Scaled(std::vector<int64_t> ends, int64_t factor) {
  for (int64_t& end : ends) end *= factor;
  return ends;
}

void Copy(const Tensor& from, int64_t from_at, const Tensor& to, int64_t to_at, int64_t count) {
  const int64_t item = ItemSize(from.dtype());
  if (count == 0) return;
  CopyBytes(BytesOf(to) + to_at * item, BytesOf(from) + from_at * item, count * item);
}

}  // namespace

// ---- Placement ----

Placement::Placement(const std::vector<std::string>& host_of_rank, int rank) {
  std::map<std::string, size_t> numbers;
  for (size_t r = 0; r < host_of_rank.size(); ++r) {
    const auto [it, is_new] = numbers.try_emplace(host_of_rank[r], hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[it->second].push_back(static_cast<int>(r));
  }
  my_host = HostOf(rank);
  my_place = PlaceOf(rank);
}

std::vector<int> Placement::Leaders() const {
  std::vector<int> leaders;
  for (const std::vector<int>& ranks : hosts) leaders.push_back(ranks.front());
  return leaders;
}

int Placement::HostOf(int rank) const {
  for (size_t host = 0; host < hosts.size(); ++host) {
    if (std::binary_search(hosts[host].begin(), hosts[host].end(), rank)) {
      return static_cast<int>(host);
    }
  }
  return -1;
}

int Placement::PlaceOf(int rank) const {
  const std::vector<int>& ranks = hosts[At(HostOf(rank))];
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

// ---- What the collectives are made of ----

Hierarchy::Hierarchy(Placement placement, std::shared_ptr<Communicator> local,
                     TcpCollectives* leaders, Control* control)
    : placement_(std::move(placement)),
      size_(control->size()),
      rank_(control->rank()),
      local_(std::move(local)),
      leaders_(*leaders),
      control_(*control) {}

void Hierarchy::Interrupt() {
  // A host's group outlives this rank's part in it, which its other ranks may still complete.
  if (running_.load() || control_.Failed()) local_->Abort("the group of all hosts has failed");
}

absl::Duration Hierarchy::Left() const {
  return std::max(deadline_.Remaining(), absl::Milliseconds(1));
}

Tensor Hierarchy::New(int64_t count, DType dtype) const {
  return FromStorage(local_->Allocate(count * ItemSize(dtype), MemoryCategory::kCommunication),
                     ShapeSpan({count}), dtype);
}

void Hierarchy::Await(const std::function<Work()>& issue) {
  try {
    issue().Wait();
  } catch (const Error& error) {
    // The host's group counts ranks and calls by itself.
    const std::string text =
        absl::StrCat("within the host of ranks ", absl::StrJoin(placement_.mine(), ", "),
                     " (called 0, 1, ... there): ", error.message());
    if (error.code() == absl::StatusCode::kDataLoss) control_.FailAndThrow(error.code(), text);
    control_.FailUnexplained(placement_.mine(), error.code(), text);
  }
}

// ---- Reductions in two levels ----

Hierarchy::Levels Hierarchy::LevelsOf(const Collective& c) const {
  const ReduceOp op = c.signature.reduce_op;
  const DType dtype = c.signature.dtype;
  const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  const Reduction sum = {ReduceOp::kSum, narrow ? DType::kFloat32 : dtype};
  if (op == ReduceOp::kPreMultipliedSum) return {op, c.signature.factor, sum, 1};
  if (op == ReduceOp::kAverage) return {ReduceOp::kSum, 1, sum, 1.0 / size_};
  return {op, 1, {op, dtype}, 1};
}

Tensor Hierarchy::Widened(const Collective& c, const Levels& levels) const {
  if (c.input.dtype() == levels.leaders.dtype) return c.input;
  const Tensor wide = New(c.input.numel(), DType::kFloat32);
  float* const to = static_cast<float*>(KernelRawData(wide));
  if (c.input.dtype() == DType::kBFloat16) {
    const auto* const from = reinterpret_cast<const bfloat16*>(BytesOf(c.input));
    for (int64_t i = 0; i < wide.numel(); ++i) to[i] = ToFloat(from[i]);
  } else {
    const auto* const from = reinterpret_cast<const float16*>(BytesOf(c.input));
    for (int64_t i = 0; i < wide.numel(); ++i) to[i] = ToFloat(from[i]);
  }
  return wide;
}

Tensor Hierarchy::ReduceLocally(const Collective& c, const Levels& levels, const Tensor& output) {
  const Tensor input = Widened(c, levels);
  Tensor reduced;
  if (placement_.is_leader()) {
    const bool fits = output.defined() && output.dtype() == levels.leaders.dtype;
    reduced = fits ? output : New(input.numel(), levels.leaders.dtype);
  }
  Await([&] {
    return local_->Reduce(input, reduced, {0, levels.local_op, levels.local_factor, Left()});
  });
  return reduced;
}

void Hierarchy::FinishReduction(const Tensor& reduced, const Levels& levels,
                                const Tensor& to) const {
  if (levels.scale != 1) {
    const void* sources[] = {BytesOf(reduced)};
    ReduceElements(ReduceOp::kPreMultipliedSum, reduced.dtype(), sources, reduced.numel(),
                   BytesOf(reduced), levels.scale);
  }
  if (BytesOf(reduced) == BytesOf(to)) return;
  if (reduced.dtype() == to.dtype()) return Copy(reduced, 0, to, 0, to.numel());
  const float* const from = static_cast<const float*>(KernelRawData(reduced));
  if (to.dtype() == DType::kBFloat16) {
    auto* const narrow = reinterpret_cast<bfloat16*>(BytesOf(to));
    for (int64_t i = 0; i < to.numel(); ++i) narrow[i] = ToBFloat16(from[i]);
  } else {
    auto* const narrow = reinterpret_cast<float16*>(BytesOf(to));
    for (int64_t i = 0; i < to.numel(); ++i) narrow[i] = ToFloat16(from[i]);
  }
}

Hierarchy::Parts Hierarchy::PartsOf(std::vector<int64_t> ends) const {
  Parts parts;
  parts.ends = std::move(ends);
  parts.host_ends.push_back(0);
  for (const std::vector<int>& ranks : placement_.hosts) {
    int64_t total = 0;
    for (const int rank : ranks) total += parts.ends[At(rank) + 1] - parts.ends[At(rank)];
    parts.host_ends.push_back(parts.host_ends.back() + total);
  }
  for (const int rank : placement_.mine()) {
    parts.mine.push_back(parts.ends[At(rank) + 1] - parts.ends[At(rank)]);
    parts.my_total += parts.mine.back();
  }
  return parts;
}

void Hierarchy::ToHostOrder(const Parts& parts, const Tensor& by_rank,
                            const Tensor& by_host) const {
  int64_t to = 0;
  for (const std::vector<int>& ranks : placement_.hosts) {
    for (const int rank : ranks) {
      const int64_t count = parts.ends[At(rank) + 1] - parts.ends[At(rank)];
      Copy(by_rank, parts.ends[At(rank)], by_host, to, count);
      to += count;
    }
  }
}

void Hierarchy::ToRankOrder(const Parts& parts, const Tensor& by_host,
                            const Tensor& by_rank) const {
  int64_t from = 0;
  for (const std::vector<int>& ranks : placement_.hosts) {
    for (const int rank : ranks) {
      const int64_t count = parts.ends[At(rank) + 1] - parts.ends[At(rank)];
      Copy(by_host, from, by_rank, parts.ends[At(rank)], count);
      from += count;
    }
  }
}

void Hierarchy::MoveFromLeader(int place, const Tensor& from, const Tensor& to) {
  if (placement_.is_leader()) {
    Await([&] { return local_->Send(from, place, {.timeout = Left()}); });
  } else if (placement_.my_place == place) {
    Await([&] { return local_->Recv(to, 0, {.timeout = Left()}); });
  }
}

void Hierarchy::MoveToLeader(int place, const Tensor& from, const Tensor& to) {
  if (placement_.my_place == place) {
    Await([&] { return local_->Send(from, 0, {.timeout = Left()}); });
  } else if (placement_.is_leader()) {
    Await([&] { return local_->Recv(to, place, {.timeout = Left()}); });
  }
}

// ---- The collectives ----

void Hierarchy::Run(const Collective& c, Deadline deadline) {
  deadline_ = deadline;
  running_.store(true);
  const absl::Cleanup done = [this] { running_.store(false); };
  control_.ThrowIfInterrupted();
  if (placement_.hosts.size() == 1) return RunOnOneHost(c);
  switch (c.signature.op) {
    case CollectiveId::kAllReduce:
      return AllReduce(c);
    case CollectiveId::kReduce:
      return Reduce(c);
    case CollectiveId::kBroadcast:
      return Broadcast(c);
    case CollectiveId::kAllGather:
      return AllGather(c);
    case CollectiveId::kGather:
      return Gather(c);
    case CollectiveId::kScatter:
      return Scatter(c);
    case CollectiveId::kReduceScatter:
      return ReduceScatter(c);
    case CollectiveId::kAllToAll:
      return AllToAll(c);
    case CollectiveId::kBarrier:  // the meeting was all
    case CollectiveId::kSend:
    case CollectiveId::kRecv:
    case CollectiveId::kCount:
      return;
  }
}

void Hierarchy::RunOnOneHost(const Collective& c) {
  const Signature& s = c.signature;
  const absl::Duration timeout = Left();
  const auto half = c.counts.begin() + static_cast<std::ptrdiff_t>(c.counts.size() / 2);
  Await([&]() -> Work {
    switch (s.op) {
      case CollectiveId::kAllReduce:
        return local_->AllReduce(c.input, c.output, {s.reduce_op, s.factor, s.tag, timeout});
      case CollectiveId::kReduce:
        return local_->Reduce(c.input, c.output, {s.root, s.reduce_op, s.factor, timeout});
      case CollectiveId::kBroadcast:
        return local_->Broadcast(c.input.defined() ? c.input : c.output, {s.root, timeout});
      case CollectiveId::kAllGather:
        return local_->AllGather(c.input, c.output, {c.counts, s.tag, timeout});
      case CollectiveId::kGather:
        return local_->Gather(c.input, c.output, {s.root, c.counts, timeout});
      case CollectiveId::kScatter:
        return local_->Scatter(c.input, c.output, {s.root, c.counts, timeout});
      case CollectiveId::kReduceScatter:
        return local_->ReduceScatter(c.input, c.output,
                                     {s.reduce_op, s.factor, c.counts, s.tag, timeout});
      case CollectiveId::kAllToAll:
        return local_->AllToAll(c.input, c.output,
                                {{c.counts.begin(), half}, {half, c.counts.end()}, timeout});
      default:
        return Work();
    }
  });
}

void Hierarchy::AllReduce(const Collective& c) {
  const Levels levels = LevelsOf(c);
  const Tensor reduced = ReduceLocally(c, levels, c.output);
  if (placement_.is_leader()) {
    leaders_.AllReduce(BytesOf(reduced), BytesOf(reduced), c.signature.count, levels.leaders);
    FinishReduction(reduced, levels, c.output);
  }
  Await([&] { return local_->Broadcast(c.output, {0, Left()}); });
}

void Hierarchy::Reduce(const Collective& c) {
  const Levels levels = LevelsOf(c);
  const int root_host = placement_.HostOf(c.signature.root);
  const int root_place = placement_.PlaceOf(c.signature.root);
  const Tensor reduced = ReduceLocally(c, levels, c.output);
  if (placement_.is_leader()) {
    leaders_.Reduce(root_host, BytesOf(reduced), BytesOf(reduced), c.signature.count,
                    levels.leaders);
  }
  if (placement_.my_host != root_host) return;
  Tensor result = c.output;  // the root's
  if (placement_.is_leader()) {
    if (!result.defined()) result = New(c.signature.count, c.signature.dtype);
    FinishReduction(reduced, levels, result);
  }
  if (root_place != 0) MoveFromLeader(root_place, result, c.output);
}

void Hierarchy::Broadcast(const Collective& c) {
  const int root_host = placement_.HostOf(c.signature.root);
  const Tensor& tensor = c.input.defined() ? c.input : c.output;
  if (placement_.my_host == root_host) {
    const int place = placement_.PlaceOf(c.signature.root);
    Await([&] { return local_->Broadcast(tensor, {place, Left()}); });
  }
  if (placement_.is_leader()) leaders_.Broadcast(root_host, BytesOf(tensor), tensor.bytes());
  if (placement_.my_host != root_host) {
    Await([&] { return local_->Broadcast(tensor, {0, Left()}); });
  }
}

void Hierarchy::AllGather(const Collective& c) {
  const Parts parts = PartsOf(PartEnds(c, size_));
  const DType dtype = c.signature.dtype;
  const bool leads = placement_.is_leader();
  const Tensor mine = leads ? New(parts.my_total, dtype) : Tensor();
  Await([&] { return local_->Gather(c.input, mine, {0, parts.mine, Left()}); });
  if (leads) {
    const Tensor all = New(parts.total(), dtype);
    leaders_.AllGather(BytesOf(mine), BytesOf(all), Scaled(parts.host_ends, ItemSize(dtype)));
    ToRankOrder(parts, all, c.output);
  }
  Await([&] { return local_->Broadcast(c.output, {0, Left()}); });
}

void Hierarchy::Gather(const Collective& c) {
  const Parts parts = PartsOf(PartEnds(c, size_));
  const DType dtype = c.signature.dtype;
  const bool leads = placement_.is_leader();
  const int root_host = placement_.HostOf(c.signature.root);
  const int root_place = placement_.PlaceOf(c.signature.root);
  const bool at_root = placement_.my_host == root_host;
  const Tensor mine = leads ? New(parts.my_total, dtype) : Tensor();
  Await([&] { return local_->Gather(c.input, mine, {0, parts.mine, Left()}); });
  Tensor by_rank = c.output;  // the root's
  if (leads) {
    const Tensor all = at_root ? New(parts.total(), dtype) : Tensor();
    leaders_.Gather(root_host, BytesOf(mine), BytesOf(all),
                    Scaled(parts.host_ends, ItemSize(dtype)));
    if (at_root && !by_rank.defined()) by_rank = New(parts.total(), dtype);
    if (at_root) ToRankOrder(parts, all, by_rank);
  }
  if (at_root && root_place != 0) MoveFromLeader(root_place, by_rank, c.output);
}

void Hierarchy::Scatter(const Collective& c) {
  const Parts parts = PartsOf(PartEnds(c, size_));
  const DType dtype = c.signature.dtype;
  const bool leads = placement_.is_leader();
  const int root_host = placement_.HostOf(c.signature.root);
  const int root_place = placement_.PlaceOf(c.signature.root);
  const bool at_root = placement_.my_host == root_host;
  Tensor by_rank = c.input;  // the root's
  if (at_root && root_place != 0) {
    if (leads) by_rank = New(parts.total(), dtype);
    MoveToLeader(root_place, c.input, by_rank);
  }
  Tensor mine;
  if (leads) {
    Tensor by_host;
    if (at_root) {
      by_host = New(parts.total(), dtype);
      ToHostOrder(parts, by_rank, by_host);
    }
    mine = New(parts.my_total, dtype);
    leaders_.Scatter(root_host, BytesOf(by_host), BytesOf(mine),
                     Scaled(parts.host_ends, ItemSize(dtype)));
  }
  Await([&] { return local_->Scatter(mine, c.output, {0, parts.mine, Left()}); });
}

void Hierarchy::ReduceScatter(const Collective& c) {
  const Levels levels = LevelsOf(c);
  const Parts parts = PartsOf(PartEnds(c, size_));
  const Tensor reduced = ReduceLocally(c, levels, Tensor());
  Tensor mine;
  if (placement_.is_leader()) {
    const Tensor by_host = New(parts.total(), levels.leaders.dtype);
    ToHostOrder(parts, reduced, by_host);
    const Tensor part = New(parts.my_total, levels.leaders.dtype);
    leaders_.ReduceScatter(BytesOf(by_host), BytesOf(part), parts.host_ends, levels.leaders);
    mine = New(parts.my_total, c.signature.dtype);
    FinishReduction(part, levels, mine);
  }
  Await([&] { return local_->Scatter(mine, c.output, {0, parts.mine, Left()}); });
}

// Element counts by place in the host and, for each, by the rank on the other side: the order of
// the places' tensors, one after the other.
class Hierarchy::HostCounts {
 public:
  // `counts`: a row for each place, of which `ranks` numbers from column `first` on count.
  HostCounts(const Tensor& counts, int places, int ranks, int first) : ranks_(ranks) {
    const int64_t* const numbers = static_cast<const int64_t*>(KernelRawData(counts));
    const int64_t columns = counts.numel() / places;
    for (int place = 0; place < places; ++place) {
      for (int rank = 0; rank < ranks; ++rank) {
        begins_.push_back(begins_.back() + numbers[place * columns + first + rank]);
      }
    }
  }

  // Where the elements of `place` to or from `rank` begin, and how many they are.
  int64_t begin(int place, int rank) const { return begins_[At(place * ranks_ + rank)]; }
  int64_t count(int place, int rank) const {
    return begins_[At(place * ranks_ + rank + 1)] - begin(place, rank);
  }
  int64_t total() const { return begins_.back(); }
  std::vector<int64_t> OfPlaces() const {
    std::vector<int64_t> counts;
    for (size_t i = 0; i + 1 < begins_.size(); i += At(ranks_)) {
      counts.push_back(begins_[i + At(ranks_)] - begins_[i]);
    }
    return counts;
  }

 private:
  int ranks_;
  std::vector<int64_t> begins_ = {0};  // and the total at the end
};

void Hierarchy::AllToAll(const Collective& c) {
  const DType dtype = c.signature.dtype;
  const int locals = static_cast<int>(placement_.mine().size());
  const std::vector<int64_t> sent_ends = PartEnds(c, size_);
  const std::vector<int64_t> taken_ends = PartEnds(c, size_, /*received=*/true);
  const Tensor my_counts = Empty({2 * size_}, {DType::kInt64, {}});
  int64_t* const written = static_cast<int64_t*>(KernelRawData(my_counts));
  for (int r = 0; r < size_; ++r) {
    written[r] = sent_ends[At(r) + 1] - sent_ends[At(r)];
    written[size_ + r] = taken_ends[At(r) + 1] - taken_ends[At(r)];
  }
  const Tensor counts = Empty({locals * 2 * size_}, {DType::kInt64, {}});
  Await([&] { return local_->AllGather(my_counts, counts, {.timeout = Left()}); });
  const HostCounts sent(counts, locals, size_, 0);
  const HostCounts taken(counts, locals, size_, size_);
  Tensor inputs, outputs;
  if (placement_.is_leader()) inputs = New(sent.total(), dtype);
  Await([&] { return local_->Gather(c.input, inputs, {0, sent.OfPlaces(), Left()}); });
  if (placement_.is_leader()) {
    outputs = New(taken.total(), dtype);
    TradeWithHosts(sent, inputs, taken, outputs);
  }
  Await([&] { return local_->Scatter(outputs, c.output, {0, taken.OfPlaces(), Left()}); });
}

void Hierarchy::TradeWithHosts(const HostCounts& sent, const Tensor& inputs,
                               const HostCounts& taken, const Tensor& outputs) {
  const int locals = static_cast<int>(placement_.mine().size());
  // Between two hosts: by sending rank, and then by receiving rank.
  const Tensor out = New(inputs.numel(), inputs.dtype());
  const Tensor in = New(outputs.numel(), outputs.dtype());
  std::vector<int64_t> out_ends = {0}, in_ends = {0};
  for (const std::vector<int>& ranks : placement_.hosts) {
    int64_t out_at = out_ends.back(), in_at = in_ends.back();
    for (int place = 0; place < locals; ++place) {
      for (const int rank : ranks) {
        Copy(inputs, sent.begin(place, rank), out, out_at, sent.count(place, rank));
        out_at += sent.count(place, rank);
        in_at += taken.count(place, rank);
      }
    }
    out_ends.push_back(out_at);
    in_ends.push_back(in_at);
  }
  const int64_t item = ItemSize(inputs.dtype());
  leaders_.AllToAll(BytesOf(out), Scaled(out_ends, item), BytesOf(in), Scaled(in_ends, item));
  int64_t from = 0;
  for (const std::vector<int>& ranks : placement_.hosts) {
    for (const int rank : ranks) {
      for (int place = 0; place < locals; ++place) {
        Copy(in, from, outputs, taken.begin(place, rank), taken.count(place, rank));
        from += taken.count(place, rank);
      }
    }
  }
}

}  // namespace lockstep::comm::gloo
