// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/test_hosts.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

constexpr char kPath[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin; ";

struct Outcome {
  int status = -1;
  std::string text;  // of both outputs
};

UniqueFd MakePipe(UniqueFd* sink) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw InternalError("Hosts: no pipe");
  *sink = UniqueFd(ends[1]);
  return UniqueFd(ends[0]);
}

Outcome Shell(const std::string& script) {
  UniqueFd sink;
  const UniqueFd source = MakePipe(&sink);
  ChildProcess child = StartChild("Hosts", {.program = "/bin/sh",
                                            .arguments = {"sh", "-c", kPath + script},
                                            .output = sink.get(),
                                            .error = sink.get()});
  sink.reset();
  Outcome outcome;
  char buffer[512];
  for (ssize_t n = 0; (n = read(source.get(), buffer, sizeof(buffer))) > 0;) {
    outcome.text.append(buffer, static_cast<size_t>(n));
  }
  WaitReadable(child.pidfd(), Deadline::After(absl::Seconds(30)));
  outcome.status = child.Reap().value_or(-1);
  return outcome;
}

// Into the user and network namespace of a process.
std::string Enter(pid_t pid) {
  return absl::StrCat("nsenter -t ", pid, " -U -n --preserve-credentials ");
}

std::string Quoted(const std::string& word) {
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace

std::string Hosts::WhyNot() {
  for (const char* program : {"unshare", "nsenter", "setpriv", "ip"}) {
    if (Shell(absl::StrCat("command -v ", program)).status != 0) {
      return absl::StrCat("network namespaces: ", program,
                          " is not installed (packages util-linux and iproute2)");
    }
  }
  const Outcome tried = Shell(
      "unshare --user --map-root-user --net sh -c 'ip link add switch type bridge && ip link add "
      "port0 type veth peer name port1'");
  if (tried.status == 0) return "";
  return absl::StrCat("network namespaces are not permitted here: ", tried.text);
}

Hosts::Hosts(int count) {
  switch_ = Hold("unshare --user --map-root-user --net");
  InSwitch("ip link set lo up && ip link add switch type bridge && ip link set switch up");
  for (int host = 0; host < count; ++host) {
    hosts_.push_back(Hold(Enter(switch_.process.pid()) + "unshare --net"));
    const pid_t pid = hosts_.back().process.pid();
    const std::string port = absl::StrCat("port", host);
    InSwitch(absl::StrCat("ip link add ", port, " type veth peer name eth0 netns ", pid,
                          " && ip link set ", port, " master switch up"));
    InSwitch(absl::StrCat("nsenter -t ", pid, " -n sh -c 'ip link set lo up && ip addr add ",
                          Address(host), "/24 dev eth0 && ip link set eth0 up'"));
  }
}

Hosts::~Hosts() {
  hosts_.clear();
  switch_.lifeline.reset();
}

// A process that stays in new namespaces until this one ends, or lets it.
Hosts::Holder Hosts::Hold(const std::string& unshare) {
  Holder holder;
  UniqueFd in_source = MakePipe(&holder.lifeline);
  UniqueFd out_sink;
  const UniqueFd out_source = MakePipe(&out_sink);
  holder.process = StartChild(
      "Hosts",
      {.program = "/bin/sh",
       .arguments = {"sh", "-c", absl::StrCat(kPath, "exec ", unshare, " sh -c 'echo; exec cat'")},
       .input = in_source.get(),
       .output = out_sink.get()});
  out_sink.reset();
  char newline = 0;
  if (!WaitReadable(out_source.get(), Deadline::After(absl::Seconds(30))) ||
      read(out_source.get(), &newline, 1) != 1) {
    throw InternalError(absl::StrCat("Hosts: ", unshare, " ended"));
  }
  return holder;
}

void Hosts::InSwitch(const std::string& script) {
  const Outcome outcome =
      Shell(absl::StrCat(Enter(switch_.process.pid()), "sh -c ", Quoted(kPath + script)));
  if (outcome.status != 0) {
    throw InternalError(absl::StrCat("Hosts: ", script, ": ", outcome.text));
  }
}

std::string Hosts::Address(int host) const { return absl::StrCat("10.83.0.", host + 1); }

std::vector<std::string> Hosts::Run(int host, const std::vector<std::string>& command) const {
  const pid_t pid = hosts_[static_cast<size_t>(host)].process.pid();
  const std::string words = absl::StrJoin(
      command, " ", [](std::string* out, const std::string& word) { *out += Quoted(word); });
  // Entering may clear the signal of the parent's death: it is set inside.
  return {"-c",
          absl::StrCat("exec /usr/bin/", Enter(pid), "/usr/bin/setpriv --pdeathsig KILL ", words)};
}

void Hosts::CutLink(int host) { InSwitch(absl::StrCat("ip link set port", host, " down")); }

void Hosts::RestoreLink(int host) { InSwitch(absl::StrCat("ip link set port", host, " up")); }

}  // namespace lockstep::comm
