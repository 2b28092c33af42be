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

using KernelTable = std::array<std::array<std::atomic<Kernel>, kDeviceTypeCount>, kMaximumOpCount>;

KernelTable& Kernels() {
  static constinit KernelTable table{};
  return table;
}

}  // namespace

void RegisterKernel(OpId op, DeviceType type, Kernel kernel) {
  const int index = static_cast<int>(op);
  if (index >= kMaximumOpCount || kernel == nullptr) {
    throw InvalidArgumentError(absl::StrCat("RegisterKernel: op ", index, " of at most ",
                                            kMaximumOpCount,
                                            kernel == nullptr ? ", no kernel" : ""));
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
  if (index >= kMaximumOpCount) return nullptr;
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
