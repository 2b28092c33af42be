// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <vector>

#include "lockstep/comm/backend_tests/backend_test.h"

namespace lockstep::comm {

std::vector<std::string> BackendVariants() {
  return {"backend=gloo hosts=own verified", "backend=gloo hosts=0,1,1,0,1 verified"};
}

}  // namespace lockstep::comm
