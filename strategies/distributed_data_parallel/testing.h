// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the tests of this package share: ranks as threads, and small modules and data.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_TESTING_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies::testing_util {

// What a rank brings back: numbers, or the error that it met.
struct Outcome {
  std::vector<double> values;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;
};
using RankBody = std::function<std::vector<double>(int, std::shared_ptr<comm::Communicator>)>;

// One thread a rank, in a group with a timeout of 30 seconds.
std::vector<Outcome> RunRanks(int ranks, const RankBody& body);

// Rank 0's numbers; fails the test where a rank throws, or has other ones.
std::vector<double> ValuesOf(int ranks, const RankBody& body, bool same_on_all_ranks = true);

// A module that is nothing but parameters a, b, ... of one element.
class Weights : public nn::Module {
 public:
  explicit Weights(const std::vector<double>& values, DType dtype = DType::kFloat32);
  const Tensor& operator[](size_t i) const { return tensors_[i]; }

 private:
  std::vector<Tensor> tensors_;
};

// Its one element; -1 where there is no gradient.
double ValueOf(const Tensor& gradient);

// Rows that tell their number: inputs [rows, 3] and targets [rows, 2], from row `first` on.
NamedTensors Rows(int64_t first, int64_t rows);

// The parameters' elements, one after the other.
std::vector<double> AllParameters(const nn::Module& module);

// Three steps of SGD with momentum on an MLP over 12 rows a step, split over the ranks, in
// micro-batches of equal size. The ranks start with different weights. Returns the losses (means
// over all rows) and the final parameters.
std::vector<double> TrainMlp(int rank, std::shared_ptr<comm::Communicator> world,
                             const DistributedDataParallelOptions& options = {},
                             int64_t micro_batches = 1);

}  // namespace lockstep::strategies::testing_util

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_TESTING_H_
