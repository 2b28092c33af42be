// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// The text of reports on real runs, in which something goes wrong. Times and messages of errors
// (tested in comm/shm) are masked.

#include "lockstep/tools/flight_report.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/flight_record.h"
#include "lockstep/comm/flight_record_file.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/tensor.h"
#include "nlohmann/json.hpp"

namespace lockstep::flight_recorder {
namespace {

using comm::Communicator;
using comm::RankContext;

std::shared_ptr<Communicator> MakeGroup(const RankContext& context, const std::string& name,
                                        absl::Duration timeout = absl::Seconds(60)) {
  comm::ProcessGroupOptions options = context.group_options(name);
  options.timeout = timeout;
  options.flight_recorder.folder = context.argument;
  options.on_slow = [](const std::string&) {};
  return comm::InitProcessGroup(options);
}

// Swallows the error that the scenario is about.
template <typename Call>
void Fails(const Call& call) {
  try {
    call();
  } catch (const Error&) {
    return;
  }
  throw InternalError("nothing was thrown");
}

class FlightReportTest : public testing::Test {
 protected:
  FlightReportTest()
      : folder_(absl::StrCat(testing::TempDir(), "/",
                             testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
  }

  // The report on a run of `ranks` processes.
  std::string Report(int ranks, comm::RankFunction function) {
    run_ = std::make_unique<comm::SpawnResult>(comm::Spawn(ranks, function, {.argument = folder_}));
    return Masked();
  }
  std::string Masked() {
    const RecordFolder read = ReadRecords(folder_);
    problems_ = read.problems;
    report_ = Analyze(read.records);
    std::string text = ToText(report_);
    text =
        std::regex_replace(text, std::regex("(  error [A-Z_]+ on ranks? [0-9, ]+): [^\n]*"), "$1");
    return std::regex_replace(text, std::regex("[0-9.]+ s after"), "N s after");
  }

  const std::string folder_;
  std::unique_ptr<comm::SpawnResult> run_;
  std::vector<std::string> problems_;
  flight_recorder::Report report_;
};

void Mismatch(RankContext& context) {
  const auto world = MakeGroup(context, "world");
  const Tensor x = Empty({5});
  for (int i = 0; i < 3; ++i) world->AllReduce(x).Wait();
  Fails([&] { (context.rank == 1 ? world->Broadcast(x) : world->AllReduce(x)).Wait(); });
}

TEST_F(FlightReportTest, AMismatch) {
  EXPECT_EQ(Report(2, Mismatch),
            "group \"world\" (shm/world/1), 2 ranks\n"
            "  error INVALID_ARGUMENT on ranks 0, 1\n"
            "  the last collective that all completed: 2, AllReduce(float32 x 5, sum)\n"
            "  collective 3 differs:\n"
            "    rank 0 called AllReduce(float32 x 5, sum)\n"
            "    rank 1 called Broadcast(float32 x 5, root 0)\n");
  EXPECT_TRUE(run_->ok());
}

void Uneven(RankContext& context) {
  const auto world = MakeGroup(context, "world");
  const std::vector<int64_t> counts = {2, context.rank == 0 ? 1 : 3};
  const int64_t total = counts[0] + counts[1];
  Fails([&] {
    world
        ->AllGather(Empty({counts[static_cast<size_t>(context.rank)]}), Empty({total}),
                    {.counts = counts})
        .Wait();
  });
}

TEST_F(FlightReportTest, AMismatchOfCounts) {
  EXPECT_EQ(Report(2, Uneven),
            "group \"world\" (shm/world/1), 2 ranks\n"
            "  error INVALID_ARGUMENT on ranks 0, 1\n"
            "  no collective was completed by all\n"
            "  collective 0 differs:\n"
            "    rank 0 called AllGather(float32 x [2, 1])\n"
            "    rank 1 called AllGather(float32 x [2, 3])\n");
}

// Rank 1 is stuck elsewhere, and still writes its file.
void Missing(RankContext& context) {
  const auto world = MakeGroup(context, "a/b", absl::Seconds(3));
  world->Barrier().Wait();
  if (context.rank == 1) {
    context.store->Wait({"done/0", "done/2"}, Deadline::After(absl::Seconds(60)));
    const std::string path =
        absl::StrCat(context.argument, "/", comm::FlightRecordFileName("a/b", 1));
    const Deadline deadline = Deadline::After(absl::Seconds(20));
    while (access(path.c_str(), R_OK) != 0 && !deadline.Expired()) usleep(1000);
    _exit(access(path.c_str(), R_OK) == 0 ? 0 : 9);  // no destructor helps
  }
  Fails([&] { world->AllReduce(Empty({7})).Wait(); });
  context.store->Set(absl::StrCat("done/", context.rank), "", Deadline::After(absl::Seconds(60)));
}

TEST_F(FlightReportTest, AMissingRank) {
  EXPECT_EQ(Report(3, Missing),
            "group \"a/b\" (shm/a/b/1), 3 ranks\n"
            "  error DEADLINE_EXCEEDED on ranks 0, 1, 2\n"
            "  the last collective that all completed: 0, Barrier()\n"
            "  collective 1:\n"
            "    ranks 0, 2 called AllReduce(float32 x 7, sum)\n"
            "    rank 1 has not issued it\n");
  EXPECT_TRUE(run_->ok());
}

void Killed(RankContext& context) {
  const auto world = MakeGroup(context, "world");
  world->Barrier().Wait();
  if (context.rank == 1) {
    context.store->Wait({"issued/0", "issued/2"}, Deadline::After(absl::Seconds(60)));
    kill(getpid(), SIGKILL);
  }
  const comm::Work work = world->AllReduce(Empty({100000}));
  context.store->Set(absl::StrCat("issued/", context.rank), "", Deadline::After(absl::Seconds(60)));
  Fails([&] { work.Wait(); });
}

TEST_F(FlightReportTest, AKilledRank) {
  EXPECT_EQ(Report(3, Killed),
            "group \"world\" (shm/world/1), 3 ranks\n"
            "  error UNAVAILABLE on ranks 0, 2\n"
            "  no file of rank 1: died, or did not notice\n"
            "  the last collective that all completed: 0, Barrier()\n"
            "  collective 1:\n"
            "    ranks 0, 2 called AllReduce(float32 x 100000, sum)\n");
  EXPECT_EQ(run_->ranks[1].signal, SIGKILL);
}

void WrongOrder(RankContext& context) {
  const auto a = MakeGroup(context, "a", absl::Seconds(4));
  const auto b = MakeGroup(context, "b", absl::Seconds(4));
  a->Barrier().Wait();
  const Tensor x = Empty({5});
  Fails([&] { (context.rank == 0 ? a : b)->AllReduce(x).Wait(); });
  context.store->Set(absl::StrCat("done/", context.rank), "", Deadline::After(absl::Seconds(60)));
  context.store->Wait({"done/0", "done/1"}, Deadline::After(absl::Seconds(60)));
}

TEST_F(FlightReportTest, TwoGroupsInDifferentOrder) {
  EXPECT_EQ(
      Report(2, WrongOrder),
      "group \"a\" (shm/a/1), 2 ranks\n"
      "  error DEADLINE_EXCEEDED on ranks 0, 1\n"
      "  the last collective that all completed: 0, Barrier()\n"
      "  collective 1:\n"
      "    rank 0 called AllReduce(float32 x 5, sum)\n"
      "    rank 1 has not issued it\n"
      "group \"b\" (shm/b/1), 2 ranks\n"
      "  error DEADLINE_EXCEEDED on ranks 0, 1\n"
      "  no collective was completed by all\n"
      "  collective 0:\n"
      "    rank 1 called AllReduce(float32 x 5, sum)\n"
      "    rank 0 has not issued it\n"
      "circle: rank 0 waits in group \"a\" for collective 1 (AllReduce(float32 x 5, sum)), which "
      "rank 1 has not issued: rank 1 waits in group \"b\" for collective 0 (AllReduce(float32 x 5, "
      "sum)), which rank 0 has not issued: the ranks enter groups \"a\" and \"b\" in different "
      "order\n");
  EXPECT_TRUE(run_->ok());
}

void WrongTransfer(RankContext& context) {
  const auto world = MakeGroup(context, "world");
  const Tensor x = Empty({4});
  const Tensor y = Empty({5});
  if (context.rank == 0) {
    world->Send(x, 1).Wait();
    Fails([&] { world->Send(x, 1, {.tag = 3}).Wait(); });
  } else {
    world->Recv(x, 0).Wait();
    Fails([&] { world->Recv(y, 0, {.tag = 3}).Wait(); });
  }
}

TEST_F(FlightReportTest, ATransferThatDoesNotFit) {
  EXPECT_EQ(Report(2, WrongTransfer),
            "group \"world\" (shm/world/1), 2 ranks\n"
            "  error INVALID_ARGUMENT on ranks 0, 1\n"
            "  no collective was completed by all\n"
            "  message 1 from rank 0 to rank 1 is open: rank 0 called Send(float32 x 4, to rank 1, "
            "tag 3), rank 1 called Recv(float32 x 5, from rank 0, tag 3)\n");
}

// Rank 1 comes after rank 0 has waited for a second and a half; written on demand.
void Slow(RankContext& context) {
  const auto world = MakeGroup(context, "world");
  world->Barrier().Wait();
  const Tensor x = Empty({5});
  if (context.rank == 1) context.store->Wait({"waited"}, Deadline::After(absl::Seconds(60)));
  const comm::Work work = world->AllReduce(x);
  if (context.rank == 0) {
    Fails([&] { work.Wait(Deadline::After(absl::Seconds(1.5))); });
    context.store->Set("waited", "", Deadline::After(absl::Seconds(60)));
  }
  work.Wait();
  comm::WriteFlightRecord(world->flight_record(), context.argument);
}

TEST_F(FlightReportTest, ASlowRank) {
  EXPECT_EQ(Report(2, Slow),
            "group \"world\" (shm/world/1), 2 ranks\n"
            "  the last collective that all completed: 1, AllReduce(float32 x 5, sum)\n"
            "  slow: rank 1 issued collective 1, AllReduce(float32 x 5, sum), N s after the "
            "first\n");
  ASSERT_EQ(report_.groups[0].late.size(), 1u);
  EXPECT_GE(report_.groups[0].late[0].seconds, 1.4);
  EXPECT_LT(report_.groups[0].late[0].seconds, 30);
}

TEST_F(FlightReportTest, DamagedFilesAreNamedAndSkipped) {
  Report(2, Mismatch);
  const std::string path = folder_ + "/world.rank1.json";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  std::ofstream(folder_ + "/other.rank0.json") << "{}";
  std::ofstream(folder_ + "/notes.txt") << "not ours";
  EXPECT_EQ(Masked(),
            "group \"world\" (shm/world/1), 2 ranks\n"
            "  error INVALID_ARGUMENT on rank 0\n"
            "  no file of rank 1: died, or did not notice\n"
            "  the last collective that all completed: 2, AllReduce(float32 x 5, sum)\n"
            "  collective 3:\n"
            "    rank 0 called AllReduce(float32 x 5, sum)\n");
  ASSERT_EQ(problems_.size(), 2u);
  EXPECT_TRUE(absl::StrContains(problems_[0], "/other.rank0.json is no whole")) << problems_[0];
  EXPECT_TRUE(absl::StrContains(problems_[1], "/world.rank1.json is no whole")) << problems_[1];
  // In words of ours, not the parser's.
  EXPECT_TRUE(absl::EndsWith(problems_[0], "record: key 'format' not found")) << problems_[0];
  EXPECT_TRUE(absl::EndsWith(
      problems_[1],
      absl::StrCat("record: it is cut off after ", std::filesystem::file_size(path), " bytes")))
      << problems_[1];
  const auto json = nlohmann::json::parse(ToJson(report_));
  EXPECT_EQ(json["groups"][0]["next_calls"][0]["ranks"], (std::vector<int>{0}));
  EXPECT_EQ(json["groups"][0]["without_file"], (std::vector<int>{1}));
  EXPECT_EQ(json["groups"][0]["last_completed"], 2);
  EXPECT_THROW(ReadRecords(folder_ + "/none"), Error);
}

// The program itself: what it prints, and its exit status.
TEST_F(FlightReportTest, TheProgram) {
  Report(2, Uneven);
  const auto run = [](const std::string& arguments) {
    FILE* pipe = popen(absl::StrCat("tools/flight_recorder 2>&1 ", arguments).c_str(), "r");
    std::string output;
    for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) output.push_back(static_cast<char>(c));
    return absl::StrCat(WEXITSTATUS(pclose(pipe)), " ", output);
  };
  EXPECT_EQ(run(folder_), absl::StrCat("0 ", ToText(report_)));
  EXPECT_EQ(run("--json " + folder_), absl::StrCat("0 ", ToJson(report_)));
  EXPECT_TRUE(absl::StartsWith(run("--help"), "0 flight_recorder [--json]"));
  EXPECT_EQ(run("-h"), run("--help"));
  EXPECT_EQ(
      run(folder_ + " >/dev/full"),
      "1 flight_recorder: cannot write to stdout: No space left on device: what was printed is "
      "not whole\n");
  EXPECT_EQ(run(""), "1 flight_recorder: which folder? See --help\n");
  EXPECT_TRUE(absl::StrContains(run("--xml " + folder_), "\"--xml\" is not expected"));
  EXPECT_TRUE(
      absl::StartsWith(run(folder_ + "/none"), "1 flight_recorder: cannot read the folder"));
  std::filesystem::create_directory(folder_ + "/empty");
  EXPECT_TRUE(absl::StartsWith(run(folder_ + "/empty"), "1 flight_recorder: no file"));
  std::ofstream(folder_ + "/bad.rank0.json") << "{";
  const std::string with_bad = run(folder_);
  EXPECT_TRUE(absl::StartsWith(with_bad, "1 ")) << with_bad;
  EXPECT_TRUE(absl::StrContains(with_bad, "skipped: ")) << with_bad;
}

}  // namespace
}  // namespace lockstep::flight_recorder

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
