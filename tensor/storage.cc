// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/storage.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/spin_lock.h"
#include "lockstep/tensor/device_counters.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {

struct Storage::Rare {
  std::function<void()> release;
  std::vector<Event> pending;
  RefPtr<Storage> lender;
};

void* Storage::operator new(size_t size, int64_t inside_bytes) {
  const size_t extra =
      inside_bytes == 0 ? 0 : static_cast<size_t>(inside_bytes) + kStorageAlignment;
  return ::operator new(size + extra);
}
void Storage::operator delete(void* storage) { ::operator delete(storage); }
void Storage::operator delete(void* storage, int64_t /*inside_bytes*/) {
  ::operator delete(storage);
}

Storage::Storage(Device device, void* data, int64_t bytes, MemoryCategory category, Owner owner)
    : data_(data), bytes_(bytes), device_(device), category_(category), owner_(owner) {
  if (owner == Owner::kInside && bytes > 0) {
    const uintptr_t behind = reinterpret_cast<uintptr_t>(this) + sizeof(Storage);
    data_ = reinterpret_cast<void*>((behind + kStorageAlignment - 1) & -kStorageAlignment);
  }
}

inline RefPtr<Storage> Storage::AllocateInside(Device device, int64_t bytes,
                                               MemoryCategory category) {
  if (!internal::CountersOf(device).Count(bytes, category)) {
    internal::ThrowOverLimit(device, bytes, category);
  }
  try {
    return RefPtr<Storage>::First(new (bytes)
                                      Storage(device, nullptr, bytes, category, Owner::kInside));
  } catch (const std::bad_alloc&) {
    internal::RefuseCounted(device, bytes, category);
  }
}

RefPtr<Storage> Storage::Allocate(Device device, int64_t bytes) {
  if (bytes < 0) {
    throw InvalidArgumentError(absl::StrCat("Storage::Allocate: ", bytes, " bytes; give >= 0"));
  }
  const ThreadState& state = CurrentThreadState();
  if (device.type == DeviceType::kCpu && bytes <= kInsideBytes) {
    return AllocateInside(device, bytes, state.category);
  }
  void* data = internal::AllocateCounted(device, bytes, state.category, state.stream);
  return RefPtr<Storage>::First(
      new (0) Storage(device, data, bytes, state.category, Owner::kAllocator));
}

RefPtr<Storage> Storage::Wrap(Device device, void* data, int64_t bytes,
                              std::function<void()> release, MemoryCategory category) {
  if (bytes < 0 || (data == nullptr && bytes > 0)) {
    throw InvalidArgumentError(absl::StrCat("Storage::Wrap: ", bytes, " bytes at ",
                                            data == nullptr ? "null" : "an address",
                                            "; give memory of that size"));
  }
  auto storage =
      RefPtr<Storage>::First(new (0) Storage(device, data, bytes, category, Owner::kElsewhere));
  storage->rare().release = std::move(release);
  // What something else owns (a mapped file, a communicator's segment) passes no limit.
  internal::DeviceCounters& counters = internal::CountersOf(device);
  std::lock_guard<SpinLock> guard(counters.lock);
  counters.Change(bytes, category);
  return storage;
}

RefPtr<Storage> Storage::Lent(Device device, int64_t bytes) {
  if (bytes < 0) {
    throw InvalidArgumentError(absl::StrCat("Storage::Lent: ", bytes, " bytes; give >= 0"));
  }
  auto storage = RefPtr<Storage>::First(
      new (0) Storage(device, nullptr, bytes, MemoryCategory::kOther, Owner::kLender));
  storage->has_pending_.store(bytes > 0, std::memory_order_release);
  return storage;
}

void Storage::Attach(RefPtr<Storage> memory) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (owner_ != Owner::kLender || data_ != nullptr || !memory || memory->device() != device_ ||
      memory->bytes() < bytes_) {
    throw InternalError(absl::StrCat("Storage::Attach: a storage of ", bytes_, " bytes on ",
                                     ToString(device_), " cannot show this memory"));
  }
  data_ = memory->data();
  rare().lender = std::move(memory);
  has_pending_.store(!rare().pending.empty(), std::memory_order_release);
}

RefPtr<Storage> Storage::Detach() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (owner_ != Owner::kLender || data_ == nullptr) return {};
  data_ = nullptr;
  has_pending_.store(bytes_ > 0, std::memory_order_release);
  return std::move(rare().lender);
}

Storage::~Storage() {
  if (owner_ == Owner::kLender) return;
  if (owner_ == Owner::kAllocator) {
    internal::FreeCounted(device_, data_, bytes_, category(), /*stream=*/0);
    return;
  }
  internal::CountersOf(device_).Uncount(bytes_, category());
  if (rare_ && rare_->release) rare_->release();
}

void Storage::SetCategory(MemoryCategory category) {
  const MemoryCategory old = category_.exchange(category, std::memory_order_relaxed);
  if (old == category || owner_ == Owner::kLender) return;
  internal::DeviceCounters& counters = internal::CountersOf(device_);
  std::lock_guard<SpinLock> guard(counters.lock);
  counters.current[old] -= bytes_;
  counters.current[category] += bytes_;
  counters.peak[category] = std::max(counters.peak[category], counters.current[category]);
}

Storage::Rare& Storage::rare() {
  if (!rare_) rare_ = std::make_unique<Rare>();
  return *rare_;
}

void Storage::SetPending(const Event& event) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Event>& pending = rare().pending;
  pending.push_back(event);
  has_pending_.store(true, std::memory_order_release);
}

void Storage::WaitPending() const {
  std::vector<Event> pending;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (owner_ == Owner::kLender && data_ == nullptr) ThrowWithoutMemory();
    pending = rare_->pending;
  }
  for (const Event& event : pending) event.Wait();
  std::lock_guard<std::mutex> lock(mutex_);
  // Only those waited for: others may have been added meanwhile, and one that failed must stay.
  auto& events = rare_->pending;
  std::erase_if(events, [&](const Event& event) {
    return std::find(pending.begin(), pending.end(), event) != pending.end();
  });
  if (events.empty()) has_pending_.store(false, std::memory_order_release);
}

void Storage::ThrowWithoutMemory() const {
  throw FailedPreconditionError(absl::StrCat(
      "a tensor is used whose ", bytes_, " bytes on ", ToString(device_),
      " have been given back: a sharded parameter outside of the forward and backward pass of its "
      "unit; unshard it, or use it inside of its module's call"));
}

void Storage::RecordStream(const Stream& stream) {
  // The stream's work is in order, so an empty piece that holds a reference outlives it.
  stream.Enqueue([self = RefPtr<Storage>(this)] {});
}

}  // namespace lockstep
