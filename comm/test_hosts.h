// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Several "hosts" on this machine, for tests and benchmarks: network namespaces, each with an
// interface and an address of its own, joined by a switch whose cables can be pulled.
//
//   if (const std::string reason = Hosts::WhyNot(); !reason.empty()) GTEST_SKIP() << reason;
//   Hosts hosts(2);
//   // What /bin/sh gets to run a program on host 0.
//   hosts.Run(0, {"/bin/server", "--listen=" + hosts.Address(0)})
//   hosts.CutLink(1);
//   hosts.RestoreLink(1);
//
// No privileges are needed where user namespaces are permitted (unshare, nsenter and setpriv of
// util-linux, ip of iproute2). Nothing is left: the namespaces are held by processes that end when
// this one does, and what runs in them is killed then.
#ifndef LOCKSTEP_COMM_TEST_HOSTS_H_
#define LOCKSTEP_COMM_TEST_HOSTS_H_

#include <string>
#include <vector>

#include "lockstep/comm/child_process.h"
#include "lockstep/comm/socket.h"

namespace lockstep::comm {

class Hosts {
 public:
  // Why there can be none here: a missing program, or the kernel's refusal. "" if there can.
  static std::string WhyNot();

  // Throws Internal with what the command that failed said.
  explicit Hosts(int count);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  // "10.83.0.1" is host 0's.
  std::string Address(int host) const;

  // The arguments with which /bin/sh runs `command` (a program's path and its arguments) on the
  // host. The command's process is that shell's: it gets its signals, and SIGKILL when this process
  // ends.
  std::vector<std::string> Run(int host, const std::vector<std::string>& command) const;

  // Nothing goes through any more, in either direction, and nobody is told.
  void CutLink(int host);
  void RestoreLink(int host);

 private:
  struct Holder {
    ChildProcess process;
    UniqueFd lifeline;  // the process ends when it closes
  };

  Holder Hold(const std::string& unshare);
  void InSwitch(const std::string& script);

  Holder switch_;
  std::vector<Holder> hosts_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_TEST_HOSTS_H_
