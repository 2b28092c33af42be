// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/spawn.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/spawn_internal.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::comm {
namespace internal {

void CheckSpawnArguments(absl::string_view call, int n, const SpawnOptions& options) {
  constexpr int kMaxRanks = 1024;
  if (n < 1 || n > kMaxRanks) {
    throw InvalidArgumentError(
        absl::StrCat(call, ": ", n, " ranks: 1 to ", kMaxRanks, " can be started on one host"));
  }
  if (options.threads_per_rank < 0) {
    throw InvalidArgumentError(absl::StrCat(call, ": threads_per_rank is ",
                                            options.threads_per_rank,
                                            ": use 0 for the processors divided by the ranks"));
  }
  if (static_cast<int64_t>(options.argument.size()) > kMaxStoreValueBytes) {
    throw InvalidArgumentError(absl::StrCat(call, ": the argument has ", options.argument.size(),
                                            " bytes, more than ", kMaxStoreValueBytes,
                                            ": pass the path of a file instead"));
  }
}

RankExit RunRank(const std::function<void(RankContext&)>& function, RankContext& context,
                 int threads_per_rank) {
  RankExit exit;
  exit.rank = context.rank;
  try {
    SetIntraOpThreads(threads_per_rank > 0 ? threads_per_rank : ThreadsPerRank(context.world_size));
    ManualSeed(0, context.rank);
    function(context);
    return exit;
  } catch (const Error& error) {
    exit.code = error.code();
    exit.error = error.message();
  } catch (const std::exception& error) {
    exit.error = error.what();
  } catch (...) {
    exit.error = "an exception of unknown type";
  }
  exit.exit_status = 1;
  std::fprintf(stderr, "rank %d: %s\n", context.rank, exit.error.c_str());
  return exit;
}

}  // namespace internal

ProcessGroupOptions RankContext::group_options(std::string group_name) const {
  ProcessGroupOptions options;
  options.rank = options.local_rank = rank;
  options.world_size = options.local_world_size = world_size;
  options.group_name = std::move(group_name);
  options.store = store;
  return options;
}

std::string RankExit::ToString() const {
  if (signal != 0) {
    return absl::StrCat("rank ", rank, " was killed by signal ", signal, " (", strsignal(signal),
                        ")");
  }
  if (!error.empty()) return absl::StrCat("rank ", rank, " failed: ", error);
  return absl::StrCat("rank ", rank, " ended with exit status ", exit_status);
}

void SpawnResult::ThrowIfFailed() const {
  if (ok()) return;
  const RankExit& first = ranks[static_cast<size_t>(*first_failure)];
  std::string text = absl::StrCat("Spawn: ", first.ToString());
  for (const RankExit& other : ranks) {
    if (!other.ok() && other.rank != first.rank) absl::StrAppend(&text, "; ", other.ToString());
  }
  throw Error(first.error.empty() ? absl::StatusCode::kAborted : first.code, text);
}

SpawnResult SpawnThreads(int n, const std::function<void(RankContext&)>& function,
                         const SpawnOptions& options) {
  internal::CheckSpawnArguments("SpawnThreads", n, options);
  const auto store = std::make_shared<LocalStore>();
  SpawnResult result;
  result.ranks.resize(static_cast<size_t>(n));
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      RankContext context{rank, n, SpawnMode::kThreads, options.argument, store};
      RankExit exit = internal::RunRank(function, context, options.threads_per_rank);
      std::lock_guard<std::mutex> lock(mutex);
      if (!exit.ok() && !result.first_failure.has_value()) result.first_failure = rank;
      result.ranks[static_cast<size_t>(rank)] = std::move(exit);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

SpawnResult Spawn(int n, RankFunction function, const SpawnOptions& options) {
  internal::CheckSpawnArguments("Spawn", n, options);
  if (function == nullptr) throw InvalidArgumentError("Spawn: the function is null");
  if (options.mode == SpawnMode::kThreads) return SpawnThreads(n, function, options);
  return internal::SpawnProcesses(n, function, options);
}

}  // namespace lockstep::comm
