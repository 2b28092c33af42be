// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the tests of this package share, beside the ranks as threads of
// strategies/distributed_data_parallel/testing.h.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_TESTING_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_TESTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/fully_sharded_data_parallel/fully_sharded_data_parallel.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies::testing_util {

// RunRanks() that fails the test where a rank throws.
void OnRanks(int ranks,
             const std::function<void(int rank, std::shared_ptr<comm::Communicator> world)>& body);

// 3-7-5-2 with tanh: linear layers "layers.0", "layers.2", "layers.4". Other values on each rank.
std::shared_ptr<models::Mlp> MakeMlp(int rank);

// The loss of rank `rank` of `ranks` over its rows of batch `step`, which has 12.
Tensor LossOf(models::Mlp& model, int rank, int ranks, int64_t step);

// All elements of all parameters, in the module's order; on every rank.
std::vector<double> FullParameters(FullyShardedDataParallel& fsdp, const nn::Module& module);

// All elements of all gradients, -1 for a parameter without one; on every rank.
std::vector<double> FullGradients(FullyShardedDataParallel& fsdp, const nn::Module& module);
// The same of a module that is not sharded.
std::vector<double> Gradients(const nn::Module& module);

// What this rank issued in `group` from collective number `first` on: "AllGather 2" for one of tag
// 2, "AllReduce" for one without.
std::vector<std::string> CallsSince(const comm::Communicator& group, int64_t first);

// The same, with elements: "AllGather 2 x 16".
std::vector<std::string> SizedCallsSince(const comm::Communicator& group, int64_t first);

}  // namespace lockstep::strategies::testing_util

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_TESTING_H_
