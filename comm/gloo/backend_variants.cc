// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <vector>

#include "lockstep/comm/backend_tests/backend_test.h"

namespace lockstep::comm {

std::vector<std::string> BackendVariants() {
  // Every rank on a host of its own; and two hosts, whose ranks are not neighbours: of 2 ranks 1 +
  // 1, of 3 ranks 1 + 2, of 4 ranks 2 + 2, of 5 ranks 2 + 3. What takes its time is run in one mode
  // each: over TCP they do not differ, and within a host shm has tests of both.
  return {"backend=gloo hosts=own in=threads", "backend=gloo hosts=0,1,1,0,1 in=processes"};
}

}  // namespace lockstep::comm
