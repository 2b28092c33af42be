// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Several "hosts" on this machine for tests: network namespaces, each with an interface and an
// address of its own, joined by a switch whose cables can be pulled.
//
//   if (const std::string reason = Hosts::WhyNot(); !reason.empty()) GTEST_SKIP() << reason;
//   Hosts hosts(2);
//   TestProcess server("/bin/sh", hosts.Run(0, {"server", "--listen=" + hosts.Address(0)}),
//   folder); hosts.CutLink(1); hosts.RestoreLink(1);
//
// No privileges are needed where user namespaces are permitted (unshare, nsenter and setpriv of
// util-linux, ip of iproute2). Nothing is left: the namespaces are held by processes that end when
// this one does, and what runs in them is killed then.
#ifndef LOCKSTEP_TESTS_LAUNCH_HOSTS_H_
#define LOCKSTEP_TESTS_LAUNCH_HOSTS_H_

#include <string>
#include <vector>

#include "lockstep/comm/child_process.h"
#include "lockstep/comm/socket.h"

namespace lockstep::launch_test {

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
    comm::ChildProcess process;
    comm::UniqueFd lifeline;  // the process ends when it closes
  };

  Holder Hold(const std::string& unshare);
  void InSwitch(const std::string& script);

  Holder switch_;
  std::vector<Holder> hosts_;
};

}  // namespace lockstep::launch_test

#endif  // LOCKSTEP_TESTS_LAUNCH_HOSTS_H_
