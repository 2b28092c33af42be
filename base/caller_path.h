// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Paths as the user of a program means them. For programs' flags only: libraries take paths as they
// are given.
#ifndef LOCKSTEP_BASE_CALLER_PATH_H_
#define LOCKSTEP_BASE_CALLER_PATH_H_

#include <string>

namespace lockstep {

// `path` made absolute from the caller's folder: the one where `bazel run` was called (which runs
// programs in another), else the current one. "" stays "".
std::string CallerPath(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_CALLER_PATH_H_
