// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/profile/profiler.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/profile/machine_limits.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::profile {
namespace {

std::vector<std::string> Names(const Profiler& profiler, SpanKind kind) {
  std::vector<std::string> names;
  for (const RecordedSpan& span : profiler.Spans()) {
    if (span.kind == kind) names.push_back(span.name);
  }
  return names;
}

TEST(ProfilerTest, RecordsKernelsWithTheirCostInOrder) {
  auto profiler = std::make_shared<Profiler>();
  const Tensor a = Ones({3, 5}), b = Ones({5, 7});
  {
    ProfileScope scope(profiler);
    const Tensor c = MatMul(a, b);
    Add(c, c);
    Transpose(c, 0, 1);  // a view has no kernel
  }
  Add(a, a);  // after the scope
  EXPECT_EQ(Names(*profiler, SpanKind::kKernel), (std::vector<std::string>{"MatMul", "Add"}));
  const RecordedSpan matmul = profiler->Spans()[0];
  EXPECT_EQ(matmul.flops, 2.0 * 3 * 5 * 7);
  EXPECT_EQ(matmul.bytes, 4 * (3 * 5 + 5 * 7 + 3 * 7));
  EXPECT_LT(matmul.start_ns, matmul.end_ns);
  EXPECT_LE(matmul.end_ns, profiler->Spans()[1].start_ns);
  profiler->Clear();
  EXPECT_TRUE(profiler->Spans().empty());
  EXPECT_EQ(profiler->Table({}), "nothing was recorded\n");
}

TEST(ProfilerTest, ScopesNestAndRangesBelongToTheirScope) {
  auto outer = std::make_shared<Profiler>(), inner = std::make_shared<Profiler>();
  const Tensor x = Ones({4});
  Range before("before");
  {
    ProfileScope outer_scope(outer);
    Range range("outer");
    {
      ProfileScope inner_scope(inner);
      Range range("inner");
      Neg(x);
    }
    Exp(x);
  }
  EXPECT_EQ(Names(*outer, SpanKind::kKernel), std::vector<std::string>{"Exp"});
  EXPECT_EQ(Names(*outer, SpanKind::kRange), std::vector<std::string>{"outer"});
  EXPECT_EQ(Names(*inner, SpanKind::kKernel), std::vector<std::string>{"Neg"});
  EXPECT_EQ(Names(*inner, SpanKind::kRange), std::vector<std::string>{"inner"});
}

TEST(ProfilerTest, BackwardOnOtherDevicesIsRecordedOnTheirThreads) {
  auto profiler = std::make_shared<Profiler>();
  const Tensor x = autograd::SetRequiresGrad(Ones({6}), true);
  {
    ProfileScope scope(profiler);
    const Tensor y = Exp(To(x, Cpu(1)));
    autograd::Backward(Sum(Add(To(y, Cpu(0)), Exp(x))));
  }
  std::set<int> threads;
  for (const RecordedSpan& span : profiler->Spans()) threads.insert(span.thread);
  EXPECT_GE(threads.size(), 2u);
}

// Collectives are recorded by each rank's own profiler, on a thread that is not the rank's.
TEST(ProfilerTest, CollectivesHaveALaneOfTheirOwn) {
  std::vector<std::shared_ptr<Profiler>> profilers;
  for (int rank = 0; rank < 3; ++rank) profilers.push_back(std::make_shared<Profiler>());
  comm::SpawnThreads(3, [&](comm::RankContext& context) {
    const auto world = comm::InitProcessGroup(context.group_options());
    ProfileScope scope(profilers[context.rank]);
    Tensor x = Ones({5});
    for (int step = 0; step < 3; ++step) world->AllReduce(x).Wait();
  }).ThrowIfFailed();
  for (const auto& profiler : profilers) {
    EXPECT_EQ(Names(*profiler, SpanKind::kCommunication),
              (std::vector<std::string>{"AllReduce", "AllReduce", "AllReduce"}));
    std::set<int> kernels, collectives;
    for (const RecordedSpan& span : profiler->Spans()) {
      (span.kind == SpanKind::kKernel ? kernels : collectives).insert(span.thread);
      if (span.kind == SpanKind::kCommunication) {
        EXPECT_EQ(span.bytes, 20);
      }
    }
    EXPECT_EQ(kernels.size(), 1u);
    EXPECT_EQ(collectives.size(), 1u);
    EXPECT_NE(*kernels.begin(), *collectives.begin());
  }
}

TEST(ProfilerTest, TheTableAddsUpAndNamesItsLimits) {
  Profiler profiler;
  profiler.OnSpan({SpanKind::kKernel, "Slow", 1000, 7001000, 7e6, 14000000});
  profiler.OnSpan({SpanKind::kKernel, "Fast", 7001000, 8001000, 0, 0});
  profiler.OnSpan({SpanKind::kKernel, "Fast", 8001000, 9001000, 0, 0});
  profiler.OnSpan({SpanKind::kCommunication, "AllReduce", 9001000, 10001000, 0, 4000000});
  const std::string table = profiler.Table({.flops_per_second = 2e9, .bytes_per_second = 4e9});
  EXPECT_EQ(table,
            "10.000 ms recorded; limits measured here: 2.0 GFLOP/s, 4.0 GB/s\n"
            "kernels                                 calls         ms   share             GB/s"
            "          GFLOP/s\n"
            "Slow                                        1      7.000  70.0 %       2.0 (50 %)"
            "       1.0 (50 %)\n"
            "Fast                                        2      2.000  20.0 %                -"
            "                -\n"
            "all kernels                                        9.000  90.0 %\n"
            "communication                           calls         ms   share             GB/s"
            "          GFLOP/s\n"
            "AllReduce                                   1      1.000  10.0 %              4.0"
            "                -\n"
            "all communication                                  1.000  10.0 %\n");
}

TEST(ProfilerTest, TheTraceIsChromesFormat) {
  auto profiler = std::make_shared<Profiler>();
  profiler->OnSpan({SpanKind::kKernel, "Add", 2000, 3500, 5, 60});
  profiler->OnSpan({SpanKind::kRange, "say \"step\"\xff", 1000, 4000, 0, 0});
  std::thread other([&] {
    profiler->OnSpan({SpanKind::kCommunication, "AllReduce", 2500, 5000, 0, 20});
  });
  other.join();
  const std::string path = testing::TempDir() + "/trace.json";
  profiler->WriteTrace(path, /*process=*/3);
  std::ifstream file(path);
  const nlohmann::json trace = nlohmann::json::parse(file);
  std::vector<std::string> lanes, spans;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    EXPECT_EQ(event["pid"], 3);
    if (event["ph"] == "M") {
      lanes.push_back(event["args"]["name"]);
      continue;
    }
    EXPECT_EQ(event["ph"], "X");
    spans.push_back(event["name"]);
    if (event["name"] == "Add") {
      EXPECT_EQ(event["ts"], 2.0);
      EXPECT_EQ(event["dur"], 1.5);
      EXPECT_EQ(event["args"]["bytes"], 60);
      EXPECT_EQ(event["args"]["flops"], 5.0);
    }
  }
  EXPECT_EQ(spans.size(), 3u);
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[0].substr(0, 7), "thread ");
  EXPECT_EQ(lanes[1], "communication");
  const Error error = ErrorOf([&] { profiler->WriteTrace("/nonexistent/trace.json"); });
  EXPECT_EQ(error.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(error.message().find("/nonexistent/trace.json"), std::string::npos);
}

TEST(MachineLimitsTest, AreMeasured) {
  auto profiler = std::make_shared<Profiler>();
  ProfileScope scope(profiler);
  const MachineLimits limits = MeasureMachineLimits();
  EXPECT_GT(limits.flops_per_second, 1e8);
  EXPECT_GT(limits.bytes_per_second, 1e8);
  EXPECT_TRUE(profiler->Spans().empty());  // the measurement is no part of the step
}

}  // namespace
}  // namespace lockstep::profile
