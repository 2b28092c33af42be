// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// FindNonFinite: runs a piece of a program again and names the first tensor in it that is not
// finite.
//
//   const auto found = amp::FindNonFinite([&] { model.Loss(ids, targets); }, &model);
//   if (found) LOG(ERROR) << found->ToString();
//   // op Log, output 0 (y) in module "head": float32[8, 65] on cpu:0 has -inf at [3, 12]; its
//   // inputs were finite
//
// Looked at, in this order: the parameters and buffers of the module; then, op by op, what `body`
// calls on this thread and on those that work for it (replicas, other devices), including the ops
// of a Backward() inside. Every op waits for its outputs: for looking, not for training.
//
// Infinities that a program puts there on purpose are no finding: constants (a mask of -inf), and
// what comes of them while no NaN does. So an op is named when it turns finite inputs into an
// infinity or a NaN, or makes a NaN of inputs without one. NaN is never on purpose: an input with
// one is named where it enters.
//
// It watches as a layer of the user slot of dispatch (tensor/user_layer.h); a program that has put
// a function of its own there with RegisterLayer cannot use it.
#ifndef LOCKSTEP_AMP_NON_FINITE_FIND_NON_FINITE_H_
#define LOCKSTEP_AMP_NON_FINITE_FIND_NON_FINITE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "lockstep/amp/non_finite/first_non_finite.h"
#include "lockstep/nn/module.h"

namespace lockstep::amp {

struct NonFiniteReport {
  enum class Source : uint8_t {
    kParameter,
    kBuffer,   // NaN only
    kOpInput,  // a NaN from outside of `body`: data, or a tensor made before
    kOpOutput
  };
  Source source = Source::kOpOutput;
  // The parameter or buffer, or the op.
  std::string name;
  // Of an op: which input or output, and its name in the op table. An input that the op writes is
  // an output, counted behind those.
  int64_t position = 0;
  std::string operand;
  // Of an op: the innermost module whose forward pass called it (by operator()), by its path; ""
  // for the root, outside of all, in Backward(), and without a module.
  std::string module;
  std::string tensor;  // "float32[8, 65] on cpu:0"
  NonFiniteElement element;
  // Of an op's output: the worst among what it was given. Never NaN.
  Finiteness inputs = Finiteness::kFinite;
  int64_t ops_before = 0;  // ops that were called before

  // One line, as above.
  std::string ToString() const;
};

// Runs `body`, unless a parameter or buffer is found first; nothing when all is finite. Throws what
// `body` throws, unless something was found by then. This thread's random generators are put back
// afterwards, so that training goes on as if `body` had not run; what else it changes is its own.
// `module` may be null; its hooks are registered for the time of the call. May be called inside of
// itself: then the inner one watches. Throws AlreadyExists when the user slot is taken.
std::optional<NonFiniteReport> FindNonFinite(absl::FunctionRef<void()> body,
                                             nn::Module* module = nullptr);

}  // namespace lockstep::amp

#endif  // LOCKSTEP_AMP_NON_FINITE_FIND_NON_FINITE_H_
