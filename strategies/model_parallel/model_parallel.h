// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// ModelParallel: parts of a module on several devices, for models that one device cannot hold. Each
// part computes where its parameters are; what goes from one part to the next is moved, and its
// gradient is moved back by autograd.
//
//   auto net = std::make_shared<nn::Sequential>();                    // of four blocks
//   ModelParallel parallel(
//       net, PlaceChildren(*net, PlaceBlocks(BlockBytes(BlocksOf(*net)), CpuDevices(2))));
//   Tensor y = parallel(x);                                           // on cpu:1
//
// Any module can be spread, by the names of its parts (what Hugging Face calls a device map):
//
//   ModelParallel parallel(gpt, {{"transformer.wte", Cpu(0)}, {"transformer.wpe", Cpu(0)},
//                                {"transformer.h.0", Cpu(0)}, {"transformer.h.1", Cpu(1)},
//                                {"transformer.ln_f", Cpu(1)}, {"lm_head", Cpu(1)}});
//   Tensor loss = gpt->Loss(ids, targets);                            // any function of it
//
// Names, modes, states and optimizers of the module are as before: make optimizers afterwards, and
// wrap it in a DistributedDataParallel if it is to run on several ranks. Devices compute one after
// the other, as each needs what the one before has made: this is for memory, and a pipeline
// (strategies/pipeline/) is for speed.
//
// What a module has to keep to: between its parts it calls ops on what parts return, and calls
// parts by operator(); a tensor that it makes goes to the device of its inputs.
#ifndef LOCKSTEP_STRATEGIES_MODEL_PARALLEL_MODEL_PARALLEL_H_
#define LOCKSTEP_STRATEGIES_MODEL_PARALLEL_MODEL_PARALLEL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/nn/hooks.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// A part: the module of this name, and all below it.
struct PlacedModule {
  std::string name;  // as NamedModules() has it; "" is the whole
  Device device;
};

// Child i of `list` (an nn::Sequential or nn::ModuleList, or any other module) on devices[i], which
// may repeat. Throws InvalidArgument with the numbers unless there are as many.
std::vector<PlacedModule> PlaceChildren(const nn::Module& list, absl::Span<const Device> devices);

class ModelParallel {
 public:
  // Moves each part's parameters, buffers and gradients, and from then on the inputs of each of its
  // calls. A tensor that several parts have (a head tied to an embedding) lives on the device of
  // the first in the order of `placement`; the others take a copy in each call, whose gradient goes
  // back to the one tensor. Parts on meta (nn/deferred_init.h) get their bytes where they are
  // placed, so that no device ever holds the whole.
  //
  // Throws InvalidArgument for a null module, no parts, names that are unknown, given twice or
  // inside of one another, parameters and buffers that no part has, and devices as CheckDevices
  // (data_parallel/device_list.h) refuses them; AlreadyExists for a tied part that has a forward
  // wrapper (checkpoint what is in it instead); ResourceExhausted. Tensors are where they were
  // then.
  ModelParallel(std::shared_ptr<nn::Module> module, std::vector<PlacedModule> placement);
  // The parts stay where they are; inputs are no longer moved.
  ~ModelParallel();
  ModelParallel(const ModelParallel&) = delete;
  ModelParallel& operator=(const ModelParallel&) = delete;

  // (*module)(x). The result is where the module leaves it: on the last part's device. Throws
  // FailedPrecondition for a module that is no UnaryModule: call that by its own functions.
  Tensor operator()(const Tensor& x);

  const std::shared_ptr<nn::Module>& module() const { return module_; }
  const std::vector<PlacedModule>& placement() const { return placement_; }
  // Each once, in the order of the placement.
  const std::vector<Device>& devices() const { return devices_; }
  // "cpu:0: 0, 1; cpu:1: 2".
  std::string ToString() const;

 private:
  std::vector<nn::Module*> FindParts() const;

  std::shared_ptr<nn::Module> module_;
  std::vector<PlacedModule> placement_;
  std::vector<Device> devices_;
  std::vector<nn::HookHandle> hooks_;
  std::vector<nn::Module*> wrapped_;  // parts with a forward wrapper of ours
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_MODEL_PARALLEL_MODEL_PARALLEL_H_
