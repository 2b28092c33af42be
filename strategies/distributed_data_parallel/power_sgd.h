// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// PowerSgdHook: gradients of matrices as products of two thin matrices.
//
//   auto hook = std::make_shared<strategies::PowerSgdHook>(
//       strategies::PowerSgdOptions{.rank = 2, .start_step = 100});
//   DistributedDataParallel ddp(model, world, {.communication_hook = hook});
//
// A gradient M, seen as a matrix [r, c] of its first size and the rest, is approximated by P Q^T
// with P [r, k] and Q [c, k]: P = M Q is averaged over the ranks and made orthogonal, then
// Q = M^T P is averaged. That is one step of the power iteration towards the largest k singular
// vectors of the average, which goes on from step to step. What a rank's gradient had and the
// product has not is added to its next gradient (error feedback), so that nothing is lost, only
// late. Sent are (r + c) k elements instead of r c.
//
// Source: Vogels, Karimireddy and Jaggi 2019, "PowerSGD"; the defaults are PyTorch's.
#ifndef LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_POWER_SGD_H_
#define LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_POWER_SGD_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/work.h"
#include "lockstep/strategies/distributed_data_parallel/communication_hook.h"
#include "lockstep/strategies/distributed_data_parallel/gradient_bucket.h"
#include "lockstep/strategies/strategy_state.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

struct PowerSgdOptions {
  int64_t rank = 1;  // k, at most the smaller size of a matrix
  // Steps that are averaged in full before: early gradients are not of low rank. At least 2 with
  // error feedback or warm start, for which the buckets have to stand.
  int64_t start_step = 1000;
  // A matrix is sent whole unless (r + c) k times this is less than r c.
  double min_compression_rate = 2;
  bool error_feedback = true;  // keeps a copy of the compressed gradients' size
  bool warm_start = true;      // begins with the last step's Q, else with a random one
  // Added to the length that a column is divided by when P is made orthogonal.
  double orthogonalization_epsilon = 0;
  uint64_t seed = 0;  // of the random Q; the same on all ranks
};

// Compresses float32 and float64 gradients of two or more dimensions; others are averaged in full.
class PowerSgdHook final : public CommunicationHook {
 public:
  // Throws InvalidArgument for numbers out of range.
  explicit PowerSgdHook(const PowerSgdOptions& options = {});

  comm::Work Reduce(GradientBucket& bucket, comm::Communicator& group) override;
  void Finish(const std::vector<GradientBucket*>& buckets, comm::Communicator& group) override;
  void OnNewBuckets(const std::vector<GradientBucket*>& buckets) override;
  // Shared: steps and the Qs; own: the errors. Another rank than the one that was saved is an
  // error.
  StrategyState SaveState() const override;
  void LoadState(const StrategyState& state) override;

  // What the last step left out of this rank's gradient of a parameter, as a matrix [r, c]:
  // undefined without error feedback, and where nothing was compressed.
  Tensor ErrorOf(absl::string_view parameter) const;
  int64_t steps() const { return step_; }
  const PowerSgdOptions& options() const { return options_; }

 private:
  // One gradient that is compressed, for a step.
  struct Factors {
    Tensor matrix;  // [r, c], in the bucket: this rank's gradient with its error
    Tensor p;       // [r, k] and
    Tensor q;       // [c, k], in the buffers that are sent
    std::string name;
  };
  // A gradient that is compressed, for longer than its bucket.
  struct Compressed {
    Shape matrix;
    DType dtype = DType::kFloat32;
    Device device;
  };
  // Of one bucket, for a step.
  struct Message {
    std::vector<Factors> factors;
    std::vector<Tensor> whole;          // gradients that are sent whole, and
    std::vector<Tensor> whole_in_sent;  // their places
    Tensor first;                       // the whole ones and every P
    Tensor second;                      // every Q
  };

  bool IsCompressed(const Tensor& gradient) const;
  int64_t FactorRank(const Shape& matrix) const;
  Message MakeMessage(const GradientBucket& bucket);
  Tensor StartingQ(const std::string& name, const Tensor& matrix) const;

  PowerSgdOptions options_;
  int64_t step_ = 0;
  std::vector<Message> messages_;  // of each bucket
  std::map<std::string, Compressed> compressed_;
  std::map<std::string, Tensor> errors_;  // by parameter
  std::map<std::string, Tensor> qs_;
};

// Makes the columns of `matrix` [r, k] orthonormal, in place and in order. A column that the ones
// before it span becomes zeros.
void Orthogonalize(const Tensor& matrix, double epsilon);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DISTRIBUTED_DATA_PARALLEL_POWER_SGD_H_
