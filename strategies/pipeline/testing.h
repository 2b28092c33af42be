// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the tests of running pipelines share: a model, rows that tell their number, and the three
// ways to train: accumulation on one device, threads, ranks of a communicator.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_TESTING_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_TESTING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/containers.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline::testing_util {

// Whether the test runs under --config=soak.
bool IsSoakRun();

// Linear layers of odd sizes with tanh between them, 5 to 3, `layers` modules; the same values for
// the same seed. `dropout` replaces each second tanh.
std::shared_ptr<nn::Sequential> MakeMlp(int layers, uint64_t seed = 7, double dropout = 0);

// Rows `first` and on: inputs [rows, 5], targets [rows, 3].
Tensor Inputs(int64_t first, int64_t rows);
Tensor Targets(int64_t first, int64_t rows);

// `schedule` for a model in stages of about as many layers.
std::vector<Stage> CutEvenly(const nn::Sequential& model, int stages);

// The mean squared error of the first output.
Tensor MseOf(TensorSpan outputs, TensorSpan targets);

// Losses of the steps, and parameters by name.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> parameters;
};

struct Training {
  int layers = 8;
  int steps = 3;
  int64_t rows = 17;  // of a step
  double dropout = 0;
  uint64_t seed = 7;
};

// SGD with momentum, one thread an op. By accumulation over the micro-batches of `schedule` on one
// device:
Trained TrainAlone(const Schedule& schedule, const Training& training);
// by threads:
Trained TrainThreads(const Schedule& schedule, const Training& training);
// and by ranks over a communicator, "shm" or "gloo".
Trained TrainRanks(const Schedule& schedule, const Training& training,
                   const std::string& backend = "shm");

// The parameters of a module.
std::map<std::string, std::vector<float>> ParametersOf(const nn::Module& module);
// Its gradients; empty for a parameter without.
std::map<std::string, std::vector<float>> GradientsOf(const nn::Module& module);

// Fails the test unless they are equal, bit for bit.
void ExpectSame(const Trained& got, const Trained& wanted);
// The same within `bound` times the largest value of each parameter.
void ExpectNear(const Trained& got, const Trained& wanted, double bound);

// What a rank met: OK, or its error.
struct RankOutcome {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;
};
using RankBody = std::function<void(int rank, std::shared_ptr<comm::Communicator> world)>;
// Ranks as threads with one intra-op thread each, and a timeout of their group.
std::vector<RankOutcome> RunRanks(int ranks, const RankBody& body,
                                  const std::string& backend = "shm",
                                  absl::Duration timeout = absl::Seconds(30));
// The same; fails the test where a rank throws.
void OnRanks(int ranks, const RankBody& body, const std::string& backend = "shm");

// The stages that `schedule` places on `rank`.
std::map<int, Stage> StagesOf(const Schedule& schedule, int rank, std::vector<Stage> all);

}  // namespace lockstep::pipeline::testing_util

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_TESTING_H_
