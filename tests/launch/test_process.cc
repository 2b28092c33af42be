// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tests/launch/test_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/temp_folder.h"

namespace lockstep::launch_test {
namespace {

namespace fs = std::filesystem;

constexpr char kMarker[] = "LAUNCH_TEST_FOLDER";
constexpr absl::Duration kPatience = absl::Seconds(90);

// Set by launchers, Bazel and schedulers: a test sets those that it means.
bool IsOfALauncher(absl::string_view entry) {
  for (const absl::string_view prefix :
       {"BUILD_WORK", "RANK=", "WORLD_SIZE=", "LOCAL_", "GROUP_", "MASTER_", "LOCKSTEP_", "SLURM_",
        "OMPI_", "PMIX_", "JOB_COMPLETION_INDEX=", "TORCHELASTIC_", "KUBERNETES_"}) {
    if (absl::StartsWith(entry, prefix)) return true;
  }
  return false;
}

}  // namespace

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

bool Contains(const std::string& text, const std::string& part) {
  return absl::StrContains(text, part);
}

std::vector<std::string> LinesWith(const std::string& text, const std::string& prefix) {
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, prefix)) lines.emplace_back(line);
  }
  return lines;
}

bool WaitUntil(const std::function<bool()>& done) {
  const absl::Time limit = absl::Now() + kPatience;
  while (!done()) {
    if (absl::Now() > limit) return false;
    absl::SleepFor(absl::Milliseconds(5));  // between looks
  }
  return true;
}

TestFolder::TestFolder() : path_(NewFolder()) {}

TestFolder::~TestFolder() {
  for (const pid_t pid : Processes()) kill(pid, SIGKILL);
}

std::vector<pid_t> TestFolder::Processes(const std::string& part) const {
  std::vector<pid_t> found;
  const std::string mark = absl::StrCat(kMarker, "=", path_);
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    int pid = 0;
    if (!absl::SimpleAtoi(name, &pid)) continue;
    // That of a zombie is empty.
    if (!absl::StrContains(ReadAll("/proc/" + name + "/environ"), mark)) continue;
    const std::string command =
        absl::StrReplaceAll(ReadAll("/proc/" + name + "/cmdline"), {{std::string(1, '\0'), " "}});
    if (absl::StrContains(command, part)) found.push_back(pid);
  }
  return found;
}

bool TestFolder::NoneLeft() const {
  return WaitUntil([this] { return Running() == 0; });
}

std::string ProgramPath(const std::string& program) { return fs::absolute(program).string(); }

TestProcess::TestProcess(const std::string& program, const std::vector<std::string>& arguments,
                         const TestFolder& folder,
                         const std::map<std::string, std::string>& environment) {
  std::string files = folder / "outputXXXXXX";
  EXPECT_NE(mkdtemp(files.data()), nullptr);
  out_ = files + "/out";
  err_ = files + "/err";
  const std::string path = ProgramPath(program);
  std::vector<std::string> variables = {absl::StrCat(kMarker, "=", folder.path())};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!IsOfALauncher(*entry)) variables.emplace_back(*entry);
  }
  for (const auto& [name, value] : environment) variables.push_back(absl::StrCat(name, "=", value));
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (const std::string& variable : variables) envp.push_back(const_cast<char*>(variable.c_str()));
  envp.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  setpgid(0, 0);
  if (chdir(folder.path().c_str()) != 0) _exit(126);
  dup2(open(out_.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0644), STDOUT_FILENO);
  dup2(open(err_.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0644), STDERR_FILENO);
  execve(path.c_str(), argv.data(), envp.data());
  _exit(127);
}

TestProcess::~TestProcess() {
  if (ended_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

int TestProcess::Wait() {
  int status = 0;
  if (!WaitUntil([&] { return waitpid(pid_, &status, WNOHANG) != 0; })) return -1;
  ended_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void TestProcess::Signal(int number) const { kill(pid_, number); }

bool TestProcess::WaitForOut(const std::string& text) const {
  return WaitUntil([&] { return absl::StrContains(out(), text); });
}

bool TestProcess::WaitForErr(const std::string& text) const {
  return WaitUntil([&] { return absl::StrContains(err(), text); });
}

void WriteTrainingText(const TestFolder& folder) {
  std::string text;
  for (int64_t i = 0; static_cast<int64_t>(text.size()) < 400000; ++i) {
    absl::StrAppend(&text, "line ", i % 97, " of the text\n");
  }
  std::ofstream(folder / "text.txt") << text;
}

}  // namespace lockstep::launch_test
