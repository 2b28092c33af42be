// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// For tests that run whole programs and kill them: a started program with its output in files, and
// a look for what it may have left behind.
//
//   TestFolder folder;
//   TestProcess process("tools/launch", {"--nproc=2", "sh", "-c", "echo $RANK"}, folder);
//   EXPECT_EQ(process.Wait(), 0) << process.err();
//   EXPECT_EQ(folder.Running(), 0);
#ifndef LOCKSTEP_TESTS_LAUNCH_TEST_PROCESS_H_
#define LOCKSTEP_TESTS_LAUNCH_TEST_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep::launch_test {

std::string ReadAll(const std::string& path);
bool Contains(const std::string& text, const std::string& part);
// Lines of `text` that begin with `prefix`, without it.
std::vector<std::string> LinesWith(const std::string& text, const std::string& prefix);
// Waits until `done`; false when it is not in time (90 s).
bool WaitUntil(const std::function<bool()>& done);

// A new folder of the test's own. Processes started for it carry it in a variable, and so do all
// that they start.
class TestFolder {
 public:
  TestFolder();
  // Kills what is left.
  ~TestFolder();

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Processes that are there (zombies are not); with `part` in their command line.
  std::vector<pid_t> Processes(const std::string& part = "") const;
  int Running() const { return static_cast<int>(Processes().size()); }
  bool NoneLeft() const;  // waits for it

 private:
  std::string path_;
};

class TestProcess {
 public:
  // `program` is relative to the tree's root, or absolute. It runs in the folder, with the
  // variables of this process without those that launchers set, and `environment`.
  TestProcess(const std::string& program, const std::vector<std::string>& arguments,
              const TestFolder& folder, const std::map<std::string, std::string>& environment = {});
  ~TestProcess();
  TestProcess(const TestProcess&) = delete;
  TestProcess& operator=(const TestProcess&) = delete;

  // The exit status, or 1000 + the signal; -1 when it does not end in time.
  int Wait();
  void Signal(int number) const;
  pid_t pid() const { return pid_; }
  std::string out() const { return ReadAll(out_); }
  std::string err() const { return ReadAll(err_); }
  bool WaitForOut(const std::string& text) const;
  bool WaitForErr(const std::string& text) const;

 private:
  std::string out_;
  std::string err_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

// The path of a program of this tree.
std::string ProgramPath(const std::string& program);

// Text with a structure that a small model learns in a few steps, in <folder>/text.txt.
void WriteTrainingText(const TestFolder& folder);

}  // namespace lockstep::launch_test

#endif  // LOCKSTEP_TESTS_LAUNCH_TEST_PROCESS_H_
