// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// For tests that write files.
//
//   const std::string path = NewFolder() + "/model.safetensors";
#ifndef LOCKSTEP_BASE_TEMP_FOLDER_H_
#define LOCKSTEP_BASE_TEMP_FOLDER_H_

#include <string>

namespace lockstep {

// Makes an empty folder that no other call gets, whatever its thread or process, and returns its
// path: in normal form, under TEST_TMPDIR, which Bazel empties before each run of the test.
// Throws FailedPrecondition where none can be made. Thread-safe.
std::string NewFolder();

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_TEMP_FOLDER_H_
