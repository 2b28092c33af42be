// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tools/run_tool.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::tools {
namespace {

// Where the caller has closed stdin, stdout or stderr, the next file or socket would get its number
// and what is printed would go there. What stands in refuses to be written.
void HoldStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // open takes the lowest number that is free: this one.
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd) return;
  }
}

}  // namespace

void FlushOutput() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw UnavailableError(absl::StrCat(
      "cannot write to stdout: ", errno != 0 ? std::strerror(errno) : "an earlier write has failed",
      ": what was printed is not whole"));
}

int RunTool(const char* name, int argc, char** argv, int (*run)(const std::vector<std::string>&)) {
  HoldStandardDescriptors();
  try {
    const int status = run({argv + 1, argv + argc});
    FlushOutput();
    return status;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.message().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
  }
  return 1;
}

}  // namespace lockstep::tools
