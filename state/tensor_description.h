// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What is known of a tensor in a file before its elements are there.
#ifndef LOCKSTEP_STATE_TENSOR_DESCRIPTION_H_
#define LOCKSTEP_STATE_TENSOR_DESCRIPTION_H_

#include <string>

#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::state {

struct TensorDescription {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
};

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_TENSOR_DESCRIPTION_H_
