// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What ranks tell each other about single gradients, in the steps in which there is something to
// tell.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_GRADIENT_REPORT_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_GRADIENT_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::strategies {

// Bits about one gradient on one rank.
inline constexpr uint8_t kGradientMissing = 1;     // this backward did not make it
inline constexpr uint8_t kGradientNotFinite = 2;   // it had an infinity or a NaN
inline constexpr uint8_t kRankHasJoined = 4;       // the rank has no inputs left
inline constexpr uint8_t kGradientUnexpected = 8;  // missing, other than in the first backward

class GradientReport {
 public:
  // `mine` has the bits of each parameter. One AllGather.
  static GradientReport Exchange(const std::vector<uint8_t>& mine, comm::Communicator& group);

  // Whether no rank has a gradient of parameter i.
  bool MissingEverywhere(size_t i) const;
  // Whether a rank has `bit` for any parameter.
  bool Any(uint8_t bit) const;
  // "a (on 1 of 2 ranks: 0), b (...)": the parameters that ranks with inputs have `bit` for, ten at
  // most.
  std::string Names(uint8_t bit, const NamedTensors& parameters) const;

 private:
  GradientReport(std::vector<uint8_t> bits, size_t ranks);
  uint8_t At(size_t rank, size_t i) const { return bits_[rank * parameters_ + i]; }
  bool Has(size_t rank, size_t i, uint8_t bit) const;

  std::vector<uint8_t> bits_;  // rank by rank
  size_t ranks_;
  size_t parameters_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_GRADIENT_REPORT_H_
