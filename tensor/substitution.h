// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Ops of a thread take other tensors in place of some of their inputs: a function runs with
// weights that are not those it was written with, and does not know.
//
//   Substitution other;
//   other.Add(layer.weight, copy);              // copy: on another device, or other values
//   SubstitutionScope scope(std::make_shared<const Substitution>(std::move(other)));
//   Tensor y = layer(x);                        // Linear(x, copy)
//
// A tensor is recognised by its identity, so everything that shows the same Tensor is meant, and a
// view that was made before is not. What is no op sees the original: Item(), ToVector(), device().
// Results of in-place ops on an original are returned as the original, whose later uses stand for
// the replacement again.
#ifndef LOCKSTEP_TENSOR_SUBSTITUTION_H_
#define LOCKSTEP_TENSOR_SUBSTITUTION_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/user_layer.h"

namespace lockstep {

// Which tensor stands for which. Both are kept alive. Not changed once a scope has it.
class Substitution {
 public:
  // Throws InvalidArgument for undefined tensors, another shape or dtype, or a tensor added before.
  void Add(const Tensor& original, Tensor replacement);
  // Null when nothing stands for `tensor`.
  const Tensor* Find(const Tensor& tensor) const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Tensor original;  // held, so that its address is not another's
    Tensor replacement;
  };
  absl::flat_hash_map<const TensorImpl*, Entry> entries_;
};

// Scope: this thread's ops, and those of threads and backward ops that take over its state.
class SubstitutionScope {
 public:
  // Throws InvalidArgument (null), and as UserLayerScope does.
  explicit SubstitutionScope(std::shared_ptr<const Substitution> substitution);

 private:
  UserLayerScope scope_;
};

// Whether this thread is in a SubstitutionScope.
bool InSubstitution();
// What stands for `tensor` in the innermost scope of this thread; `tensor` itself when nothing does
// or when it is undefined. For code beside dispatch that looks at an op's inputs.
Tensor Substituted(const Tensor& tensor);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_SUBSTITUTION_H_
