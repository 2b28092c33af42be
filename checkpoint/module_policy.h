// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Checkpointing of modules, without touching the model's code.
//
//   ApplyCheckpointing(model, {.choose = OfType<models::Gpt2Block>()});             // each block
//   ApplyCheckpointing(model, {.choose = OfType<models::Gpt2Block>(), .every = 2}); // each second
//   ApplyCheckpointing(model, {.choose = WithParameterBytes(1 << 20, 8 << 20)});
//   ApplyCheckpointing(model, {.choose = [](const std::string& name, nn::Module& module) {
//                                return name.starts_with("transformer.h.");
//                              }},
//                      {.policy = SaveContractions()});
//
// A chosen module's Forward() runs under Checkpoint() when the module is called. Its names in the
// state dict, its parameters and its type stay. Its own hooks see one call, as they do without; the
// hooks of modules inside run in both runs (recomputing.h), and backward hooks once in each
// backward. The graph keeps the module alive.
#ifndef LOCKSTEP_CHECKPOINT_MODULE_POLICY_H_
#define LOCKSTEP_CHECKPOINT_MODULE_POLICY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/nn/module.h"

namespace lockstep::checkpoint {

// Whether to checkpoint a module; `name` is its path ("transformer.h.0").
using ModuleChoice = std::function<bool(const std::string& name, nn::Module& module)>;

struct ModulePolicy {
  ModuleChoice choose;
  // Of the chosen modules, in the order of NamedModules(), numbers 0, every, 2 * every, ... are
  // checkpointed.
  int64_t every = 1;
};

// Modules of type T (or derived from it).
template <typename T>
ModuleChoice OfType() {
  return
      [](const std::string&, nn::Module& module) { return dynamic_cast<T*>(&module) != nullptr; };
}

// Modules with min_bytes to max_bytes of parameters (those below included). Throws InvalidArgument
// unless 0 <= min_bytes <= max_bytes.
ModuleChoice WithParameterBytes(int64_t min_bytes, int64_t max_bytes);

// Checkpoints what the policy chooses in the tree below `model`, and returns the names. A module
// inside of a chosen one is not looked at. `model` itself, which nobody but the caller owns, is not
// either: call Checkpoint() for it. A module that stands at several places is checkpointed once,
// under its first name.
//
// Throws InvalidArgument for an empty choice or `every` below 1, NotFound when nothing is chosen,
// AlreadyExists when a chosen module has a forward wrapper; nothing has changed then.
std::vector<std::string> ApplyCheckpointing(nn::Module& model, const ModulePolicy& policy,
                                            const CheckpointOptions& options = {});

// The same for one module. Throws InvalidArgument (null), AlreadyExists.
void CheckpointModule(const std::shared_ptr<nn::Module>& module,
                      const CheckpointOptions& options = {});

// Removes the forward wrappers of all modules of the tree.
void RemoveCheckpointing(nn::Module& model);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MODULE_POLICY_H_
