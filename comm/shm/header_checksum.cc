// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/header_checksum.h"

#include <bit>
#include <cstdint>

#include "lockstep/comm/signature.h"

namespace lockstep::comm::shm {
namespace {

class Mixer {
 public:
  // For a given state each value gives another one, and for a given value each state: one changed
  // field cannot be undone by those after it.
  Mixer& Add(uint64_t value) {
    state_ = (state_ ^ value) * 0x9e3779b97f4a7c15u;
    state_ ^= state_ >> 29;
    return *this;
  }
  Mixer& Add(int64_t value) { return Add(static_cast<uint64_t>(value)); }
  Mixer& Add(int32_t high, int32_t low) {
    return Add((uint64_t{static_cast<uint32_t>(high)} << 32) | static_cast<uint32_t>(low));
  }
  Mixer& Add(const Signature& s) {
    const uint64_t kinds = uint64_t{static_cast<uint8_t>(s.op)} |
                           (uint64_t{static_cast<uint8_t>(s.dtype)} << 8) |
                           (uint64_t{static_cast<uint8_t>(s.reduce_op)} << 16) |
                           (uint64_t{s.reduces} << 24) | (uint64_t{s.uneven} << 25);
    return Add(s.count)
        .Add(s.tag)
        .Add(std::bit_cast<uint64_t>(s.factor))
        .Add(s.list)
        .Add(s.tensors, s.root)
        .Add(kinds | (uint64_t{static_cast<uint32_t>(s.peer)} << 32));
  }
  uint64_t state() const { return state_; }

 private:
  uint64_t state_ = 0x2545f4914f6cdd1d;  // zeros, as in memory that nobody has written, do not fit
};

}  // namespace

uint64_t HeaderChecksum(const Post& post, absl::Span<const int64_t> counts) {
  Mixer mixer;
  mixer.Add(post.sequence)
      .Add(post.signature)
      .Add(post.input.segment)
      .Add(post.input.address)
      .Add(post.output.segment)
      .Add(post.output.address)
      .Add(post.messages_sent)
      .Add(uint64_t{post.inlined} | (uint64_t{post.has_sums} << 1));
  for (const int64_t count : counts) mixer.Add(count);
  return mixer.state();
}

uint64_t HeaderChecksum(const Fragment& fragment) {
  return Mixer()
      .Add(fragment.number)
      .Add(fragment.begin)
      .Add(fragment.signature)
      .Add(fragment.address)
      .Add(fragment.bytes)
      .Add(fragment.sum)
      .Add(uint64_t{fragment.pulled} | (uint64_t{fragment.has_sum} << 1))
      .state();
}

}  // namespace lockstep::comm::shm
