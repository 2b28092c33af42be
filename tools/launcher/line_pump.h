// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the ranks print: whole lines with the rank in front on the launcher's own output, the exact
// bytes in a file for each stream, and the last lines for the report of a failure.
//
//   Output output;                                    // this process's standard output and error
//   LinePump pump(&output, {{.rank = 0, .label = "0", .is_error = false, .source = pipe_end,
//                            .log_path = "logs/rank-0.out"}});
//   ...                                               // the ranks run and end
//   pump.Finish(absl::Seconds(5));
//   for (const std::string& line : pump.LastLines(0)) ...
//
// A line goes out when it is complete, in one piece: lines of several ranks never mix. One that is
// longer than 64 KiB goes out in pieces of that size, the second and later ones marked with "+";
// one that has no end when its stream does gets one (not in the file).
#ifndef LOCKSTEP_TOOLS_LAUNCHER_LINE_PUMP_H_
#define LOCKSTEP_TOOLS_LAUNCHER_LINE_PUMP_H_

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/socket.h"

namespace lockstep::launcher {

// The launcher's own standard output and error, shared by its threads.
class Output {
 public:
  // `signals`: readable when somebody wants this process to end; -1: nobody can.
  explicit Output(int signals) : Output(1, 2, signals) {}
  Output(int output, int error, int signals = -1);

  // Writes whole lines. An output that nobody reads any more is not written to again: the ranks go
  // on, and their files are complete. Such is one whose reader has gone (EPIPE). A reader who is
  // late is waited for, but only for a second when `signals` is readable, or after StopWaiting.
  void Write(bool is_error, absl::string_view lines);
  // "launch: <text>" on standard error, each of its lines.
  void Say(absl::string_view text);

  void StopWaiting();

 private:
  // False when nothing can be written, and this process shall end.
  bool HasRoom(int fd) const;

  std::mutex mutex_;
  int fds_[2];
  const int signals_;
  const comm::UniqueFd stop_;  // an eventfd
};

struct PumpStream {
  int rank = 0;
  std::string label = {};  // in front of each line: "[label] "; empty: nothing is
  bool is_error = false;   // goes to standard error
  comm::UniqueFd source = {};
  std::string log_path = {};  // made, or emptied; empty: none
};

inline constexpr size_t kMaxPumpLine = 64 << 10;
inline constexpr size_t kLastLines = 20;
inline constexpr size_t kMaxLastLine = 500;

// Reads on a thread of its own until all streams have ended.
class LinePump {
 public:
  // `output` must outlive it. Throws FailedPrecondition when a file cannot be made.
  LinePump(Output* output, std::vector<PumpStream> streams);
  ~LinePump();

  // Returns when all streams have ended, or have had this much time to. Call it when the ranks are
  // gone.
  void Finish(absl::Duration patience);

  // What a rank printed last, on both streams in the order in which it arrived: at most 20 lines,
  // cut to 500 bytes. After Finish.
  std::vector<std::string> LastLines(int rank) const;
  // The first file that could not be written, with the reason; "" if all could. After Finish.
  const std::string& log_failure() const { return log_failure_; }

 private:
  struct Stream {
    PumpStream options;
    comm::UniqueFd log;
    std::string pending;  // the line that has no end yet
    bool continued = false;
  };

  void Run();
  // False when the stream has ended.
  bool ReadOnce(Stream& stream);
  void WriteLog(Stream& stream, absl::string_view bytes);
  void TakeLines(Stream& stream, bool at_end);
  void AddLine(Stream& stream, absl::string_view line, bool complete, std::string* out);

  Output* const output_;
  std::vector<Stream> streams_;
  std::map<int, std::deque<std::string>> last_lines_;
  std::string log_failure_;
  comm::UniqueFd finished_;  // an eventfd: Run has returned
  comm::UniqueFd stop_;      // an eventfd: Run shall return
  std::thread thread_;
};

}  // namespace lockstep::launcher

#endif  // LOCKSTEP_TOOLS_LAUNCHER_LINE_PUMP_H_
