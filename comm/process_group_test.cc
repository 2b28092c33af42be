// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/process_group.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using Environment = std::map<std::string, std::string>;

const Environment kTorchrun = {{"RANK", "5"},        {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},  {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};

Environment With(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

TEST(EnvironmentTest, Torchrun) {
  const ProcessGroupOptions options = ProcessGroupOptionsFromEnvironment(kTorchrun);
  EXPECT_EQ(options.rank, 5);
  EXPECT_EQ(options.world_size, 8);
  EXPECT_EQ(options.local_rank, 1);
  EXPECT_EQ(options.local_world_size, 4);
  EXPECT_EQ(options.master_address, "h");
  EXPECT_EQ(options.master_port, 29500);
}

TEST(EnvironmentTest, Slurm) {
  const ProcessGroupOptions options =
      ProcessGroupOptionsFromEnvironment({{"SLURM_PROCID", "3"},
                                          {"SLURM_NTASKS", "4"},
                                          {"SLURM_LOCALID", "1"},
                                          {"SLURM_NTASKS_PER_NODE", "2"},
                                          {"MASTER_ADDR", "node1"},
                                          {"MASTER_PORT", "1"}});
  EXPECT_EQ(options.rank, 3);
  EXPECT_EQ(options.world_size, 4);
  EXPECT_EQ(options.local_rank, 1);
  EXPECT_EQ(options.local_world_size, 2);
}

TEST(EnvironmentTest, OpenMpi) {
  const ProcessGroupOptions options =
      ProcessGroupOptionsFromEnvironment({{"OMPI_COMM_WORLD_RANK", "0"},
                                          {"OMPI_COMM_WORLD_SIZE", "2"},
                                          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                          {"MASTER_ADDR", "127.0.0.1"},
                                          {"MASTER_PORT", "65535"}});
  EXPECT_EQ(options.rank, 0);
  EXPECT_EQ(options.world_size, 2);
  EXPECT_EQ(options.local_world_size, 2);
}

TEST(EnvironmentTest, OneRankNeedsNoAddress) {
  EXPECT_EQ(ProcessGroupOptionsFromEnvironment({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).world_size, 1);
}

TEST(EnvironmentTest, ARendezvousNeedsNoAddress) {
  const auto options = ProcessGroupOptionsFromEnvironment(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "unused"}}, "file:///shared/job");
  EXPECT_EQ(options.rendezvous, "file:///shared/job");
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.master_address, "");
}

TEST(EnvironmentTest, NamesEveryProblem) {
  const auto problem = [](const Environment& environment) {
    try {
      ProcessGroupOptionsFromEnvironment(environment);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      return error.message();
    }
    return std::string("nothing was thrown");
  };
  EXPECT_TRUE(absl::StrContains(problem({}), "RANK is not set; WORLD_SIZE is not set"));
  EXPECT_TRUE(absl::StrContains(problem(With(kTorchrun, "RANK", "x")), "RANK is \"x\""));
  EXPECT_TRUE(absl::StrContains(problem(With(kTorchrun, "RANK", "-1")), "RANK is \"-1\""));
  EXPECT_TRUE(absl::StrContains(problem(With(kTorchrun, "RANK", "8")), "rank 8 is not below"));
  EXPECT_TRUE(
      absl::StrContains(problem(With(kTorchrun, "MASTER_ADDR", "")), "MASTER_ADDR is not set"));
  EXPECT_TRUE(absl::StrContains(problem(With(kTorchrun, "MASTER_PORT", "0")), "MASTER_PORT"));
  EXPECT_TRUE(absl::StrContains(problem(With(kTorchrun, "LOCAL_RANK", "4")), "local rank 4"));
}

TEST(InitProcessGroupTest, RefusesBadOptions) {
  const auto refused = [](ProcessGroupOptions options, const std::string& part) {
    try {
      InitProcessGroup(options);
    } catch (const Error& error) {
      return absl::StrContains(error.message(), part) ? std::string() : error.message();
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(refused({.rank = 2, .world_size = 2}, "rank 2 is not in [0, 2)"), "");
  EXPECT_EQ(refused({.world_size = 2, .local_rank = 1, .local_world_size = 1}, "local rank 1"), "");
  EXPECT_EQ(refused({.world_size = 2}, "need a store"), "");
  EXPECT_EQ(refused({.rendezvous = "tcp://h:1"}, "file:///absolute/folder"), "");
  EXPECT_EQ(refused({.rendezvous = "file://"}, "file:///absolute/folder"), "");
  EXPECT_EQ(refused({.token = "t", .rendezvous = "file:///f"}, "one way to meet"), "");
  EXPECT_EQ(refused({.master_address = "h", .rendezvous = "file:///f"}, "one way to meet"), "");
  EXPECT_EQ(refused({.timeout = absl::ZeroDuration()}, "timeout"), "");
  EXPECT_EQ(refused({.group_name = ""}, "name"), "");
  EXPECT_EQ(refused({.backend = "smoke"}, "add //comm/smoke to its deps"), "");
}

TEST(RegisterBackendTest, OneOfAName) {
  RegisterBackend("test", [](const ProcessGroupOptions&) { return nullptr; });
  EXPECT_EQ(InitProcessGroup({.backend = "test"}), nullptr);
  EXPECT_THROW(RegisterBackend("test", nullptr), Error);
}

TEST(ThreadsPerRankTest, IsAtLeastOne) {
  EXPECT_GE(ThreadsPerRank(1), 1);
  EXPECT_EQ(ThreadsPerRank(100000), 1);
}

}  // namespace
}  // namespace lockstep::comm
