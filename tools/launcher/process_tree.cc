// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/launcher/process_tree.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lockstep::launcher {
namespace {

struct ProcessInfo {
  pid_t parent = 0;
  bool zombie = false;
};

// Nothing when it has ended meanwhile.
std::optional<ProcessInfo> ReadInfo(absl::string_view pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // "17 (its name, which may hold anything) S 1 ..."
  const size_t end_of_name = text.rfind(") ");
  if (end_of_name == std::string::npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text).substr(end_of_name + 2), absl::MaxSplits(' ', 2));
  ProcessInfo info;
  if (fields.size() < 2 || !absl::SimpleAtoi(fields[1], &info.parent)) return std::nullopt;
  info.zombie = fields[0] == "Z" || fields[0] == "X";
  return info;
}

std::multimap<pid_t, pid_t> ChildrenByParent() {
  std::multimap<pid_t, pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), &closedir);
  if (folder == nullptr) return children;
  while (const dirent* entry = readdir(folder.get())) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid)) continue;
    const std::optional<ProcessInfo> info = ReadInfo(entry->d_name);
    if (info.has_value() && !info->zombie) children.emplace(info->parent, pid);
  }
  return children;
}

}  // namespace

std::vector<pid_t> Descendants(pid_t root, const std::set<pid_t>& except) {
  const std::multimap<pid_t, pid_t> children = ChildrenByParent();
  std::vector<pid_t> found = {root};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto it = begin; it != end; ++it) {
      if (!except.contains(it->second)) found.push_back(it->second);
    }
  }
  found.erase(found.begin());
  return found;
}

std::vector<pid_t> Children(pid_t parent) {
  const std::multimap<pid_t, pid_t> children = ChildrenByParent();
  std::vector<pid_t> found;
  const auto [begin, end] = children.equal_range(parent);
  for (auto it = begin; it != end; ++it) found.push_back(it->second);
  return found;
}

bool KillDescendants(const std::set<pid_t>& except, Deadline deadline) {
  for (;;) {
    const std::vector<pid_t> found = Descendants(getpid(), except);
    for (const pid_t pid : found) kill(pid, SIGKILL);
    for (const pid_t pid : found) waitpid(pid, nullptr, WNOHANG);  // fails for those not ours
    if (found.empty()) return true;
    if (deadline.Expired()) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
}

}  // namespace lockstep::launcher
