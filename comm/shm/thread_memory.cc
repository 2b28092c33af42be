// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/thread_memory.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/reduce.h"
#include "lockstep/comm/signature.h"
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

bool Holds(const RefPtr<Storage>& storage, const char* address) {
  if (storage == nullptr) return false;
  const char* const begin = static_cast<const char*>(storage->data());
  return address >= begin && address <= begin + storage->bytes();
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

void ThreadGroup::Offer(int from, int to, uint32_t slot, RefPtr<Storage> storage) {
  std::lock_guard<std::mutex> lock(offers_mutex_);
  std::swap(offers_[{from, to, slot}], storage);
}

RefPtr<Storage> ThreadGroup::TakeOffer(int from, int to, uint32_t slot) {
  std::lock_guard<std::mutex> lock(offers_mutex_);
  return offers_[{from, to, slot}];
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
  // Peers come to the outputs of these two only. Others go when their owner lets them go, whenever
  // the peers are done with this collective.
  const CollectiveId op = collective.signature.op;
  const bool reaches_output = op == CollectiveId::kAllReduce || op == CollectiveId::kReduce;
  if (reaches_output && collective.output.defined()) buffers.output = collective.output.storage();
  group_->Publish(rank_, std::move(buffers));
}

void ThreadMemory::Resolve(int peer, const Post& /*post*/, Deadline /*deadline*/) {
  if (staged_) return;
  taken_.resize(static_cast<size_t>(group_->control().size()));
  taken_[static_cast<size_t>(peer)] = group_->Take(peer);
}

bool ThreadMemory::IsMapped(const BufferDescriptor& descriptor) const {
  return descriptor.segment == kProcessSegment;
}

char* ThreadMemory::Map(int peer, const BufferDescriptor& descriptor) {
  char* const address = reinterpret_cast<char*>(descriptor.address);
  const ThreadGroup::Buffers& buffers = taken_[static_cast<size_t>(peer)];
  // A rank that is still to be read from lets its memory go only when the collective has failed
  // there, and its caller may have freed it since.
  if (!Holds(buffers.input, address) && !Holds(buffers.output, address)) {
    throw UnavailableError(absl::StrCat("rank ", peer, " has given up"));
  }
  return address;
}

void ThreadMemory::Read(int /*peer*/, uint64_t /*address*/, void* /*to*/, int64_t /*bytes*/) {
  throw InternalError("shm: threads do not read through the kernel");
}

uint64_t ThreadMemory::Offer(int peer, uint32_t slot, const Tensor& tensor) {
  group_->Offer(rank_, peer, slot, tensor.storage());
  return reinterpret_cast<uint64_t>(KernelRawData(tensor));
}

void ThreadMemory::Withdraw(int peer, uint32_t slot) { group_->Offer(rank_, peer, slot, nullptr); }

void ThreadMemory::Pull(int peer, uint32_t slot, uint64_t address, void* to, int64_t bytes) {
  // Kept while copying: the sender may give up meanwhile, and its caller free the memory.
  const RefPtr<Storage> storage = group_->TakeOffer(peer, rank_, slot);
  if (storage == nullptr) throw UnavailableError(absl::StrCat("rank ", peer, " has given up"));
  CopyBytes(to, reinterpret_cast<const void*>(address), bytes);
}

void ThreadMemory::Release() {
  taken_.clear();
  if (!staged_) group_->Publish(rank_, {});
}

}  // namespace lockstep::comm::shm
