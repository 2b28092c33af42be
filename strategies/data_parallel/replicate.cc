// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/data_parallel/replicate.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/custom_function.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

// A kept copy as a result of its original.
class ReplicaOf : public autograd::CustomFunction {
 public:
  explicit ReplicaOf(Tensor copy) : copy_(std::move(copy)) {}
  std::string Name() const override { return "Replicate"; }
  bool RunsBackwardAtOnce() const override { return true; }

  std::vector<Tensor> Forward(autograd::FunctionContext& context, TensorSpan inputs) override {
    context.SetMaterializeGradients(false);
    home_ = inputs[0].device();
    // Another tensor each time: the kept one stays without history.
    return {Detach(std::exchange(copy_, Tensor()))};
  }
  std::vector<Tensor> Backward(autograd::FunctionContext&, TensorSpan gradients) override {
    return {gradients[0].defined() ? To(gradients[0], home_) : Tensor()};
  }

 private:
  Tensor copy_;
  Device home_;
};

// The state in which copies are made: no layer, whatever the caller is in the middle of.
ThreadState BareState(MemoryCategory category) {
  ThreadState state = CurrentThreadState();
  state.layer_mask = 0;
  for (auto& layer : state.layer_state) layer.reset();
  state.category = category;
  return state;
}

}  // namespace

Replicas::Replicas(std::vector<Device> devices) : devices_(std::move(devices)) {
  CheckDevices(devices_, "Replicate");
}

void Replicas::Check(TensorSpan tensors, size_t count) const {
  if (count < 1 || count > devices_.size()) {
    throw OutOfRangeError(absl::StrCat("Replicate: ", count, " replicas on ", devices_.size(),
                                       " devices; give 1 to ", devices_.size()));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined() && tensors[i].device() == devices_[0]) continue;
    throw InvalidArgumentError(absl::StrCat("Replicate: tensor ", i, " is ",
                                            tensors[i].DebugString(), "; move it to ",
                                            ToString(devices_[0]), ", the first device"));
  }
}

void Replicas::Refresh(const Tensor& original, Device device, Copy& copy) {
  const bool fits = copy.tensor.defined() && copy.tensor.dtype() == original.dtype() &&
                    copy.tensor.shape() == original.shape();
  if (fits && copy.source == original.storage() && copy.source_version == original.version() &&
      copy.version == copy.tensor.version()) {
    return;
  }
  const ScopedThreadState bare(BareState(original.storage()->category()));
  // Into the old place, because a graph that is still alive holds it and would keep two.
  const Tensor copied = To(original, device);
  if (fits) {
    CopyInto(copy.tensor, copied);
  } else {
    copy.tensor = copied;
    ++statistics_.made_tensors;
  }
  copy.source = original.storage();
  copy.source_version = original.version();
  copy.version = copy.tensor.version();
  ++statistics_.copied_tensors;
  statistics_.copied_bytes += original.bytes();
}

std::vector<std::vector<Tensor>> Replicas::Update(TensorSpan tensors) {
  return Update(tensors, devices_.size());
}

std::vector<std::vector<Tensor>> Replicas::Update(TensorSpan tensors, size_t count) {
  Check(tensors, count);
  ++calls_;
  statistics_.copied_tensors = 0;
  statistics_.copied_bytes = 0;
  std::vector<std::vector<Tensor>> result(count);
  result[0].assign(tensors.begin(), tensors.end());
  const bool recorded = autograd::GradEnabled();
  // From the last device to the first: gradients are added in the order in which what they come
  // from was recorded, the latest first, and those of device 0 come from its forward pass itself.
  for (size_t k = count - 1; k >= 1; --k) {
    for (const Tensor& tensor : tensors) {
      Entry& entry = entries_[tensor.impl_ptr().get()];
      entry.original = tensor;
      entry.last_call = calls_;
      entry.copies.resize(devices_.size() - 1);
      Copy& copy = entry.copies[k - 1];
      Refresh(tensor, devices_[k], copy);
      const bool differentiable = recorded && autograd::RequiresGrad(tensor);
      result[k].push_back(
          differentiable ? autograd::Apply(std::make_shared<ReplicaOf>(copy.tensor), {tensor})[0]
                         : copy.tensor);
    }
  }
  if (count > 1) {
    absl::erase_if(entries_, [&](const auto& item) { return item.second.last_call != calls_; });
  }
  return result;
}

std::vector<std::vector<Tensor>> Replicate(TensorSpan tensors, absl::Span<const Device> devices) {
  return Replicas({devices.begin(), devices.end()}).Update(tensors);
}

}  // namespace lockstep::strategies
