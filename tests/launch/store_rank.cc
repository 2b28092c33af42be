// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank that does nothing but meet the others in the store, step by step: `store_rank STEPS`. In
// an attempt after the first it makes 20 steps.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/store.h"

namespace lockstep::launch_test {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(4);
constexpr int64_t kLaterSteps = 20;

// The last to come opens the door.
void MeetInStore(comm::Store& store, int64_t step, int world_size) {
  const Deadline deadline = Deadline::After(kTimeout);
  if (store.Add(absl::StrCat("come/", step), 1, deadline) == world_size) {
    store.Set(absl::StrCat("open/", step), "", deadline);
  }
  store.Wait({absl::StrCat("open/", step)}, deadline);
}

void Run(int64_t steps) {
  comm::Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    environment.insert(pair);
  }
  if (environment["LOCKSTEP_RESTART_COUNT"] != "0") steps = kLaterSteps;
  comm::ProcessGroupOptions options = comm::ProcessGroupOptionsFromEnvironment(environment);
  options.timeout = absl::Seconds(30);
  const std::shared_ptr<comm::Store> store = comm::OpenStore(options);
  for (int64_t step = 1; step <= steps; ++step) {
    MeetInStore(*store, step, options.world_size);
    if (step == 10 || step == steps) {
      std::printf("step %lld\n", static_cast<long long>(step));
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace lockstep::launch_test

int main(int argc, char** argv) {
  int64_t steps = 0;
  if (argc != 2 || !absl::SimpleAtoi(argv[1], &steps)) return 2;
  try {
    lockstep::launch_test::Run(steps);
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "store_rank: %s\n", error.what());
    return 1;
  }
  return 0;
}
