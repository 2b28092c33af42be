// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/sharded_communication_hook.h"

#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {

// Memory of a group, which peers reach without a copy, for the next use of the same size: given
// back on the group's thread.
class ShardedCompressionHook::Buffers {
 public:
  Tensor Take(comm::Communicator& group, const Tensor& like, DType dtype) {
    const int64_t bytes = like.numel() * ItemSize(dtype);
    RefPtr<Storage> storage;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::vector<RefPtr<Storage>>& free = free_[{&group, ToString(like.device()), bytes}];
      if (!free.empty()) {
        storage = std::move(free.back());
        free.pop_back();
      }
    }
    if (!storage) {
      const DeviceScope device(like.device());
      storage = group.Allocate(bytes, MemoryCategory::kCommunication);
    }
    return FromStorage(storage, {like.numel()}, dtype);
  }

  void GiveBack(comm::Communicator& group, const Tensor& tensor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_[{&group, ToString(tensor.device()), tensor.storage()->bytes()}].push_back(
        tensor.storage());
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<comm::Communicator*, std::string, int64_t>, std::vector<RefPtr<Storage>>>
      free_;
};

ShardedCompressionHook::ShardedCompressionHook(DType dtype)
    : dtype_(dtype), buffers_(std::make_shared<Buffers>()) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return;
  throw InvalidArgumentError(absl::StrCat("ShardedCompressionHook: ", DTypeName(dtype),
                                          "; gradients are compressed to float16 or bfloat16"));
}

ShardedCompressionHook::~ShardedCompressionHook() = default;

comm::Work ShardedCompressionHook::ReduceScatter(const UnitGradients& unit,
                                                 comm::Communicator& group) {
  if (unit.whole.dtype() == dtype_) {
    return group.ReduceScatter(unit.whole, unit.part,
                               {.op = comm::ReduceOp::kAverage, .tag = unit.tag});
  }
  const Tensor whole = buffers_->Take(group, unit.whole, dtype_);
  const Tensor part = buffers_->Take(group, unit.part, dtype_);
  CopyInto(whole, unit.whole);
  const comm::Work work =
      group.ReduceScatter(whole, part, {.op = comm::ReduceOp::kAverage, .tag = unit.tag});
  // On the communication thread, while backward goes on; its ops run as this thread's do.
  return work.Then(
      [whole, part, result = unit.part, buffers = buffers_, &group, state = CurrentThreadState()] {
        const ScopedThreadState scope(state);
        CopyInto(result, part);
        buffers->GiveBack(group, whole);
        buffers->GiveBack(group, part);
      });
}

comm::Work ShardedCompressionHook::AllReduce(const UnitGradients& unit, comm::Communicator& group) {
  if (unit.part.dtype() == dtype_) {
    return group.AllReduce(unit.part, {.op = comm::ReduceOp::kAverage, .tag = unit.tag});
  }
  const Tensor part = buffers_->Take(group, unit.part, dtype_);
  CopyInto(part, unit.part);
  const comm::Work work = group.AllReduce(part, {.op = comm::ReduceOp::kAverage, .tag = unit.tag});
  return work.Then(
      [part, result = unit.part, buffers = buffers_, &group, state = CurrentThreadState()] {
        const ScopedThreadState scope(state);
        CopyInto(result, part);
        buffers->GiveBack(group, part);
      });
}

}  // namespace lockstep::strategies
