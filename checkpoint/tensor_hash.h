// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A hash of a tensor's elements. Internal.
#ifndef LOCKSTEP_CHECKPOINT_TENSOR_HASH_H_
#define LOCKSTEP_CHECKPOINT_TENSOR_HASH_H_

#include <cstdint>

#include "lockstep/tensor/tensor.h"

namespace lockstep::checkpoint::internal {

// Of the elements' bits in row-major order, so that strides do not matter and NaNs compare equal to
// themselves. 0 on the meta device. Calls ops, outside of any layer.
uint64_t HashOf(const Tensor& tensor);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_TENSOR_HASH_H_
