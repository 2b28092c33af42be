// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// All public ops.
#ifndef LOCKSTEP_TENSOR_OPS_H_
#define LOCKSTEP_TENSOR_OPS_H_

#include "lockstep/tensor/ops/contraction.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/indexing.h"
#include "lockstep/tensor/ops/neural.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/ops/update.h"
#include "lockstep/tensor/ops/views.h"

#endif  // LOCKSTEP_TENSOR_OPS_H_
