// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the tests of this package share: a module with every kind of parameter, and its training
// with an optimizer on every rank or with a ZeroOptimizer.
#ifndef LOCKSTEP_STRATEGIES_ZERO_OPTIMIZER_TESTING_H_
#define LOCKSTEP_STRATEGIES_ZERO_OPTIMIZER_TESTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/optim/optimizer.h"
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies::testing_util {

// Odd sizes, a weight under two names, a frozen parameter, one of a single element and one without
// dimensions, a float64 one, and one that is there but used in odd steps only.
class OddModel : public nn::Module {
 public:
  OddModel();
  // Mean squared error of rows as testing_util::Rows() makes them.
  Tensor Loss(const NamedTensors& rows, bool use_rare);

 private:
  Tensor w1_, b1_, w2_, w2_again_, w3_, scale_, factor_, frozen_, double_, rare_;
};

struct TrainSettings {
  bool zero = false;
  std::string optimizer = "adamw";  // sgd, adam, adamw, rmsprop or adagrad
  int64_t bucket_bytes = 400;       // of the ZeroOptimizer: several buckets
  DistributedDataParallelOptions ddp = {};
  int64_t micro_batches = 1;
  bool no_sync = true;  // all but the last; false: each micro-batch is averaged by itself
  bool clip = false;
  bool fp16 = false;  // autocast and a GradScaler; the second step overflows
  bool rare = false;  // the rare parameter is used in odd steps (find_unused_parameters)
  int64_t first_step = 0;
  int64_t steps = 4;
};

// An optimizer of two groups, matrices and others, with options of their own.
std::unique_ptr<optim::Optimizer> MakeOptimizer(const TrainSettings& settings,
                                                const DistributedDataParallel& ddp);

// The whole state on rank 0, of either kind of optimizer.
optim::OptimizerState WholeState(const optim::Optimizer& optimizer);

// Where a training stands.
struct Trained {
  NamedTensors model;           // of every rank the same
  optim::OptimizerState state;  // on rank 0
};

// Trains from `start` where it has a model. 12 rows a step, for 1, 2, 3, 4, 6 and 12 ranks.
Trained Train(int rank, std::shared_ptr<comm::Communicator> world, const TrainSettings& settings,
              const Trained& start = {});

// The trained numbers of ranks as threads; fails the test where a rank throws or has other
// parameters than rank 0.
Trained TrainOn(int ranks, const TrainSettings& settings, const Trained& start = {});
// Runs `body` on ranks as threads over gloo, flat (every rank as on a host of its own) or as ranks
// of one host. Throws what a rank threw.
void OverGloo(int ranks, bool flat,
              const std::function<void(int rank, std::shared_ptr<comm::Communicator> world)>& body);
// As TrainOn(), over gloo.
Trained TrainOverGloo(int ranks, bool flat, const TrainSettings& settings);

// Names, kinds and every bit.
void ExpectSame(const NamedTensors& a, const NamedTensors& b);
void ExpectSame(const optim::OptimizerState& a, const optim::OptimizerState& b);
void ExpectSame(const Trained& a, const Trained& b);

}  // namespace lockstep::strategies::testing_util

#endif  // LOCKSTEP_STRATEGIES_ZERO_OPTIMIZER_TESTING_H_
