// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A backward in two halves, for pipeline schedules: the gradients of a stage's inputs first,
// because the stage before waits for them, and the gradients of its weights whenever there is time.
//
//   SplitBackward backward({output}, {input}, {.gradients = {grad_output}});
//   Tensor grad_input = backward.RunInputs()[0];     // send it on
//   ...
//   backward.RunWeights();                            // adds into Grad() of all other leaves
//
// A node with both kinds of inputs (a Linear) is called twice, with disjoint masks of wanted
// inputs; what it saved is freed after the second call.
#ifndef LOCKSTEP_AUTOGRAD_SPLIT_BACKWARD_H_
#define LOCKSTEP_AUTOGRAD_SPLIT_BACKWARD_H_

#include <memory>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd {

struct SplitBackwardOptions {
  std::vector<Tensor> gradients = {};  // as BackwardOptions::gradients
};

// Runs on the calling thread(s) as Backward does; each half once, inputs before weights.
class SplitBackward {
 public:
  // `inputs` require gradients (leaves or not). Validates; runs nothing. Throws as Gradients.
  SplitBackward(TensorSpan outputs, TensorSpan inputs, const SplitBackwardOptions& options = {});
  ~SplitBackward();
  SplitBackward(SplitBackward&&) noexcept;
  SplitBackward& operator=(SplitBackward&&) noexcept;

  // The gradients of the inputs, undefined for those that the outputs do not depend on. Leaves
  // among them get nothing added. Throws as Backward; FailedPrecondition the second time.
  std::vector<Tensor> RunInputs();
  // Adds into Grad() of all leaves other than the inputs. Throws as Backward; FailedPrecondition
  // before RunInputs() or the second time.
  void RunWeights();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_SPLIT_BACKWARD_H_
