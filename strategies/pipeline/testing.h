// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the tests of running pipelines share: the ways to train the models of test_model.h, which
// are accumulation on one device, threads, and ranks of a communicator.
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_TESTING_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_TESTING_H_

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/test_model.h"  // IWYU pragma: export

namespace lockstep::pipeline::testing_util {

// Whether the test runs under --config=soak.
bool IsSoakRun();

// Of the steps, and parameters by name.
struct Trained {
  std::vector<double> losses;
  std::vector<bool> stepped;  // false: the scaler found an infinite gradient
  std::map<std::string, std::vector<float>> parameters;
};

// SGD with momentum, one thread an op. By accumulation over the micro-batches of `schedule` on one
// device, where each use of a tied parameter has a tensor of its own, and both the sum of the
// gradients. Below, the schedule's edges become the model's.
Trained TrainAlone(Schedule schedule, const Training& training);
// By threads:
Trained TrainThreads(Schedule schedule, const Training& training);
// by ranks over a communicator, "shm" or "gloo", that are threads:
Trained TrainRanks(Schedule schedule, const Training& training, const std::string& backend = "shm");
// and by one rank of such, wherever it runs: parameters are those of its own stages.
Trained TrainRank(Schedule schedule, const Training& training,
                  std::shared_ptr<comm::Communicator> world);

// The parameters of a module.
std::map<std::string, std::vector<float>> ParametersOf(const nn::Module& module);
// Its gradients; empty for a parameter without.
std::map<std::string, std::vector<float>> GradientsOf(const nn::Module& module);

// Fails the test unless they are equal, bit for bit.
void ExpectSame(const Trained& got, const Trained& wanted);
// The same within `bound` times the largest value of each parameter.
void ExpectNear(const Trained& got, const Trained& wanted, double bound);

// Opens once.
class Gate {
 public:
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

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
