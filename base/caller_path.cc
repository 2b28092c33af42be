// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/caller_path.h"

#include <cstdlib>
#include <filesystem>

namespace lockstep {

namespace fs = std::filesystem;

std::string CallerPath(const std::string& path) {
  if (path.empty() || fs::path(path).is_absolute()) return path;
  const char* const caller = std::getenv("BUILD_WORKING_DIRECTORY");  // set by `bazel run`
  const bool given = caller != nullptr && *caller != '\0';
  return ((given ? fs::path(caller) : fs::current_path()) / path).lexically_normal().string();
}

}  // namespace lockstep
