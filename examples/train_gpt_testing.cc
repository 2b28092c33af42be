// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/train_gpt_testing.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/temp_folder.h"

namespace lockstep::examples {
namespace {

namespace fs = std::filesystem;

constexpr char kProgram[] = "examples/train_gpt";
constexpr char kMarker[] = "TRAIN_GPT_TEST_FOLDER";
constexpr absl::Duration kPatience = absl::Seconds(90);

// Between looks at what the other process has done by now.
void Pause() {
  const timespec moment = {0, 5'000'000};
  nanosleep(&moment, nullptr);
}

}  // namespace

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

Process::Process(const std::vector<std::string>& arguments, const std::string& folder)
    : out_(NewFolder() + "/out"), err_(out_ + ".err") {
  const std::string program = fs::absolute(kProgram).string();
  pid_ = fork();
  if (pid_ != 0) return;
  setpgid(0, 0);
  if (chdir(folder.c_str()) != 0) _exit(126);
  // As if started by hand, not by `bazel run`.
  unsetenv("BUILD_WORKING_DIRECTORY");
  unsetenv("BUILD_WORKSPACE_DIRECTORY");
  setenv(kMarker, folder.c_str(), 1);
  dup2(open(out_.c_str(), O_CREAT | O_WRONLY, 0644), STDOUT_FILENO);
  dup2(open(err_.c_str(), O_CREAT | O_WRONLY, 0644), STDERR_FILENO);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  _exit(127);
}

Process::~Process() {
  if (!ended_) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

int Process::Wait() {
  const absl::Time limit = absl::Now() + kPatience;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (absl::Now() > limit) return -1;
    Pause();
  }
  ended_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

bool Process::WaitForOutput(const std::string& text) {
  const absl::Time limit = absl::Now() + kPatience;
  while (out().find(text) == std::string::npos) {
    if (absl::Now() > limit) return false;
    Pause();
  }
  return true;
}

void Process::Signal(int number) { kill(pid_, number); }

std::vector<pid_t> Process::Children() const {
  std::ifstream file(absl::StrCat("/proc/", pid_, "/task/", pid_, "/children"));
  return {std::istream_iterator<pid_t>(file), std::istream_iterator<pid_t>()};
}

std::string WriteText(const std::string& folder, int64_t bytes) {
  std::string text;
  for (int64_t i = 0; static_cast<int64_t>(text.size()) < bytes; ++i) {
    absl::StrAppend(&text, "line ", i % 97, " of the text\n");
  }
  std::ofstream(folder + "/text.txt") << text;
  return folder + "/text.txt";
}

std::vector<std::string> Tiny(const std::vector<std::string>& more) {
  std::vector<std::string> flags = {"--layers=1", "--heads=2", "--width=16", "--block=16",
                                    "--batch=6"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

std::vector<std::string> LinesWith(const std::string& text, const std::string& prefix) {
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, prefix)) lines.emplace_back(line);
  }
  return lines;
}

std::map<std::string, std::string> Summary(const std::string& out) {
  std::vector<std::string> lines = absl::StrSplit(out, '\n', absl::SkipEmpty());
  std::map<std::string, std::string> fields;
  if (lines.empty()) return fields;
  absl::string_view last = lines.back();
  EXPECT_TRUE(absl::ConsumePrefix(&last, "summary: ")) << last;
  for (absl::string_view field : absl::StrSplit(last, ' ')) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(field, absl::MaxSplits('=', 1));
    fields.insert(pair);
  }
  return fields;
}

int RunningCopies(const std::string& folder) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    // That of a zombie, which runs no more, is empty.
    const std::string environment = ReadAll("/proc/" + name + "/environ");
    count += environment.find(absl::StrCat(kMarker, "=", folder)) != std::string::npos;
  }
  return count;
}

}  // namespace lockstep::examples
