// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The variables of launchers and schedulers.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm {
namespace {

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

int PortBesideAgent(const std::string& port, const std::string& attempt) {
  Environment environment = With(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True");
  environment["MASTER_PORT"] = port;
  if (!attempt.empty()) environment["TORCHELASTIC_RESTART_COUNT"] = attempt;
  const ProcessGroupOptions options = ProcessGroupOptionsFromEnvironment(environment);
  EXPECT_EQ(options.master_address, "h");
  EXPECT_TRUE(options.serve_store);
  return options.master_port;
}

TEST(EnvironmentTest, TorchrunsAgentHasMasterPort) {
  EXPECT_EQ(PortBesideAgent("29500", ""), 29501);
  EXPECT_EQ(PortBesideAgent("29500", "0"), 29501);
  EXPECT_EQ(PortBesideAgent("29500", "3"), 29504);
  EXPECT_EQ(PortBesideAgent("80", "0"), 81);
  EXPECT_EQ(PortBesideAgent("32766", "0"), 32767);
  // Not one that Linux gives to connections, 32768 to 60999: 61440 + the port mod 4096.
  EXPECT_EQ(PortBesideAgent("32767", "0"), 61440);
  EXPECT_EQ(PortBesideAgent("37093", "0"), 61440 + 37094 % 4096);
  EXPECT_EQ(PortBesideAgent("37093", "1"), 61440 + 37095 % 4096);
  EXPECT_EQ(PortBesideAgent("61440", "0"), 61441);
  EXPECT_EQ(PortBesideAgent("65534", "0"), 65535);
  EXPECT_EQ(PortBesideAgent("65535", "2147483647"), 61440 + 65535 % 4096);
  // Where the agent has no store there, ranks have the port for themselves.
  EXPECT_EQ(
      ProcessGroupOptionsFromEnvironment(With(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "False"))
          .master_port,
      29500);
  Environment under_ours = With(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True");
  under_ours["LOCKSTEP_STORE"] = "10.0.0.1:1234";
  EXPECT_EQ(ProcessGroupOptionsFromEnvironment(under_ours).master_port, 1234);
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

TEST(EnvironmentTest, AFolderForFlightRecordsWhoeverStartsTheRanks) {
  EXPECT_EQ(ProcessGroupOptionsFromEnvironment(kTorchrun).flight_recorder.folder, "");
  for (const Environment& ranks : {kTorchrun, Environment{{"OMPI_COMM_WORLD_RANK", "0"},
                                                          {"OMPI_COMM_WORLD_SIZE", "1"},
                                                          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}}) {
    EXPECT_EQ(
        ProcessGroupOptionsFromEnvironment(With(ranks, "LOCKSTEP_FLIGHT_RECORDER", "/logs/r/a-0"))
            .flight_recorder.folder,
        "/logs/r/a-0");
  }
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

std::string PrivateFile(const std::string& content) {
  std::string path = testing::TempDir() + "/tokenXXXXXX";
  const int fd = mkstemp(path.data());
  EXPECT_GE(fd, 0);
  close(fd);
  std::ofstream(path) << content;
  return path;
}

std::string Problem(const Environment& environment) {
  try {
    ProcessGroupOptionsFromEnvironment(environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    return error.message();
  }
  return "nothing was thrown";
}

TEST(LauncherEnvironmentTest, TheLaunchersStoreComesBeforeMasterAddr) {
  const std::string token = PrivateFile("secret\n");
  Environment environment = With(kTorchrun, "LOCKSTEP_STORE", "10.0.0.1:1234");
  environment["LOCKSTEP_TOKEN_FILE"] = token;
  const ProcessGroupOptions options = ProcessGroupOptionsFromEnvironment(environment);
  EXPECT_EQ(options.master_address, "10.0.0.1");
  EXPECT_EQ(options.master_port, 1234);
  EXPECT_FALSE(options.serve_store);
  EXPECT_EQ(options.token, "secret");
  // With torchrun's own variables the token counts too.
  environment.erase("LOCKSTEP_STORE");
  EXPECT_EQ(ProcessGroupOptionsFromEnvironment(environment).token, "secret");
  EXPECT_TRUE(ProcessGroupOptionsFromEnvironment(environment).serve_store);
  chmod(token.c_str(), 0644);
  EXPECT_TRUE(absl::StrContains(Problem(environment), "chmod 600"));
  for (const char* bad : {"h", ":1", "h:", "h:0", "h:65536"}) {
    EXPECT_TRUE(absl::StrContains(Problem(With(kTorchrun, "LOCKSTEP_STORE", bad)),
                                  absl::StrCat("LOCKSTEP_STORE is \"", bad, "\"")));
  }
}

TEST(LauncherEnvironmentTest, TheLaunchersFolder) {
  const Environment environment = With(kTorchrun, "LOCKSTEP_RENDEZVOUS", "file:///f/attempt-1");
  const ProcessGroupOptions options = ProcessGroupOptionsFromEnvironment(environment);
  EXPECT_EQ(options.rendezvous, "file:///f/attempt-1");
  EXPECT_EQ(options.master_address, "");
  EXPECT_EQ(ProcessGroupOptionsFromEnvironment(environment, "file:///own").rendezvous,
            "file:///own");
}

TEST(LauncherEnvironmentTest, RankZeroIsAClientOfTheLaunchersStore) {
  StoreServer server({.token = "t"});
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1}) {
    ranks.emplace_back([&, rank] {
      const std::shared_ptr<Store> store = OpenStore({.rank = rank,
                                                      .world_size = 2,
                                                      .master_address = "127.0.0.1",
                                                      .master_port = server.port(),
                                                      .token = "t",
                                                      .serve_store = false});
      store->Add("sum", rank + 1, Deadline::After(absl::Seconds(30)));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(server.local()->Get("sum", Deadline::After(absl::Seconds(1))), "3");
}

const Environment kSlurm = {{"SLURM_PROCID", "5"},
                            {"SLURM_NTASKS", "99"},
                            {"SLURM_STEP_NUM_TASKS", "7"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_NODEID", "2"},
                            {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                            {"SLURM_TASKS_PER_NODE", "9"},
                            {"SLURM_STEP_NODELIST", "node[003-006]"},
                            {"SLURM_JOB_NODELIST", "other[1-9]"},
                            {"SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9"},
                            {"SLURM_JOB_ID", "123456"},
                            {"SLURM_STEP_ID", "2"}};

TEST(SlurmEnvironmentTest, AddressPortAndUnevenNodes) {
  const ProcessGroupOptions options = ProcessGroupOptionsFromEnvironment(kSlurm);
  EXPECT_EQ(options.rank, 5);
  EXPECT_EQ(options.world_size, 7);
  EXPECT_EQ(options.local_rank, 1);
  EXPECT_EQ(options.local_world_size, 2);
  EXPECT_EQ(options.master_address, "node003");
  EXPECT_EQ(options.master_port, 61440 + (123456 + 2 * 1009) % 4096);
  Environment last = With(With(kSlurm, "SLURM_NODEID", "3"), "SLURM_LOCALID", "0");
  last["SLURM_PROCID"] = "6";
  EXPECT_EQ(ProcessGroupOptionsFromEnvironment(last).local_world_size, 1);
}

TEST(SlurmEnvironmentTest, WhatIsSetByHandCounts) {
  Environment environment = With(kSlurm, "MASTER_ADDR", "ib-node003");
  environment["MASTER_PORT"] = "4000";
  const ProcessGroupOptions options = ProcessGroupOptionsFromEnvironment(environment);
  EXPECT_EQ(options.master_address, "ib-node003");
  EXPECT_EQ(options.master_port, 4000);
}

TEST(SlurmEnvironmentTest, FallsBack) {
  Environment environment = kSlurm;
  environment.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(ProcessGroupOptionsFromEnvironment(environment).master_address, "other1");
  environment.erase("SLURM_JOB_NODELIST");
  EXPECT_EQ(ProcessGroupOptionsFromEnvironment(environment).master_address, "10.9.9.9");
  environment.erase("SLURM_LAUNCH_NODE_IPADDR");
  EXPECT_TRUE(absl::StrContains(Problem(environment), "MASTER_ADDR is not set"));
  environment = kSlurm;
  environment.erase("SLURM_JOB_ID");
  EXPECT_TRUE(absl::StrContains(Problem(environment), "MASTER_PORT is not set"));
  environment = kSlurm;
  environment.erase("SLURM_STEP_TASKS_PER_NODE");
  EXPECT_EQ(ProcessGroupOptionsFromEnvironment(environment).local_world_size, 9);
  EXPECT_TRUE(absl::StrContains(Problem(With(kSlurm, "SLURM_NODEID", "4")),
                                "SLURM_STEP_TASKS_PER_NODE is \"2(x3),1\", which says nothing of "
                                "node 4"));
  EXPECT_TRUE(absl::StrContains(Problem(With(kSlurm, "SLURM_STEP_NODELIST", "node[")),
                                "SLURM_STEP_NODELIST is \"node[\""));
}

TEST(KubernetesEnvironmentTest, AnIndexedJobHasOneRankAPod) {
  const Environment environment = {{"JOB_COMPLETION_INDEX", "1"},
                                   {"WORLD_SIZE", "3"},
                                   {"MASTER_ADDR", "train-0.train"},
                                   {"MASTER_PORT", "29500"}};
  const ProcessGroupOptions options = ProcessGroupOptionsFromEnvironment(environment);
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.world_size, 3);
  EXPECT_EQ(options.local_rank, 0);
  EXPECT_EQ(options.local_world_size, 1);
  EXPECT_EQ(options.master_address, "train-0.train");
  EXPECT_TRUE(absl::StrContains(Problem({{"JOB_COMPLETION_INDEX", "1"}}), "WORLD_SIZE is not set"));
}

TEST(KubernetesEnvironmentTest, ATrainingJobHasOneRankAPod) {
  Environment environment = {{"RANK", "2"},
                             {"WORLD_SIZE", "3"},
                             {"MASTER_ADDR", "job-master-0"},
                             {"MASTER_PORT", "23456"},
                             {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
  const ProcessGroupOptions options = ProcessGroupOptionsFromEnvironment(environment);
  EXPECT_EQ(options.local_rank, 0);
  EXPECT_EQ(options.local_world_size, 1);
  EXPECT_EQ(options.master_address, "job-master-0");
  EXPECT_TRUE(absl::StrContains(Problem(With(environment, "MASTER_ADDR", "localhost")),
                                "MASTER_ADDR is localhost, which other pods cannot reach"));
  // Several ranks in one pod say so.
  environment["LOCAL_RANK"] = "2";
  environment["LOCAL_WORLD_SIZE"] = "3";
  environment["MASTER_ADDR"] = "localhost";
  EXPECT_EQ(ProcessGroupOptionsFromEnvironment(environment).local_world_size, 3);
}

TEST(StartedAsRankTest, OnlyRanksAre) {
  EXPECT_FALSE(StartedAsRank({}));
  EXPECT_FALSE(StartedAsRank({{"HOME", "/root"}}));
  EXPECT_TRUE(StartedAsRank(kTorchrun));
  EXPECT_FALSE(StartedAsRank({{"RANK", "1"}})) << "a name that others use too";
  EXPECT_TRUE(StartedAsRank(kSlurm));
  Environment batch_script = kSlurm;
  batch_script.erase("SLURM_STEP_ID");
  EXPECT_FALSE(StartedAsRank(batch_script));
  EXPECT_TRUE(StartedAsRank({{"OMPI_COMM_WORLD_RANK", "0"}}));
  EXPECT_TRUE(StartedAsRank({{"JOB_COMPLETION_INDEX", "0"}, {"WORLD_SIZE", "2"}}));
  EXPECT_FALSE(StartedAsRank({{"JOB_COMPLETION_INDEX", "0"}}));
}

}  // namespace
}  // namespace lockstep::comm
