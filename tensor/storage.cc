// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/storage.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {

struct Storage::Rare {
  std::function<void()> release;
  std::vector<Event> pending;
};

Storage::Storage(Device device, void* data, int64_t bytes, MemoryCategory category, bool external)
    : data_(data), bytes_(bytes), device_(device), category_(category), external_(external) {}

RefPtr<Storage> Storage::Allocate(Device device, int64_t bytes) {
  if (bytes < 0) {
    throw InvalidArgumentError(absl::StrCat("Storage::Allocate: ", bytes, " bytes; give >= 0"));
  }
  const ThreadState& state = CurrentThreadState();
  void* data = internal::AllocateCounted(device, bytes, state.category, state.stream);
  return RefPtr<Storage>(new Storage(device, data, bytes, state.category, /*external=*/false));
}

RefPtr<Storage> Storage::Wrap(Device device, void* data, int64_t bytes,
                              std::function<void()> release, MemoryCategory category) {
  if (bytes < 0 || (data == nullptr && bytes > 0)) {
    throw InvalidArgumentError(absl::StrCat("Storage::Wrap: ", bytes, " bytes at ",
                                            data == nullptr ? "null" : "an address",
                                            "; give memory of that size"));
  }
  RefPtr<Storage> storage(new Storage(device, data, bytes, category, /*external=*/true));
  storage->rare().release = std::move(release);
  internal::CountExternal(device, bytes, category);
  return storage;
}

Storage::~Storage() {
  if (!external_) {
    internal::FreeCounted(device_, data_, bytes_, category(), /*stream=*/0);
    return;
  }
  internal::UncountExternal(device_, bytes_, category());
  if (rare_ && rare_->release) rare_->release();
}

void Storage::SetCategory(MemoryCategory category) {
  const MemoryCategory old = category_.exchange(category, std::memory_order_relaxed);
  if (old != category) internal::MoveCategory(device_, bytes_, old, category);
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

void Storage::RecordStream(const Stream& stream) {
  // The stream's work is in order, so an empty piece that holds a reference outlives it.
  stream.Enqueue([self = RefPtr<Storage>(this)] {});
}

}  // namespace lockstep
