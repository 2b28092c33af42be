// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/gather_timeline.h"

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/byte_strings.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline {
namespace {

using Clock = std::function<int64_t()>;

// One of them is not held up by anything else on the machines.
constexpr int kRounds = 10;
constexpr size_t kNumbersOfSpan = 7;

void SendNumbers(comm::Communicator& group, int peer, const std::vector<int64_t>& numbers) {
  const auto count = static_cast<int64_t>(numbers.size());
  group.Send(FromVector<int64_t>(numbers, {count}, {.device = Cpu()}), peer).Wait();
}

std::vector<int64_t> ReceiveNumbers(comm::Communicator& group, int peer, int64_t count) {
  const Tensor numbers = Empty({count}, {.dtype = DType::kInt64, .device = Cpu()});
  group.Recv(numbers, peer).Wait();
  return numbers.ToVector<int64_t>();
}

// Rank 0's side: the peer reads its clock between `sent` and `back`, whichever way takes longer.
ClockOffset OffsetOf(int peer, comm::Communicator& group, const Clock& clock) {
  ClockOffset best = {0, std::numeric_limits<int64_t>::max()};
  for (int round = 0; round < kRounds; ++round) {
    const int64_t sent = clock();
    SendNumbers(group, peer, {round});
    const int64_t there = ReceiveNumbers(group, peer, 1)[0];
    const int64_t back = clock();
    const int64_t error = (back - sent + 1) / 2;
    if (error < best.error) best = {there - sent - error, error};
  }
  if (std::abs(best.nanoseconds) <= best.error) best.nanoseconds = 0;
  return best;
}

std::string Packed(const std::vector<Span>& spans) {
  std::vector<double> numbers;
  for (const Span& span : spans) {
    const Action& action = span.action;
    numbers.insert(numbers.end(),
                   {static_cast<double>(span.rank), static_cast<double>(action.kind),
                    static_cast<double>(action.stage), static_cast<double>(action.micro_batch),
                    static_cast<double>(action.peer_stage), span.start_seconds, span.end_seconds});
  }
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)};
}

void AppendUnpacked(const std::string& bytes, std::vector<Span>& spans) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  bytes.copy(reinterpret_cast<char*>(numbers.data()), numbers.size() * sizeof(double));
  for (size_t i = 0; i + kNumbersOfSpan <= numbers.size(); i += kNumbersOfSpan) {
    const auto integer = [&](size_t number) { return static_cast<int>(numbers[i + number]); };
    const Action action = {static_cast<ActionKind>(integer(1)), integer(2), integer(3), integer(4)};
    spans.push_back({integer(0), action, numbers[i + 5], numbers[i + 6]});
  }
}

}  // namespace

ClockOffset MeasureClockOffset(comm::Communicator& group, const Clock& clock) {
  if (group.rank() == 0) {
    for (int peer = 1; peer < group.size(); ++peer) {
      const ClockOffset offset = OffsetOf(peer, group, clock);
      SendNumbers(group, peer, {offset.nanoseconds, offset.error});
    }
    return {};
  }
  for (int round = 0; round < kRounds; ++round) {
    ReceiveNumbers(group, 0, 1);
    SendNumbers(group, 0, {clock()});
  }
  const std::vector<int64_t> offset = ReceiveNumbers(group, 0, 2);
  return {offset[0], offset[1]};
}

Timeline GatherTimeline(comm::Communicator& group, const std::vector<Span>& own, int64_t began_ns) {
  const ClockOffset offset = MeasureClockOffset(group, &MonotonicNanoseconds);
  // Small numbers, so that seconds keep their nanoseconds: since rank 0 began.
  const std::string first = comm::BroadcastBytes(group, absl::StrCat(began_ns));
  const int64_t later_ns = began_ns - offset.nanoseconds - std::stoll(first);
  std::vector<Span> shifted = own;
  for (Span& span : shifted) {
    span.start_seconds += static_cast<double>(later_ns) * 1e-9;
    span.end_seconds += static_cast<double>(later_ns) * 1e-9;
  }
  std::vector<Span> all;
  for (const std::string& bytes : comm::AllGatherBytes(group, Packed(shifted))) {
    AppendUnpacked(bytes, all);
  }
  return MakeTimeline(std::move(all), group.size());
}

}  // namespace lockstep::pipeline
