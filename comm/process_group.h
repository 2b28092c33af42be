// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Making groups of ranks.
//
//   int main(int argc, char** argv) {
//     comm::MaybeRunSpawnedRank(argc, argv);                    // comm/spawn.h
//     ...
//   }
//   void RankMain(comm::RankContext& context) {
//     std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(context.group_options());
//
// or, started by torchrun, Slurm, Open MPI or a Kubernetes training job:
//
//     auto options = comm::ProcessGroupOptionsFromEnvironment(environment);   // read by the binary
//     std::shared_ptr<comm::Communicator> world = comm::InitProcessGroup(options);
//
// Backends are linked in: a program that names "shm" depends on //comm/shm.
#ifndef LOCKSTEP_COMM_PROCESS_GROUP_H_
#define LOCKSTEP_COMM_PROCESS_GROUP_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/fault_injector.h"
#include "lockstep/comm/flight_recorder.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm {

// How a backend reaches memory that does not come from Communicator::Allocate.
enum class PeerMemoryAccess {
  kAutomatic,  // direct where every rank can, else staged
  kDirect,     // refuse to make the group unless every rank can read its peers' memory
  kStaged      // copy through shared segments
};

// Whether data between hosts travels between one rank of each host, and within a host through
// memory.
enum class HostGrouping {
  kAutomatic,    // where several ranks share a host and "shm" is linked into the program
  kFlat,         // never: every rank exchanges data with every other one
  kHierarchical  // refuse to make the group unless "shm" is linked
};

struct ProcessGroupOptions {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_world_size = 1;
  // Groups of one store are told apart by name; each rank makes its groups of one name in the same
  // order.
  std::string group_name = "world";
  std::string backend = "shm";
  // Where ranks meet. Null: rank 0 serves a store at master_address:master_port, for as long as the
  // communicator lives, and the others connect to it.
  std::shared_ptr<Store> store = {};
  std::string master_address = {};
  int master_port = 0;
  std::string token = {};  // of that store; may come from a file, see store_token.h
  // False: a launcher serves the store at that address, and rank 0 connects as the others do.
  bool serve_store = true;
  // Instead of those three: "file:///shared/jobs/1234-0", a folder that all ranks see, used by this
  // start of the job alone (file_store.h).
  std::string rendezvous = {};
  // For making the group, and for each collective unless it says otherwise.
  absl::Duration timeout = absl::Minutes(10);
  PeerMemoryAccess peer_memory_access = PeerMemoryAccess::kAutomatic;
  // Whether each rank compares checksums of what it reads from its peers' memory or messages, and
  // fails the group with DataLoss when they differ. The same on all ranks. Headers always are.
  bool verify_payload = false;
  // The ranks of the job that are this group's ranks 0, 1, ...: what reports call them that have to
  // do with several groups. Empty: 0 to world_size - 1, which is right for a group of all.
  std::vector<int> world_ranks = {};
  // A call that has waited for its peers so long (or for half of its timeout, if that is less) is
  // warned of, with the ranks that have not come and what those wait for in turn; it goes on.
  absl::Duration slow_warning = absl::Seconds(10);
  // Gets the warning, on a communication thread: it must be short. Null: it is logged.
  std::function<void(const std::string&)> on_slow = {};
  // What is kept of the group's last calls, and where it is written after an error.
  FlightRecorderOptions flight_recorder = {};
  // For tests: comm/fault_injection.h. Null: nothing goes wrong on purpose.
  std::shared_ptr<FaultInjector> fault_injector = {};
  // Ranks of one host have the same. Empty: as HostId() finds (comm/host_id.h).
  std::string host_id = {};
  // For gloo; other backends refuse them. The address of this host, or its name, at which the
  // other hosts reach it; empty: the one from which this host reaches `master_address`, and
  // 127.0.0.1 where all ranks are on one machine.
  std::string bind_address = {};
  HostGrouping host_grouping = HostGrouping::kAutomatic;
};

// Returns when every rank has called it. Throws InvalidArgument (options that contradict each
// other), FailedPrecondition (the rendezvous folder is an earlier start's), NotFound (backend not
// linked: names the target), DeadlineExceeded (names the ranks that did not come), Unavailable.
std::shared_ptr<Communicator> InitProcessGroup(const ProcessGroupOptions& options);

// The store of `options`, or one in its folder, or one at its address: served by rank 0 for as long
// as somebody there holds it (communicators do). For programs that make several groups: put it into
// their options. Throws as InitProcessGroup does.
std::shared_ptr<Store> OpenStore(const ProcessGroupOptions& options);

using Environment = std::map<std::string, std::string>;

// Options from the variables that launchers set; the first of these whose rank is set counts.
//   torchrun, PyTorchJob  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
//     Without the local ones: all ranks are on this host, but in a pod of Kubernetes one rank is.
//     With TORCHELASTIC_USE_AGENT_STORE=True, as torchrun says by default, its agent has that port,
//     and rank 0 serves at MASTER_PORT + 1 + TORCHELASTIC_RESTART_COUNT; where that is above 32767,
//     and so may be a connection's, at 61440 + that number mod 4096.
//   //tools:launch        these, and LOCKSTEP_STORE (host:port of a store that it serves),
//     LOCKSTEP_TOKEN_FILE, or LOCKSTEP_RENDEZVOUS (file:///folder): new for each attempt.
//   Slurm                 SLURM_PROCID, SLURM_LOCALID, SLURM_NODEID, SLURM_STEP_NUM_TASKS or
//     SLURM_NTASKS, SLURM_STEP_TASKS_PER_NODE or SLURM_TASKS_PER_NODE or SLURM_NTASKS_PER_NODE
//     ("2(x3),1"). Where MASTER_ADDR is not set: the first host of SLURM_STEP_NODELIST or
//     SLURM_JOB_NODELIST, else SLURM_LAUNCH_NODE_IPADDR. Where MASTER_PORT is not set:
//     61440 + (SLURM_JOB_ID + 1009 SLURM_STEP_ID) mod 4096.
//   Open MPI              OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE, and
//     MASTER_ADDR and MASTER_PORT, which mpirun's -x passes on.
//   Kubernetes, indexed   JOB_COMPLETION_INDEX, and WORLD_SIZE, MASTER_ADDR and MASTER_PORT
//     from the manifest. One rank a pod.
// MASTER_ADDR and MASTER_PORT are needed when there is more than one rank, but ignored when
// `rendezvous` (for the option of that name) is not empty. With each of them LOCKSTEP_TOKEN_FILE is
// read, and LOCKSTEP_FLIGHT_RECORDER is the folder for flight records. Throws InvalidArgument
// naming each variable that is missing or wrong, and what ReadTokenFile throws.
ProcessGroupOptions ProcessGroupOptionsFromEnvironment(const Environment& environment,
                                                       absl::string_view rendezvous = "");

// Whether this process was started as a rank: one of those ranks is set, and with it what only
// ranks have (WORLD_SIZE; a Slurm step, which the shell of a batch script is not).
bool StartedAsRank(const Environment& environment);

// For backends, from an alwayslink target. The factory gets validated options with a store,
// which its communicator keeps. Throws AlreadyExists.
using CommunicatorFactory =
    std::function<std::shared_ptr<Communicator>(const ProcessGroupOptions& options)>;
void RegisterBackend(absl::string_view name, CommunicatorFactory factory);
// Whether this program has it.
bool IsBackendLinked(absl::string_view name);

// The local ranks' share of this process's processors: at least 1.
int ThreadsPerRank(int local_world_size);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_PROCESS_GROUP_H_
