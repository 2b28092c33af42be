// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/module_policy.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::checkpoint {
namespace {

struct Chosen {
  std::string name;
  std::shared_ptr<nn::Module> module;
};

// Appends what `choose` says of the modules below `parent`, outermost ones only.
void Collect(const std::string& prefix, nn::Module& parent, const ModuleChoice& choose,
             absl::flat_hash_set<const nn::Module*>& seen, std::vector<Chosen>& chosen) {
  for (const auto& [name, child] : parent.children()) {
    if (!seen.insert(child.get()).second) continue;
    const std::string path = absl::StrCat(prefix, name);
    if (choose(path, *child)) {
      chosen.push_back({path, child});
    } else {
      Collect(absl::StrCat(path, "."), *child, choose, seen, chosen);
    }
  }
}

nn::ForwardWrapper MakeWrapper(const std::shared_ptr<nn::Module>& module,
                               const CheckpointOptions& options) {
  // The module owns the wrapper, and each graph owns the module.
  return [weak = std::weak_ptr<nn::Module>(module), options](nn::Module&, TensorSpan inputs,
                                                             const nn::ForwardFunction& forward) {
    return Checkpoint([keep = weak.lock(), forward](TensorSpan in) { return forward(in); }, inputs,
                      options);
  };
}

}  // namespace

ModuleChoice WithParameterBytes(int64_t min_bytes, int64_t max_bytes) {
  if (min_bytes < 0 || max_bytes < min_bytes) {
    throw InvalidArgumentError(absl::StrCat("WithParameterBytes: ", min_bytes, " to ", max_bytes,
                                            " bytes; give 0 <= min_bytes <= max_bytes"));
  }
  return [=](const std::string&, nn::Module& module) {
    int64_t bytes = 0;
    for (const Tensor& parameter : module.Parameters()) bytes += parameter.bytes();
    return bytes >= min_bytes && bytes <= max_bytes;
  };
}

std::vector<std::string> ApplyCheckpointing(nn::Module& model, const ModulePolicy& policy,
                                            const CheckpointOptions& options) {
  if (!policy.choose) throw InvalidArgumentError("ApplyCheckpointing: an empty choice");
  if (policy.every < 1) {
    throw InvalidArgumentError(
        absl::StrCat("ApplyCheckpointing: every is ", policy.every, "; give at least 1"));
  }
  std::vector<Chosen> candidates;
  absl::flat_hash_set<const nn::Module*> seen;
  Collect("", model, policy.choose, seen, candidates);
  if (candidates.empty()) {
    throw NotFoundError(absl::StrCat("ApplyCheckpointing: the policy chose no module below ",
                                     model.Description(), ":\n", model.ToString()));
  }
  std::vector<std::string> names;
  std::vector<std::shared_ptr<nn::Module>> chosen;
  for (size_t i = 0; i < candidates.size(); i += static_cast<size_t>(policy.every)) {
    if (candidates[i].module->has_forward_wrapper()) {
      throw AlreadyExistsError(absl::StrCat("ApplyCheckpointing: ", candidates[i].name,
                                            " has a forward wrapper already; call "
                                            "RemoveCheckpointing() first"));
    }
    names.push_back(candidates[i].name);
    chosen.push_back(candidates[i].module);
  }
  for (const auto& module : chosen) CheckpointModule(module, options);
  return names;
}

void CheckpointModule(const std::shared_ptr<nn::Module>& module, const CheckpointOptions& options) {
  if (module == nullptr) throw InvalidArgumentError("CheckpointModule: a null module");
  module->SetForwardWrapper(MakeWrapper(module, options));
}

void RemoveCheckpointing(nn::Module& model) {
  for (const auto& [name, module] : model.NamedModules()) module->SetForwardWrapper(nullptr);
}

}  // namespace lockstep::checkpoint
