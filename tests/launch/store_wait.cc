// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// One end of a store on several hosts: `store_wait serve ADDRESS PORT` serves until it is killed;
// `store_wait get ADDRESS PORT` asks for a key that nobody sets, with ten minutes of patience, and
// says how that ends and how long it took.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/store.h"

namespace lockstep::launch_test {
namespace {

void Say(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

[[noreturn]] void Serve(const std::string& address, int port) {
  const comm::StoreServer server({.address = address, .port = port});
  Say("serving");
  for (;;) pause();
}

void Get(const std::string& address, int port) {
  comm::StoreClient client({.address = address, .port = port});
  Say("waiting");
  const Stopwatch watch;
  try {
    client.Get("never", Deadline::After(absl::Minutes(10)));
  } catch (const Error& error) {
    std::printf("%s\nseconds: %.1f\n", error.what(), watch.ElapsedSeconds());
  }
}

}  // namespace
}  // namespace lockstep::launch_test

int main(int argc, char** argv) {
  int port = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[3], &port)) return 2;
  try {
    if (std::string(argv[1]) == "serve") lockstep::launch_test::Serve(argv[2], port);
    lockstep::launch_test::Get(argv[2], port);
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "store_wait: %s\n", error.what());
    return 1;
  }
  return 0;
}
