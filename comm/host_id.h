// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which ranks are on one host.
#ifndef LOCKSTEP_COMM_HOST_ID_H_
#define LOCKSTEP_COMM_HOST_ID_H_

#include <string>

namespace lockstep::comm {

// "node7 (boot 6f9c..., network 4026531840)": equal for processes that share memory and loopback,
// that is, the host's name, its start and the network namespace (a container's own).
std::string HostId();

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_HOST_ID_H_
