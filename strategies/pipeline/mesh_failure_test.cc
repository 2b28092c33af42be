// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A stage that fails in one pipeline of a mesh ends those of the others too, with its reason, while
// the rank that failed is still there.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/device_mesh.h"
#include "lockstep/strategies/average_gradients.h"
#include "lockstep/strategies/pipeline/pipeline.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/sharded_stage.h"
#include "lockstep/strategies/pipeline/stage.h"
#include "lockstep/strategies/pipeline/testing.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline {
namespace {

using testing_util::CutEvenly;
using testing_util::Inputs;
using testing_util::MakeMlp;
using testing_util::MseOf;
using testing_util::RankOutcome;
using testing_util::RunRanks;
using testing_util::StagesOf;
using testing_util::Targets;

constexpr int kRanks = 4;
constexpr absl::Duration kGroupTimeout = absl::Minutes(5);
// In which all know: far less than the timeout, by which they would know of it without.
constexpr auto kBound = std::chrono::seconds(60);

// Ranks leave together: nobody learns of a failure because another rank is gone.
class Farewell {
 public:
  // Whether all have come in time.
  bool ArriveAndWait() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++arrived_;
    all_.notify_all();
    return all_.wait_for(lock, kBound, [this] { return arrived_ == kRanks; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  int arrived_ = 0;
};

// The n-th forward of the stage throws, from 0.
Stage Spoilt(Stage stage, int n) {
  stage.forward = [inner = stage.forward, n, count = 0](TensorSpan in) mutable -> TensorList {
    if (count++ == n) throw ResourceExhaustedError("planted");
    return inner(in);
  };
  return stage;
}

using MakePipeline = std::function<void(const comm::DeviceMesh& mesh, std::map<int, Stage> own,
                                        const std::function<void(Pipeline&)>& run)>;

// Two pipelines of two stages; stage 1 of the first fails in its second micro-batch.
void ExpectAllKnow(const std::string& backend, const MakePipeline& with_pipeline) {
  SCOPED_TRACE(backend);
  Farewell farewell;
  const Stopwatch watch;
  const std::vector<RankOutcome> outcomes = RunRanks(
      kRanks,
      [&](int rank, std::shared_ptr<comm::Communicator> world) {
        const comm::DeviceMesh mesh(world, {{"replicate", 2}, {"pipeline", 2}});
        const int stage = mesh.Coordinate("pipeline"), first = mesh.Coordinate("replicate") * 6;
        std::map<int, Stage> own =
            StagesOf(OneForwardOneBackward(2, 3), stage, CutEvenly(*MakeMlp(8), 2));
        if (rank == 1) own.at(1) = Spoilt(std::move(own.at(1)), 1);
        with_pipeline(mesh, std::move(own), [&](Pipeline& pipeline) {
          try {
            pipeline.Step({Inputs(first, 6)}, {Targets(first, 6)});
          } catch (const Error&) {
            EXPECT_TRUE(farewell.ArriveAndWait()) << "rank " << rank << " waits for the others";
            throw;
          }
          farewell.ArriveAndWait();
        });
      },
      backend, kGroupTimeout);
  std::printf("%s: all ranks know after %.3f s\n", backend.c_str(), watch.ElapsedSeconds());
  for (size_t rank = 0; rank < kRanks; ++rank) {
    const RankOutcome& outcome = outcomes[rank];
    EXPECT_NE(outcome.code, absl::StatusCode::kOk) << "rank " << rank;
    for (const char* part : {"pipeline: rank 1, stage 1, micro-batch 1, action 1F1", "planted"}) {
      EXPECT_TRUE(absl::StrContains(outcome.message, part))
          << "rank " << rank << ": " << outcome.message;
    }
  }
  EXPECT_EQ(outcomes[1].code, absl::StatusCode::kResourceExhausted);
}

PipelineOptions Options() { return {.schedule = OneForwardOneBackward(2, 3), .loss = MseOf}; }

TEST(PipelineMeshFailure, ReplicasThatAverageKnow) {
  for (const std::string backend : {"shm", "gloo"}) {
    ExpectAllKnow(backend, [](const comm::DeviceMesh& mesh, std::map<int, Stage> own,
                              const std::function<void(Pipeline&)>& run) {
      const std::shared_ptr<comm::Communicator>& replicas = mesh.Group("replicate");
      std::vector<Tensor> parameters;
      for (const auto& part : own.begin()->second.parts) {
        for (const Tensor& parameter : part.second->Parameters()) parameters.push_back(parameter);
      }
      PipelineOptions options = Options();
      options.abort_groups = {replicas};
      options.after_last_backward = [&](int) {
        strategies::AverageGradients(parameters, *replicas);
      };
      Pipeline pipeline(std::move(own), mesh.Group("pipeline"), options);
      run(pipeline);
    });
  }
}

TEST(PipelineMeshFailure, RanksThatShareAStageKnow) {
  for (const std::string backend : {"shm", "gloo"}) {
    ExpectAllKnow(backend, [](const comm::DeviceMesh& mesh, std::map<int, Stage> own,
                              const std::function<void(Pipeline&)>& run) {
      const int stage = own.begin()->first;
      ShardedStage sharded(std::move(own.at(stage)), mesh.Group("replicate"));
      PipelineOptions options = Options();
      options.no_sync = [&](int) { return sharded.NoSync(); };
      options.shard_group = mesh.Group("replicate");
      Pipeline pipeline({{stage, sharded.stage()}}, mesh.Group("pipeline"), options);
      run(pipeline);
    });
  }
}

}  // namespace
}  // namespace lockstep::pipeline
