// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/model_parallel/model_parallel.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/deferred_init.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/substitution.h"

namespace lockstep::strategies {
namespace {

constexpr char kCall[] = "ModelParallel";

std::vector<Tensor> TensorsOf(const nn::Module& module) {
  std::vector<Tensor> tensors = module.Parameters();
  for (const auto& [name, buffer] : module.NamedBuffers()) tensors.push_back(buffer);
  return tensors;
}

bool Contains(const std::string& outer, const std::string& inner) {
  return outer.empty() || absl::StartsWith(inner, absl::StrCat(outer, "."));
}

void CheckNames(const std::vector<PlacedModule>& placement) {
  if (placement.empty()) {
    throw InvalidArgumentError(absl::StrCat(kCall, ": no part is placed; give names and devices"));
  }
  for (size_t i = 0; i < placement.size(); ++i) {
    for (size_t k = 0; k < placement.size(); ++k) {
      const std::string &a = placement[i].name, &b = placement[k].name;
      if (i < k && a == b) {
        throw InvalidArgumentError(absl::StrCat(kCall, ": part '", a, "' is placed twice, on ",
                                                ToString(placement[i].device), " and on ",
                                                ToString(placement[k].device)));
      }
      if (i != k && a != b && Contains(a, b)) {
        throw InvalidArgumentError(
            absl::StrCat(kCall, ": part '", b, "' is inside of part '", a, "'; place one of them"));
      }
    }
  }
}

// By tensor, the number of the first part that has it.
using Owners = absl::flat_hash_map<const TensorImpl*, size_t>;

Owners FindOwners(const std::vector<nn::Module*>& parts) {
  Owners owners;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const Tensor& tensor : TensorsOf(*parts[i])) owners.try_emplace(&tensor.impl(), i);
  }
  return owners;
}

void CheckCovered(const nn::Module& module, const Owners& owners) {
  std::vector<std::string> left;
  const auto look = [&](const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors) {
      if (!owners.contains(&tensor.impl())) left.push_back(name);
    }
  };
  look(module.NamedParameters());
  look(module.NamedBuffers());
  if (left.empty()) return;
  throw InvalidArgumentError(absl::StrCat(kCall, ": no part has ", absl::StrJoin(left, ", "),
                                          "; place the modules that they are in"));
}

// Tensors on their way to their devices; back where they were when one does not get there.
class Moves {
 public:
  ~Moves() {
    if (done_) return;
    for (const auto& [tensor, device] : moved_) Move(tensor, device);
  }

  void Add(const Tensor& tensor, Device device) {
    if (tensor.device() == device) return;
    const Device before = tensor.device();
    Move(tensor, device);
    moved_.emplace_back(tensor, before);
  }
  void Keep() { done_ = true; }

 private:
  static void Move(const Tensor& tensor, Device device) {
    autograd::NoGradScope no_grad;
    const Tensor gradient = autograd::Grad(tensor);
    Tensor moved, moved_gradient;
    {
      CategoryScope category(MemoryCategory::kParameter);
      moved = To(tensor, device);
    }
    if (gradient.defined()) {
      CategoryScope category(MemoryCategory::kGradient);
      moved_gradient = To(gradient, device);
    }
    tensor.SetData(moved);
    if (gradient.defined()) gradient.SetData(moved_gradient);
  }

  std::vector<std::pair<Tensor, Device>> moved_;
  bool done_ = false;
};

void MoveInputs(TensorList& inputs, Device device) {
  for (Tensor& input : inputs) {
    if (input.defined()) input = To(input, device);
  }
}

// Calls of a part take copies of `borrowed`, which live elsewhere.
nn::ForwardWrapper WithCopies(std::vector<Tensor> borrowed, Device device) {
  return [borrowed = std::move(borrowed), device](nn::Module&, TensorSpan inputs,
                                                  const nn::ForwardFunction& forward) {
    Substitution here;
    for (const Tensor& tensor : borrowed) here.Add(tensor, To(tensor, device));
    const SubstitutionScope scope(std::make_shared<const Substitution>(std::move(here)));
    return forward(inputs);
  };
}

}  // namespace

std::vector<PlacedModule> PlaceChildren(const nn::Module& list, absl::Span<const Device> devices) {
  if (devices.size() != list.children().size()) {
    throw InvalidArgumentError(absl::StrCat(
        "PlaceChildren: ", devices.size(), " devices for the ", list.children().size(),
        " children of ", list.Description(), "; give one each (PlaceBlocks makes them)"));
  }
  std::vector<PlacedModule> placement;
  for (size_t i = 0; i < devices.size(); ++i) {
    placement.push_back({list.children()[i].first, devices[i]});
  }
  return placement;
}

ModelParallel::ModelParallel(std::shared_ptr<nn::Module> module,
                             std::vector<PlacedModule> placement)
    : module_(std::move(module)), placement_(std::move(placement)) {
  if (module_ == nullptr) throw InvalidArgumentError(absl::StrCat(kCall, ": no module given"));
  CheckNames(placement_);
  for (const PlacedModule& part : placement_) {
    if (std::find(devices_.begin(), devices_.end(), part.device) == devices_.end()) {
      devices_.push_back(part.device);
    }
  }
  CheckDevices(devices_, kCall);
  const std::vector<nn::Module*> parts = FindParts();
  const Owners owners = FindOwners(parts);
  CheckCovered(*module_, owners);

  std::vector<std::vector<Tensor>> borrowed(parts.size());
  Moves moves;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const Tensor& tensor : TensorsOf(*parts[i])) {
      const Device owner = placement_[owners.at(&tensor.impl())].device;
      if (owner != placement_[i].device) borrowed[i].push_back(tensor);
    }
    if (borrowed[i].empty() || !parts[i]->has_forward_wrapper()) continue;
    throw AlreadyExistsError(absl::StrCat(
        kCall, ": part '", placement_[i].name, "' shares a tensor with another device and has a ",
        "forward wrapper already; remove it, or wrap what is inside of the part"));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    nn::MaterializeModule(*parts[i], placement_[i].device);
    for (const Tensor& tensor : TensorsOf(*parts[i])) {
      if (owners.at(&tensor.impl()) == i) moves.Add(tensor, placement_[i].device);
    }
  }
  moves.Keep();
  for (size_t i = 0; i < parts.size(); ++i) {
    const Device device = placement_[i].device;
    hooks_.push_back(parts[i]->RegisterForwardPreHook(
        [device](nn::Module&, TensorList& inputs) { MoveInputs(inputs, device); }));
    if (borrowed[i].empty()) continue;
    parts[i]->SetForwardWrapper(WithCopies(std::move(borrowed[i]), device));
    wrapped_.push_back(parts[i]);
  }
}

ModelParallel::~ModelParallel() {
  for (nn::HookHandle& hook : hooks_) hook.Remove();
  for (nn::Module* part : wrapped_) part->SetForwardWrapper(nullptr);
}

std::vector<nn::Module*> ModelParallel::FindParts() const {
  const auto modules = module_->NamedModules();
  std::vector<nn::Module*> parts;
  std::vector<std::string> unknown;
  for (const PlacedModule& part : placement_) {
    const auto found = std::find_if(modules.begin(), modules.end(),
                                    [&](const auto& entry) { return entry.first == part.name; });
    if (found == modules.end()) {
      unknown.push_back(absl::StrCat("'", part.name, "'"));
    } else {
      parts.push_back(found->second);
    }
  }
  if (!unknown.empty()) {
    throw InvalidArgumentError(absl::StrCat(kCall, ": ", module_->Description(), " has no part ",
                                            absl::StrJoin(unknown, ", "),
                                            "; NamedModules() lists them"));
  }
  return parts;
}

Tensor ModelParallel::operator()(const Tensor& x) {
  auto* unary = dynamic_cast<nn::UnaryModule*>(module_.get());
  if (unary == nullptr) {
    throw FailedPreconditionError(absl::StrCat(kCall, ": ", module_->Description(),
                                               " is no UnaryModule; call its own functions"));
  }
  return (*unary)(x);
}

std::string ModelParallel::ToString() const {
  std::vector<std::string> lines;
  for (const Device device : devices_) {
    std::vector<std::string> names;
    for (const PlacedModule& part : placement_) {
      if (part.device == device) names.push_back(part.name);
    }
    lines.push_back(absl::StrCat(lockstep::ToString(device), ": ", absl::StrJoin(names, ", ")));
  }
  return absl::StrJoin(lines, "; ");
}

}  // namespace lockstep::strategies
