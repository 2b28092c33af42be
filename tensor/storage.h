// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Storage: a counted block of bytes on one device, shared by the tensors that are views of it.
#ifndef LOCKSTEP_TENSOR_STORAGE_H_
#define LOCKSTEP_TENSOR_STORAGE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "lockstep/base/ref_counted.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/stream.h"

namespace lockstep {

// Invariants: bytes() never changes; data() is null only for bytes() == 0, on the meta device, and
// while a lent storage (Lent()) has no memory.
class Storage : public RefCounted<Storage> {
 public:
  // On a CPU device up to this many bytes lie behind the object itself: one allocation instead of
  // two, small enough for malloc's per-thread cache. Most tensors of a small op are that small.
  static constexpr int64_t kInsideBytes = 768;

  // Uninitialised memory in this thread's category. Throws ResourceExhausted.
  static RefPtr<Storage> Allocate(Device device, int64_t bytes);
  // Memory owned by something else; `release` runs when the last tensor goes, on whatever thread.
  static RefPtr<Storage> Wrap(Device device, void* data, int64_t bytes,
                              std::function<void()> release, MemoryCategory category);

  // A storage that owns no memory: it shows another's, which comes and goes while tensors, and the
  // graphs that saved them, keep the storage (a weight that is gathered before each use and let go
  // after it). Has none at first. The memory counts where it is; versions are this storage's own.
  static RefPtr<Storage> Lent(Device device, int64_t bytes);
  // REQUIRES Lent(), without memory, and memory of this device with at least bytes() bytes. No
  // other thread uses the storage meanwhile; neither in Detach().
  void Attach(RefPtr<Storage> memory);
  // Gives the memory back; null when there is none. Until the next Attach(), each access to the
  // bytes throws FailedPrecondition.
  RefPtr<Storage> Detach();

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  MemoryCategory category() const { return category_.load(std::memory_order_relaxed); }
  // Moves the bytes to `category` in the statistics.
  void SetCategory(MemoryCategory category);

  // Number of writes so far; shared by all views.
  int64_t version() const { return version_.load(std::memory_order_acquire); }
  void BumpVersion() { version_.fetch_add(1, std::memory_order_acq_rel); }

  // A copy stream still writes (or reads) this storage until `event`. Dispatch and every access
  // to the bytes call WaitReady() first.
  void SetPending(const Event& event);
  void WaitReady() const {
    if (has_pending_.load(std::memory_order_acquire)) WaitPending();
  }
  // The block is not reused before the work of `stream` enqueued so far is done.
  void RecordStream(const Stream& stream);

 private:
  struct Rare;  // what few storages have: a release function, pending events, a lender
  enum class Owner : uint8_t { kAllocator, kInside, kElsewhere, kLender };
  friend class RefCounted<Storage>;
  static RefPtr<Storage> AllocateInside(Device device, int64_t bytes, MemoryCategory category);
  // Room for `inside_bytes` aligned bytes behind the object.
  static void* operator new(size_t size, int64_t inside_bytes);
  static void operator delete(void* storage);
  static void operator delete(void* storage, int64_t inside_bytes);
  Storage(Device device, void* data, int64_t bytes, MemoryCategory category, Owner owner);
  ~Storage();
  void WaitPending() const;
  [[noreturn]] void ThrowWithoutMemory() const;
  Rare& rare();

  void* data_;
  int64_t bytes_;
  std::atomic<int64_t> version_{0};
  Device device_;
  std::atomic<MemoryCategory> category_;
  mutable std::atomic<bool> has_pending_{false};  // also set while a lent storage has no memory
  const Owner owner_;
  mutable std::mutex mutex_;  // guards rare_
  std::unique_ptr<Rare> rare_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_STORAGE_H_
