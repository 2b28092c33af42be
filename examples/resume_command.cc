// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/resume_command.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace lockstep::examples {
namespace {

namespace fs = std::filesystem;

// Set by `bazel run`.
std::string BazelVariable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Quoted for a shell where it needs to be.
std::string Quoted(const std::string& text) {
  if (text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "-_=/.,+:") == std::string::npos) {
    return text;
  }
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::string ResumeCommand(const std::string& state_path, int64_t steps) {
  std::string flags = absl::StrCat("--resume=", state_path);
  std::string command = Quoted(flags);
  if (steps > 0) absl::StrAppend(&command, " --steps=", steps);
  const std::string workspace = BazelVariable("BUILD_WORKSPACE_DIRECTORY");
  if (workspace.empty()) {
    std::error_code failure;
    return absl::StrCat(Quoted(fs::read_symlink("/proc/self/exe", failure).string()), " ", command);
  }
  const bool at_root = BazelVariable("BUILD_WORKING_DIRECTORY") == workspace;
  return absl::StrCat(at_root ? "./bazelw" : Quoted(workspace + "/bazelw"),
                      " run //examples:train_gpt -- ", command);
}

}  // namespace lockstep::examples
