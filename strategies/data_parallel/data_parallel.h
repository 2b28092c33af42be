// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// DataParallel: one process trains a module on several devices, a thread a device.
//
//   auto model = std::make_shared<models::Mlp>(config);                    // on cpu:0
//   strategies::DataParallel parallel(model, {.devices = strategies::CpuDevices(2)});
//   optim::Sgd optimizer(model->NamedParameters(), {.lr = 0.1});
//   ...
//   Tensor loss = MseLoss(parallel(inputs), targets);
//   autograd::Backward(loss);
//   optimizer.Step();
//
// A call divides the inputs' rows over the devices (scatter.h), brings the copies of the weights up
// to date (replicate.h), runs the module on every piece (parallel_apply.h) and joins the outputs on
// the output device (gather.h). Backward adds all gradients up on the module's own parameters: an
// optimizer, a clip, a scaler or a checkpoint of the training sees one module.
//
// Replicas are copies of the weights, not of the module: there is one module object, and on replica
// k its ops take the copies of its parameters and buffers on device k in place of them
// (tensor/substitution.h). So ties, modes, hooks, frozen parameters and checkpointing hold on every
// replica, whenever they are set, and any function of the module can run. What a module has to keep
// to:
//
// * its forward pass runs on several threads at once: it must not write to data members, and its
//   hooks must be thread-safe (they run once a replica);
// * tensors that it makes go to CurrentDevice() (the default) or to the device of its inputs,
//   not to the device of a parameter; constant tensors are registered as buffers.
//
// Buffers that the forward pass changes keep the values of replica 0; those of the others are
// dropped. Under NoGrad nothing is recorded. In evaluation mode everything is the same.
//
// The source device holds the weights, their gradients, the optimizer's state, the whole batch and
// all outputs; the others hold the weights and their part of the activations. A
// DistributedDataParallel has none of this imbalance and is faster (docs/data_parallel.md has
// figures): this class is for programs that cannot be started as several ranks.
#ifndef LOCKSTEP_STRATEGIES_DATA_PARALLEL_DATA_PARALLEL_H_
#define LOCKSTEP_STRATEGIES_DATA_PARALLEL_DATA_PARALLEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/strategies/data_parallel/parallel_apply.h"
#include "lockstep/strategies/data_parallel/replicate.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_tree.h"

namespace lockstep::strategies {

struct DataParallelOptions {
  std::vector<Device> devices = {};                    // the module is on the first one
  std::optional<Device> output_device = std::nullopt;  // absent: the first one
  int64_t dim = 0;             // of inputs and outputs, along which they are divided
  int threads_per_device = 0;  // intra-op threads; 0: the caller's, divided
};

// Not thread-safe; the module must not change while a call runs.
class DataParallel {
 public:
  // Throws InvalidArgument for a null module, a module without parameters and buffers, one that is
  // not on devices[0] or is on several devices (the tensors named), options out of range, and as
  // CheckDevices (device_list.h) does.
  DataParallel(std::shared_ptr<nn::Module> module, DataParallelOptions options);

  // (*module)(x), which must be a UnaryModule (FailedPrecondition otherwise). Throws as Run() does.
  Tensor operator()(const Tensor& x);

  // `fn` of each piece of `inputs`, joined. `fn` calls the module, or any function of it:
  //   parallel.Run([&](const TensorTree& in) { return model->Loss(in[0].tensor(), in[1].tensor());
  //   },
  //                {ids, targets});
  // Outputs without dimensions come as a vector with one element a replica, with one device too.
  // What `fn` draws at random is different on each replica (parallel_apply.h).
  //
  // Throws as ScatterRows, ParallelApply and Gather do: the first exception of a replica comes with
  // its device. FailedPrecondition when called from a replica's function. What a backward throws
  // names the device too. After any of these the next call is as good as the first.
  TensorTree Run(const ReplicaFunction& fn, const TensorTree& inputs);

  // The mean over all rows of a loss that `fn` gives as the mean over its rows, without dimensions:
  // replicas count by their rows, which differ when the batch does not divide.
  Tensor MeanLoss(const ReplicaFunction& fn, const TensorTree& inputs);

  const std::shared_ptr<nn::Module>& module() const { return module_; }
  const DataParallelOptions& options() const { return options_; }
  // Copies of weights and buffers that the last call made.
  const ReplicaStatistics& statistics() const { return replicas_.statistics(); }

 private:
  // Parameters and buffers, checked.
  NamedTensors ModuleTensors() const;
  // `fn` for each of the first `count` devices, with the copies of `originals` there.
  std::vector<ReplicaFunction> Functions(const ReplicaFunction& fn, TensorSpan originals,
                                         size_t count);

  std::shared_ptr<nn::Module> module_;
  DataParallelOptions options_;
  Replicas replicas_;
};

// One call with copies that are not kept: DataParallel(module, options).Run(fn, inputs).
TensorTree RunDataParallel(std::shared_ptr<nn::Module> module, const ReplicaFunction& fn,
                           const TensorTree& inputs, const DataParallelOptions& options);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DATA_PARALLEL_DATA_PARALLEL_H_
