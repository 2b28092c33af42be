// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/host_id.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace lockstep::comm {

std::string HostId() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  struct stat network = {};
  stat("/proc/self/ns/net", &network);
  return absl::StrCat(name, " (boot ", boot, ", network ", network.st_ino, ")");
}

}  // namespace lockstep::comm
