// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The collectives, in terms of meetings (member.h) and memory (peer_memory.h).
//
// Collectives that move data are one algorithm: each rank copies from its peers what it is to have.
// Those that reduce are cut into slices. Four paths lead to a peer's data; all ranks choose alike,
// from what they have posted. Results are the same bits on each, because every element is reduced
// in rank order by the same instructions.
//
//   inline   inputs up to kInlineBytes are in the control block: one meeting in all, if all are
//   mapped   all buffers can be mapped: a rank reduces its slice of the elements straight from
//            everybody's buffers into everybody's buffers
//   read     private buffers are read through the kernel; a rank reduces its slice into its own
//            output, and then reads the others' slices
//   staged   otherwise: inputs pass through the control block in chunks, in two halves, so that one
//            is filled while peers still read the other
#ifndef LOCKSTEP_COMM_SHM_ALGORITHMS_H_
#define LOCKSTEP_COMM_SHM_ALGORITHMS_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/comm/collective.h"
#include "lockstep/comm/shm/member.h"
#include "lockstep/comm/shm/payload_check.h"
#include "lockstep/comm/shm/peer_memory.h"

namespace lockstep::comm::shm {

// One rank's part in collectives. Keeps scratch between them. Used by one thread at a time.
class Algorithms {
 public:
  Algorithms(Member* member, PeerMemory* memory)
      : member_(*member), memory_(*memory), check_(member) {}

  // Begins the collective `sequence` without waiting, if all that the peers need of this rank fits
  // into the control block: they can complete theirs then. False: nothing has been done.
  bool Begin(const Collective& collective, int64_t sequence);
  // Runs the collective `sequence`, or the rest of it. Its tensors are row-major. Throws as Member
  // does.
  void Run(const Collective& collective, int64_t sequence);

  // Copied or reduced from peers' memory, and written into it, so far. Any thread.
  int64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

 private:
  // Elements [begin, end).
  struct Slice {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t count() const { return end - begin; }
  };
  // Part `rank` of `count` elements: parts are equal but for the last, and begin on cache lines.
  Slice SliceOf(int64_t count, int rank) const;

  // Where `reader`'s part of `peer`'s input lies there and goes here, in elements; `to` is of this
  // rank as the reader.
  struct Move {
    int64_t from = 0;
    int64_t to = 0;
    int64_t count = 0;
  };
  Move MoveOf(int peer, int reader) const;
  Move MoveFrom(int peer) const { return MoveOf(peer, member_.rank()); }
  // Part `rank` of a tensor of W parts.
  Slice PartOf(int rank) const;
  // Elements of `peer`'s input; 0 where it has none.
  int64_t InputCount(int peer) const;
  bool Reduces() const { return signature_.reduces; }

  void Take(const Collective& collective);
  // Whether every rank's input travels in the control block, as far as this rank can tell alone.
  bool IsInlined() const;
  void Start(const Collective& collective, int64_t sequence);
  // Publishes checksums of what peers will read of the input, if payloads are verified.
  void SealInput();
  void CheckInlined();
  // Flips a bit of the input, where peers see it. What is staged is sealed once more: there
  // FlipStaged flips it back, until it is sealed.
  void CorruptInput();
  void FlipStaged(char* staged_input, bool sealed);
  // Of what this rank has reduced for all, and of what the others have, in this rank's output.
  void SealResult(int slot, const char* data, int64_t bytes);
  void CheckResults();
  void RunShared();

  void MoveAll(bool staged);
  void MoveStaged();
  void AwaitReaders();

  void ReduceInline();
  void AllReduceMapped();
  void AllReduceRead();
  void AllReduceStaged();
  void ReduceToRoot(bool mapped);
  void ReduceScatterStaged();

  // destination[i] = reduction over ranks of their inputs' element begin + i.
  // They are part `part` of the inputs.
  void ReduceInputs(int part, Slice slice, char* destination);
  // Whether the pieces that have been reduced are part `part` of the inputs.
  void CheckGathered(int part);
  void ReduceSources(int64_t count, char* destination);
  // Reduces part `slice` of what all ranks have staged in `half` into `destination`.
  void ReduceStaged(int half, Slice slice, char* destination);
  // Copies from a peer's input or output, at a byte offset.
  void CopyFrom(int peer, const BufferDescriptor& descriptor, int64_t offset, char* to,
                int64_t bytes);
  // Sets `sources_` to `bytes` bytes at `offset` of every rank's input, read into scratch if need
  // be.
  void GatherSources(int64_t offset, int64_t bytes);
  void MeetAtEnd();
  void Received(int peer, int64_t bytes);

  Member& member_;
  PeerMemory& memory_;
  PayloadCheck check_;

  // Of the collective that runs.
  Signature signature_;
  int64_t item_ = 1;
  const char* input_ = nullptr;
  char* output_ = nullptr;
  absl::Span<const int64_t> counts_;  // of an uneven one
  std::optional<int64_t> begun_;      // the collective that Run has to finish

  bool corrupted_ = false;

  std::atomic<int64_t> bytes_received_{0};
  std::atomic<int64_t> bytes_sent_{0};
  std::vector<const void*> sources_;
  std::vector<char> scratch_;
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_ALGORITHMS_H_
