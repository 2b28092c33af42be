// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The same program, unchanged, under the variables of each scheduler, and under a real mpirun.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/socket.h"
#include "lockstep/tests/launch/test_process.h"

namespace lockstep::launch_test {
namespace {

constexpr char kTrain[] = "examples/train_gpt";
constexpr char kMpirun[] = "/usr/bin/mpirun";

using Variables = std::map<std::string, std::string>;

std::vector<std::string> Training() {
  return {"--data=text.txt", "--layers=1", "--heads=2", "--width=16",     "--block=16",
          "--batch=6",       "--steps=3",  "--out=run", "--save_every=0", "--backend=shm"};
}

int FreePort() { return comm::PortOf(comm::ListenTcp("127.0.0.1", 0).get()); }

// Starts a rank for each set of variables and expects one training of all.
void ExpectTrain(const std::vector<Variables>& ranks) {
  const TestFolder folder;
  WriteTrainingText(folder);
  std::vector<std::unique_ptr<TestProcess>> processes;
  for (const Variables& rank : ranks) {
    processes.push_back(std::make_unique<TestProcess>(kTrain, Training(), folder, rank));
  }
  for (const auto& process : processes) EXPECT_EQ(process->Wait(), 0) << process->err();
  EXPECT_TRUE(Contains(processes[0]->out(), absl::StrCat("ddp, ", ranks.size(), " ranks of ")))
      << processes[0]->out();
  for (size_t rank = 1; rank < ranks.size(); ++rank) EXPECT_EQ(processes[rank]->out(), "");
  EXPECT_TRUE(std::filesystem::exists(folder / "run/step-00000003"));
}

TEST(SchedulersTest, Torchrun) {
  std::vector<Variables> ranks;
  const std::string port = absl::StrCat(FreePort());
  for (const char* rank : {"0", "1"}) {
    ranks.push_back({{"RANK", rank},
                     {"WORLD_SIZE", "2"},
                     {"LOCAL_RANK", rank},
                     {"LOCAL_WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", port}});
  }
  ExpectTrain(ranks);
}

// What torchrun gives to rank `rank` of two with --standalone, all of it.
Variables OfTorchrun(const char* rank, const std::string& port) {
  return {{"GROUP_RANK", "0"},
          {"GROUP_WORLD_SIZE", "1"},
          {"LOCAL_RANK", rank},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", port},
          {"OMP_NUM_THREADS", "1"},
          {"RANK", rank},
          {"ROLE_NAME", "default"},
          {"ROLE_RANK", rank},
          {"ROLE_WORLD_SIZE", "2"},
          {"TORCHELASTIC_ERROR_FILE", "/none/such/attempt_0/0/error.json"},
          {"TORCHELASTIC_MAX_RESTARTS", "1"},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_RUN_ID", "3dbb0100-9110-4064-b24b-0e96b8e1b68d"},
          {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
          {"WORLD_SIZE", "2"}};
}

// Invalid where the port is not free.
comm::UniqueFd Take(int port) {
  try {
    return comm::ListenTcp("localhost", port);
  } catch (const Error&) {
    return {};
  }
}

// The agent has a port that Linux chose, and a connection has the one after it: such are not used.
TEST(SchedulersTest, TorchrunWhoseAgentServesAtMasterPort) {
  for (;;) {
    const comm::UniqueFd agent = Take(0);
    const int port = comm::PortOf(agent.get());
    const comm::UniqueFd beside = Take(port + 1);
    if (!beside.valid() || !Take(61440 + (port + 1) % 4096).valid()) continue;
    const std::string text = absl::StrCat(port);
    return ExpectTrain({OfTorchrun("0", text), OfTorchrun("1", text)});
  }
}

TEST(SchedulersTest, SlurmOnTwoNodesOfDifferentSize) {
  // "Hosts" that are this one; address and port follow from Slurm's variables. A job number whose
  // port is free.
  int job = 4096 * 5;
  for (bool free = false; !free; ++job) {
    try {
      comm::ListenTcp("127.0.0.1", 61440 + (job + 1009) % 4096);
      free = true;
    } catch (const Error&) {
      continue;  // taken
    }
  }
  std::vector<Variables> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    const bool second = rank == 2;
    ranks.push_back({{"SLURM_PROCID", absl::StrCat(rank)},
                     {"SLURM_NTASKS", "3"},
                     {"SLURM_LOCALID", absl::StrCat(second ? 0 : rank)},
                     {"SLURM_NODEID", second ? "1" : "0"},
                     {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                     {"SLURM_STEP_NODELIST", "127.0.0.[1-2]"},
                     {"SLURM_JOB_ID", absl::StrCat(job - 1)},
                     {"SLURM_STEP_ID", "1"}});
  }
  ExpectTrain(ranks);
}

TEST(SchedulersTest, KubernetesTrainingJob) {
  std::vector<Variables> ranks;
  const std::string port = absl::StrCat(FreePort());
  for (const char* rank : {"0", "1"}) {
    ranks.push_back({{"RANK", rank},
                     {"WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "0.0.0.0"},  // no name of the loopback, but this host
                     {"MASTER_PORT", port},
                     {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}});
  }
  ExpectTrain(ranks);
}

TEST(SchedulersTest, KubernetesIndexedJob) {
  std::vector<Variables> ranks;
  const std::string port = absl::StrCat(FreePort());
  for (const char* rank : {"0", "1"}) {
    ranks.push_back({{"JOB_COMPLETION_INDEX", rank},
                     {"WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", port}});
  }
  ExpectTrain(ranks);
}

TEST(SchedulersTest, AMissingVariableIsNamed) {
  const TestFolder folder;
  TestProcess process(kTrain, Training(), folder,
                      {{"OMPI_COMM_WORLD_RANK", "0"},
                       {"OMPI_COMM_WORLD_SIZE", "2"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_TRUE(Contains(process.err(), "MASTER_ADDR is not set; MASTER_PORT is not set"))
      << process.err();
}

class MpirunTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kMpirun)) {
      GTEST_SKIP() << kMpirun << " is not there: install openmpi-bin";
    }
  }
  // As root, in a container, with more ranks than it has slots for.
  static Variables Allowed() {
    return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
            {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
            {"TMPDIR", "/tmp"}};  // its sockets' paths must be short
  }
  static std::vector<std::string> Mpirun(const std::string& port) {
    std::vector<std::string> arguments = {"-n",
                                          "3",
                                          "--oversubscribe",
                                          "-x",
                                          "MASTER_ADDR=127.0.0.1",
                                          "-x",
                                          "MASTER_PORT=" + port,
                                          ProgramPath(kTrain)};
    for (const std::string& flag : Training()) arguments.push_back(flag);
    return arguments;
  }
};

TEST_F(MpirunTest, StartsTheRanksOfATraining) {
  const TestFolder folder;
  WriteTrainingText(folder);
  TestProcess process(kMpirun, Mpirun(absl::StrCat(FreePort())), folder, Allowed());
  EXPECT_EQ(process.Wait(), 0) << process.err();
  EXPECT_TRUE(Contains(process.out(), "strategy: ddp, 3 ranks of ")) << process.out();
  EXPECT_TRUE(std::filesystem::exists(folder / "run/step-00000003"));
  EXPECT_TRUE(folder.NoneLeft());
}

TEST_F(MpirunTest, AWrongFlagEndsTheJob) {
  const TestFolder folder;
  WriteTrainingText(folder);
  std::vector<std::string> arguments = Mpirun(absl::StrCat(FreePort()));
  arguments.push_back("--ranks=2");
  TestProcess process(kMpirun, arguments, folder, Allowed());
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_TRUE(Contains(process.err(), "--ranks=2: a launcher has started 3 ranks"))
      << process.err();
}

}  // namespace
}  // namespace lockstep::launch_test
