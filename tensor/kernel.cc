// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/kernel.h"

#include <array>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/parallel.h"

namespace lockstep {
namespace {

// Ops are few; a fixed table keeps the lookup of a call to one load.
constexpr int kMaximumOps = 1024;
using KernelTable = std::array<std::array<std::atomic<Kernel>, kDeviceTypeCount>, kMaximumOps>;

KernelTable& Kernels() {
  static auto* table = new KernelTable{};
  return *table;
}

}  // namespace

void RegisterKernel(OpId op, DeviceType type, Kernel kernel) {
  const int index = static_cast<int>(op);
  if (index >= kMaximumOps || kernel == nullptr) {
    throw InvalidArgumentError(absl::StrCat("RegisterKernel: op ", index, " of at most ",
                                            kMaximumOps, kernel == nullptr ? ", no kernel" : ""));
  }
  Kernel expected = nullptr;
  if (!Kernels()[index][static_cast<int>(type)].compare_exchange_strong(expected, kernel)) {
    throw AlreadyExistsError(absl::StrCat("RegisterKernel: ", GetOpInfo(op).name,
                                          " already has a kernel for devices like ",
                                          ToString(Device{type, 0})));
  }
}

Kernel FindKernel(OpId op, DeviceType type) {
  const int index = static_cast<int>(op);
  if (index >= kMaximumOps) return nullptr;
  return Kernels()[index][static_cast<int>(type)].load(std::memory_order_acquire);
}

void* KernelContext::Workspace(int64_t bytes) {
  CategoryScope scope(MemoryCategory::kWorkspace);
  workspaces_.push_back(Storage::Allocate(device_, bytes));
  return workspaces_.back()->data();
}

void KernelContext::ParallelFor(int64_t count, int64_t chunk,
                                absl::FunctionRef<void(int64_t begin, int64_t end)> body) const {
  lockstep::ParallelFor(thread_count_, count, chunk, body);
}

}  // namespace lockstep
