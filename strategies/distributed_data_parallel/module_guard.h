// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Notices that a module's parameters are no longer those that a strategy was made for.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_MODULE_GUARD_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_MODULE_GUARD_H_

#include <memory>
#include <string>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

class ModuleGuard {
 public:
  explicit ModuleGuard(std::shared_ptr<nn::Module> module);

  // Throws FailedPrecondition naming the first parameter that is new, gone, another tensor, of
  // another shape, dtype or device, or that was frozen or thawed since the guard was made.
  void Check() const;

 private:
  struct Known {
    std::string name;
    Tensor tensor;
    Shape shape;
    DType dtype;
    Device device;
    bool requires_grad;
  };

  std::shared_ptr<nn::Module> module_;
  std::vector<Known> known_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_MODULE_GUARD_H_
