// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What topology is asked to show.
#ifndef LOCKSTEP_TOOLS_TOPOLOGY_OPTIONS_H_
#define LOCKSTEP_TOOLS_TOPOLOGY_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/tensor/device.h"

namespace lockstep::topology {

struct Options {
  std::vector<Device> devices = {Cpu(0), Cpu(1)};
  std::vector<int64_t> sizes = {1 << 10, 64 << 10, 1 << 20, 64 << 20};  // bytes
  int threads = 0;                                                      // of a move; 0: all
  bool json = false;
  bool help = false;
};

// From "--devices=cpu:0,cpu:1,host", "--sizes=1KiB,64MiB", "--threads=2", "--json", "--help".
// Throws InvalidArgument, naming the flag and what is allowed.
Options ParseOptions(const std::vector<std::string>& arguments);

std::string HelpText();

}  // namespace lockstep::topology

#endif  // LOCKSTEP_TOOLS_TOPOLOGY_OPTIONS_H_
