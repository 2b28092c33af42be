// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/launcher/line_pump.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/comm/socket.h"

namespace lockstep::launcher {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    source = comm::UniqueFd(ends[0]);
    sink = comm::UniqueFd(ends[1]);
  }
  // False when nobody reads.
  bool Write(absl::string_view text) {
    while (!text.empty()) {
      const ssize_t n = write(sink.get(), text.data(), text.size());
      if (n <= 0) return false;
      text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  comm::UniqueFd source;
  comm::UniqueFd sink;
};

// False when they have not come after half a minute.
bool WaitForBytes(int pipe, int bytes) {
  for (int i = 0; i < 30000; ++i) {
    int there = 0;
    if (ioctl(pipe, FIONREAD, &there) == 0 && there >= bytes) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return false;
}

class LinePumpTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = NewFolder();
    const auto open_file = [&](const char* name) {
      return open((folder_ + name).c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    };
    out_ = comm::UniqueFd(open_file("/out"));
    err_ = comm::UniqueFd(open_file("/err"));
    output_ = std::make_unique<Output>(out_.get(), err_.get());
  }
  std::string Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  std::string out() const { return ReadAll(Path("out")); }
  std::string err() const { return ReadAll(Path("err")); }

  // What becomes of text on the standard output of rank 3.
  std::string Pumped(const std::string& text) {
    Pipe pipe;
    std::vector<PumpStream> streams;
    streams.push_back({.rank = 3, .label = "3", .source = std::move(pipe.source)});
    const size_t before = out().size();
    LinePump pump(output_.get(), std::move(streams));
    EXPECT_TRUE(pipe.Write(text));
    pipe.sink.reset();
    pump.Finish(absl::Seconds(30));
    last_ = pump.LastLines(3);
    return out().substr(before);
  }

  std::string folder_;
  comm::UniqueFd out_;
  comm::UniqueFd err_;
  std::unique_ptr<Output> output_;
  std::vector<std::string> last_;
};

TEST_F(LinePumpTest, PutsTheRankInFrontOfEachLine) {
  EXPECT_EQ(Pumped("one\n\ntwo\r\n"), "[3] one\n[3] \n[3] two\r\n");
  EXPECT_EQ(last_, (std::vector<std::string>{"one", "", "two\r"}));
  EXPECT_EQ(Pumped(""), "");
  EXPECT_TRUE(last_.empty());
  EXPECT_EQ(Pumped("no end"), "[3] no end\n");
  EXPECT_EQ(Pumped(std::string("a\0b\n", 4)), std::string("[3] a\0b\n", 8));
}

TEST_F(LinePumpTest, LongLinesGoOutInMarkedPieces) {
  const std::string piece(kMaxPumpLine, 'x');
  // Exactly the longest line is whole; one more byte makes two pieces.
  EXPECT_TRUE(Pumped(piece + "\nnext\n") == "[3] " + piece + "\n[3] next\n");
  EXPECT_TRUE(Pumped(piece + "y\nnext\n") == "[3] " + piece + "\n[3]+ y\n[3] next\n");
  EXPECT_TRUE(Pumped(piece + piece + "z") == "[3] " + piece + "\n[3]+ " + piece + "\n[3]+ z\n");
  EXPECT_EQ(last_.back(), "z");
  EXPECT_EQ(last_.front().size(), kMaxLastLine);
}

TEST_F(LinePumpTest, KeepsTheLastLines) {
  std::string text;
  for (int i = 0; i < 50; ++i) absl::StrAppend(&text, "line ", i, "\n");
  Pumped(text);
  ASSERT_EQ(last_.size(), kLastLines);
  EXPECT_EQ(last_.front(), "line 30");
  EXPECT_EQ(last_.back(), "line 49");
}

TEST_F(LinePumpTest, LinesOfSeveralRanksAreCompleteInOrderAndUnmixed) {
  constexpr int kRanks = 4;
  constexpr int kLines = 25000;
  std::vector<Pipe> pipes(2 * kRanks);
  std::vector<PumpStream> streams;
  for (int i = 0; i < 2 * kRanks; ++i) {
    streams.push_back({.rank = i / 2,
                       .label = absl::StrCat(i / 2),
                       .is_error = i % 2 == 1,
                       .source = std::move(pipes[static_cast<size_t>(i)].source),
                       .log_path = Path(absl::StrCat("log-", i))});
  }
  LinePump pump(output_.get(), std::move(streams));
  std::vector<std::thread> writers;
  std::vector<std::string> texts(2 * kRanks);
  for (int i = 0; i < 2 * kRanks; ++i) {
    std::string& text = texts[static_cast<size_t>(i)];
    for (int line = 0; line < kLines; ++line) {
      absl::StrAppend(&text, "stream ", i, " line ", line, std::string(line % 37, '.'), "\n");
    }
    writers.emplace_back([&, i] {
      Pipe& pipe = pipes[static_cast<size_t>(i)];
      const std::string& mine = texts[static_cast<size_t>(i)];
      for (size_t at = 0; at < mine.size(); at += 997) {  // borders anywhere in a line
        EXPECT_TRUE(pipe.Write(absl::string_view(mine).substr(at, 997)));
      }
      pipe.sink.reset();
    });
  }
  for (std::thread& writer : writers) writer.join();
  pump.Finish(absl::Seconds(30));
  EXPECT_EQ(pump.log_failure(), "");
  std::vector<std::string> seen(2 * kRanks);
  for (const bool is_error : {false, true}) {
    for (absl::string_view line :
         absl::StrSplit(is_error ? err() : out(), '\n', absl::SkipEmpty())) {
      int rank = 0;
      while (rank < kRanks && !absl::ConsumePrefix(&line, absl::StrCat("[", rank, "] "))) ++rank;
      ASSERT_LT(rank, kRanks) << line;
      absl::StrAppend(&seen[static_cast<size_t>(2 * rank + (is_error ? 1 : 0))], line, "\n");
    }
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_TRUE(seen[i] == texts[i]) << "stream " << i;
    EXPECT_TRUE(ReadAll(Path(absl::StrCat("log-", i))) == texts[i]) << "log " << i;
  }
}

// More than a pipe holds, in lines.
std::string ManyLines() {
  std::string text;
  while (text.size() < (1 << 20)) absl::StrAppend(&text, "line at ", text.size(), "\n");
  return text;
}

TEST_F(LinePumpTest, ALateReaderGetsEveryLine) {
  Pipe late, rank;
  Output output(late.sink.get(), err_.get());
  std::vector<PumpStream> streams;
  streams.push_back({.source = std::move(rank.source)});
  LinePump pump(&output, std::move(streams));
  const std::string text = ManyLines();
  std::thread writer([&] {
    EXPECT_TRUE(rank.Write(text));
    rank.sink.reset();
  });
  // Full: the pump waits for this thread now, or will.
  EXPECT_TRUE(WaitForBytes(late.source.get(), 32 << 10));
  std::string got(text.size(), '\0');
  for (size_t done = 0; done < got.size();) {
    const ssize_t n = read(late.source.get(), got.data() + done, got.size() - done);
    ASSERT_GT(n, 0);
    done += static_cast<size_t>(n);
  }
  writer.join();
  pump.Finish(absl::Seconds(30));
  EXPECT_TRUE(got == text);
}

TEST_F(LinePumpTest, AReaderWhoHasStalledHoldsUpNobodyWhoStops) {
  for (const bool by_signal : {false, true}) {
    Pipe stalled, rank, signals;
    Output output(stalled.sink.get(), err_.get(), signals.source.get());
    std::vector<PumpStream> streams;
    streams.push_back({.source = std::move(rank.source), .log_path = Path("log")});
    LinePump pump(&output, std::move(streams));
    const std::string text = ManyLines();
    std::thread writer([&] {
      EXPECT_TRUE(rank.Write(text));
      rank.sink.reset();
    });
    EXPECT_TRUE(WaitForBytes(stalled.source.get(), 32 << 10));
    if (by_signal) {
      EXPECT_TRUE(signals.Write("TERM"));
    } else {
      output.StopWaiting();
    }
    writer.join();
    pump.Finish(absl::Seconds(30));
    EXPECT_TRUE(ReadAll(Path("log")) == text);
    output.Say("the other output goes on");
    EXPECT_TRUE(absl::EndsWith(err(), "launch: the other output goes on\n"));
  }
}

TEST_F(LinePumpTest, ALogHasTheExactBytes) {
  const std::string text =
      std::string("a\0b\r", 4) + std::string(3 * kMaxPumpLine, 'x') + "\nno end";
  Pipe pipe;
  std::vector<PumpStream> streams;
  streams.push_back({.source = std::move(pipe.source), .log_path = Path("log")});
  LinePump pump(output_.get(), std::move(streams));
  EXPECT_TRUE(pipe.Write(text));
  pipe.sink.reset();
  pump.Finish(absl::Seconds(30));
  EXPECT_TRUE(ReadAll(Path("log")) == text);
  EXPECT_TRUE(absl::EndsWith(out(), "x\nno end\n")) << "no label, no prefix";
}

TEST_F(LinePumpTest, ALogThatCannotBeMadeOrWritten) {
  {
    Pipe pipe;
    std::vector<PumpStream> streams;
    streams.push_back({.source = std::move(pipe.source), .log_path = Path("none/log")});
    try {
      LinePump pump(output_.get(), std::move(streams));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_TRUE(absl::StrContains(error.message(), Path("none/log"))) << error.message();
    }
  }
  Pipe pipe;
  std::vector<PumpStream> streams;
  streams.push_back({.source = std::move(pipe.source), .log_path = "/dev/full"});
  LinePump pump(output_.get(), std::move(streams));
  EXPECT_TRUE(pipe.Write("goes on\n"));
  pipe.sink.reset();
  pump.Finish(absl::Seconds(30));
  EXPECT_TRUE(absl::StrContains(pump.log_failure(), "/dev/full: No space left"))
      << pump.log_failure();
  EXPECT_EQ(out(), "goes on\n");
}

TEST_F(LinePumpTest, GoesOnWhenNobodyReadsItsOutput) {
  signal(SIGPIPE, SIG_IGN);
  Pipe reader;
  reader.source.reset();
  Output output(reader.sink.get(), err_.get());
  Pipe pipe;
  std::vector<PumpStream> streams;
  streams.push_back({.source = std::move(pipe.source), .log_path = Path("log")});
  LinePump pump(&output, std::move(streams));
  EXPECT_TRUE(pipe.Write("one\ntwo\n"));
  pipe.sink.reset();
  pump.Finish(absl::Seconds(30));
  EXPECT_EQ(ReadAll(Path("log")), "one\ntwo\n");
  output.Say("first\nsecond");
  EXPECT_EQ(err(), "launch: first\nlaunch: second\n");
}

TEST_F(LinePumpTest, FinishDoesNotWaitForAStreamThatSomebodyHolds) {
  Pipe pipe;
  Pipe silent;
  std::vector<PumpStream> streams;
  streams.push_back({.source = std::move(pipe.source)});
  streams.push_back({.source = std::move(silent.source)});
  LinePump pump(output_.get(), std::move(streams));
  EXPECT_TRUE(pipe.Write("whole\npart"));
  pump.Finish(absl::Milliseconds(500));
  EXPECT_EQ(out(), "whole\npart\n");
}

}  // namespace
}  // namespace lockstep::launcher
