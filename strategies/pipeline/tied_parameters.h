// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Parameters that are one in the model and have a copy in each of several stages, such as a token
// embedding that is the head too. Internal; pipeline.h has what users see.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_TIED_PARAMETERS_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_TIED_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/strategies/pipeline/transport.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline {

struct TiedCopy {
  int stage = 0;
  std::string name;
  int rank = 0;               // of the stage
  Tensor parameter;           // undefined in another process
  int64_t first_element = 0;  // that this rank has, where the stage is sharded
};

class TiedParameters {
 public:
  // Groups of copies, ascending in their stages. Uses channels from `first_channel` on. Throws
  // InvalidArgument where copies that are here differ in shape, dtype or the elements they have.
  TiedParameters(std::vector<std::vector<TiedCopy>> groups, int first_channel);

  int channel_count() const;
  // Whether a copy is in this stage.
  bool Contains(int stage) const;
  bool empty() const { return groups_.empty(); }

  // All copies become the first one's. Transports are null where all copies are in this process.
  // All below: on all ranks, in the same order.
  void MakeEqual(Transport* transport) const;
  // Takes the gradients of earlier steps away, so that a step's own can be summed.
  void PutAside();
  // The sum of this step's gradients, in the order of stages, is added to each copy's earlier ones.
  void SumGradients(Transport* transport);
  // After a step that failed: the earlier gradients come back.
  void Restore();

  // Whether the parameter is a copy and not the first of its group: for counting it once.
  bool IsLaterCopy(const Tensor& parameter) const;

 private:
  // Gives what `from` makes of the copies to the first one's rank, and what `combine` makes of all
  // of that to every copy.
  template <typename From, typename Combine, typename Into>
  void Exchange(Transport* transport, From from, Combine combine, Into into) const;

  std::vector<std::vector<TiedCopy>> groups_;
  int first_channel_;
  std::vector<std::vector<Tensor>> aside_;
};

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_TIED_PARAMETERS_H_
