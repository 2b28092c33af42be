// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/process_group.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/base/parallel.h"
#include "lockstep/comm/fault_injector.h"
#include "lockstep/comm/file_store.h"

namespace lockstep::comm {
namespace {

struct BackendRegistry {
  std::mutex mutex;
  std::map<std::string, CommunicatorFactory> factories;
};

BackendRegistry& Backends() {
  static BackendRegistry* registry = new BackendRegistry;
  return *registry;
}

CommunicatorFactory FindBackend(const std::string& name) {
  BackendRegistry& backends = Backends();
  std::lock_guard<std::mutex> lock(backends.mutex);
  const auto it = backends.factories.find(name);
  if (it != backends.factories.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [linked, factory] : backends.factories) names.push_back(linked);
  throw NotFoundError(absl::StrCat(
      "InitProcessGroup: backend \"", name, "\" is not linked into this program (linked: ",
      names.empty() ? "none" : absl::StrJoin(names, ", "), "): add //comm/", name, " to its deps"));
}

void CheckWorldRanks(const ProcessGroupOptions& options) {
  if (options.world_ranks.empty()) return;
  std::vector<int> sorted = options.world_ranks;
  std::sort(sorted.begin(), sorted.end());
  if (static_cast<int>(sorted.size()) == options.world_size && sorted.front() >= 0 &&
      std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end()) {
    return;
  }
  throw InvalidArgumentError(absl::StrCat(
      "InitProcessGroup: world ranks [", absl::StrJoin(options.world_ranks, ", "), "] for ",
      options.world_size, " ranks: give each member's, all different, or none"));
}

void CheckOptions(const ProcessGroupOptions& options) {
  constexpr absl::string_view kCall = "InitProcessGroup";
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    throw InvalidArgumentError(absl::StrCat(kCall, ": rank ", options.rank, " is not in [0, ",
                                            options.world_size, "), the world size"));
  }
  if (options.local_world_size < 1 || options.local_rank < 0 ||
      options.local_rank >= options.local_world_size ||
      options.local_world_size > options.world_size) {
    throw InvalidArgumentError(absl::StrCat(kCall, ": local rank ", options.local_rank, " of ",
                                            options.local_world_size, " does not fit rank ",
                                            options.rank, " of ", options.world_size));
  }
  if (options.timeout <= absl::ZeroDuration()) {
    throw InvalidArgumentError(absl::StrCat(kCall, ": the timeout is ",
                                            absl::FormatDuration(options.timeout),
                                            ": it must be positive"));
  }
  if (options.slow_warning <= absl::ZeroDuration()) {
    throw InvalidArgumentError(absl::StrCat(kCall, ": slow_warning is ",
                                            absl::FormatDuration(options.slow_warning),
                                            ": it must be positive"));
  }
  if (options.group_name.empty() || options.group_name.size() > 200) {
    throw InvalidArgumentError(absl::StrCat(kCall, ": the group's name has ",
                                            options.group_name.size(),
                                            " characters: 1 to 200 are allowed"));
  }
  CheckWorldRanks(options);
  if (!options.rendezvous.empty()) {
    FolderOfFileUrl(options.rendezvous);
    if (options.store != nullptr || !options.master_address.empty() || options.master_port != 0 ||
        !options.token.empty()) {
      throw InvalidArgumentError(absl::StrCat(
          kCall, ": rendezvous \"", options.rendezvous,
          "\" is given together with a store, an address, a port or a token: use one way to meet"));
    }
  } else if (options.store == nullptr && options.world_size > 1 &&
             (options.master_address.empty() || options.master_port < 1 ||
              options.master_port > 65535)) {
    throw InvalidArgumentError(absl::StrCat(
        kCall, ": ", options.world_size,
        " ranks need a store, a rendezvous folder, or an address and a port where rank "
        "0 serves one; got address \"",
        options.master_address, "\", port ", options.master_port));
  }
}

}  // namespace

std::shared_ptr<Store> OpenStore(const ProcessGroupOptions& options) {
  CheckOptions(options);
  if (options.store != nullptr) return options.store;
  if (!options.rendezvous.empty()) {
    return std::make_shared<FileStore>(
        FileStoreOptions{.folder = FolderOfFileUrl(options.rendezvous),
                         .rank = options.rank,
                         .world_size = options.world_size,
                         .timeout = options.timeout});
  }
  if (options.world_size == 1) return std::make_shared<LocalStore>();
  if (options.rank == 0 && options.serve_store) {
    auto server = std::make_shared<StoreServer>(StoreServerOptions{
        .address = options.master_address, .port = options.master_port, .token = options.token});
    return std::shared_ptr<Store>(server, server->local().get());
  }
  return std::make_shared<StoreClient>(StoreClientOptions{.address = options.master_address,
                                                          .port = options.master_port,
                                                          .token = options.token,
                                                          .connect_timeout = options.timeout});
}

namespace {

void CheckFaults(const ProcessGroupOptions& options) {
  const bool threads = dynamic_cast<LocalStore*>(options.store.get()) != nullptr;
  if (options.fault_injector == nullptr || !options.fault_injector->Kills() || !threads) return;
  throw InvalidArgumentError(
      absl::StrCat("InitProcessGroup: the fault injector of group \"", options.group_name,
                   "\" kills a rank, and these ranks are threads of one process: use processes"));
}

}  // namespace

std::shared_ptr<Communicator> InitProcessGroup(const ProcessGroupOptions& options) {
  CheckOptions(options);
  const CommunicatorFactory factory = FindBackend(options.backend);
  ProcessGroupOptions with_store = options;
  with_store.store = OpenStore(options);
  CheckFaults(with_store);
  return factory(with_store);
}

void RegisterBackend(absl::string_view name, CommunicatorFactory factory) {
  BackendRegistry& backends = Backends();
  std::lock_guard<std::mutex> lock(backends.mutex);
  if (!backends.factories.emplace(std::string(name), std::move(factory)).second) {
    throw AlreadyExistsError(
        absl::StrCat("RegisterBackend: backend \"", name, "\" is registered already"));
  }
}

bool IsBackendLinked(absl::string_view name) {
  BackendRegistry& backends = Backends();
  std::lock_guard<std::mutex> lock(backends.mutex);
  return backends.factories.count(std::string(name)) > 0;
}

int ThreadsPerRank(int local_world_size) {
  return std::max(1, HardwareThreads() / std::max(1, local_world_size));
}

}  // namespace lockstep::comm
