// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Deferred initialisation: a module is built on the meta device, at no cost in memory, and its
// parameters get their bytes later, one at a time, on any device, in any order, on any rank:
// bitwise those of ordinary construction.
//
//   ManualSeed(1234);
//   std::shared_ptr<models::Gpt2> model;
//   {
//     nn::DeferredInitScope scope;
//     model = std::make_shared<models::Gpt2>(config);     // shapes, names, ties; no bytes
//   }
//   Tensor weight = nn::MaterializeTensor(model->Parameters()[0], Cpu());  // this one alone
//   nn::MaterializeModule(*model, Cpu());                                  // all of them, in place
//
// The scope records which ops, with which scalars (the keys of random numbers are among them),
// made and changed each tensor; what a tensor needs of that runs again where the bytes are wanted.
// Elements of random ops depend on the key and the element's index only, so that order does not
// matter. In-place ops, views, ties, buffers, values of FromVector and tensors made of other
// tensors are recorded too. Tensors that the constructor makes on a device by name have their bytes
// at once and stay as they are; To(x, kMeta) of one keeps its bytes until the last tensor of the
// recording has been materialised.
//
// What cannot work is refused by name: a constructor that reads values (Item(), ToVector()) where
// it does, everything else when a tensor is materialised (WhyNotMaterializable).
//
// Ops that read values of different order on other thread counts (matrix products, sums) give bits
// that depend on IntraOpThreads() of the thread that materialises, as they do in construction.
#ifndef LOCKSTEP_NN_DEFERRED_INIT_H_
#define LOCKSTEP_NN_DEFERRED_INIT_H_

#include <memory>
#include <string>

#include "lockstep/nn/module.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/meta_recorder.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::nn {

// Scope: new tensors of this thread go to meta, and how they get their values is recorded. Random
// generators advance as in ordinary construction. A scope inside another adds to its recording. For
// construction only: all ops on meta tensors are recorded, a forward pass too.
class DeferredInitScope {
 public:
  DeferredInitScope();
  ~DeferredInitScope();
  DeferredInitScope(const DeferredInitScope&) = delete;
  DeferredInitScope& operator=(const DeferredInitScope&) = delete;

 private:
  DeviceScope device_;
  std::shared_ptr<MetaRecorder> saved_;
};

// What ordinary construction on `device` would have left in `meta`: a new tensor without gradient,
// of the same shape, strides, dtype and memory category. `meta` itself stays as it is and can be
// materialised again. At most the tensor and the temporaries of its ops exist at a time; an
// initialiser of nn/init.h has none.
//
// One at a time runs for tensors of one scope. Throws InvalidArgument (undefined, not on meta, or
// `device` is meta), FailedPrecondition with WhyNotMaterializable, Unimplemented (an op of another
// program with a device of its own), ResourceExhausted.
Tensor MaterializeTensor(const Tensor& meta, Device device);

// Why MaterializeTensor refuses `tensor`; empty when it does not. That is a tensor that
//   - is undefined or not on meta,
//   - was made outside of a DeferredInitScope, or of a meta tensor that was,
//   - was never written (Empty), or made of one that was not,
//   - was written after its scope had ended or in another one,
//   - was made of a tensor with bytes that have changed since.
std::string WhyNotMaterializable(const Tensor& tensor);

// Gives every parameter and buffer of `module` that is on meta its bytes on `device`. Identity,
// requires_grad, ties and shared storage stay; those with bytes stay where they are. Gradients on
// meta, which have no values, are dropped. Tensors that a module has not registered stay on meta.
//
// When some cannot be made or memory does not suffice, nothing has changed. Throws InvalidArgument
// (`device` is meta), FailedPrecondition that lists all names with their reasons, and what
// MaterializeTensor throws.
void MaterializeModule(Module& module, Device device);

}  // namespace lockstep::nn

#endif  // LOCKSTEP_NN_DEFERRED_INIT_H_
