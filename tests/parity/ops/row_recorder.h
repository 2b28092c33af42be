// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Records the rows of the op table that run while it lives, forward and backward, with what they
// were given.
#ifndef LOCKSTEP_TESTS_PARITY_OPS_ROW_RECORDER_H_
#define LOCKSTEP_TESTS_PARITY_OPS_ROW_RECORDER_H_

#include <memory>
#include <vector>

#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::parity {

// One at a time.
class RowRecorder {
 public:
  struct Call {
    OpId op;
    bool backward;  // ran inside Backward() or Gradients()
    std::vector<Tensor> inputs;
    Scalars scalars;
    std::shared_ptr<const Attributes> attributes;
    std::vector<Tensor> outputs;
  };

  RowRecorder();
  ~RowRecorder();
  RowRecorder(const RowRecorder&) = delete;
  RowRecorder& operator=(const RowRecorder&) = delete;

  const std::vector<Call>& calls() const { return calls_; }

 private:
  static TensorList Record(const OpCall& call);
  std::vector<Call> calls_;
  LayerScope scope_;
};

}  // namespace lockstep::parity

#endif  // LOCKSTEP_TESTS_PARITY_OPS_ROW_RECORDER_H_
