// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/offload.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/autograd/saved_bytes.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/held_tensor.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/stream.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::checkpoint {
namespace {

using autograd::PackedTensor;

// Copies are no ops of the program's: no layer but the trace sees them.
class CopyScope {
 public:
  CopyScope() : mask_(CurrentThreadState().layer_mask) {
    MutableThreadState().layer_mask = mask_ & LayerBit(DispatchLayer::kTrace);
  }
  ~CopyScope() { MutableThreadState().layer_mask = mask_; }
  CopyScope(const CopyScope&) = delete;
  CopyScope& operator=(const CopyScope&) = delete;

 private:
  uint32_t mask_;
};

// All bytes of a storage.
Tensor BytesOf(const RefPtr<Storage>& storage) {
  return FromStorage(storage, {storage->bytes()}, DType::kUInt8);
}

// One storage on its way to the host and back. Its session's mutex guards it.
struct Offloaded {
  ~Offloaded() {
    if (host.defined()) autograd::internal::RemoveSavedStorage(*host.storage());
  }

  size_t number = 0;  // in the order of the forward pass
  Device device;
  Tensor host;
  Event copied;              // to the host
  RefPtr<Storage> source;    // until that, and until nobody else holds it
  int64_t version = 0;       // of the source
  bool modified = false;     // while it was copied
  bool drop_queued = false;  // at the end of a backward
  Tensor restored;           // for a backward
};

// What the graph holds: a tensor within an offloaded storage, or one that stayed.
struct SavedActivation {
  std::shared_ptr<Offloaded> storage;  // null: `kept`
  Shape shape;
  Strides strides;
  int64_t offset = 0;
  DType dtype = DType::kFloat32;
  internal::HeldTensor kept;
  Tensor leaf;  // a leaf that requires a gradient lives anyway
  int64_t leaf_version = 0;
};

[[noreturn]] void ThrowModified(const std::string& what) {
  throw FailedPreconditionError(
      absl::StrCat("OffloadActivations: a saved tensor (", what,
                   ") was modified in place; use the op's form that returns a new tensor, or "
                   "Clone() before modifying"));
}

}  // namespace

class OffloadActivations::Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(const OffloadOptions& options) : options_(options) {}

  PackedTensor Pack(const Tensor& tensor);
  Tensor Unpack(const SavedActivation& saved);
  // The scope is over: waits for copies and lets go of their sources.
  void Finish();
  int64_t offloaded_bytes() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return offloaded_bytes_;
  }

 private:
  bool ShouldMove(const Tensor& tensor) const;
  std::shared_ptr<Offloaded> FindOrStart(const Tensor& tensor);
  void ReleaseSources(bool all);
  void Restore(Offloaded& storage, bool non_blocking);
  void Prefetch(size_t before);
  void QueueDrop(const std::shared_ptr<Offloaded>& storage);

  const OffloadOptions options_;
  mutable std::mutex mutex_;
  // By number. Without those that are gone, so that one scope may be around many steps.
  std::map<size_t, std::weak_ptr<Offloaded>> order_;
  size_t next_number_ = 0;
  std::vector<std::weak_ptr<Offloaded>> with_source_;
  int64_t offloaded_bytes_ = 0;
};

bool OffloadActivations::Session::ShouldMove(const Tensor& tensor) const {
  const RefPtr<Storage>& storage = tensor.impl().storage;
  if (!storage || storage->bytes() < std::max<int64_t>(options_.min_bytes, 1)) return false;
  const DeviceType type = tensor.device().type;
  if (type == DeviceType::kHost || type == DeviceType::kMeta) return false;
  switch (storage->category()) {
    case MemoryCategory::kParameter:
    case MemoryCategory::kGradient:
    case MemoryCategory::kOptimizer:
    case MemoryCategory::kCommunication:
      return false;
    default:
      return true;
  }
}

PackedTensor OffloadActivations::Session::Pack(const Tensor& tensor) {
  auto saved = std::make_shared<SavedActivation>();
  if (autograd::RequiresGrad(tensor)) {
    saved->leaf = tensor;
    saved->leaf_version = tensor.version();
  } else if (!ShouldMove(tensor)) {
    saved->kept = internal::HeldTensor(tensor);
  } else {
    const TensorImpl& impl = tensor.impl();
    saved->shape = impl.shape;
    saved->strides = impl.strides;
    saved->offset = impl.offset;
    saved->dtype = impl.dtype;
    std::lock_guard<std::mutex> lock(mutex_);
    ReleaseSources(/*all=*/false);
    saved->storage = FindOrStart(tensor);
  }
  return saved;
}

std::shared_ptr<Offloaded> OffloadActivations::Session::FindOrStart(const Tensor& tensor) {
  const RefPtr<Storage>& source = tensor.impl().storage;
  std::vector<std::shared_ptr<Offloaded>> under_way;
  for (const auto& weak : with_source_) {
    auto storage = weak.lock();
    if (storage == nullptr || !storage->source) continue;
    if (storage->source == source && storage->version == source->version()) return storage;
    if (!storage->copied.IsComplete()) under_way.push_back(std::move(storage));
  }
  if (static_cast<int64_t>(under_way.size()) >= options_.max_in_flight) {
    under_way.front()->copied.Wait();
  }
  auto storage = std::make_shared<Offloaded>();
  storage->device = tensor.device();
  storage->number = next_number_++;
  {
    CopyScope scope;
    const Tensor host = To(BytesOf(source), kHost, {.non_blocking = true});
    autograd::internal::AddSavedStorage(*host.storage());
    storage->host = host;
  }
  storage->copied = Stream::Copy(tensor.device()).Record();
  storage->version = source->version();
  storage->source = source;
  while (!order_.empty() && order_.begin()->second.expired()) order_.erase(order_.begin());
  order_.emplace(storage->number, storage);
  with_source_.push_back(storage);
  offloaded_bytes_ += source->bytes();
  return storage;
}

// Called between ops, so that the version tells of every write of this thread's. A source that
// somebody else holds is kept, because it would not be freed and is recognised by it.
void OffloadActivations::Session::ReleaseSources(bool all) {
  std::erase_if(with_source_, [&](const std::weak_ptr<Offloaded>& weak) {
    const auto storage = weak.lock();
    if (storage == nullptr || !storage->source) return true;
    if (!storage->copied.IsComplete()) return false;
    if (!all && storage->source->ref_count() > 1) return false;
    storage->modified |= storage->source->version() != storage->version;
    storage->source = RefPtr<Storage>();
    return true;
  });
}

void OffloadActivations::Session::Finish() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& weak : with_source_) {
    const auto storage = weak.lock();
    if (storage == nullptr) continue;
    try {
      storage->copied.Wait();
    } catch (...) {  // whoever needs the copy gets it again
    }
  }
  ReleaseSources(/*all=*/true);
}

void OffloadActivations::Session::Restore(Offloaded& storage, bool non_blocking) {
  if (storage.restored.defined()) return;
  CopyScope scope;
  storage.restored = To(storage.host, storage.device, {.non_blocking = non_blocking});
}

// Starts to bring back what a backward will ask for next.
void OffloadActivations::Session::Prefetch(size_t before) {
  int64_t left = options_.prefetch;
  auto next = order_.lower_bound(before);
  while (next != order_.begin() && left > 0) {
    --next;
    const auto storage = next->second.lock();
    if (storage == nullptr) {
      next = order_.erase(next);
      continue;
    }
    if (storage->source) continue;
    --left;
    if (storage->restored.defined()) continue;
    Restore(*storage, /*non_blocking=*/true);
    QueueDrop(storage);
  }
}

// A retained graph gives the device's memory back when the backward is over.
void OffloadActivations::Session::QueueDrop(const std::shared_ptr<Offloaded>& storage) {
  if (storage->drop_queued || !autograd::InBackward()) return;
  storage->drop_queued = true;
  autograd::QueueEndOfBackward(
      [self = shared_from_this(), weak = std::weak_ptr<Offloaded>(storage)] {
        Tensor dropped;  // destroyed after the lock
        std::lock_guard<std::mutex> lock(self->mutex_);
        const auto storage = weak.lock();
        if (storage == nullptr) return;
        storage->drop_queued = false;
        dropped = std::exchange(storage->restored, Tensor());
      });
}

Tensor OffloadActivations::Session::Unpack(const SavedActivation& saved) {
  if (saved.leaf.defined()) {
    if (saved.leaf.version() != saved.leaf_version) ThrowModified(saved.leaf.DebugString());
    return saved.leaf;
  }
  if (saved.storage == nullptr) {
    const Tensor kept = saved.kept.Get();
    if (saved.kept.modified()) ThrowModified(kept.DebugString());
    return kept;
  }
  Offloaded& storage = *saved.storage;
  std::lock_guard<std::mutex> lock(mutex_);
  if (storage.source) storage.modified |= storage.source->version() != storage.version;
  if (storage.modified) {
    ThrowModified(absl::StrCat(DTypeName(saved.dtype), ToString(saved.shape)));
  }
  RefPtr<Storage> bytes = storage.source;
  if (!bytes) {
    Restore(storage, /*non_blocking=*/false);
    QueueDrop(saved.storage);
    bytes = storage.restored.storage();
  }
  Prefetch(storage.number);
  return Tensor(MakeRef<TensorImpl>(std::move(bytes), saved.shape, saved.strides, saved.offset,
                                    saved.dtype, storage.device));
}

OffloadActivations::OffloadActivations(const OffloadOptions& options) {
  if (options.min_bytes < 0 || options.prefetch < 0 || options.max_in_flight < 1) {
    throw InvalidArgumentError(
        absl::StrCat("OffloadActivations: min_bytes ", options.min_bytes, ", prefetch ",
                     options.prefetch, ", max_in_flight ", options.max_in_flight,
                     "; the first two cannot be negative, and the last must be at least 1"));
  }
  session_ = std::make_shared<Session>(options);
  scope_ = std::make_unique<autograd::SavedTensorHooksScope>(
      [session = session_](const Tensor& tensor) { return session->Pack(tensor); },
      [session = session_](const PackedTensor& packed) {
        return session->Unpack(*static_cast<const SavedActivation*>(packed.get()));
      });
}

OffloadActivations::~OffloadActivations() {
  scope_.reset();
  session_->Finish();
}

int64_t OffloadActivations::offloaded_bytes() const { return session_->offloaded_bytes(); }

}  // namespace lockstep::checkpoint
