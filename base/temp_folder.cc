// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/temp_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"

namespace lockstep {

std::string NewFolder() {
  const std::filesystem::path parent = testing::TempDir();
  std::string path = (parent / "folderXXXXXX").lexically_normal().string();
  if (mkdtemp(path.data()) == nullptr) {
    throw FailedPreconditionError(absl::StrCat("NewFolder: cannot make a folder in '",
                                               parent.string(), "': ", std::strerror(errno),
                                               "; set TEST_TMPDIR to one that can be written"));
  }
  return path;
}

}  // namespace lockstep
