// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/tcp_collectives.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/base/rounding.h"
#include "lockstep/comm/reduce.h"

namespace lockstep::comm::gloo {
namespace {

// Large enough that Gloo's three messages a piece, and the wake-ups that they cost, do not matter.
constexpr int64_t kChunkBytes = 512 << 10;
// Chunks that a member receives from each other one at a time: what has come stays in a cache until
// it is reduced.
constexpr int64_t kWindow = 2;
// Parts begin on cache lines.
constexpr int64_t kAlignment = 64;

size_t At(int64_t index) { return static_cast<size_t>(index); }

// Parts that are equal but for the last, in bytes.
std::vector<int64_t> CutEvenly(int64_t bytes, int parts) {
  const int64_t part = RoundUp(bytes / parts, kAlignment);
  std::vector<int64_t> ends(At(parts) + 1);
  for (int p = 0; p < parts; ++p) ends[At(p)] = std::min(bytes, part * p);
  ends[At(parts)] = bytes;
  return ends;
}

int64_t BytesOf(absl::Span<const int64_t> ends, int part) {
  return ends[At(part) + 1] - ends[At(part)];
}

// Calls f(chunk, begin, end) for the chunks of [begin, end).
template <typename Function>
void ForEachChunk(int64_t begin, int64_t end, const Function& f) {
  int64_t chunk = 0;
  for (int64_t at = begin; at < end; at += kChunkBytes) {
    f(chunk++, at, std::min(end, at + kChunkBytes));
  }
}

void CopyUnlessSame(char* to, const char* from, int64_t bytes) {
  if (to != from && bytes > 0) CopyBytes(to, from, bytes);
}

}  // namespace

// Numbers of the pieces that carry other members' parts away, by member and chunk.
struct TcpCollectives::Sent {
  std::vector<std::vector<int>> pieces;
};

TcpCollectives::TcpCollectives(Exchange* exchange, std::vector<int> ranks, int me)
    : exchange_(*exchange), ranks_(std::move(ranks)), me_(me) {}

void TcpCollectives::Begin(uint64_t slot, Deadline deadline, Pieces::Describe describe) {
  slot_ = slot;
  deadline_ = deadline;
  describe_ = std::move(describe);
}

Pieces TcpCollectives::MakePieces(Phase phase) {
  return Pieces(&exchange_, slot_ + static_cast<uint64_t>(phase), deadline_, describe_);
}

char* TcpCollectives::Scratch(int64_t bytes) {
  if (static_cast<int64_t>(scratch_.size()) < bytes) scratch_.resize(At(bytes));
  return scratch_.data();
}

// ---- Reductions ----

void TcpCollectives::ReduceMyPart(Pieces& pieces, Sent* sent, const char* whole, char* part,
                                  absl::Span<const int64_t> ends, const Reduction& reduction,
                                  ChunkDone done) {
  const int64_t begin = ends[At(me_)];
  const int64_t bytes = BytesOf(ends, me_);
  char* const scratch = Scratch(kWindow * std::min(bytes, kChunkBytes) * (size() - 1));
  const auto theirs = [&](int peer, int64_t chunk) {
    const int64_t slot = kWindow * (peer < me_ ? peer : peer - 1) + chunk % kWindow;
    return scratch + slot * std::min(bytes, kChunkBytes);
  };
  std::vector<std::vector<int>> received(At(size()));
  const auto receive = [&](int64_t chunk) {
    const int64_t at = chunk * kChunkBytes;
    for (int step = 1; step < size() && at < bytes; ++step) {
      const int from = (me_ + step) % size();
      received[At(from)].push_back(
          pieces.Receive(ranks_[At(from)], theirs(from, chunk), std::min(bytes - at, kChunkBytes)));
    }
  };
  for (int64_t chunk = 0; chunk < kWindow; ++chunk) receive(chunk);
  sent->pieces.assign(At(size()), {});
  for (int step = 1; step < size(); ++step) {
    const int to = (me_ + size() - step) % size();
    ForEachChunk(ends[At(to)], ends[At(to) + 1], [&](int64_t, int64_t at, int64_t end) {
      sent->pieces[At(to)].push_back(pieces.Send(ranks_[At(to)], whole + at, end - at));
    });
  }
  pieces.Start();
  const int64_t item = ItemSize(reduction.dtype);
  ForEachChunk(0, bytes, [&](int64_t chunk, int64_t at, int64_t end) {
    sources_.clear();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != me_) pieces.Await(received[At(peer)][At(chunk)]);
      sources_.push_back(peer == me_ ? whole + begin + at : theirs(peer, chunk));
    }
    ReduceElements(reduction.op, reduction.dtype, sources_, (end - at) / item, part + at,
                   reduction.factor);
    receive(chunk + kWindow);
    pieces.Start();
    done(begin + at, begin + end);
  });
}

void TcpCollectives::ReduceWhole(const char* input, char* output, int64_t bytes,
                                 const Reduction& reduction) {
  char* const scratch = Scratch(bytes * size());
  Pieces pieces = MakePieces();
  sources_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    char* const theirs = scratch + bytes * peer;
    sources_.push_back(peer == me_ ? input : theirs);
    if (peer != me_) pieces.Receive(ranks_[At(peer)], theirs, bytes);
  }
  for (int step = 1; step < size(); ++step) {
    pieces.Send(ranks_[At((me_ + step) % size())], input, bytes);
  }
  pieces.AwaitAll();
  ReduceElements(reduction.op, reduction.dtype, sources_, bytes / ItemSize(reduction.dtype), output,
                 reduction.factor);
}

void TcpCollectives::AllReduce(const char* input, char* output, int64_t count,
                               const Reduction& reduction) {
  const int64_t bytes = count * ItemSize(reduction.dtype);
  if (bytes <= kWholeBytes) return ReduceWhole(input, output, bytes, reduction);
  const std::vector<int64_t> ends = CutEvenly(bytes, size());
  Pieces pieces = MakePieces();
  Pieces results = MakePieces(Phase::kResults);
  Sent sent;
  int64_t next = 0;  // of the other members' chunks
  // The place of a result may be that of an input: it has to be on its way first.
  const auto receive_next = [&] {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == me_ || next >= static_cast<int64_t>(sent.pieces[At(peer)].size())) continue;
      pieces.Await(sent.pieces[At(peer)][At(next)]);
      const int64_t at = ends[At(peer)] + next * kChunkBytes;
      results.Receive(ranks_[At(peer)], output + at,
                      std::min(kChunkBytes, ends[At(peer) + 1] - at));
    }
    ++next;
    results.Start();
  };
  ReduceMyPart(pieces, &sent, input, output + ends[At(me_)], ends, reduction,
               [&](int64_t begin, int64_t end) {
                 for (int step = 1; step < size(); ++step) {
                   const int peer = ranks_[At((me_ + step) % size())];
                   results.Send(peer, output + begin, end - begin);
                 }
                 results.Start();
                 receive_next();
               });
  for (const std::vector<int>& chunks : sent.pieces) {
    while (next < static_cast<int64_t>(chunks.size())) receive_next();
  }
  pieces.AwaitAll();
  results.AwaitAll();
}

void TcpCollectives::Reduce(int root, const char* input, char* output, int64_t count,
                            const Reduction& reduction) {
  const int64_t bytes = count * ItemSize(reduction.dtype);
  // The root alone reduces what is small, and what has only one other member.
  std::vector<int64_t> ends = CutEvenly(bytes, size());
  if (bytes <= kWholeBytes || size() <= 2) {
    for (int r = 0; r <= size(); ++r) ends[At(r)] = r <= root ? 0 : bytes;
  }
  std::vector<char> reduced;  // this member's part, for the root
  if (me_ != root) reduced.resize(At(BytesOf(ends, me_)));
  char* const part = me_ == root ? output + ends[At(me_)] : reduced.data();
  Pieces pieces = MakePieces();
  Pieces results = MakePieces(Phase::kResults);
  Sent sent;
  ReduceMyPart(pieces, &sent, input, part, ends, reduction, [&](int64_t begin, int64_t end) {
    if (me_ == root) return;
    results.Send(ranks_[At(root)], part + begin - ends[At(me_)], end - begin);
    results.Start();
  });
  for (int peer = 0; peer < size() && me_ == root; ++peer) {
    if (peer == root) continue;
    ForEachChunk(ends[At(peer)], ends[At(peer) + 1], [&](int64_t chunk, int64_t at, int64_t end) {
      pieces.Await(sent.pieces[At(peer)][At(chunk)]);
      results.Receive(ranks_[At(peer)], output + at, end - at);
    });
    results.Start();
  }
  pieces.AwaitAll();
  results.AwaitAll();
}

void TcpCollectives::ReduceScatter(const char* whole, char* part, absl::Span<const int64_t> ends,
                                   const Reduction& reduction) {
  const int64_t item = ItemSize(reduction.dtype);
  std::vector<int64_t> byte_ends(ends.begin(), ends.end());
  for (int64_t& end : byte_ends) end *= item;
  Pieces pieces = MakePieces();
  Sent sent;
  ReduceMyPart(pieces, &sent, whole, part, byte_ends, reduction, [](int64_t, int64_t) {});
  pieces.AwaitAll();
}

// ---- Moves ----

void TcpCollectives::Broadcast(int root, char* data, int64_t bytes) {
  Pieces pieces = MakePieces();
  if (bytes <= kWholeBytes || size() <= 2) {
    for (int peer = 0; peer < size(); ++peer) {
      if (me_ == root && peer != root) pieces.Send(ranks_[At(peer)], data, bytes);
    }
    if (me_ != root) pieces.Receive(ranks_[At(root)], data, bytes);
    return pieces.AwaitAll();
  }
  // One part for each member but the root, which hands it on to the others.
  std::vector<int64_t> ends = CutEvenly(bytes, size() - 1);
  ends.insert(ends.begin() + root, ends[At(root)]);
  std::vector<int> mine;
  for (int owner = 0; owner < size(); ++owner) {
    ForEachChunk(ends[At(owner)], ends[At(owner) + 1], [&](int64_t, int64_t at, int64_t end) {
      if (me_ == root) {
        pieces.Send(ranks_[At(owner)], data + at, end - at);
      } else {
        const int from = owner == me_ ? root : owner;
        const int piece = pieces.Receive(ranks_[At(from)], data + at, end - at);
        if (owner == me_) mine.push_back(piece);
      }
    });
  }
  ForEachChunk(ends[At(me_)], ends[At(me_) + 1], [&](int64_t chunk, int64_t at, int64_t end) {
    pieces.Await(mine[At(chunk)]);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != me_ && peer != root) pieces.Send(ranks_[At(peer)], data + at, end - at);
    }
  });
  pieces.AwaitAll();
}

void TcpCollectives::AllGather(const char* part, char* whole, absl::Span<const int64_t> ends) {
  Pieces pieces = MakePieces();
  for (int step = 1; step < size(); ++step) {
    const int from = (me_ + step) % size();
    pieces.Receive(ranks_[At(from)], whole + ends[At(from)], BytesOf(ends, from));
    pieces.Send(ranks_[At((me_ + size() - step) % size())], part, BytesOf(ends, me_));
  }
  CopyUnlessSame(whole + ends[At(me_)], part, BytesOf(ends, me_));
  pieces.AwaitAll();
}

void TcpCollectives::Gather(int root, const char* part, char* whole,
                            absl::Span<const int64_t> ends) {
  Pieces pieces = MakePieces();
  if (me_ != root) {
    pieces.Send(ranks_[At(root)], part, BytesOf(ends, me_));
    return pieces.AwaitAll();
  }
  for (int from = 0; from < size(); ++from) {
    if (from == root) continue;
    pieces.Receive(ranks_[At(from)], whole + ends[At(from)], BytesOf(ends, from));
  }
  CopyUnlessSame(whole + ends[At(root)], part, BytesOf(ends, root));
  pieces.AwaitAll();
}

void TcpCollectives::Scatter(int root, const char* whole, char* part,
                             absl::Span<const int64_t> ends) {
  Pieces pieces = MakePieces();
  if (me_ != root) {
    pieces.Receive(ranks_[At(root)], part, BytesOf(ends, me_));
    return pieces.AwaitAll();
  }
  for (int to = 0; to < size(); ++to) {
    if (to != root) pieces.Send(ranks_[At(to)], whole + ends[At(to)], BytesOf(ends, to));
  }
  CopyUnlessSame(part, whole + ends[At(root)], BytesOf(ends, root));
  pieces.AwaitAll();
}

void TcpCollectives::AllToAll(const char* input, absl::Span<const int64_t> input_ends, char* output,
                              absl::Span<const int64_t> output_ends) {
  Pieces pieces = MakePieces();
  for (int step = 1; step < size(); ++step) {
    const int from = (me_ + step) % size();
    pieces.Receive(ranks_[At(from)], output + output_ends[At(from)], BytesOf(output_ends, from));
    const int to = (me_ + size() - step) % size();
    pieces.Send(ranks_[At(to)], input + input_ends[At(to)], BytesOf(input_ends, to));
  }
  CopyUnlessSame(output + output_ends[At(me_)], input + input_ends[At(me_)],
                 BytesOf(input_ends, me_));
  pieces.AwaitAll();
}

}  // namespace lockstep::comm::gloo
