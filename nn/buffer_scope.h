// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Trials that leave no trace: a module's buffers (running statistics and their like) are put back
// when the scope ends.
//
//   {
//     const nn::BufferScope buffers(block);
//     block(input);  // measured; its running mean is as it was afterwards
//   }
#ifndef LOCKSTEP_NN_BUFFER_SCOPE_H_
#define LOCKSTEP_NN_BUFFER_SCOPE_H_

#include <utility>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

class BufferScope {
 public:
  // Copies all buffers of `module` and of the modules in it. They may be changed in place until the
  // end, but not moved or given another shape.
  explicit BufferScope(const Module& module);
  ~BufferScope();
  BufferScope(const BufferScope&) = delete;
  BufferScope& operator=(const BufferScope&) = delete;

 private:
  std::vector<std::pair<Tensor, Tensor>> saved_;  // a buffer and what it held
};

}  // namespace lockstep::nn

#endif  // LOCKSTEP_NN_BUFFER_SCOPE_H_
