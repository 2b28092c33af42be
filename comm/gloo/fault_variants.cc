// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <vector>

#include "lockstep/comm/backend_tests/backend_test.h"

namespace lockstep::comm {

std::vector<std::string> BackendVariants() {
  // Every rank on a host of its own; and two hosts, which rank 1, the one that is struck, has to
  // itself, or shares as a rank that is not the leader. Where ranks share a host, data within it
  // takes the ways of shm, which has tests of both modes.
  return {"backend=gloo hosts=own", "backend=gloo hosts=0,1,0 in=threads",
          "backend=gloo hosts=0,0,1 in=processes"};
}

}  // namespace lockstep::comm
