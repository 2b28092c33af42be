// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/module_guard.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

[[noreturn]] void Throw(const std::string& what) {
  throw FailedPreconditionError(absl::StrCat(
      "DistributedDataParallel: the module has changed since it was wrapped: ", what,
      "; destroy this DistributedDataParallel, make the change, and make a new one then"));
}

}  // namespace

ModuleGuard::ModuleGuard(std::shared_ptr<nn::Module> module) : module_(std::move(module)) {
  for (const auto& [name, tensor] : module_->NamedParameters()) {
    known_.push_back({name, tensor, tensor.shape(), tensor.dtype(), tensor.device(),
                      autograd::RequiresGrad(tensor)});
  }
}

void ModuleGuard::Check() const {
  const NamedTensors now = module_->NamedParameters();
  for (size_t i = 0; i < known_.size() || i < now.size(); ++i) {
    if (i >= known_.size()) Throw(absl::StrCat("parameter ", now[i].first, " is new"));
    const Known& known = known_[i];
    if (i >= now.size()) Throw(absl::StrCat("parameter ", known.name, " is gone"));
    const auto& [name, tensor] = now[i];
    if (name != known.name) {
      Throw(absl::StrCat("where parameter ", known.name, " was there is ", name));
    }
    if (!tensor.IsSame(known.tensor)) {
      Throw(absl::StrCat("parameter ", name, " is another tensor"));
    }
    if (tensor.shape() != known.shape || tensor.dtype() != known.dtype ||
        tensor.device() != known.device) {
      Throw(absl::StrCat("parameter ", name, " was ", DTypeName(known.dtype), ToString(known.shape),
                         " on ", ToString(known.device), " and is ", tensor.DebugString()));
    }
    if (autograd::RequiresGrad(tensor) != known.requires_grad) {
      Throw(absl::StrCat("parameter ", name, known.requires_grad ? " was frozen" : " was thawed"));
    }
  }
}

}  // namespace lockstep::strategies
