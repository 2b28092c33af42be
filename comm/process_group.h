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
#include "lockstep/comm/flight_recorder.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm {

// How a backend reaches memory that does not come from Communicator::Allocate.
enum class PeerMemoryAccess {
  kAutomatic,  // direct where every rank can, else staged
  kDirect,     // refuse to make the group unless every rank can read its peers' memory
  kStaged      // copy through shared segments
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
  // Instead of those three: "file:///shared/jobs/1234-0", a folder that all ranks see, used by this
  // start of the job alone (file_store.h).
  std::string rendezvous = {};
  // For making the group, and for each collective unless it says otherwise.
  absl::Duration timeout = absl::Minutes(10);
  PeerMemoryAccess peer_memory_access = PeerMemoryAccess::kAutomatic;
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
};

// Returns when every rank has called it. Throws InvalidArgument (options that contradict each
// other), FailedPrecondition (the rendezvous folder is an earlier start's), NotFound (backend not
// linked: names the target), DeadlineExceeded (names the ranks that did not come), Unavailable.
std::shared_ptr<Communicator> InitProcessGroup(const ProcessGroupOptions& options);

// The store of `options`, or one in its folder, or one at its address: served by rank 0 for as long
// as somebody there holds it (communicators do). For programs that make several groups: put it into
// their options. Throws as InitProcessGroup does.
std::shared_ptr<Store> OpenStore(const ProcessGroupOptions& options);

// Options from the variables that launchers set: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT (torchrun, Kubernetes), else SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID,
// SLURM_NTASKS_PER_NODE, else OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE. MASTER_ADDR
// and MASTER_PORT are needed in any case when there is more than one rank, but ignored when
// `rendezvous` (for the option of that name) is not empty. Throws InvalidArgument naming each
// variable that is missing or wrong.
ProcessGroupOptions ProcessGroupOptionsFromEnvironment(
    const std::map<std::string, std::string>& environment, absl::string_view rendezvous = "");

// For backends, from an alwayslink target. The factory gets validated options with a store,
// which its communicator keeps. Throws AlreadyExists.
using CommunicatorFactory =
    std::function<std::shared_ptr<Communicator>(const ProcessGroupOptions& options)>;
void RegisterBackend(absl::string_view name, CommunicatorFactory factory);

// The local ranks' share of this process's processors: at least 1.
int ThreadsPerRank(int local_world_size);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_PROCESS_GROUP_H_
