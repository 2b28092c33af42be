// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/deferred_recording.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::nn::internal {
namespace {

// The attributes with `device` where they name meta; null where they do not.
std::shared_ptr<const Attributes> MovedTo(const Attributes& attributes, Device device) {
  if (const auto* create = dynamic_cast<const CreateAttributes*>(&attributes)) {
    auto moved = std::make_shared<CreateAttributes>(*create);
    moved->device = device;
    return moved;
  }
  if (const auto* copy = dynamic_cast<const DeviceAttributes*>(&attributes)) {
    auto moved = std::make_shared<DeviceAttributes>(*copy);
    moved->device = device;
    moved->non_blocking = false;
    return moved;
  }
  return nullptr;
}

}  // namespace

Tensor PartOf(const Tensor& base, const Shape& shape, const Strides& strides, int64_t offset) {
  if (base.shape() == shape && base.strides() == strides && base.offset() == offset) return base;
  return Tensor(
      MakeRef<TensorImpl>(base.storage(), shape, strides, offset, base.dtype(), base.device()));
}

const RecordedOrigin* OriginOf(const Tensor& tensor) {
  return dynamic_cast<const RecordedOrigin*>(tensor.impl().meta_origin.get());
}

// ---- Recording ----

int Recording::AddMemory(const Tensor& made) {
  const int number = static_cast<int>(memories_.size());
  memories_.push_back(
      {made.shape(), made.strides(), made.dtype(), CurrentThreadState().category, {}});
  made.impl().meta_origin = RefPtr<MetaOrigin>(new RecordedOrigin(shared_from_this(), number));
  return number;
}

void Recording::OnEmpty(const Tensor& made) {
  std::lock_guard<std::mutex> lock(mutex_);
  AddMemory(made);
}

// As if `values` had been copied to meta.
void Recording::OnValues(const Tensor& made, const Tensor& values) {
  DeviceAttributes to_meta;
  to_meta.device = kMeta;
  OnOp({OpId::kCopyToDevice, absl::MakeConstSpan(&values, 1), Scalars(), to_meta},
       absl::MakeConstSpan(&made, 1));
}

void Recording::OnOp(const OpCall& op_call, TensorSpan outputs) {
  std::vector<RefPtr<MetaOrigin>> strangers;
  RecordOp(op_call, outputs, strangers);
  // Without this recording's lock: theirs have their own.
  for (const RefPtr<MetaOrigin>& stranger : strangers) stranger->OnUnrecordedWrite();
}

void Recording::RecordOp(const OpCall& op_call, TensorSpan outputs,
                         std::vector<RefPtr<MetaOrigin>>& strangers) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int number = static_cast<int>(calls_.size());
  Call call{op_call.op,
            {},
            op_call.scalars,
            op_call.attributes.Clone(),
            op_call.in_place,
            CurrentThreadState().category,
            {}};
  for (const Tensor& input : op_call.inputs) call.inputs.push_back(OperandOf(input));
  NoteWrites(op_call, number, call, strangers);
  if (!op_call.in_place) {
    for (const Tensor& output : outputs) {
      const int memory = AddMemory(output);
      memories_[memory].writers.push_back({number, /*whole=*/true});
      call.outputs.push_back(memory);
    }
  }
  calls_.push_back(std::move(call));
}

void Recording::NoteWrites(const OpCall& op_call, int number, Call& call,
                           std::vector<RefPtr<MetaOrigin>>& strangers) {
  const OpInfo& info = GetOpInfo(op_call.op);
  for (size_t i = 0; i < op_call.inputs.size(); ++i) {
    if (!op_call.inputs[i].defined() || !WritesInput(info, op_call, i)) continue;
    const int memory = call.inputs[i].memory;
    if (memory >= 0) {
      const bool blind = IsBlind(call, i);
      if (blind) call.blind = static_cast<int>(i);
      memories_[memory].writers.push_back({number, blind && CoversMemory(call.inputs[i])});
    } else if (const auto& origin = op_call.inputs[i].impl().meta_origin) {
      strangers.push_back(origin);
    }
  }
}

Recording::Operand Recording::OperandOf(const Tensor& input) const {
  Operand operand;
  if (!input.defined()) return operand;
  const TensorImpl& impl = input.impl();
  operand.shape = impl.shape;
  operand.strides = impl.strides;
  operand.offset = impl.offset;
  if (impl.device != kMeta) {
    // Another tensor on the storage: SetData on the original does not reach it.
    operand.real = Tensor(MakeRef<TensorImpl>(impl.storage, impl.shape, impl.strides, impl.offset,
                                              impl.dtype, impl.device));
    operand.version = input.version();
    return operand;
  }
  const RecordedOrigin* origin = OriginOf(input);
  if (origin != nullptr && origin->recording().get() == this) {
    operand.memory = origin->memory();
  } else {
    operand.stranger = input.DebugString();
  }
  return operand;
}

// A source that shows the target's memory is a look at it.
bool Recording::IsBlind(const Call& call, size_t index) {
  const bool blind =
      index == 0 && (call.op == OpId::kCopyInto || (call.op == OpId::kFill && call.in_place));
  if (!blind) return false;
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    if (call.inputs[i].memory == call.inputs[index].memory) return false;
  }
  return true;
}

// For targets of writes: their elements share no address, dispatch has refused those that do.
bool Recording::CoversMemory(const Operand& operand) const {
  const Memory& memory = memories_[operand.memory];
  int64_t count = 1, all = 1;
  for (int64_t size : operand.shape) count *= size;
  for (int64_t size : memory.shape) all *= size;
  return count == all && IsContiguous(memory.shape, memory.strides);
}

void Recording::SetUnknown(int memory) {
  std::lock_guard<std::mutex> lock(mutex_);
  memories_[memory].unknown = true;
}

// ---- Planning ----

bool Recording::AddWriters(int memory, int before, std::vector<int>& pending) const {
  const std::vector<Writer>& writers = memories_[memory].writers;
  bool any = false;
  for (size_t i = writers.size(); i-- > 0;) {
    if (writers[i].call >= before) continue;
    any = true;
    pending.push_back(writers[i].call);
    if (writers[i].whole) break;
  }
  return any;
}

Recording::Plan Recording::PlanFor(int memory) const {
  Plan plan;
  if (memories_[memory].unknown) {
    plan.problem =
        "it was written after its DeferredInitScope had ended, or in another one; write "
        "it within the scope that made it, or materialise it first";
    return plan;
  }
  const char* const unwritten =
      "its values, or those it was made from, were never written (Empty); initialise it in the "
      "constructor";
  absl::flat_hash_set<int> seen;
  std::vector<int> pending;
  if (!AddWriters(memory, std::numeric_limits<int>::max(), pending)) plan.problem = unwritten;
  while (!pending.empty()) {
    const int number = pending.back();
    pending.pop_back();
    if (!seen.insert(number).second) continue;
    plan.calls.push_back(number);
    const Call& call = calls_[number];
    for (size_t i = 0; i < call.inputs.size() && plan.problem.empty(); ++i) {
      const Operand& input = call.inputs[i];
      if (!input.stranger.empty()) {
        plan.problem = absl::StrCat(GetOpInfo(call.op).name, " took ", input.stranger,
                                    ", which was made outside of this DeferredInitScope; make it "
                                    "inside, or on a device with bytes");
      } else if (input.real.defined() && input.real.version() != input.version) {
        plan.problem = absl::StrCat(GetOpInfo(call.op).name, " took ", input.real.DebugString(),
                                    ", which has been changed since; give it a Clone()");
      } else if (input.memory >= 0) {
        const bool blind = static_cast<int>(i) == call.blind;
        if (blind && CoversMemory(input)) continue;
        if (!AddWriters(input.memory, number, pending) && !blind) plan.problem = unwritten;
      }
    }
  }
  std::sort(plan.calls.begin(), plan.calls.end());
  return plan;
}

std::string Recording::Problem(int memory) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return PlanFor(memory).problem;
}

// ---- Replay ----

// One run of a plan's calls. REQUIRES: the recording's lock.
class Replayer {
 public:
  Replayer(const Recording& recording, const Recording::Plan& plan, int target, Device device)
      : recording_(recording), plan_(plan), target_(target), device_(device) {
    for (const int number : plan_.calls) {
      for (const int memory : MemoriesOf(number)) last_use_[memory] = number;
    }
    last_use_[target_] = std::numeric_limits<int>::max();
    // Backwards, so that what becomes a temporary's successor knows its own.
    for (size_t i = plan_.calls.size(); i-- > 0;) PlanTakeover(plan_.calls[i]);
  }

  Tensor Run() {
    for (const int number : plan_.calls) {
      const auto takeover = takeovers_.find(number);
      if (takeover != takeovers_.end()) {
        const Recording::Call& call = recording_.calls_[number];
        bases_[call.inputs[0].memory] = Base(call.inputs[1].memory);
      } else {
        RunCall(number);
      }
      for (const int memory : MemoriesOf(number)) {
        if (last_use_.at(memory) == number) bases_.erase(memory);
      }
    }
    return Base(target_);
  }

 private:
  std::vector<int> MemoriesOf(int number) const {
    const Recording::Call& call = recording_.calls_[number];
    std::vector<int> memories = call.outputs;
    for (const Recording::Operand& input : call.inputs) {
      if (input.memory >= 0) memories.push_back(input.memory);
    }
    return memories;
  }

  // Initialisers fill a temporary and copy it whole into the parameter: the temporary is made as
  // the parameter instead, so that there are not both at a time.
  void PlanTakeover(int number) {
    const Recording::Call& call = recording_.calls_[number];
    if (call.op != OpId::kCopyInto || call.blind != 0) return;
    const Recording::Operand &to = call.inputs[0], &from = call.inputs[1];
    if (from.memory < 0 || last_use_.at(from.memory) != number || from.memory == target_) return;
    const Recording::Memory& to_memory = recording_.memories_[to.memory];
    const Recording::Memory& from_memory = recording_.memories_[from.memory];
    const auto is_whole = [](const Recording::Operand& operand, const Recording::Memory& memory) {
      return operand.shape == memory.shape && operand.strides == memory.strides;
    };
    if (!is_whole(to, to_memory) || !is_whole(from, from_memory) ||
        to_memory.dtype != from_memory.dtype || to_memory.shape != from_memory.shape ||
        to_memory.strides != from_memory.strides) {
      return;
    }
    takeovers_.insert(number);
    made_as_[from.memory] = CategoryOf(to.memory);
  }

  MemoryCategory CategoryOf(int memory) const {
    const auto found = made_as_.find(memory);
    return found != made_as_.end() ? found->second : recording_.memories_[memory].category;
  }

  Tensor Base(int memory) {
    Tensor& base = bases_[memory];
    if (!base.defined()) {
      const Recording::Memory& made = recording_.memories_[memory];
      CategoryScope category(CategoryOf(memory));
      base = Empty(made.shape, {.dtype = made.dtype, .device = device_});
    }
    return base;
  }

  Tensor Input(const Recording::Operand& operand) {
    if (operand.memory < 0) return operand.real;
    return PartOf(Base(operand.memory), operand.shape, operand.strides, operand.offset);
  }

  void RunCall(int number) {
    const Recording::Call& call = recording_.calls_[number];
    TensorList inputs;
    for (const Recording::Operand& operand : call.inputs) inputs.push_back(Input(operand));
    const std::shared_ptr<const Attributes> moved = MovedTo(*call.attributes, device_);
    CategoryScope category(call.outputs.empty() ? call.category : CategoryOf(call.outputs[0]));
    const TensorList outputs =
        Dispatch({call.op, inputs, call.scalars, moved ? *moved : *call.attributes, call.in_place});
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      if (outputs[i].device() != device_) {
        throw UnimplementedError(
            absl::StrCat("MaterializeTensor: the op ", GetOpInfo(call.op).name, " gave ",
                         outputs[i].DebugString(), " when it was run again for ", ToString(device_),
                         ": it has a device of its own; call it outside of DeferredInitScope"));
      }
      bases_[call.outputs[i]] = outputs[i];
    }
  }

  const Recording& recording_;
  const Recording::Plan& plan_;
  const int target_;
  const Device device_;
  absl::flat_hash_map<int, int> last_use_;
  absl::flat_hash_set<int> takeovers_;
  absl::flat_hash_map<int, MemoryCategory> made_as_;
  absl::flat_hash_map<int, Tensor> bases_;
};

Tensor Recording::Replay(int memory, Device device) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Plan plan = PlanFor(memory);
  if (!plan.problem.empty()) throw FailedPreconditionError(plan.problem);
  // Layers acted when the ops were recorded, below them.
  ThreadState state = CurrentThreadState();
  state.layer_mask = 0;
  state.meta_recorder = nullptr;
  state.device = device;
  state.stream = 0;
  const ScopedThreadState scope(state);
  return Replayer(*this, plan, memory, device).Run();
}

}  // namespace lockstep::nn::internal
