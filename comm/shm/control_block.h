// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The memory that all ranks of a group see: who has come how far, with which call, and small data.
//
// [Note: Two slots]
// A rank's posts and inline data have two slots, used by even and odd collectives. Nobody
// overwrites what somebody still reads: a rank posts collective s + 2 only after it has seen every
// rank's post of s + 1, and a rank posts s + 1 only after it is done with s. So a small collective
// needs one meeting of the ranks and no second one at its end.
#ifndef LOCKSTEP_COMM_SHM_CONTROL_BLOCK_H_
#define LOCKSTEP_COMM_SHM_CONTROL_BLOCK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/rounding.h"
#include "lockstep/comm/signature.h"

namespace lockstep::comm::shm {

// Payloads up to this size travel in the block itself.
inline constexpr int64_t kInlineBytes = 16 << 10;
// Of what one rank sends to another: pieces of up to so many bytes, up to so many at a time.
inline constexpr int64_t kFragmentBytes = 16 << 10;
inline constexpr uint32_t kChannelSlots = 4;
// Half of what a rank may stage at a time, see algorithms.cc.
inline constexpr int64_t kStagingBytes = 1 << 20;

// Where a rank's buffer is. Segment 0: at `address` of that process's private memory; others: at
// `address` bytes from the segment's start.
struct BufferDescriptor {
  uint64_t segment = 0;
  uint64_t address = 0;
};

struct Post {
  int64_t sequence = 0;
  Signature signature;
  BufferDescriptor input;
  BufferDescriptor output;
  bool inlined = false;        // this rank's input is in its inline data
  uint64_t messages_sent = 0;  // to each peer, so far: process_memory.h
  bool has_sums = false;       // payload_check.h
  uint64_t checksum = 0;       // header_checksum.h
};

// Who sleeps on a rank's bell (futex.h).
inline constexpr uint32_t kBellOwner = 1;
inline constexpr uint32_t kBellAttendant = 2;

struct alignas(64) RankCell {
  // Steps taken since the group was made: posts and meetings. Written by the rank, with release.
  std::atomic<uint32_t> progress;
  std::atomic<uint32_t> sleepers;  // threads that sleep on `progress`
  std::atomic<uint32_t> left;      // 1: the rank has destroyed its communicator
  // Counts whatever may concern this rank's transfers. Their thread sleeps on it. So do threads
  // that wait for a transfer, the attendants: while there are any, only they are woken.
  std::atomic<uint32_t> bell;
  std::atomic<uint32_t> bell_sleepers;
  std::atomic<uint32_t> attendants;
  std::atomic<uint32_t> attendant_sleepers;
  // For the test of direct reads at construction: the address of a number, and the number.
  uint64_t probe_address;
  uint64_t probe_value;
  uint32_t reads_all_peers;
  alignas(64) Post posts[2];
  alignas(64) char inline_data[2][kInlineBytes];
};

// A message from one rank to another, or a piece of one.
struct Fragment {
  int64_t number;       // of the message, between these two
  int64_t begin;        // where this piece of it begins, in bytes
  Signature signature;  // the sender's call
  uint64_t address;     // pulled: where the message is in the sender's memory
  int64_t bytes;        // else: how much of it is in `data`
  bool pulled;
  bool has_sum;       // of what this piece hands over: base/hash.h
  uint64_t sum;       // if so
  uint64_t checksum;  // header_checksum.h
  alignas(64) char data[kFragmentBytes];
};

// From one rank to one other. The sender fills slots and counts them in `posted`, the receiver
// empties them and counts in `taken`.
struct Channel {
  alignas(64) std::atomic<uint32_t> posted;
  alignas(64) std::atomic<uint32_t> taken;
  Fragment slots[kChannelSlots];
};

// The group's first error.
struct alignas(64) ErrorCell {
  enum State : uint32_t { kNone = 0, kWriting = 1, kWritten = 2 };
  std::atomic<uint32_t> state;
  int32_t code;
  char text[4088];
};

// A view of the memory, which starts as zeros.
class ControlBlock {
 public:
  ControlBlock() = default;
  ControlBlock(void* memory, int size) : memory_(static_cast<char*>(memory)), size_(size) {}

  static int64_t Bytes(int size) {
    return SumsOffset(size) + size * SumsPerRank(size) * static_cast<int64_t>(sizeof(uint64_t));
  }

  int size() const { return size_; }
  ErrorCell& error() const { return *reinterpret_cast<ErrorCell*>(memory_); }
  RankCell& rank(int r) const {
    return *reinterpret_cast<RankCell*>(memory_ + sizeof(ErrorCell) +
                                        static_cast<size_t>(r) * sizeof(RankCell));
  }
  char* staging(int r, int half) const {
    return memory_ + StagingOffset(size_) + (int64_t{2} * r + half) * kStagingBytes;
  }
  // Of uneven collectives, by slot as posts: counts of parts, for AllToAll those sent and received.
  int64_t* counts(int r, int slot) const {
    return reinterpret_cast<int64_t*>(memory_ + CountsOffset(size_)) +
           (int64_t{2} * r + slot) * CountsPerSlot(size_);
  }
  // Of a rank's payload, if they are verified: payload_check.h.
  uint64_t* sums(int r) const {
    return reinterpret_cast<uint64_t*>(memory_ + SumsOffset(size_)) + r * SumsPerRank(size_);
  }
  Channel& channel(int from, int to) const {
    return reinterpret_cast<Channel*>(memory_ + ChannelOffset(size_))[int64_t{from} * size_ + to];
  }

 private:
  static int64_t SumsPerRank(int size) { return (int64_t{4} * size + 2 + 7) / 8 * 8; }
  static int64_t SumsOffset(int size) {
    return CountsOffset(size) +
           int64_t{2} * size * CountsPerSlot(size) * static_cast<int64_t>(sizeof(int64_t));
  }
  static int64_t CountsPerSlot(int size) { return (int64_t{2} * size + 7) / 8 * 8; }
  static int64_t CountsOffset(int size) {
    return ChannelOffset(size) + int64_t{size} * size * static_cast<int64_t>(sizeof(Channel));
  }
  static int64_t ChannelOffset(int size) {
    return StagingOffset(size) + int64_t{2} * size * kStagingBytes;
  }
  static int64_t StagingOffset(int size) {
    constexpr int64_t kPage = 4096;
    const int64_t cells =
        static_cast<int64_t>(sizeof(ErrorCell) + static_cast<size_t>(size) * sizeof(RankCell));
    return RoundUp(cells, kPage);
  }

  char* memory_ = nullptr;
  int size_ = 0;
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_CONTROL_BLOCK_H_
