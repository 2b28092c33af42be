// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/deferred_init.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/deferred_recording.h"

namespace lockstep::nn {
namespace {

using internal::OriginOf;
using internal::RecordedOrigin;
using internal::Recording;

void CheckTarget(absl::string_view call, Device device) {
  if (device != kMeta) return;
  throw InvalidArgumentError(
      absl::StrCat(call, ": tensors on meta have no bytes; name a device that has, e.g. Cpu()"));
}

// `tensor` with the bytes of `base`, which its memory became.
Tensor OnBase(const Tensor& base, const Tensor& tensor) {
  return internal::PartOf(base, tensor.shape(), tensor.strides(), tensor.offset());
}

// Parameters and buffers on meta, each once, under its first name.
NamedTensors OnMeta(const Module& module) {
  NamedTensors result;
  absl::flat_hash_set<const TensorImpl*> seen;
  for (const NamedTensors& tensors : {module.NamedParameters(), module.NamedBuffers()}) {
    for (const auto& [name, tensor] : tensors) {
      if (tensor.device() == kMeta && seen.insert(&tensor.impl()).second) {
        result.Insert(name, tensor);
      }
    }
  }
  return result;
}

}  // namespace

DeferredInitScope::DeferredInitScope()
    : device_(kMeta), saved_(CurrentThreadState().meta_recorder) {
  if (dynamic_cast<Recording*>(saved_.get()) != nullptr) return;
  MutableThreadState().meta_recorder = std::make_shared<Recording>();
}

DeferredInitScope::~DeferredInitScope() { MutableThreadState().meta_recorder = std::move(saved_); }

std::string WhyNotMaterializable(const Tensor& tensor) {
  if (!tensor.defined()) return "it is undefined";
  if (tensor.device() != kMeta) return "it is not on meta: it has bytes";
  const RecordedOrigin* origin = OriginOf(tensor);
  if (origin == nullptr) {
    return "it was made on meta outside of a DeferredInitScope, so that nothing is known of its "
           "values; make it inside";
  }
  return origin->recording()->Problem(origin->memory());
}

Tensor MaterializeTensor(const Tensor& meta, Device device) {
  CheckTarget("MaterializeTensor", device);
  if (const std::string why = WhyNotMaterializable(meta); !why.empty()) {
    const std::string message = absl::StrCat("MaterializeTensor: ", meta.DebugString(), ": ", why);
    if (!meta.defined() || meta.device() != kMeta) throw InvalidArgumentError(message);
    throw FailedPreconditionError(message);
  }
  const RecordedOrigin* origin = OriginOf(meta);
  return OnBase(origin->recording()->Replay(origin->memory(), device), meta);
}

void MaterializeModule(Module& module, Device device) {
  CheckTarget("MaterializeModule", device);
  const NamedTensors tensors = OnMeta(module);
  std::vector<std::string> refused;
  for (const auto& [name, tensor] : tensors) {
    if (const std::string why = WhyNotMaterializable(tensor); !why.empty()) {
      refused.push_back(absl::StrCat("\n  ", name, " (", tensor.DebugString(), "): ", why));
    }
  }
  if (!refused.empty()) {
    throw FailedPreconditionError(
        absl::StrCat("MaterializeModule: ", refused.size(), " of ", tensors.size(),
                     " parameters and buffers on meta cannot be made, and none was:",
                     absl::StrJoin(refused, "")));
  }
  // All are made before the first is put in place: a failure in the middle leaves the module. One
  // replay a memory, so that those that share one share the storage.
  std::map<std::pair<const Recording*, int>, Tensor> bases;
  std::vector<std::pair<Tensor, Tensor>> made;
  for (const auto& [name, tensor] : tensors) {
    const RecordedOrigin* origin = OriginOf(tensor);
    Tensor& base = bases[{origin->recording().get(), origin->memory()}];
    if (!base.defined()) base = origin->recording()->Replay(origin->memory(), device);
    made.emplace_back(tensor, OnBase(base, tensor));
  }
  for (const auto& [tensor, value] : made) {
    const Tensor gradient = autograd::Grad(tensor);
    if (gradient.defined() && gradient.device() == kMeta) autograd::SetGrad(tensor, {});
    tensor.SetData(value);
  }
}

}  // namespace lockstep::nn
