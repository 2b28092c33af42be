// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// ProcessGroupOptions from the variables of launchers and schedulers.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/slurm.h"
#include "lockstep/comm/store_token.h"

namespace lockstep::comm {
namespace {

// Linux hands out ports by itself, to any connection, from this one on ...
constexpr int kFirstHandedOutPort = 32768;
// ... up to 60999. Above are those that jobs share by number.
constexpr int kFirstJobPort = 61440;
constexpr int64_t kJobPorts = 4096;
constexpr int kLastPort = 65535;

int JobPort(int64_t number) { return kFirstJobPort + static_cast<int>(number % kJobPorts); }

enum class Starter { kTorchrun, kSlurm, kOpenMpi, kIndexedJob };

bool Has(const Environment& environment, const std::string& name) {
  const auto it = environment.find(name);
  return it != environment.end() && !it->second.empty();
}

Starter StarterOf(const Environment& environment) {
  if (Has(environment, "RANK")) return Starter::kTorchrun;
  if (Has(environment, "SLURM_PROCID")) return Starter::kSlurm;
  if (Has(environment, "OMPI_COMM_WORLD_RANK")) return Starter::kOpenMpi;
  if (Has(environment, "JOB_COMPLETION_INDEX")) return Starter::kIndexedJob;
  return Starter::kTorchrun;
}

// Reads the variables of one launcher.
class EnvironmentReader {
 public:
  explicit EnvironmentReader(const Environment& environment) : environment_(environment) {}

  bool Has(const std::string& name) const { return comm::Has(environment_, name); }
  std::string Text(const std::string& name) {
    if (Has(name)) return environment_.at(name);
    problems_.push_back(name + " is not set");
    return "";
  }
  int Number(const std::string& name, int minimum) {
    const std::string text = Text(name);
    int number = minimum;
    if (!text.empty() && (!absl::SimpleAtoi(text, &number) || number < minimum)) {
      problems_.push_back(absl::StrCat(name, " is \"", text, "\""));
      return minimum;
    }
    return number;
  }
  int NumberOr(const std::string& name, int minimum, int otherwise) {
    return Has(name) ? Number(name, minimum) : otherwise;
  }
  // As torchrun writes it.
  bool IsTrue(const std::string& name) const {
    return Has(name) && environment_.at(name) == "True";
  }
  // The first of those that are set, or the first.
  std::string FirstSet(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      if (Has(name)) return name;
    }
    return names.front();
  }
  void Complain(std::string problem) { problems_.push_back(std::move(problem)); }
  void ThrowIfProblems() const {
    if (problems_.empty()) return;
    throw InvalidArgumentError(
        absl::StrCat("ProcessGroupOptionsFromEnvironment: ", absl::StrJoin(problems_, "; "),
                     ": start the program with //tools:launch, torchrun, srun or mpirun, or set "
                     "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"));
  }

 private:
  const Environment& environment_;
  std::vector<std::string> problems_;
};

void ReadTorchrun(EnvironmentReader& reader, ProcessGroupOptions* options) {
  options->rank = reader.Number("RANK", 0);
  options->world_size = reader.Number("WORLD_SIZE", 1);
  // What a training job of Kubernetes does not say: each of its pods is a host of its own.
  const bool pod = reader.Has("KUBERNETES_SERVICE_HOST") && !reader.Has("LOCAL_RANK") &&
                   !reader.Has("LOCAL_WORLD_SIZE");
  options->local_rank = reader.NumberOr("LOCAL_RANK", 0, pod ? 0 : options->rank);
  options->local_world_size = reader.NumberOr("LOCAL_WORLD_SIZE", 1, pod ? 1 : options->world_size);
}

void ReadSlurm(EnvironmentReader& reader, ProcessGroupOptions* options) {
  options->rank = reader.Number("SLURM_PROCID", 0);
  options->world_size = reader.Number(reader.FirstSet({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}), 1);
  options->local_rank = reader.Number("SLURM_LOCALID", 0);
  options->local_world_size = options->world_size;
  const std::string name = reader.FirstSet(
      {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"});
  if (!reader.Has(name)) return;
  const std::string counts = reader.Text(name);
  const int node = reader.NumberOr("SLURM_NODEID", 0, 0);
  const std::optional<int> tasks = SlurmTasksOnNode(counts, node);
  if (!tasks.has_value()) {
    reader.Complain(absl::StrCat(name, " is \"", counts, "\", which says nothing of node ", node));
  }
  options->local_world_size = tasks.value_or(options->local_world_size);
}

void ReadOpenMpi(EnvironmentReader& reader, ProcessGroupOptions* options) {
  options->rank = reader.Number("OMPI_COMM_WORLD_RANK", 0);
  options->world_size = reader.Number("OMPI_COMM_WORLD_SIZE", 1);
  options->local_rank = reader.Number("OMPI_COMM_WORLD_LOCAL_RANK", 0);
  options->local_world_size = reader.Number("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
}

void ReadIndexedJob(EnvironmentReader& reader, ProcessGroupOptions* options) {
  options->rank = reader.Number("JOB_COMPLETION_INDEX", 0);
  options->world_size = reader.Number("WORLD_SIZE", 1);
}

std::string SlurmMasterAddress(EnvironmentReader& reader) {
  const std::string name = reader.FirstSet({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
  if (!reader.Has(name)) {
    return reader.Has("SLURM_LAUNCH_NODE_IPADDR") ? reader.Text("SLURM_LAUNCH_NODE_IPADDR")
                                                  : reader.Text("MASTER_ADDR");
  }
  const std::string hosts = reader.Text(name);
  const std::optional<std::string> first = FirstSlurmHost(hosts);
  if (!first.has_value()) reader.Complain(absl::StrCat(name, " is \"", hosts, "\""));
  return first.value_or("");
}

int SlurmMasterPort(EnvironmentReader& reader) {
  if (!reader.Has("SLURM_JOB_ID")) return reader.Number("MASTER_PORT", 1);
  const int64_t job = reader.Number("SLURM_JOB_ID", 0);
  const int64_t step = reader.NumberOr("SLURM_STEP_ID", 0, 0);
  return JobPort(job + 1009 * step);
}

bool IsLoopback(absl::string_view address) {
  return address == "localhost" || address == "::1" || absl::StartsWith(address, "127.");
}

// "host:port", where the launcher serves.
void ReadLauncherStore(EnvironmentReader& reader, ProcessGroupOptions* options) {
  const std::string text = reader.Text("LOCKSTEP_STORE");
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(absl::string_view(text).substr(colon + 1), &options->master_port) ||
      options->master_port < 1 || options->master_port > kLastPort) {
    reader.Complain(absl::StrCat("LOCKSTEP_STORE is \"", text, "\", not host:port"));
    return;
  }
  options->master_address = text.substr(0, colon);
  options->serve_store = false;
}

// torchrun's agent serves a store of its own at MASTER_PORT, for ranks that speak its protocol.
// Ours is beside it, at another port for each attempt: one that rank 0 has just left may be taken
// still. Where the agent took a port that was free, the next one may be any connection's, or have
// been a moment ago, which is enough to refuse it.
int PortBesideTheAgent(EnvironmentReader& reader, int agent_port) {
  const int64_t port =
      int64_t{agent_port} + 1 + reader.NumberOr("TORCHELASTIC_RESTART_COUNT", 0, 0);
  return port < kFirstHandedOutPort ? static_cast<int>(port) : JobPort(port);
}

void ReadMeetingPlace(EnvironmentReader& reader, Starter starter, ProcessGroupOptions* options) {
  if (starter == Starter::kTorchrun && reader.Has("LOCKSTEP_RENDEZVOUS")) {
    options->rendezvous = reader.Text("LOCKSTEP_RENDEZVOUS");
    return;
  }
  if (starter == Starter::kTorchrun && reader.Has("LOCKSTEP_STORE")) {
    ReadLauncherStore(reader, options);
  } else {
    const bool slurm = starter == Starter::kSlurm;
    options->master_address = slurm && !reader.Has("MASTER_ADDR") ? SlurmMasterAddress(reader)
                                                                  : reader.Text("MASTER_ADDR");
    options->master_port = slurm && !reader.Has("MASTER_PORT") ? SlurmMasterPort(reader)
                                                               : reader.Number("MASTER_PORT", 1);
    if (starter == Starter::kTorchrun && reader.IsTrue("TORCHELASTIC_USE_AGENT_STORE")) {
      options->master_port = PortBesideTheAgent(reader, options->master_port);
    }
    const bool pods =
        reader.Has("KUBERNETES_SERVICE_HOST") && options->local_world_size < options->world_size;
    if (pods && IsLoopback(options->master_address)) {
      reader.Complain(absl::StrCat("MASTER_ADDR is ", options->master_address,
                                   ", which other pods cannot reach: give the name of rank 0's "
                                   "service"));
    }
  }
  if (reader.Has("LOCKSTEP_TOKEN_FILE")) {
    options->token = ReadTokenFile(reader.Text("LOCKSTEP_TOKEN_FILE"));
  }
}

}  // namespace

bool StartedAsRank(const Environment& environment) {
  switch (StarterOf(environment)) {
    case Starter::kTorchrun:
      return Has(environment, "RANK") && Has(environment, "WORLD_SIZE");
    case Starter::kSlurm:
      return Has(environment, "SLURM_STEP_ID");
    case Starter::kOpenMpi:
      return true;
    case Starter::kIndexedJob:
      return Has(environment, "WORLD_SIZE");
  }
  return false;
}

ProcessGroupOptions ProcessGroupOptionsFromEnvironment(const Environment& environment,
                                                       absl::string_view rendezvous) {
  EnvironmentReader reader(environment);
  ProcessGroupOptions options;
  options.rendezvous = std::string(rendezvous);
  const Starter starter = StarterOf(environment);
  switch (starter) {
    case Starter::kTorchrun:
      ReadTorchrun(reader, &options);
      break;
    case Starter::kSlurm:
      ReadSlurm(reader, &options);
      break;
    case Starter::kOpenMpi:
      ReadOpenMpi(reader, &options);
      break;
    case Starter::kIndexedJob:
      ReadIndexedJob(reader, &options);
      break;
  }
  if (reader.Has("LOCKSTEP_FLIGHT_RECORDER")) {
    options.flight_recorder.folder = reader.Text("LOCKSTEP_FLIGHT_RECORDER");
  }
  if (options.world_size > 1 && rendezvous.empty()) ReadMeetingPlace(reader, starter, &options);
  if (options.rank >= options.world_size) {
    reader.Complain(
        absl::StrCat("rank ", options.rank, " is not below the world size ", options.world_size));
  }
  if (options.local_rank >= options.local_world_size) {
    reader.Complain(absl::StrCat("local rank ", options.local_rank,
                                 " is not below the local world size ", options.local_world_size));
  }
  reader.ThrowIfProblems();
  return options;
}

}  // namespace lockstep::comm
