// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/process_memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/base/rounding.h"
#include "lockstep/comm/reduce.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::comm::shm {
namespace {

constexpr int64_t kPageBytes = 4096;

}  // namespace

bool PeerLinks::IsGone(int rank) { return PeerClosed(socket(rank)); }

// This rank's own segments, by address. Thread-safe.
class ProcessMemory::Registry {
 public:
  struct Found {
    uint64_t id = 0;
    uint64_t offset = 0;
    int64_t bytes = 0;
    int fd = -1;
    bool announced = false;
  };

  char* Add(int64_t bytes) {
    UniqueFd fd = MakeSegment(bytes, /*reserve=*/true);
    Mapping mapping = Mapping::OfSegment(fd.get(), bytes);
    char* data = mapping.data();
    std::lock_guard<std::mutex> lock(mutex_);
    segments_.emplace(reinterpret_cast<uintptr_t>(data),
                      Segment{++last_id_, std::move(fd), std::move(mapping), false});
    return data;
  }

  void Remove(const char* data) {
    Segment removed;  // unmapped after the lock
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = segments_.find(reinterpret_cast<uintptr_t>(data));
    if (it->second.announced) forgotten_.push_back(it->second.id);
    removed = std::move(it->second);
    segments_.erase(it);
  }

  // Marks what it finds as announced.
  std::optional<Found> Find(const void* data, int64_t bytes) {
    const auto address = reinterpret_cast<uintptr_t>(data);
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = segments_.upper_bound(address);
    if (it == segments_.begin()) return std::nullopt;
    --it;
    Segment& segment = it->second;
    const uint64_t offset = address - it->first;
    if (offset + static_cast<uint64_t>(bytes) > static_cast<uint64_t>(segment.mapping.bytes())) {
      return std::nullopt;
    }
    return Found{segment.id, offset, segment.mapping.bytes(), segment.fd.get(),
                 std::exchange(segment.announced, true)};
  }

  // Announced segments that were removed since the last call.
  std::vector<uint64_t> TakeForgotten() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(forgotten_, {});
  }

 private:
  struct Segment {
    uint64_t id = 0;
    UniqueFd fd;
    Mapping mapping;
    bool announced = false;
  };

  std::mutex mutex_;
  std::map<uintptr_t, Segment> segments_;
  std::vector<uint64_t> forgotten_;
  uint64_t last_id_ = 0;
};

// With a descriptor: segment `id` of `bytes` bytes exists. Without: it is gone.
struct ProcessMemory::Message {
  uint64_t id = 0;
  int64_t bytes = 0;
};

ProcessMemory::ProcessMemory(std::shared_ptr<PeerLinks> links, int rank)
    : links_(std::move(links)), rank_(rank), registry_(std::make_shared<Registry>()) {
  peers_.resize(static_cast<size_t>(links_->size()));
}

ProcessMemory::~ProcessMemory() = default;

RefPtr<Storage> ProcessMemory::Allocate(int64_t bytes, MemoryCategory category) {
  const Device device = CurrentDevice();
  if (bytes == 0) {
    CategoryScope scope(category);
    return Storage::Allocate(device, 0);
  }
  const int64_t whole_pages = RoundUp(bytes, kPageBytes);
  char* data = registry_->Add(whole_pages);
  try {
    return Storage::Wrap(
        device, data, bytes, [registry = registry_, data] { registry->Remove(data); }, category);
  } catch (...) {
    registry_->Remove(data);
    throw;
  }
}

void ProcessMemory::Share(const Collective& collective, Post* post, Deadline deadline) {
  for (const uint64_t id : registry_->TakeForgotten()) SendToAll({id, 0}, -1, deadline);
  post->input = Describe(collective.input, deadline);
  post->output = Describe(collective.output, deadline);
  post->messages_sent = messages_sent_;
}

BufferDescriptor ProcessMemory::Describe(const Tensor& tensor, Deadline deadline) {
  if (!tensor.defined()) return {};
  const void* data = KernelRawData(tensor);
  const std::optional<Registry::Found> found = registry_->Find(data, tensor.bytes());
  if (!found.has_value()) return {0, reinterpret_cast<uint64_t>(data)};
  if (!found->announced) SendToAll({found->id, found->bytes}, found->fd, deadline);
  return {found->id, found->offset};
}

void ProcessMemory::SendToAll(const Message& message, int descriptor, Deadline deadline) {
  const absl::string_view bytes(reinterpret_cast<const char*>(&message), sizeof(message));
  for (int peer = 0; peer < links_->size(); ++peer) {
    if (peer == rank_) continue;
    switch (SendMessage(links_->socket(peer), bytes, descriptor, deadline)) {
      case IoResult::kOk:
        break;
      case IoResult::kClosed:
        throw UnavailableError(absl::StrCat("rank ", peer, " has died (its connection is closed)"));
      case IoResult::kDeadline:
        throw DeadlineExceededError(
            absl::StrCat("rank ", peer, " does not take messages about shared memory"));
    }
  }
  ++messages_sent_;
}

void ProcessMemory::Resolve(int peer, const Post& post, Deadline deadline) {
  while (peers_[static_cast<size_t>(peer)].messages_received < post.messages_sent) {
    ReceiveOne(peer, deadline);
  }
}

void ProcessMemory::ReceiveOne(int peer, Deadline deadline) {
  Peer& state = peers_[static_cast<size_t>(peer)];
  Message message;
  UniqueFd descriptor;
  switch (ReceiveMessage(links_->socket(peer), reinterpret_cast<char*>(&message), sizeof(message),
                         &descriptor, deadline)) {
    case IoResult::kOk:
      break;
    case IoResult::kClosed:
      throw UnavailableError(absl::StrCat("rank ", peer, " has died (its connection is closed)"));
    case IoResult::kDeadline:
      throw DeadlineExceededError(
          absl::StrCat("rank ", peer, " did not send its messages about shared memory"));
  }
  ++state.messages_received;
  if (!descriptor.valid() && message.bytes > 0) {
    throw ResourceExhaustedError(absl::StrCat("no descriptor left for shared memory of rank ", peer,
                                              ": raise the limit (ulimit -n)"));
  }
  if (!descriptor.valid()) {
    state.segments.erase(message.id);
    return;
  }
  if (message.bytes <= 0 || SegmentBytes(descriptor.get()) < message.bytes) {
    throw InternalError(absl::StrCat("rank ", peer, " sent a segment of ",
                                     SegmentBytes(descriptor.get()), " bytes as one of ",
                                     message.bytes));
  }
  state.segments[message.id] = Mapping::OfSegment(descriptor.get(), message.bytes);
}

char* ProcessMemory::Map(int peer, const BufferDescriptor& descriptor) {
  const auto& segments = peers_[static_cast<size_t>(peer)].segments;
  const auto it = segments.find(descriptor.segment);
  if (it == segments.end()) {
    throw InternalError(
        absl::StrCat("rank ", peer, " uses segment ", descriptor.segment, " without sending it"));
  }
  return it->second.data() + descriptor.address;
}

void ProcessMemory::Read(int peer, uint64_t address, void* to, int64_t bytes) {
  char* local = static_cast<char*>(to);
  while (bytes > 0) {
    const iovec local_part = {local, static_cast<size_t>(bytes)};
    const iovec remote_part = {reinterpret_cast<void*>(address), static_cast<size_t>(bytes)};
    const ssize_t n = process_vm_readv(links_->pid(peer), &local_part, 1, &remote_part, 1, 0);
    if (n <= 0) {
      throw UnavailableError(
          absl::StrCat("rank ", peer,
                       ": its memory cannot be read any more (has it died?): ", ErrnoText(errno)));
    }
    local += n;
    address += static_cast<uint64_t>(n);
    bytes -= n;
  }
}

// Shared memory is offered by its private address too: to announce a segment to peers that take
// no part would fill their sockets.
uint64_t ProcessMemory::Offer(int /*peer*/, uint32_t /*slot*/, const Tensor& tensor) {
  return reinterpret_cast<uint64_t>(KernelRawData(tensor));
}

void ProcessMemory::Pull(int peer, uint32_t /*slot*/, uint64_t address, void* to, int64_t bytes) {
  if (peer == rank_) {
    CopyBytes(to, reinterpret_cast<const void*>(address), bytes);
  } else {
    Read(peer, address, to, bytes);
  }
}

}  // namespace lockstep::comm::shm
