// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the tests of train_gpt share: the program as a process, and a text for it to learn.
#ifndef LOCKSTEP_EXAMPLES_TRAIN_GPT_TESTING_H_
#define LOCKSTEP_EXAMPLES_TRAIN_GPT_TESTING_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::examples {

// The bytes of a file; "" where there is none.
std::string ReadAll(const std::string& path);

// train_gpt, started in `folder` with its output in files.
class Process {
 public:
  Process(const std::vector<std::string>& arguments, const std::string& folder);
  // Kills it where it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The exit status, or 1000 + the signal; -1 when it does not end in time.
  int Wait();
  // Whether the output comes to have `text` in time.
  bool WaitForOutput(const std::string& text);
  void Signal(int number);
  // Those that it started and that run: its ranks, in their order.
  std::vector<pid_t> Children() const;
  std::string out() const { return ReadAll(out_); }
  std::string err() const { return ReadAll(err_); }

 private:
  std::string out_;
  std::string err_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

// Writes <folder>/text.txt, with a structure that a small model learns in a few steps, and returns
// its path.
std::string WriteText(const std::string& folder, int64_t bytes = 400000);

// `more` after the flags of a training that takes a second.
std::vector<std::string> Tiny(const std::vector<std::string>& more);

// What follows `prefix` in the lines that begin with it.
std::vector<std::string> LinesWith(const std::string& text, const std::string& prefix);

// The fields of the last line, which begins with "summary: ".
std::map<std::string, std::string> Summary(const std::string& out);

// Processes started for `folder`, ranks included, that are still there: they inherit a variable.
int RunningCopies(const std::string& folder);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_TRAIN_GPT_TESTING_H_
