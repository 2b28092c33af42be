// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/stop_signal.h"

#include <signal.h>
#include <unistd.h>

namespace lockstep::examples {
namespace {

// A handler can reach nothing but static storage.
volatile sig_atomic_t stop_requested = 0;

void HandleStop(int signal) {
  if (stop_requested != 0) _exit(128 + signal);
  stop_requested = 1;
}

}  // namespace

void InstallStopSignal() {
  struct sigaction action = {};
  action.sa_handler = &HandleStop;
  action.sa_flags = SA_RESTART;  // system calls in flight go on; the flag is asked at step borders
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool StopRequested() { return stop_requested != 0; }

}  // namespace lockstep::examples
