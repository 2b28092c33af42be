// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/dispatch.h"

#include <array>
#include <atomic>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/kernel.h"

namespace lockstep {
namespace {

using LayerTable = std::array<std::atomic<LayerFunction>, kDispatchLayerCount>;

LayerTable& Layers() {
  static LayerTable layers{};
  return layers;
}

[[noreturn]] void RefuseDevices(const OpInfo& info, Device a, Device b) {
  throw InvalidArgumentError(absl::StrCat(info.name, ": operands on ", ToString(a), " and ",
                                          ToString(b), "; move one with To(x, device)"));
}

[[noreturn]] void RefuseUndefined(const OpInfo& info, size_t index) {
  throw InvalidArgumentError(
      absl::StrCat(info.name, ": input '", info.inputs[index].name, "' is undefined"));
}

[[noreturn]] void RefuseInputCount(const OpInfo& info, TensorSpan inputs) {
  throw InvalidArgumentError(
      absl::StrCat(info.name, ": ", inputs.size(), " inputs; it takes ", info.inputs.size()));
}

// Checks that the inputs are those of the row and on one device, and returns it: the current device
// when there are none. Lists may have any length and any of their tensors undefined; their rules
// check them.
inline Device CheckInputs(const OpInfo& info, TensorSpan inputs) {
  if (!info.has_lists && inputs.size() != info.inputs.size()) RefuseInputCount(info, inputs);
  const TensorImpl* first = nullptr;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorImpl* const impl = inputs[i].impl_ptr().get();
    if (impl == nullptr) {
      if (!info.has_lists && !info.inputs[i].optional) RefuseUndefined(info, i);
    } else if (first == nullptr) {
      first = impl;
    } else if (impl->device != first->device) {
      RefuseDevices(info, first->device, impl->device);
    }
  }
  return first == nullptr ? CurrentDevice() : first->device;
}

inline SpecList InferWith(const OpInfo& info, const OpCall& call, Device device) {
  SpecList specs;
  info.shape_rule(call, specs);
  // Only ops that create or move say where; everything else stays with its operands.
  const bool rule_decides = info.kind == OpKind::kCopy || call.inputs.empty();
  if (!rule_decides) {
    for (TensorSpec& spec : specs) spec.device = device;
  }
  return specs;
}

Tensor MakeView(const Tensor& source, const TensorSpec& spec) {
  const TensorImpl& impl = source.impl();
  Tensor view(MakeRef<TensorImpl>(impl.storage, spec.shape, spec.strides, spec.offset, spec.dtype,
                                  impl.device));
  if (impl.meta_origin) view.impl().meta_origin = impl.meta_origin;
  return view;
}

Tensor AllocateOutput(TensorSpec& spec) {
  int64_t count = 1;
  for (int64_t size : spec.shape) count *= size;
  RefPtr<Storage> storage;
  if (spec.device != kMeta) {
    storage = Storage::Allocate(spec.device, count * ItemSize(spec.dtype));
  }
  if (spec.strides.empty()) {
    return Tensor(
        MakeRef<TensorImpl>(std::move(storage), std::move(spec.shape), spec.dtype, spec.device));
  }
  return Tensor(MakeRef<TensorImpl>(std::move(storage), spec.shape, spec.strides, int64_t{0},
                                    spec.dtype, spec.device));
}

// Whether two elements of `tensor` share an address (an expanded view).
bool OverlapsItself(const TensorImpl& impl) {
  for (size_t i = 0; i < impl.shape.size(); ++i) {
    if (impl.shape[i] > 1 && impl.strides[i] == 0) return true;
  }
  return false;
}

void CheckWritable(const OpInfo& info, const Tensor& target) {
  if (!OverlapsItself(target.impl())) return;
  throw InvalidArgumentError(absl::StrCat(info.name, ": writes into ", target.DebugString(),
                                          " with strides ", ToString(target.strides()),
                                          ", whose elements share memory; Clone it first"));
}

void CheckInPlace(const OpInfo& info, const OpCall& call, const SpecList& specs) {
  const bool kind_allows = info.kind == OpKind::kElementwise ||
                           info.kind == OpKind::kBroadcasting || info.kind == OpKind::kRandom;
  if (!kind_allows || specs.size() != 1 || call.inputs.empty()) {
    throw InvalidArgumentError(absl::StrCat(info.name, ": has no in-place form"));
  }
  const Tensor& target = call.inputs[0];
  if (specs[0].shape != target.shape() || specs[0].dtype != target.dtype()) {
    throw InvalidArgumentError(absl::StrCat(info.name, " in place: the result is ",
                                            DTypeName(specs[0].dtype), ToString(specs[0].shape),
                                            " but the tensor to write is ", target.DebugString(),
                                            "; use the form that returns a new one"));
  }
  CheckWritable(info, target);
}

// First and one past the last element, in bytes from the start of the storage.
std::pair<int64_t, int64_t> ByteRange(const TensorImpl& impl) {
  if (impl.numel == 0) return {0, 0};
  int64_t last = impl.offset;
  for (size_t i = 0; i < impl.shape.size(); ++i) last += (impl.shape[i] - 1) * impl.strides[i];
  const int64_t item = ItemSize(impl.dtype);
  return {impl.offset * item, (last + 1) * item};
}

// Whether writing `target` elementwise could change elements of `source` before they are read.
bool Clobbers(const Tensor& target, const Tensor& source) {
  const TensorImpl& a = target.impl();
  const TensorImpl& b = source.impl();
  if (a.storage != b.storage || !a.storage) return false;
  if (a.offset == b.offset && a.shape == b.shape && a.strides == b.strides && a.dtype == b.dtype) {
    return false;  // element i is read before element i is written
  }
  const auto [a_begin, a_end] = ByteRange(a);
  const auto [b_begin, b_end] = ByteRange(b);
  return a_begin < b_end && b_begin < a_end;
}

TensorList RunKernel(const OpCall& call);

// Copies of those operands that overlap the tensor being written, so that the result is that of
// reading everything first. `copies` keeps them; empty when nothing overlaps.
void CopyClobbered(const OpCall& call, size_t written, TensorList& copies) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (i == written || !call.inputs[i].defined()) continue;
    if (!Clobbers(call.inputs[written], call.inputs[i])) continue;
    if (copies.empty()) copies.assign(call.inputs.begin(), call.inputs.end());
    const Scalars no_scalars;
    copies[i] = RunKernel(
        {OpId::kClone, absl::MakeConstSpan(&call.inputs[i], 1), no_scalars, EmptyAttributes()})[0];
  }
}

// Calls fn on the tensors that `call` writes.
template <typename Fn>
void ForEachWritten(const OpInfo& info, const OpCall& call, Fn fn) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i].defined() && WritesInput(info, call, i)) fn(call.inputs[i].impl());
  }
}

void BumpWritten(const OpInfo& info, const OpCall& call) {
  ForEachWritten(info, call, [](TensorImpl& impl) {
    if (impl.storage) impl.storage->BumpVersion();
  });
}

// Without bytes there is nothing to run, but a history to keep.
void NoteMetaCall(const OpInfo& info, const OpCall& call, const TensorList& outputs,
                  MetaRecorder* recorder) {
  if (recorder != nullptr) return recorder->OnOp(call, outputs);
  ForEachWritten(info, call, [](TensorImpl& impl) {
    if (impl.meta_origin) impl.meta_origin->OnUnrecordedWrite();
  });
}

Kernel KernelFor(const OpInfo& info, OpId op, Device device) {
  if (Kernel kernel = FindKernel(op, device.type)) return kernel;
  const absl::string_view target =
      device.type == DeviceType::kCuda ? "//tensor/cuda" : "//tensor/cpu";
  throw UnimplementedError(absl::StrCat(
      info.name, ": no kernel for ", ToString(device), ": link ", target,
      device.type == DeviceType::kHost ? ", or move the tensor with To(x, Cpu())" : ""));
}

// Reports the time of a kernel, when somebody looks.
class KernelSpan {
 public:
  KernelSpan(SpanObserver* observer, const OpInfo& info, const OpCall& call, const SpecList& specs)
      : observer_(observer), info_(info) {
    if (observer_ != nullptr) cost_ = EstimateCost(call, specs);
  }
  void Start() {
    if (observer_ != nullptr) start_ns_ = MonotonicNanoseconds();
  }
  void End() const {
    if (observer_ == nullptr) return;
    observer_->OnSpan({SpanKind::kKernel, info_.name, start_ns_, MonotonicNanoseconds(),
                       cost_.flops, cost_.bytes});
  }

 private:
  SpanObserver* const observer_;
  const OpInfo& info_;
  OpCost cost_;
  int64_t start_ns_ = 0;
};

TensorList RunKernel(const OpCall& call) {
  const OpInfo& info = GetOpInfo(call.op);
  const Device device = CheckInputs(info, call.inputs);
  SpecList specs = InferWith(info, call, device);

  TensorList outputs;
  if (info.view_of >= 0) {
    const Tensor& source = call.inputs[info.view_of];
    for (const TensorSpec& spec : specs) outputs.push_back(MakeView(source, spec));
    return outputs;
  }

  TensorSpan inputs = call.inputs;
  TensorList copies;
  const bool writes = call.in_place || info.mutates != 0;
  if (call.in_place) {
    CheckInPlace(info, call, specs);
  } else if (writes && !info.has_lists) {
    CheckWritable(info, inputs[0]);
  }
  const bool meta = device == kMeta || (!specs.empty() && specs[0].device == kMeta);
  if (!meta) {
    for (const Tensor& input : inputs) {
      if (const TensorImpl* impl = input.impl_ptr().get()) impl->storage->WaitReady();
    }
    if (writes && (call.in_place || !info.has_lists)) {
      CopyClobbered(call, 0, copies);
      if (!copies.empty()) inputs = copies;
    }
  }

  const ThreadState& thread = CurrentThreadState();
  KernelSpan span(thread.observer.get(), info, call, specs);
  if (call.in_place) {
    outputs.push_back(call.inputs[0]);
  } else {
    for (TensorSpec& spec : specs) outputs.push_back(AllocateOutput(spec));  // takes the shapes
  }
  if (meta) {
    NoteMetaCall(info, call, outputs, thread.meta_recorder.get());
    return outputs;
  }

  const Device runs_on = call.inputs.empty() && !specs.empty() ? specs[0].device : device;
  const Kernel kernel = KernelFor(info, call.op, runs_on);
  KernelContext context(runs_on, thread.stream, IntraOpThreads());
  span.Start();
  kernel(context, inputs, absl::MakeSpan(outputs), call.scalars, call.attributes);
  span.End();
  if (writes) BumpWritten(info, call);
  return outputs;
}

TensorList DispatchMasked(uint32_t mask, const OpCall& call) {
  if (mask == 0) return RunKernel(call);
  const int slot = std::countr_zero(mask);
  const LayerFunction layer = Layers()[slot].load(std::memory_order_acquire);
  if (layer == nullptr) return DispatchMasked(mask & (mask - 1), call);
  return layer(call);
}

}  // namespace

TensorList Dispatch(const OpCall& call) {
  const uint32_t mask = CurrentThreadState().layer_mask;
  return mask == 0 ? RunKernel(call) : DispatchMasked(mask, call);
}

TensorList DispatchBelow(DispatchLayer layer, const OpCall& call) {
  const uint32_t below = ~(LayerBit(layer) | (LayerBit(layer) - 1));
  return DispatchMasked(CurrentThreadState().layer_mask & below, call);
}

void RegisterLayer(DispatchLayer layer, LayerFunction function, bool on_by_default) {
  LayerFunction expected = nullptr;
  if (!Layers()[static_cast<int>(layer)].compare_exchange_strong(expected, function)) {
    throw AlreadyExistsError(
        absl::StrCat("RegisterLayer: dispatch slot ", static_cast<int>(layer), " is taken"));
  }
  if (on_by_default) internal::EnableLayerByDefault(layer);
}

LayerScope::LayerScope(DispatchLayer layer, bool on) : saved_(CurrentThreadState().layer_mask) {
  uint32_t& mask = MutableThreadState().layer_mask;
  mask = on ? mask | LayerBit(layer) : mask & ~LayerBit(layer);
}
LayerScope::~LayerScope() { MutableThreadState().layer_mask = saved_; }

Tensor Dispatch1(OpId op, TensorSpan inputs, const Scalars& scalars, const Attributes& attributes) {
  return std::move(Dispatch({op, inputs, scalars, attributes})[0]);
}

Tensor DispatchInPlace(OpId op, TensorSpan inputs, const Scalars& scalars,
                       const Attributes& attributes) {
  Dispatch({op, inputs, scalars, attributes, /*in_place=*/true});
  return inputs[0];
}

SpecList InferOutputs(const OpCall& call) {
  const OpInfo& info = GetOpInfo(call.op);
  return InferWith(info, call, CheckInputs(info, call.inputs));
}

}  // namespace lockstep
