// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/region.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/autograd/meta.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/state.h"
#include "lockstep/checkpoint/tensor_hash.h"
#include "lockstep/tensor/dispatch.h"

namespace lockstep::checkpoint::internal {
namespace {

using autograd::PackedTensor;
using autograd::TensorMeta;
using autograd::internal::GradState;
using autograd::internal::kGradSlot;
using autograd::internal::SavedBy;
using autograd::internal::SavedHooks;
using autograd::internal::SavedTensor;

// What the hooks of a region put into the graph.
class Packed {
 public:
  virtual ~Packed() = default;
  virtual Tensor Unpack() const = 0;
};

Tensor UnpackAny(const PackedTensor& packed) {
  return static_cast<const Packed*>(packed.get())->Unpack();
}

// A tensor to be recomputed.
class Placeholder final : public Packed {
 public:
  Placeholder(std::shared_ptr<Region> region, size_t index)
      : region_(std::move(region)), index_(index) {}
  ~Placeholder() override { region_->Drop(index_); }
  Tensor Unpack() const override { return region_->Unpack(index_); }

 private:
  const std::shared_ptr<Region> region_;
  const size_t index_;
};

// A leaf, in both runs.
class KeptLeaf final : public Packed {
 public:
  KeptLeaf(Tensor leaf, const SavedBy& by)
      : leaf_(std::move(leaf)), version_(leaf_.version()), op_(by.op) {}
  Tensor Unpack() const override {
    if (leaf_.version() != version_) {
      throw FailedPreconditionError(absl::StrCat(
          "Checkpoint: a leaf (", leaf_.DebugString(), ") that ", op_,
          " saved was modified in place after the forward pass: version ", version_, " then, ",
          leaf_.version(), " now; run Backward() before changing parameters"));
    }
    return leaf_;
  }

 private:
  const Tensor leaf_;
  const int64_t version_;
  const std::string op_;
};

// A tensor of the second run's own graph.
class KeptTensor final : public Packed {
 public:
  explicit KeptTensor(Tensor tensor) : tensor_(std::move(tensor)) {}
  Tensor Unpack() const override { return tensor_; }

 private:
  const Tensor tensor_;
};

constexpr int kTraceSlot = static_cast<int>(DispatchLayer::kTrace);

bool IsLeafWithGradient(const Tensor& tensor) {
  return autograd::RequiresGrad(tensor) && autograd::IsLeaf(tensor);
}

// Ends the second run. Not a std::exception, so that regions that handle those let it pass.
struct StopReplay {
  const void* replay;
};

// Scope: this thread's saved-tensor hooks and checkpoint state.
class FirstRunScope {
 public:
  FirstRunScope(std::shared_ptr<const SavedHooks> hooks, std::shared_ptr<OpPass> pass)
      : mask_(CurrentThreadState().layer_mask),
        checkpoint_(CurrentThreadState().layer_state[kCheckpointSlot]) {
    gradients_ = autograd::internal::ReplaceGradState(
        [&](GradState& state) { state.hooks = std::move(hooks); });
    ThreadState& state = MutableThreadState();
    const bool enclosed = checkpoint_ != nullptr;
    state.layer_mask &= ~LayerBit(kCheckpointLayer);
    if (pass != nullptr) state.layer_mask |= LayerBit(kCheckpointLayer);
    if (pass == nullptr && !enclosed) return;
    auto installed = std::make_shared<CheckpointState>();
    installed->recomputing = Recomputing();
    installed->pass = std::move(pass);
    state.layer_state[kCheckpointSlot] = std::move(installed);
  }
  ~FirstRunScope() {
    ThreadState& state = MutableThreadState();
    const uint32_t bit = LayerBit(kCheckpointLayer);
    state.layer_mask = (state.layer_mask & ~bit) | (mask_ & bit);
    state.layer_state[kCheckpointSlot] = std::move(checkpoint_);
    state.layer_state[kGradSlot] = std::move(gradients_);
  }
  FirstRunScope(const FirstRunScope&) = delete;
  FirstRunScope& operator=(const FirstRunScope&) = delete;

 private:
  uint32_t mask_;
  std::shared_ptr<const LayerState> checkpoint_;
  std::shared_ptr<const LayerState> gradients_;
};

// Ends the pass of a policy, whatever happens.
class PassScope {
 public:
  PassScope(std::shared_ptr<const OpPolicy> policy, std::shared_ptr<OpCache> cache,
            bool is_recompute) {
    if (policy == nullptr) return;
    pass_ = std::make_shared<CachingPass>(std::move(policy), std::move(cache), is_recompute);
  }
  ~PassScope() {
    if (pass_ != nullptr) pass_->Finish();
  }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

  std::shared_ptr<OpPass> pass() const { return pass_; }

 private:
  std::shared_ptr<CachingPass> pass_;
};

// Puts generators to where they were in the forward pass, and back.
class GeneratorScope {
 public:
  GeneratorScope(const std::vector<Generator*>& generators, const std::vector<Generator>& positions)
      : generators_(generators) {
    for (size_t i = 0; i < generators.size(); ++i) {
      saved_.push_back(std::exchange(*generators[i], positions[i]));
    }
  }
  ~GeneratorScope() {
    for (size_t i = 0; i < generators_.size(); ++i) *generators_[i] = saved_[i];
  }
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  const std::vector<Generator*>& generators_;
  std::vector<Generator> saved_;
};

// The thread state to run the region under once more. What belongs to the forward pass alone (the
// gradients slot's hooks, caches, who looks) is left out.
ThreadState CaptureState() {
  ThreadState state = CurrentThreadState();
  state.observer.reset();
  for (auto& layer : state.layer_state) {
    if (layer == nullptr) continue;
    if (auto replay = layer->ForReplay()) layer = std::move(replay);
  }
  state.layer_state[kGradSlot].reset();
  state.layer_state[kCheckpointSlot].reset();
  state.layer_state[kTraceSlot].reset();
  return state;
}

std::vector<int64_t> VersionsOf(TensorSpan tensors) {
  std::vector<int64_t> versions;
  for (const Tensor& tensor : tensors) versions.push_back(tensor.defined() ? tensor.version() : 0);
  return versions;
}

std::string Describe(const SavedBy& by) {
  switch (by.role) {
    case SavedBy::Role::kInput:
      return absl::StrCat("input ", by.index, " of ", by.op);
    case SavedBy::Role::kOutput:
      return absl::StrCat("output ", by.index, " of ", by.op);
    case SavedBy::Role::kOther:
      break;
  }
  return absl::StrCat("saved tensor ", by.index, " of ", by.op);
}

constexpr absl::string_view kRemedy =
    "; a checkpointed region must compute the same both times: what it reads besides its inputs "
    "(a mode such as Train() or Eval(), which parameters require gradients, a counter, other "
    "tensors) must not change before the backward, and generators that are not the thread's belong "
    "into CheckpointOptions::generators";

}  // namespace

std::string SavedRecord::DebugString() const {
  return absl::StrCat(Describe({op.c_str(), role, index}), " (", meta.DebugString(), ")");
}

// ---- The second run ----

// Its saved-tensor hooks. Threads that the region started may keep them alive, and later calls then
// only hand tensors through.
class Region::Replay {
 public:
  Replay(Region& region, size_t needed) : region_(&region), needed_(needed) {}

  PackedTensor Pack(const Tensor& tensor, const SavedBy& by) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (region_ == nullptr) return Keep(tensor);
    if (IsLeafWithGradient(tensor) && !IsStandIn(tensor)) return Keep(tensor);
    const size_t index = next_++;
    Accept(index, tensor, by);
    if (region_->options_.early_stop && next_ == needed_) {
      throw StopReplay{this};
    }
    return Keep(tensor);
  }

  // An input of the region that has a history: a leaf of the second run.
  void AddStandIn(const Tensor& tensor) { stand_ins_.push_back(tensor); }

  // Called when the region has returned, or been stopped. Throws FailedPrecondition when something
  // is missing.
  void Finish() {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::lock_guard<std::mutex> records_lock(region_->mutex_);
    const std::vector<SavedRecord>& records = region_->records_;
    const bool whole = !region_->options_.early_stop && region_->complete_;
    if (next_ < needed_ || (whole && next_ < records.size())) {
      throw FailedPreconditionError(
          absl::StrCat("Checkpoint: the second run saved ", next_, " tensors and the first ",
                       records.size(), ": ", records[next_].DebugString(), " is missing", kRemedy));
    }
    region_ = nullptr;
    stand_ins_.clear();
  }

  // After an exception: takes the recomputed tensors back.
  void Abandon() {
    std::lock_guard<std::mutex> lock(mutex_);
    Region* const region = std::exchange(region_, nullptr);
    stand_ins_.clear();
    if (region == nullptr) return;
    const std::lock_guard<std::mutex> records_lock(region->mutex_);
    for (const size_t index : filled_) region->records_[index].value.Reset();
  }

 private:
  static PackedTensor Keep(const Tensor& tensor) {
    return std::shared_ptr<const Packed>(std::make_shared<KeptTensor>(tensor));
  }

  bool IsStandIn(const Tensor& tensor) const {
    return std::any_of(stand_ins_.begin(), stand_ins_.end(),
                       [&](const Tensor& stand_in) { return stand_in.IsSame(tensor); });
  }

  void Accept(size_t index, const Tensor& tensor, const SavedBy& by) {
    const CheckpointOptions& options = region_->options_;
    const uint64_t hash = options.verify_values ? HashOf(tensor) : 0;
    const std::lock_guard<std::mutex> records_lock(region_->mutex_);
    if (index >= region_->records_.size()) {
      if (!options.check_metadata || !region_->complete_) return;
      throw FailedPreconditionError(absl::StrCat(
          "Checkpoint: the second run saves more tensors than the first (",
          region_->records_.size(), "): ", Describe(by), " (", tensor.DebugString(), ")", kRemedy));
    }
    SavedRecord& record = region_->records_[index];
    if (options.check_metadata) CheckMetadata(record, index, tensor, by);
    if (hash != record.hash) {
      throw FailedPreconditionError(absl::StrCat("Checkpoint: the second run gives ",
                                                 record.DebugString(), " (saved tensor ", index,
                                                 ") other values than the first", kRemedy));
    }
    if (!record.needed || record.value.defined()) return;
    record.value = HeldTensor(tensor);
    filled_.push_back(index);
  }

  static void CheckMetadata(const SavedRecord& record, size_t index, const Tensor& tensor,
                            const SavedBy& by) {
    if (record.op == by.op && record.role == by.role && record.index == by.index &&
        record.meta.Matches(tensor)) {
      return;
    }
    throw FailedPreconditionError(
        absl::StrCat("Checkpoint: the second run differs from the first: saved tensor ", index,
                     " was ", record.DebugString(), " and is ", Describe(by), " (",
                     tensor.DebugString(), ") now", kRemedy));
  }

  std::mutex mutex_;  // guards what follows
  Region* region_;    // null when the run is over
  const size_t needed_;
  size_t next_ = 0;
  std::vector<Tensor> stand_ins_;
  std::vector<size_t> filled_;
};

// ---- The first run ----

Region::Region(CheckpointFunction fn, TensorSpan inputs, const CheckpointOptions& options)
    : options_(options),
      policy_(options.policy ? std::make_shared<const OpPolicy>(options.policy) : nullptr),
      fn_(std::move(fn)),
      state_(CaptureState()) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    Input& input = inputs_.emplace_back();
    if (!inputs[i].defined()) continue;
    input.requires_grad = autograd::RequiresGrad(inputs[i]);
    input.is_leaf = autograd::IsLeaf(inputs[i]);
    input.saved =
        SavedTensor(inputs[i], {"Checkpoint", SavedBy::Role::kInput, static_cast<int>(i)});
  }
  for (const Generator* generator : options.generators) generator_positions_.push_back(*generator);
  if (policy_ != nullptr) cache_ = std::make_shared<OpCache>();
}

TensorList Region::Run(TensorSpan inputs) {
  auto hooks = std::make_shared<const SavedHooks>(
      SavedHooks{[self = shared_from_this()](const Tensor& tensor, const SavedBy& by) {
                   return self->Pack(tensor, by);
                 },
                 &UnpackAny});
  const std::vector<int64_t> versions = VersionsOf(inputs);
  TensorList outputs;
  {
    PassScope pass(policy_, cache_, /*is_recompute=*/false);
    FirstRunScope scope(std::move(hooks), pass.pass());
    outputs = fn_(inputs);
  }
  CheckInputsUnchanged(inputs, versions);
  if (cache_ != nullptr) cache_->Complete();
  if (cache_ != nullptr && options_.early_stop) cache_->DropTail();
  const std::lock_guard<std::mutex> lock(mutex_);
  complete_ = true;
  return outputs;
}

void Region::CheckInputsUnchanged(TensorSpan inputs, const std::vector<int64_t>& versions) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || inputs[i].version() == versions[i]) continue;
    throw FailedPreconditionError(
        absl::StrCat("Checkpoint: the region changed input ", i, " (", inputs[i].DebugString(),
                     ") in place, so that it cannot run again; let it Clone() the input first"));
  }
}

PackedTensor Region::Pack(const Tensor& tensor, const SavedBy& by) {
  if (IsLeafWithGradient(tensor)) {
    return std::shared_ptr<const Packed>(std::make_shared<KeptLeaf>(tensor, by));
  }
  SavedRecord record;
  record.op = std::string(by.op);
  record.role = by.role;
  record.index = by.index;
  record.meta = TensorMeta(tensor);
  if (options_.verify_values) record.hash = HashOf(tensor);
  size_t index = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    index = records_.size();
    records_.push_back(std::move(record));
  }
  if (cache_ != nullptr) cache_->CountSavedTensor();
  return std::shared_ptr<const Packed>(std::make_shared<Placeholder>(shared_from_this(), index));
}

void Region::Drop(size_t index) {
  HeldTensor dropped;  // destroyed after the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  records_[index].needed = false;
  dropped = std::move(records_[index].value);
}

// ---- Backward ----

bool Region::TryGet(size_t index, Tensor& value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const SavedRecord& record = records_[index];
  if (!record.value.defined()) return false;
  if (record.value.modified()) {
    throw FailedPreconditionError(absl::StrCat(
        "Checkpoint: ", record.DebugString(),
        " was modified in place after it was saved for the gradient; use the op's form that "
        "returns a new tensor, or Clone() before modifying"));
  }
  value = record.value.Get();
  return true;
}

Tensor Region::Unpack(size_t index) {
  Tensor value;
  if (TryGet(index, value)) return value;
  const std::lock_guard<std::mutex> lock(replay_mutex_);
  if (TryGet(index, value)) return value;  // another thread was faster
  Recompute();
  if (TryGet(index, value)) return value;
  throw InternalError("Checkpoint: a saved tensor was not recomputed");
}

TensorList Region::ReplayInputs(Replay& replay) const {
  TensorList inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    Tensor tensor = input.saved.Peek().Unpack({}, "Checkpoint", absl::StrCat("input ", i));
    if (tensor.defined() && !(input.is_leaf && autograd::RequiresGrad(tensor))) {
      tensor = autograd::internal::Alias(tensor);
      if (input.requires_grad) autograd::internal::MakeLeaf(tensor);
      if (input.requires_grad && !input.is_leaf) replay.AddStandIn(tensor);
    }
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

ThreadState Region::ReplayState(const std::shared_ptr<Replay>& replay,
                                std::shared_ptr<OpPass> pass) const {
  const ThreadState& current = CurrentThreadState();
  constexpr uint32_t kTrace = LayerBit(DispatchLayer::kTrace);
  constexpr uint32_t kCheckpoint = LayerBit(kCheckpointLayer);
  ThreadState state = state_;
  state.layer_mask = (state.layer_mask & ~(kTrace | kCheckpoint)) | (current.layer_mask & kTrace) |
                     (pass != nullptr ? kCheckpoint : 0);
  // A state that is used once more gives its successor away again: caches live for one run.
  for (auto& layer : state.layer_state) {
    if (layer == nullptr) continue;
    if (auto again = layer->ForReplay()) layer = std::move(again);
  }
  state.layer_state[kTraceSlot] = current.layer_state[kTraceSlot];
  state.category = current.category;
  state.observer = current.observer;

  auto checkpoint = std::make_shared<CheckpointState>();
  checkpoint->recomputing = true;
  checkpoint->pass = std::move(pass);
  state.layer_state[kCheckpointSlot] = std::move(checkpoint);

  const auto* now = static_cast<const GradState*>(current.layer_state[kGradSlot].get());
  auto gradients = std::make_shared<GradState>();
  if (now != nullptr) gradients->run = now->run;
  gradients->hooks = std::make_shared<const SavedHooks>(SavedHooks{
      [replay](const Tensor& tensor, const SavedBy& by) { return replay->Pack(tensor, by); },
      &UnpackAny});
  state.layer_state[kGradSlot] = std::move(gradients);
  return state;
}

void Region::Recompute() {
  size_t needed = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < records_.size(); ++i) {
      if (records_[i].needed && !records_[i].value.defined()) needed = i + 1;
    }
  }
  const auto replay = std::make_shared<Replay>(*this, needed);
  const TensorList inputs = ReplayInputs(*replay);
  try {
    PassScope pass(policy_, cache_, /*is_recompute=*/true);
    ScopedThreadState state(ReplayState(replay, pass.pass()));
    GeneratorScope generators(options_.generators, generator_positions_);
    try {
      fn_(inputs);
    } catch (const StopReplay& stop) {
      if (stop.replay != replay.get()) throw;
    }
    replay->Finish();
  } catch (...) {
    replay->Abandon();
    throw;
  }
  ReleaseInputs();
}

// Everything that is needed exists now, and lives as long as its placeholder: there is no third
// run.
void Region::ReleaseInputs() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!complete_) return;
  }
  inputs_.clear();
  cache_.reset();
  fn_ = nullptr;
}

}  // namespace lockstep::checkpoint::internal
