// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Shape rules: for each row of op_list.inc the shapes, dtypes and strides of its outputs, from
// those of its inputs.
//
//   SpecList outputs;
//   rules::InferMatMul(call, outputs);   // one TensorSpec an output
//
// A rule is pure: it reads shapes, dtypes, strides and attributes, never elements, and depends on
// nothing else; that is why every op works on the meta device. It is also the op's whole
// validation: operands that pass it are what a kernel can rely on. It throws InvalidArgument with
// the op's name, the operands' values and the remedy.
//
// What all rules have in common:
//  * Operands of arithmetic must have one dtype already; the public functions of tensor/ops cast
//  first.
//  * Outputs are row-major, except those of views and of attention.
//  * Dimensions in attributes are normalised; a rule refuses others.
//  * Scalars are counted here; their values are checked by the public functions.
#ifndef LOCKSTEP_TENSOR_SHAPE_RULES_H_
#define LOCKSTEP_TENSOR_SHAPE_RULES_H_

#include "lockstep/tensor/op.h"

namespace lockstep {
namespace rules {

// void InferFull(const OpCall& call, SpecList& outputs); and so on, one for each row.
#define LOCKSTEP_OP(name, ...) void Infer##name(const OpCall& call, SpecList& outputs);
#include "lockstep/tensor/op_list.inc"
#undef LOCKSTEP_OP

}  // namespace rules
}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_SHAPE_RULES_H_
