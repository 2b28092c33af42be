// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which tensors want gradients, and the gradients themselves.
//
//   Tensor w = RandomNormal({3, 5});
//   SetRequiresGrad(w, true);                     // a leaf: Backward() fills Grad(w)
//   Tensor loss = Sum(Mul(w, w));
//   Backward(loss);                               // lockstep/autograd/backward.h
//   Tensor g = Grad(w);                           // 2 * w
//   SetGrad(w, {});                               // before the next step
//
// A tensor made by a recorded op (one of its inputs requires a gradient) is not a leaf; its
// gradient is handed on during Backward and kept only after RetainGrad().
//
// Threads: functions on one tensor may be called from several threads, except that SetRequiresGrad
// and RetainGrad must not run while another thread records an op with that tensor.
#ifndef LOCKSTEP_AUTOGRAD_REQUIRES_GRAD_H_
#define LOCKSTEP_AUTOGRAD_REQUIRES_GRAD_H_

#include <string>

#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd {

// Makes `tensor`, which must be a leaf, want a gradient or not. Returns the tensor. Throws
// InvalidArgument for a dtype that is not floating point, FailedPrecondition for a tensor with
// history (use Detach) or one made in an InferenceScope (use Clone).
Tensor SetRequiresGrad(const Tensor& tensor, bool requires_grad);

// True for leaves that want a gradient and for results of recorded ops.
bool RequiresGrad(const Tensor& tensor);

// True unless a recorded op made the tensor.
bool IsLeaf(const Tensor& tensor);

// The accumulated gradient: same shape, dtype and device as the tensor. Undefined when there is
// none. The returned tensor is the gradient itself, not a copy.
Tensor Grad(const Tensor& tensor);

// Replaces the gradient; an undefined `gradient` drops it. `gradient` is taken as it is, so that a
// view of a bucket stays one and later accumulation writes into the bucket. Its storage is counted
// as MemoryCategory::kGradient from now on, unless it is communication memory. Throws
// InvalidArgument when shape, dtype or device differ.
void SetGrad(const Tensor& tensor, const Tensor& gradient);

// Keeps the gradient of a tensor with history in Grad(tensor) too (added to what is there). No
// effect on leaves. Throws FailedPrecondition when the tensor does not require a gradient.
void RetainGrad(const Tensor& tensor);

// Name of what made the tensor: "MatMul", a CustomFunction's name, "" for a leaf.
std::string GradNodeName(const Tensor& tensor);

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_REQUIRES_GRAD_H_
