// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <vector>

#include "lockstep/comm/backend_tests/backend_test.h"

namespace lockstep::comm {

std::vector<std::string> BackendVariants() {
  // The second: two hosts, of ranks 0 and 2, and rank 1.
  return {"backend=gloo hosts=own in=threads", "backend=gloo hosts=0,1,0 in=processes"};
}

}  // namespace lockstep::comm
