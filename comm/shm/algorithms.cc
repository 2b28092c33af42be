// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/algorithms.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "lockstep/base/error.h"
#include "lockstep/base/rounding.h"
#include "lockstep/comm/fault_injector.h"
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
  const int64_t lines = CeilDiv(count, per_line);
  const int64_t part = CeilDiv(lines, size) * per_line;
  return {std::min(count, part * rank), std::min(count, part * (rank + 1))};
}

Algorithms::Slice Algorithms::PartOf(int rank) const {
  if (!signature_.uneven) return {signature_.count * rank, signature_.count * (rank + 1)};
  const auto* part = counts_.begin() + rank;
  const int64_t begin = std::accumulate(counts_.begin(), part, int64_t{0});
  return {begin, begin + *part};
}

int64_t Algorithms::InputCount(int peer) const {
  const bool is_root = peer == signature_.root;
  const int64_t all = signature_.uneven ? signature_.count : signature_.count * member_.size();
  switch (signature_.op) {
    case CollectiveId::kBroadcast:
      return is_root ? signature_.count : 0;
    case CollectiveId::kScatter:
      return is_root ? all : 0;
    case CollectiveId::kReduceScatter:
      return all;
    case CollectiveId::kAllGather:
    case CollectiveId::kGather:
      return PartOf(peer).count();
    case CollectiveId::kAllToAll: {
      if (!signature_.uneven) return all;
      const absl::Span<const int64_t> sent = member_.counts(peer).first(counts_.size() / 2);
      return std::accumulate(sent.begin(), sent.end(), int64_t{0});
    }
    default:
      return signature_.count;
  }
}

Algorithms::Move Algorithms::MoveOf(int peer, int reader) const {
  const int root = signature_.root;
  switch (signature_.op) {
    case CollectiveId::kBroadcast:
      return {0, 0, peer == root && reader != root ? signature_.count : 0};
    case CollectiveId::kGather:
      if (reader != root) return {};
      [[fallthrough]];
    case CollectiveId::kAllGather:
      return {0, PartOf(peer).begin, PartOf(peer).count()};
    case CollectiveId::kScatter:
      if (peer != root) return {};
      return {PartOf(reader).begin, 0, PartOf(reader).count()};
    case CollectiveId::kAllToAll: {
      if (!signature_.uneven) {
        return {signature_.count * reader, signature_.count * peer, signature_.count};
      }
      const auto* sent = member_.counts(peer).begin();
      const auto* received = counts_.begin() + member_.size();
      return {std::accumulate(sent, sent + reader, int64_t{0}),
              std::accumulate(received, received + peer, int64_t{0}), sent[reader]};
    }
    default:
      return {};
  }
}

void Algorithms::Received(int peer, int64_t bytes) {
  if (peer != member_.rank()) bytes_received_.fetch_add(bytes, std::memory_order_relaxed);
}

void Algorithms::Take(const Collective& collective) {
  signature_ = collective.signature;
  counts_ = collective.counts;
  item_ = ItemSize(signature_.dtype);
  input_ = nullptr;
  output_ = nullptr;
  corrupted_ = false;
  if (collective.input.defined()) {
    input_ = static_cast<const char*>(KernelRawData(collective.input));
  }
  if (collective.output.defined()) {
    output_ = static_cast<char*>(KernelRawData(collective.output));
  }
}

bool Algorithms::IsInlined() const {
  // What the peers send to each other is in their posts.
  if (signature_.uneven && signature_.op == CollectiveId::kAllToAll) return false;
  for (int peer = 0; peer < member_.size(); ++peer) {
    if (InputCount(peer) * item_ > kInlineBytes) return false;
  }
  return true;
}

void Algorithms::Start(const Collective& collective, int64_t sequence) {
  member_.Begin(sequence, signature_, collective.timeout, counts_);
  const int64_t payload = InputCount(member_.rank()) * item_;
  member_.my_post().inlined = payload <= kInlineBytes;
  if (payload <= kInlineBytes) Copy(member_.my_inline(), input_, payload);
  if (check_.enabled()) SealInput();
}

// ---- Checksums, and what tests make of the data ----

void Algorithms::SealInput() {
  const int me = member_.rank();
  if (member_.my_post().inlined) {
    check_.Seal(PayloadCheck::kInput, member_.slot(), 0, member_.my_inline(),
                InputCount(me) * item_);
    return;
  }
  for (int reader = 0; reader < member_.size(); ++reader) {
    Slice part;
    if (signature_.op == CollectiveId::kReduceScatter) {
      part = PartOf(reader);
    } else if (Reduces()) {
      part = SliceOf(signature_.count, reader);
    } else {
      const Move move = MoveOf(me, reader);
      part = {move.from, move.from + move.count};
    }
    check_.Seal(PayloadCheck::kInput, member_.slot(), reader, input_ + part.begin * item_,
                part.count() * item_);
  }
}

void Algorithms::CheckInlined() {
  if (!check_.enabled()) return;
  for (int peer = 0; peer < member_.size(); ++peer) {
    if (!member_.post(peer).inlined) continue;
    check_.Compare(PayloadCheck::kInput, member_.slot(), peer, 0, member_.inline_data(peer),
                   InputCount(peer) * item_);
  }
}

void Algorithms::CorruptInput() {
  if (InputCount(member_.rank()) == 0) return;
  char* data = member_.my_post().inlined ? member_.my_inline() : const_cast<char*>(input_);
  *data ^= 1;
  corrupted_ = true;
}

void Algorithms::FlipStaged(char* staged_input, bool sealed) {
  if (!corrupted_) return;
  *staged_input ^= 1;
  if (sealed) corrupted_ = false;
}

void Algorithms::SealResult(int slot, const char* data, int64_t bytes) {
  check_.Seal(PayloadCheck::kResult, slot, 0, data, bytes);
}

void Algorithms::CheckResults() {
  if (!check_.enabled()) return;
  for (int peer = 0; peer < member_.size(); ++peer) {
    const Slice theirs = SliceOf(signature_.count, peer);
    check_.Compare(PayloadCheck::kResult, member_.slot(), peer, 0, output_ + theirs.begin * item_,
                   theirs.count() * item_);
  }
}

bool Algorithms::Begin(const Collective& collective, int64_t sequence) {
  Take(collective);
  if (!IsInlined() || member_.injects_faults()) return false;
  try {
    Start(collective, sequence);
  } catch (const Error&) {
    return false;  // the group has failed: Run will say so
  }
  member_.PublishPost();
  begun_ = sequence;
  return true;
}

void Algorithms::Run(const Collective& collective, int64_t sequence) {
  Take(collective);
  const bool begun = begun_ == sequence;
  if (!begun) Start(collective, sequence);
  const bool shares = !member_.my_post().inlined;
  bool all_inlined = !shares;
  const auto release = absl::MakeCleanup([&] {
    if (!all_inlined) memory_.Release();
  });
  try {
    if (shares) memory_.Share(collective, &member_.my_post(), member_.deadline());
    const std::optional<FaultKind> fault = member_.FaultAt(/*peer=*/-1, sequence);
    if (fault == FaultKind::kCorruptPayload) CorruptInput();
    if (!begun) member_.PublishPost(fault);
    member_.AwaitPosts(fault);
    CheckInlined();
    for (int peer = 0; peer < member_.size(); ++peer) {
      if (member_.post(peer).inlined) continue;
      all_inlined = false;
      if (peer != member_.rank()) memory_.Resolve(peer, member_.post(peer), member_.deadline());
    }
    if (!all_inlined) {
      RunShared();
    } else if (Reduces()) {
      ReduceInline();
    } else {
      MoveAll(/*staged=*/false);
    }
  } catch (const Error& error) {
    if (error.code() == absl::StatusCode::kUnavailable) member_.FailUnreachable(error.message());
    throw;
  }
}

void Algorithms::RunShared() {
  bool inputs_mapped = true;
  bool outputs_mapped = true;
  for (int peer = 0; peer < member_.size(); ++peer) {
    const Post& post = member_.post(peer);
    if (!post.inlined) inputs_mapped = inputs_mapped && memory_.IsMapped(post.input);
    const bool writes = signature_.op != CollectiveId::kReduce || peer == signature_.root;
    if (writes) outputs_mapped = outputs_mapped && memory_.IsMapped(post.output);
  }
  const bool reachable = inputs_mapped || memory_.CanRead();
  switch (signature_.op) {
    case CollectiveId::kAllReduce:
      if (inputs_mapped && outputs_mapped) return AllReduceMapped();
      if (memory_.CanRead()) return AllReduceRead();
      return AllReduceStaged();
    case CollectiveId::kReduce:
      if (!reachable) return AllReduceStaged();
      return ReduceToRoot(outputs_mapped && inputs_mapped);
    case CollectiveId::kReduceScatter: {
      if (!reachable) return ReduceScatterStaged();
      ReduceInputs(member_.rank(), PartOf(member_.rank()), output_);
      return MeetAtEnd();
    }
    default:
      MoveAll(!reachable);
      member_.Signal();
      return AwaitReaders();
  }
}

void Algorithms::MeetAtEnd() {
  member_.Signal();
  member_.AwaitAll();
}

// ---- Moving ----

void Algorithms::MoveAll(bool staged) {
  for (int i = 0; i < member_.size(); ++i) {
    const int peer = (member_.rank() + i) % member_.size();  // not all from the same peer at once
    const Move move = MoveFrom(peer);
    if (move.count == 0) continue;
    char* to = output_ + move.to * item_;
    const int64_t offset = move.from * item_;
    const int64_t bytes = move.count * item_;
    if (peer == member_.rank()) {
      Copy(to, input_ + offset, bytes);
    } else if (member_.post(peer).inlined) {
      Copy(to, member_.inline_data(peer) + offset, bytes);
      Received(peer, bytes);
    } else if (!staged) {
      CopyFrom(peer, member_.post(peer).input, offset, to, bytes);
      check_.Compare(PayloadCheck::kInput, member_.slot(), peer, member_.rank(), to, bytes);
    }
  }
  if (staged) MoveStaged();
}

// Every rank passes its whole input through its staging; peers copy what they need of each chunk.
void Algorithms::MoveStaged() {
  int64_t longest = 0;
  for (int peer = 0; peer < member_.size(); ++peer) {
    if (!member_.post(peer).inlined) longest = std::max(longest, InputCount(peer) * item_);
  }
  const int rank = member_.rank();
  const int64_t mine = member_.post(rank).inlined ? 0 : InputCount(rank) * item_;
  int half = 0;
  check_.StartPieces();
  for (int64_t begin = 0; begin < longest; begin += kStagingBytes, half ^= 1) {
    const int64_t end = begin + kStagingBytes;
    if (begin < mine) {
      Copy(member_.control().staging(rank, half), input_ + begin, std::min(end, mine) - begin);
    }
    MeetAtEnd();
    for (int peer = 0; peer < member_.size(); ++peer) {
      if (peer == rank || member_.post(peer).inlined) continue;
      const Move move = MoveFrom(peer);
      const int64_t first = std::max(begin, move.from * item_);
      const int64_t last = std::min(end, (move.from + move.count) * item_);
      if (first >= last) continue;
      char* to = output_ + move.to * item_ + (first - move.from * item_);
      Copy(to, member_.control().staging(peer, half) + (first - begin), last - first);
      check_.AddPiece(peer, to, last - first);
      Received(peer, last - first);
    }
  }
  for (int peer = 0; peer < member_.size(); ++peer) {
    if (peer == rank || member_.post(peer).inlined || MoveFrom(peer).count == 0) continue;
    check_.ComparePieces(PayloadCheck::kInput, member_.slot(), peer, rank);
  }
}

// Until nobody reads this rank's input any more.
void Algorithms::AwaitReaders() {
  switch (signature_.op) {
    case CollectiveId::kBroadcast:
    case CollectiveId::kScatter:
      if (member_.rank() == signature_.root) member_.AwaitAll();
      return;
    case CollectiveId::kGather:
      if (member_.rank() != signature_.root) member_.Await(signature_.root);
      return;
    default:
      member_.AwaitAll();
  }
}

// ---- Paths over reachable buffers ----

void Algorithms::CopyFrom(int peer, const BufferDescriptor& descriptor, int64_t offset, char* to,
                          int64_t bytes) {
  if (bytes == 0) return;
  Received(peer, bytes);
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
    Received(peer, bytes);
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
    check_.AddPiece(peer, sources_.back(), bytes);
  }
}

void Algorithms::ReduceInputs(int part, Slice slice, char* destination) {
  const int64_t block = kReadBlockBytes / item_;
  check_.StartPieces();
  for (int64_t i = 0; i < slice.count(); i += block) {
    const int64_t n = std::min(block, slice.count() - i);
    GatherSources((slice.begin + i) * item_, n * item_);
    ReduceSources(n, destination + i * item_);
  }
  CheckGathered(part);
}

void Algorithms::CheckGathered(int part) {
  if (!check_.enabled()) return;
  for (int peer = 0; peer < member_.size(); ++peer) {
    check_.ComparePieces(PayloadCheck::kInput, member_.slot(), peer, part);
  }
}

void Algorithms::ReduceSources(int64_t count, char* destination) {
  ReduceElements(signature_.reduce_op, signature_.dtype, sources_, count, destination,
                 signature_.factor);
}

void Algorithms::ReduceInline() {
  Slice slice = {0, signature_.count};
  if (signature_.op == CollectiveId::kReduceScatter) slice = PartOf(member_.rank());
  if (output_ == nullptr) return;  // not the root
  sources_.clear();
  for (int peer = 0; peer < member_.size(); ++peer) {
    sources_.push_back(member_.inline_data(peer) + slice.begin * item_);
    Received(peer, slice.count() * item_);
  }
  ReduceSources(slice.count(), output_);
}

void Algorithms::ReduceToRoot(bool mapped) {
  const bool is_root = member_.rank() == signature_.root;
  if (mapped) {
    const Slice slice = SliceOf(signature_.count, member_.rank());
    char* output =
        is_root ? output_ : memory_.Map(signature_.root, member_.post(signature_.root).output);
    ReduceInputs(member_.rank(), slice, output + slice.begin * item_);
    SealResult(member_.slot(), output + slice.begin * item_, slice.count() * item_);
    if (!is_root) bytes_sent_.fetch_add(slice.count() * item_, std::memory_order_relaxed);
  } else if (is_root) {
    for (int part = 0; part < member_.size(); ++part) {
      const Slice slice = SliceOf(signature_.count, part);
      ReduceInputs(part, slice, output_ + slice.begin * item_);
    }
  }
  MeetAtEnd();
  if (mapped && is_root) CheckResults();
}

void Algorithms::AllReduceMapped() {
  const int rank = member_.rank();
  const Slice slice = SliceOf(signature_.count, rank);
  std::vector<char*> outputs;
  for (int peer = 0; peer < member_.size(); ++peer) {
    if (peer != rank) outputs.push_back(memory_.Map(peer, member_.post(peer).output));
  }
  const int64_t block = kMappedBlockBytes / item_;
  check_.StartPieces();
  for (int64_t i = slice.begin; i < slice.end; i += block) {
    const int64_t n = std::min(block, slice.end - i);
    const int64_t offset = i * item_;
    GatherSources(offset, n * item_);
    ReduceSources(n, output_ + offset);
    for (char* output : outputs) Copy(output + offset, output_ + offset, n * item_);
    bytes_sent_.fetch_add(n * item_ * (member_.size() - 1), std::memory_order_relaxed);
  }
  CheckGathered(rank);
  SealResult(member_.slot(), output_ + slice.begin * item_, slice.count() * item_);
  MeetAtEnd();
  CheckResults();
}

void Algorithms::AllReduceRead() {
  const int rank = member_.rank();
  const Slice slice = SliceOf(signature_.count, rank);
  ReduceInputs(rank, slice, output_ + slice.begin * item_);
  SealResult(member_.slot(), output_ + slice.begin * item_, slice.count() * item_);
  // In place, a peer reads its slice of this rank's buffer until it signals; only then is the
  // result written there.
  MeetAtEnd();
  for (int i = 1; i < member_.size(); ++i) {
    const int peer = (rank + i) % member_.size();
    const Slice theirs = SliceOf(signature_.count, peer);
    const int64_t offset = theirs.begin * item_;
    CopyFrom(peer, member_.post(peer).output, offset, output_ + offset, theirs.count() * item_);
  }
  CheckResults();
  MeetAtEnd();
}

// ---- Staged ----

void Algorithms::ReduceStaged(int half, Slice slice, char* destination) {
  if (slice.count() == 0) return;
  sources_.clear();
  for (int peer = 0; peer < member_.size(); ++peer) {
    sources_.push_back(member_.control().staging(peer, half) + slice.begin * item_);
    check_.Compare(PayloadCheck::kStaged, half, peer, member_.rank(), sources_.back(),
                   slice.count() * item_);
    Received(peer, slice.count() * item_);
  }
  ReduceSources(slice.count(), destination);
}

// Reduce too: only the root takes the result out.
void Algorithms::AllReduceStaged() {
  const int64_t chunk = kStagingBytes / item_;
  int half = 0;
  for (int64_t begin = 0; begin < signature_.count; begin += chunk, half ^= 1) {
    const int64_t n = std::min(chunk, signature_.count - begin);
    char* mine = member_.control().staging(member_.rank(), half);
    Copy(mine, input_ + begin * item_, n * item_);
    FlipStaged(mine, /*sealed=*/false);
    for (int reader = 0; reader < member_.size(); ++reader) {
      const Slice slice = SliceOf(n, reader);
      check_.Seal(PayloadCheck::kStaged, half, reader, mine + slice.begin * item_,
                  slice.count() * item_);
    }
    FlipStaged(mine, /*sealed=*/true);
    MeetAtEnd();
    // Nobody else reads this slice of this rank's staging before the next meeting.
    const Slice slice = SliceOf(n, member_.rank());
    ReduceStaged(half, slice, mine + slice.begin * item_);
    SealResult(half, mine + slice.begin * item_, slice.count() * item_);
    MeetAtEnd();
    for (int peer = 0; peer < member_.size() && output_ != nullptr; ++peer) {
      const Slice theirs = SliceOf(n, peer);
      Received(peer, theirs.count() * item_);
      char* to = output_ + (begin + theirs.begin) * item_;
      Copy(to, member_.control().staging(peer, half) + theirs.begin * item_,
           theirs.count() * item_);
      check_.Compare(PayloadCheck::kResult, half, peer, 0, to, theirs.count() * item_);
    }
  }
}

void Algorithms::ReduceScatterStaged() {
  const int64_t size = member_.size();
  const int64_t chunk = kStagingBytes / size / item_;
  int64_t longest = 0;
  for (int rank = 0; rank < member_.size(); ++rank) {
    longest = std::max(longest, PartOf(rank).count());
  }
  int half = 0;
  for (int64_t begin = 0; begin < longest; begin += chunk, half ^= 1) {
    char* mine = member_.control().staging(member_.rank(), half);
    for (int rank = 0; rank < member_.size(); ++rank) {
      const Slice part = PartOf(rank);
      const int64_t n = std::min(chunk, part.count() - begin);
      Copy(mine + rank * chunk * item_, input_ + (part.begin + begin) * item_, n * item_);
      if (rank == 0) FlipStaged(mine, /*sealed=*/false);
      check_.Seal(PayloadCheck::kStaged, half, rank, mine + rank * chunk * item_,
                  std::max<int64_t>(n, 0) * item_);
    }
    FlipStaged(mine, /*sealed=*/true);
    MeetAtEnd();
    const int64_t n = std::min(chunk, PartOf(member_.rank()).count() - begin);
    const int64_t first = member_.rank() * chunk;
    if (n > 0) ReduceStaged(half, {first, first + n}, output_ + begin * item_);
  }
}

}  // namespace lockstep::comm::shm
