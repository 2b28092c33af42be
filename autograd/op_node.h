// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The node of a recorded op call: runs the op's gradient function. Internal.
#ifndef LOCKSTEP_AUTOGRAD_OP_NODE_H_
#define LOCKSTEP_AUTOGRAD_OP_NODE_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "lockstep/autograd/gradient.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/saved_tensor.h"
#include "lockstep/tensor/op.h"

namespace lockstep::autograd::internal {

class OpNode final : public Node {
 public:
  // Records the call's edges, scalars and attributes.
  OpNode(const OpCall& call, const GradientInfo& info);

  // Save what `saves` says: the inputs before the call, so that whoever only needs what ops save
  // can stop there, and the outputs after it. `inputs` are those of the call, except that one which
  // the call overwrites is replaced by a copy of what it was.
  void SaveInputs(Saves saves, TensorSpan inputs);
  void SaveOutputs(TensorSpan outputs);

  std::string Name() const override;
  void Apply(absl::Span<Tensor> gradients, const InputMask& wanted, bool create_graph,
             absl::Span<Tensor> results) override;
  void ReleaseSaved() override;

 private:
  class Context;

  void CheckResults(const InputMask& wanted, bool create_graph, absl::Span<Tensor> results) const;
  Tensor UnpackInput(int input, bool create_graph) const;
  Tensor UnpackOutput(int output, bool create_graph) const;
  SavedTensor PeekSaved(uint32_t mask, int index, int first, absl::string_view role) const;

  const OpId op_;
  const GradientInfo& info_;
  const Scalars scalars_;
  std::shared_ptr<const Attributes> attributes_;  // null: none
  absl::InlinedVector<TensorMeta, 2> inputs_;
  Saves saves_;
  absl::InlinedVector<SavedTensor, 2> saved_;  // inputs in order, then outputs
  bool released_ = false;                      // guarded by mutex(), as saved_
};

}  // namespace lockstep::autograd::internal

#endif  // LOCKSTEP_AUTOGRAD_OP_NODE_H_
