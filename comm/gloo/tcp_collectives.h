// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The collectives between ranks that reach each other over TCP, on plain row-major memory.
//
//   TcpCollectives collectives(&exchange, {0, 3, 5}, /*me=*/1);   // ranks 0, 3 and 5 of the group
//   collectives.Begin(slot, deadline, describe);
//   collectives.AllReduce(input, output, count, {ReduceOp::kSum, DType::kFloat32});
//
// Members are numbered by their place in the list. Every member sends straight to every other: what
// is reduced is cut into one part for each, all inputs of a part go to its owner, who reduces them
// in the order of the members, so that the result is the same bits as one rank alone would compute,
// and the results travel likewise. Parts go in chunks, so that one is reduced while others travel.
#ifndef LOCKSTEP_COMM_GLOO_TCP_COLLECTIVES_H_
#define LOCKSTEP_COMM_GLOO_TCP_COLLECTIVES_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/gloo/exchange.h"
#include "lockstep/comm/signature.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::comm::gloo {

struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  double factor = 1;
};

// Inputs of up to so many bytes are sent whole to every member, which reduces them all.
inline constexpr int64_t kWholeBytes = 16 << 10;

// Used by one thread. Functions throw as Pieces do; afterwards outputs are undefined.
class TcpCollectives {
 public:
  TcpCollectives(Exchange* exchange, std::vector<int> ranks, int me);

  int size() const { return static_cast<int>(ranks_.size()); }

  // For what follows, until the next call: a round, which uses slots `slot` and `slot` + 1.
  void Begin(uint64_t slot, Deadline deadline, Pieces::Describe describe);

  // `output` may be `input`.
  void AllReduce(const char* input, char* output, int64_t count, const Reduction& reduction);
  // `output` is used on the root only.
  void Reduce(int root, const char* input, char* output, int64_t count, const Reduction& reduction);
  void Broadcast(int root, char* data, int64_t bytes);

  // `ends`: W + 1 offsets; part r is [ends[r], ends[r + 1]), in bytes, or elements where there is a
  // reduction. A part given alone may be where it belongs in the whole.
  void AllGather(const char* part, char* whole, absl::Span<const int64_t> ends);
  void Gather(int root, const char* part, char* whole, absl::Span<const int64_t> ends);
  void Scatter(int root, const char* whole, char* part, absl::Span<const int64_t> ends);
  void ReduceScatter(const char* whole, char* part, absl::Span<const int64_t> ends,
                     const Reduction& reduction);
  void AllToAll(const char* input, absl::Span<const int64_t> input_ends, char* output,
                absl::Span<const int64_t> output_ends);

 private:
  // Called when bytes [begin, end) of the whole, in this member's part, are reduced.
  using ChunkDone = absl::FunctionRef<void(int64_t begin, int64_t end)>;
  struct Sent;

  // Of results: in a slot of their own, as they are under way among inputs.
  enum class Phase { kInputs = 0, kResults = 1 };
  Pieces MakePieces(Phase phase = Phase::kInputs);
  // Sends every other member its part of `whole`, and reduces this one's from all inputs into
  // `part`. `ends` in bytes.
  void ReduceMyPart(Pieces& pieces, Sent* sent, const char* whole, char* part,
                    absl::Span<const int64_t> ends, const Reduction& reduction, ChunkDone done);
  void ReduceWhole(const char* input, char* output, int64_t bytes, const Reduction& reduction);
  char* Scratch(int64_t bytes);

  Exchange& exchange_;
  const std::vector<int> ranks_;
  const int me_;
  uint64_t slot_ = 0;
  Deadline deadline_;
  Pieces::Describe describe_;
  std::vector<char> scratch_;
  std::vector<const void*> sources_;
};

}  // namespace lockstep::comm::gloo

#endif  // LOCKSTEP_COMM_GLOO_TCP_COLLECTIVES_H_
