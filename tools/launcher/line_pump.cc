// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/launcher/line_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"

namespace lockstep::launcher {
namespace {

// For an output to take something when this process shall end.
constexpr int kStopMilliseconds = 1000;

// 0, or errno.
int WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {  // somebody made our output non-blocking
      pollfd entry = {fd, POLLOUT, 0};
      poll(&entry, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// What a pipe that has room takes at once, as far as possible in whole lines.
absl::string_view FirstPiece(absl::string_view lines) {
  if (lines.size() <= PIPE_BUF) return lines;
  const size_t newline = lines.rfind('\n', PIPE_BUF - 1);
  return lines.substr(0, newline == absl::string_view::npos ? PIPE_BUF : newline + 1);
}

void Ring(const comm::UniqueFd& event) {
  const uint64_t one = 1;
  (void)WriteAll(event.get(), {reinterpret_cast<const char*>(&one), sizeof(one)});
}

}  // namespace

Output::Output(int output, int error, int signals)
    : fds_{output, error}, signals_(signals), stop_(eventfd(0, EFD_CLOEXEC)) {}

void Output::Write(bool is_error, absl::string_view lines) {
  std::lock_guard<std::mutex> lock(mutex_);
  int& fd = fds_[is_error ? 1 : 0];
  while (fd >= 0 && !lines.empty()) {
    const absl::string_view piece = FirstPiece(lines);
    lines.remove_prefix(piece.size());
    if (!HasRoom(fd) || WriteAll(fd, piece) == EPIPE) fd = -1;
  }
}

bool Output::HasRoom(int fd) const {
  bool stopping = false;
  for (;;) {
    pollfd entries[] = {{fd, POLLOUT, 0}, {stop_.get(), POLLIN, 0}, {signals_, POLLIN, 0}};
    const int ready = poll(entries, stopping ? 1 : 3, stopping ? kStopMilliseconds : -1);
    if (ready < 0) continue;  // interrupted
    if (entries[0].revents != 0) return true;
    if (stopping) return false;
    stopping = true;
  }
}

void Output::StopWaiting() { Ring(stop_); }

void Output::Say(absl::string_view text) {
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::StrAppend(&lines, "launch: ", line, "\n");
  }
  Write(/*is_error=*/true, lines);
}

LinePump::LinePump(Output* output, std::vector<PumpStream> streams)
    : output_(output), finished_(eventfd(0, EFD_CLOEXEC)), stop_(eventfd(0, EFD_CLOEXEC)) {
  for (PumpStream& options : streams) {
    Stream stream;
    if (!options.log_path.empty()) {
      stream.log = comm::UniqueFd(open(options.log_path.c_str(),
                                       O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0666));
      if (!stream.log.valid()) {
        throw FailedPreconditionError(absl::StrCat("--log_dir: cannot write ", options.log_path,
                                                   ": ", comm::ErrnoText(errno)));
      }
    }
    stream.options = std::move(options);
    streams_.push_back(std::move(stream));
  }
  thread_ = std::thread([this] {
    Run();
    Ring(finished_);
  });
}

LinePump::~LinePump() { Finish(absl::ZeroDuration()); }

void LinePump::Finish(absl::Duration patience) {
  if (!thread_.joinable()) return;
  comm::WaitReadable(finished_.get(), Deadline::After(patience));
  Ring(stop_);
  thread_.join();
}

void LinePump::Run() {
  std::vector<pollfd> entries = {{stop_.get(), POLLIN, 0}};
  for (const Stream& stream : streams_) entries.push_back({stream.options.source.get(), POLLIN, 0});
  size_t open = streams_.size();
  while (open > 0) {
    if (poll(entries.data(), entries.size(), -1) < 0) continue;
    if (entries[0].revents != 0) break;
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (entries[i + 1].revents == 0 || ReadOnce(streams_[i])) continue;
      streams_[i].options.source.reset();
      entries[i + 1].fd = -1;
      --open;
    }
  }
  for (Stream& stream : streams_) {
    if (stream.options.source.valid()) TakeLines(stream, /*at_end=*/true);
  }
}

bool LinePump::ReadOnce(Stream& stream) {
  char buffer[kMaxPumpLine];
  const ssize_t n = read(stream.options.source.get(), buffer, sizeof(buffer));
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  const absl::string_view bytes(buffer, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (stream.log.valid()) WriteLog(stream, bytes);
  stream.pending.append(bytes.data(), bytes.size());
  TakeLines(stream, /*at_end=*/bytes.empty());
  return !bytes.empty();
}

// A full disk must not end the training.
void LinePump::WriteLog(Stream& stream, absl::string_view bytes) {
  const int error = WriteAll(stream.log.get(), bytes);
  if (error == 0) return;
  stream.log.reset();
  if (log_failure_.empty()) {
    log_failure_ =
        absl::StrCat("cannot write ", stream.options.log_path, ": ", comm::ErrnoText(error));
  }
}

void LinePump::TakeLines(Stream& stream, bool at_end) {
  std::string out;
  absl::string_view rest = stream.pending;
  while (!rest.empty()) {
    const size_t newline = rest.find('\n');
    const bool complete = newline != absl::string_view::npos && newline <= kMaxPumpLine;
    if (!complete && rest.size() <= kMaxPumpLine && !at_end) break;
    const size_t size = complete ? newline : std::min(rest.size(), kMaxPumpLine);
    AddLine(stream, rest.substr(0, size), complete, &out);
    rest.remove_prefix(size + (complete ? 1 : 0));
  }
  stream.pending = std::string(rest);
  if (!out.empty()) output_->Write(stream.options.is_error, out);
}

void LinePump::AddLine(Stream& stream, absl::string_view line, bool complete, std::string* out) {
  if (!stream.options.label.empty()) {
    absl::StrAppend(out, "[", stream.options.label, "]", stream.continued ? "+ " : " ");
  }
  absl::StrAppend(out, line, "\n");
  std::deque<std::string>& last = last_lines_[stream.options.rank];
  last.emplace_back(line.substr(0, kMaxLastLine));
  if (last.size() > kLastLines) last.pop_front();
  stream.continued = !complete;
}

std::vector<std::string> LinePump::LastLines(int rank) const {
  const auto it = last_lines_.find(rank);
  if (it == last_lines_.end()) return {};
  return {it->second.begin(), it->second.end()};
}

}  // namespace lockstep::launcher
