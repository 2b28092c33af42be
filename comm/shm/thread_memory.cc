// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/thread_memory.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::comm::shm {
namespace {

// Any number but 0, which stands for private memory.
constexpr uint64_t kProcessSegment = 1;

BufferDescriptor Describe(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {kProcessSegment, reinterpret_cast<uint64_t>(KernelRawData(tensor))};
}

}  // namespace

ThreadGroup::ThreadGroup(int size)
    : memory_(Mapping::Private(ControlBlock::Bytes(size))), control_(memory_.data(), size) {
  for (int rank = 0; rank < size; ++rank) slots_.push_back(std::make_unique<Slot>());
}

void ThreadGroup::Publish(int rank, Buffers buffers) {
  Slot& slot = *slots_[static_cast<size_t>(rank)];
  std::lock_guard<std::mutex> lock(slot.mutex);
  std::swap(slot.buffers, buffers);
}

ThreadGroup::Buffers ThreadGroup::Take(int rank) {
  Slot& slot = *slots_[static_cast<size_t>(rank)];
  std::lock_guard<std::mutex> lock(slot.mutex);
  return slot.buffers;
}

RefPtr<Storage> ThreadMemory::Allocate(int64_t bytes, MemoryCategory category) {
  CategoryScope scope(category);
  return Storage::Allocate(CurrentDevice(), bytes);
}

void ThreadMemory::Share(const Collective& collective, Post* post, Deadline /*deadline*/) {
  if (staged_) return;
  post->input = Describe(collective.input);
  post->output = Describe(collective.output);
  ThreadGroup::Buffers buffers;
  if (collective.input.defined()) buffers.input = collective.input.storage();
  if (collective.output.defined()) buffers.output = collective.output.storage();
  group_->Publish(rank_, std::move(buffers));
}

void ThreadMemory::Resolve(int peer, const Post& /*post*/, Deadline /*deadline*/) {
  if (!staged_) taken_.push_back(group_->Take(peer));
}

bool ThreadMemory::IsMapped(const BufferDescriptor& descriptor) const {
  return descriptor.segment == kProcessSegment;
}

char* ThreadMemory::Map(int /*peer*/, const BufferDescriptor& descriptor) {
  return reinterpret_cast<char*>(descriptor.address);
}

void ThreadMemory::Read(int /*peer*/, uint64_t /*address*/, void* /*to*/, int64_t /*bytes*/) {
  throw InternalError("shm: threads do not read through the kernel");
}

void ThreadMemory::Release() {
  taken_.clear();
  if (!staged_) group_->Publish(rank_, {});
}

}  // namespace lockstep::comm::shm
