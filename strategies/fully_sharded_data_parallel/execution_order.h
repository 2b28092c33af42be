// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// In which order a model uses its units: what to gather next.
//
// Forward follows the order of the last whole training iteration; backward goes through this
// iteration's units from the last to the first. What an iteration does otherwise than the one
// before it costs a gather that is not ahead, and nothing else; evaluation leaves the order alone.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_EXECUTION_ORDER_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_EXECUTION_ORDER_H_

#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep::strategies {

class ExecutionOrder {
 public:
  // The root's forward pass begins. `records`: it is one of training.
  void BeginForward(bool records);
  // Unit `unit` is used now. Returns the one to gather ahead, if the order so far is that of
  // before.
  std::optional<size_t> OnForward(size_t unit);
  // This use of `unit`, which backward will come to, is over: inner units before those around them.
  void OnForwardDone(size_t unit);
  // The root's forward pass is over.
  void EndForward();

  // Unit `unit` is differentiated now; returns the one that comes next.
  std::optional<size_t> NextInBackward(size_t unit) const;
  // All units whose use is over, as backward comes to them: each once, at its last use.
  std::vector<size_t> Backward() const;

  // The units of the last whole training iteration, one entry for each use.
  const std::vector<size_t>& recorded() const { return recorded_; }

 private:
  std::vector<size_t> recorded_;
  std::vector<size_t> current_;  // of this forward pass so far
  std::vector<size_t> done_;     // of the last one that records, in the order of their ends
  bool records_ = false;
  bool follows_ = false;  // current_ is a beginning of recorded_
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_EXECUTION_ORDER_H_
