// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/algorithms.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/reduce.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::comm::shm {
namespace {

constexpr int64_t kLineBytes = 64;
// Bytes reduced at a time: the result of a block is still in the first-level cache when it is
// copied to the peers, and blocks read through the kernel stay in the second-level one.
constexpr int64_t kMappedBlockBytes = 16 << 10;
constexpr int64_t kReadBlockBytes = 64 << 10;

void Copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

Algorithms::Slice Algorithms::SliceOf(int64_t count, int rank) const {
  const int64_t per_line = kLineBytes / item_;
  const int64_t size = member_.size();
  const int64_t lines = (count + per_line - 1) / per_line;
  const int64_t part = (lines + size - 1) / size * per_line;
  return {std::min(count, part * rank), std::min(count, part * (rank + 1))};
}

void Algorithms::Run(const Collective& collective, int64_t sequence) {
  signature_ = collective.signature;
  item_ = ItemSize(signature_.dtype);
  input_ = nullptr;
  output_ = nullptr;
  if (collective.input.defined()) {
    input_ = static_cast<const char*>(KernelRawData(collective.input));
  }
  if (collective.output.defined()) {
    output_ = static_cast<char*>(KernelRawData(collective.output));
  }
  member_.Begin(sequence, signature_, collective.timeout);

  const bool scatters = signature_.op == CollectiveId::kReduceScatter;
  const int64_t payload = signature_.count * item_ * (scatters ? member_.size() : 1);
  if (payload <= kInlineBytes) {
    const bool sends =
        signature_.op != CollectiveId::kBroadcast || signature_.root == member_.rank();
    if (sends && input_ != nullptr) Copy(member_.my_inline(), input_, payload);
    member_.MeetPosts();
    RunInline();
    return;
  }
  const auto release = absl::MakeCleanup([this] { memory_.Release(); });
  try {
    memory_.Share(collective, &member_.my_post(), member_.deadline());
    member_.MeetPosts();
    for (int peer = 0; peer < member_.size(); ++peer) {
      if (peer != member_.rank()) memory_.Resolve(peer, member_.post(peer), member_.deadline());
    }
    RunShared();
  } catch (const Error& error) {
    if (error.code() == absl::StatusCode::kUnavailable) member_.FailUnreachable(error.message());
    throw;
  }
}

void Algorithms::RunInline() {
  const int64_t count = signature_.count;
  const int64_t bytes = count * item_;
  const int rank = member_.rank();
  const int64_t part = signature_.op == CollectiveId::kReduceScatter ? bytes * rank : 0;
  switch (signature_.op) {
    case CollectiveId::kAllReduce:
    case CollectiveId::kReduceScatter:
      sources_.clear();
      for (int peer = 0; peer < member_.size(); ++peer) {
        sources_.push_back(member_.inline_data(peer) + part);
      }
      ReduceElements(signature_.reduce_op, signature_.dtype, sources_, count, output_);
      return;
    case CollectiveId::kBroadcast:
      if (rank != signature_.root) Copy(output_, member_.inline_data(signature_.root), bytes);
      return;
    case CollectiveId::kAllGather:
      for (int peer = 0; peer < member_.size(); ++peer) {
        Copy(output_ + peer * bytes, member_.inline_data(peer), bytes);
      }
      return;
    default:  // Barrier; transfers do not come here
      return;
  }
}

void Algorithms::RunShared() {
  bool inputs_mapped = true;
  bool outputs_mapped = true;
  for (int peer = 0; peer < member_.size(); ++peer) {
    const Post& post = member_.post(peer);
    const bool matters = signature_.op != CollectiveId::kBroadcast || peer == signature_.root;
    if (matters) inputs_mapped = inputs_mapped && memory_.IsMapped(post.input);
    outputs_mapped = outputs_mapped && memory_.IsMapped(post.output);
  }
  const bool reachable = inputs_mapped || memory_.CanRead();
  const int64_t bytes = signature_.count * item_;
  const int rank = member_.rank();
  switch (signature_.op) {
    case CollectiveId::kAllReduce:
      if (inputs_mapped && outputs_mapped) return AllReduceMapped();
      if (memory_.CanRead()) return AllReduceRead();
      return AllReduceStaged();
    case CollectiveId::kBroadcast:
      if (!reachable) return BroadcastStaged();
      if (rank != signature_.root) {
        CopyFrom(signature_.root, member_.post(signature_.root).input, 0, output_, bytes);
      }
      member_.Signal();
      if (rank == signature_.root) member_.AwaitAll();  // nobody else's buffer is read
      return;
    case CollectiveId::kAllGather:
      if (!reachable) return AllGatherStaged();
      for (int i = 0; i < member_.size(); ++i) {
        const int peer = (rank + i) % member_.size();  // not all from the same peer at once
        if (peer == rank) {
          Copy(output_ + rank * bytes, input_, bytes);
        } else {
          CopyFrom(peer, member_.post(peer).input, 0, output_ + peer * bytes, bytes);
        }
      }
      return MeetAtEnd();
    case CollectiveId::kReduceScatter:
      if (!reachable) return ReduceScatterStaged();
      ReduceInputs(rank * signature_.count, signature_.count, output_);
      return MeetAtEnd();
    default:  // Barrier; transfers do not come here
      return;
  }
}

void Algorithms::MeetAtEnd() {
  member_.Signal();
  member_.AwaitAll();
}

// ---- Paths over reachable buffers ----

void Algorithms::CopyFrom(int peer, const BufferDescriptor& descriptor, int64_t offset, char* to,
                          int64_t bytes) {
  if (bytes == 0) return;
  if (memory_.IsMapped(descriptor)) {
    CopyBytes(to, memory_.Map(peer, descriptor) + offset, bytes);
  } else {
    memory_.Read(peer, descriptor.address + static_cast<uint64_t>(offset), to, bytes);
  }
}

void Algorithms::GatherSources(int64_t offset, int64_t bytes) {
  sources_.clear();
  const size_t needed = static_cast<size_t>(member_.size()) * kReadBlockBytes;
  for (int peer = 0; peer < member_.size(); ++peer) {
    const BufferDescriptor& descriptor = member_.post(peer).input;
    if (peer == member_.rank()) {
      sources_.push_back(input_ + offset);
    } else if (memory_.IsMapped(descriptor)) {
      sources_.push_back(memory_.Map(peer, descriptor) + offset);
    } else {
      if (scratch_.size() < needed) scratch_.resize(needed);
      char* to = scratch_.data() + peer * kReadBlockBytes;
      memory_.Read(peer, descriptor.address + static_cast<uint64_t>(offset), to, bytes);
      sources_.push_back(to);
    }
  }
}

void Algorithms::ReduceInputs(int64_t begin, int64_t count, char* destination) {
  const int64_t block = kReadBlockBytes / item_;
  for (int64_t i = 0; i < count; i += block) {
    const int64_t n = std::min(block, count - i);
    GatherSources((begin + i) * item_, n * item_);
    ReduceElements(signature_.reduce_op, signature_.dtype, sources_, n, destination + i * item_);
  }
}

void Algorithms::AllReduceMapped() {
  const int rank = member_.rank();
  const Slice slice = SliceOf(signature_.count, rank);
  std::vector<char*> outputs;
  for (int peer = 0; peer < member_.size(); ++peer) {
    if (peer != rank) outputs.push_back(memory_.Map(peer, member_.post(peer).output));
  }
  const int64_t block = kMappedBlockBytes / item_;
  for (int64_t i = slice.begin; i < slice.end; i += block) {
    const int64_t n = std::min(block, slice.end - i);
    const int64_t offset = i * item_;
    GatherSources(offset, n * item_);
    ReduceElements(signature_.reduce_op, signature_.dtype, sources_, n, output_ + offset);
    for (char* output : outputs) Copy(output + offset, output_ + offset, n * item_);
  }
  MeetAtEnd();
}

void Algorithms::AllReduceRead() {
  const int rank = member_.rank();
  const Slice slice = SliceOf(signature_.count, rank);
  ReduceInputs(slice.begin, slice.count(), output_ + slice.begin * item_);
  // In place, a peer reads its slice of this rank's buffer until it signals; only then is the
  // result written there.
  MeetAtEnd();
  for (int i = 1; i < member_.size(); ++i) {
    const int peer = (rank + i) % member_.size();
    const Slice theirs = SliceOf(signature_.count, peer);
    const int64_t offset = theirs.begin * item_;
    CopyFrom(peer, member_.post(peer).output, offset, output_ + offset, theirs.count() * item_);
  }
  MeetAtEnd();
}

// ---- Staged ----

void Algorithms::ReduceStaged(int half, Slice slice, char* destination) {
  if (slice.count() == 0) return;
  sources_.clear();
  for (int peer = 0; peer < member_.size(); ++peer) {
    sources_.push_back(member_.control().staging(peer, half) + slice.begin * item_);
  }
  ReduceElements(signature_.reduce_op, signature_.dtype, sources_, slice.count(), destination);
}

void Algorithms::AllReduceStaged() {
  const int64_t chunk = kStagingBytes / item_;
  int half = 0;
  for (int64_t begin = 0; begin < signature_.count; begin += chunk, half ^= 1) {
    const int64_t n = std::min(chunk, signature_.count - begin);
    char* mine = member_.control().staging(member_.rank(), half);
    Copy(mine, input_ + begin * item_, n * item_);
    MeetAtEnd();
    // Nobody else reads this slice of this rank's staging before the next meeting.
    const Slice slice = SliceOf(n, member_.rank());
    ReduceStaged(half, slice, mine + slice.begin * item_);
    MeetAtEnd();
    for (int peer = 0; peer < member_.size(); ++peer) {
      const Slice theirs = SliceOf(n, peer);
      Copy(output_ + (begin + theirs.begin) * item_,
           member_.control().staging(peer, half) + theirs.begin * item_, theirs.count() * item_);
    }
  }
}

void Algorithms::BroadcastStaged() {
  const int64_t bytes = signature_.count * item_;
  const bool is_root = member_.rank() == signature_.root;
  int half = 0;
  for (int64_t begin = 0; begin < bytes; begin += kStagingBytes, half ^= 1) {
    const int64_t n = std::min(kStagingBytes, bytes - begin);
    char* staged = member_.control().staging(signature_.root, half);
    if (is_root) Copy(staged, input_ + begin, n);
    MeetAtEnd();
    if (!is_root) Copy(output_ + begin, staged, n);
  }
}

void Algorithms::AllGatherStaged() {
  const int64_t bytes = signature_.count * item_;
  int half = 0;
  for (int64_t begin = 0; begin < bytes; begin += kStagingBytes, half ^= 1) {
    const int64_t n = std::min(kStagingBytes, bytes - begin);
    Copy(member_.control().staging(member_.rank(), half), input_ + begin, n);
    MeetAtEnd();
    for (int peer = 0; peer < member_.size(); ++peer) {
      Copy(output_ + peer * bytes + begin, member_.control().staging(peer, half), n);
    }
  }
}

void Algorithms::ReduceScatterStaged() {
  const int64_t size = member_.size();
  const int64_t chunk = kStagingBytes / size / item_;
  int half = 0;
  for (int64_t begin = 0; begin < signature_.count; begin += chunk, half ^= 1) {
    const int64_t n = std::min(chunk, signature_.count - begin);
    char* mine = member_.control().staging(member_.rank(), half);
    for (int64_t part = 0; part < size; ++part) {
      Copy(mine + part * n * item_, input_ + (part * signature_.count + begin) * item_, n * item_);
    }
    MeetAtEnd();
    const int64_t first = member_.rank() * n;
    ReduceStaged(half, {first, first + n}, output_ + begin * item_);
  }
}

}  // namespace lockstep::comm::shm
