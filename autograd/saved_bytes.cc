// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/saved_bytes.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "lockstep/autograd/saved_tensor_hooks.h"

namespace lockstep::autograd {
namespace internal {
namespace {

// Sharded by address, so that ranks that are threads do not wait for each other.
struct Shard {
  std::mutex mutex;
  absl::flat_hash_map<const Storage*, int64_t> holders;
};

struct Table {
  std::array<Shard, 16> shards;
  std::array<std::atomic<int64_t>, kDeviceOrdinalCount> bytes{};
  std::array<std::atomic<int64_t>, kDeviceOrdinalCount> peak{};

  Shard& ShardOf(const Storage& storage) {
    return shards[(reinterpret_cast<uintptr_t>(&storage) >> 7) % shards.size()];
  }
};

// Never destroyed: graphs may live in objects that are destroyed after main.
Table& GetTable() {
  static Table* const table = new Table;
  return *table;
}

}  // namespace

void AddSavedStorage(const Storage& storage) {
  Table& table = GetTable();
  Shard& shard = table.ShardOf(storage);
  std::lock_guard<std::mutex> lock(shard.mutex);
  if (++shard.holders[&storage] > 1) return;
  const int device = storage.device().ordinal();
  const int64_t bytes =
      table.bytes[device].fetch_add(storage.bytes(), std::memory_order_relaxed) + storage.bytes();
  int64_t peak = table.peak[device].load(std::memory_order_relaxed);
  while (peak < bytes && !table.peak[device].compare_exchange_weak(peak, bytes)) {
  }
}

void RemoveSavedStorage(const Storage& storage) {
  Table& table = GetTable();
  Shard& shard = table.ShardOf(storage);
  std::lock_guard<std::mutex> lock(shard.mutex);
  const auto it = shard.holders.find(&storage);
  if (--it->second > 0) return;
  shard.holders.erase(it);
  table.bytes[storage.device().ordinal()].fetch_sub(storage.bytes(), std::memory_order_relaxed);
}

}  // namespace internal

int64_t SavedBytes(std::optional<Device> device) {
  internal::Table& table = internal::GetTable();
  if (device.has_value()) return table.bytes[device->ordinal()].load(std::memory_order_relaxed);
  int64_t total = 0;
  for (const auto& bytes : table.bytes) total += bytes.load(std::memory_order_relaxed);
  return total;
}

int64_t PeakSavedBytes(Device device) {
  return internal::GetTable().peak[device.ordinal()].load(std::memory_order_relaxed);
}

void ResetPeakSavedBytes(Device device) {
  internal::Table& table = internal::GetTable();
  table.peak[device.ordinal()] = table.bytes[device.ordinal()].load(std::memory_order_relaxed);
}

}  // namespace lockstep::autograd
