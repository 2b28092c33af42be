// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A training across hosts: Gloo between them, shared memory within.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/test_hosts.h"
#include "lockstep/tests/launch/test_process.h"

namespace lockstep::launch_test {
namespace {

namespace fs = std::filesystem;

using comm::Hosts;

constexpr char kLaunch[] = "tools/launch";

std::vector<std::string> Joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<std::string> Training(int steps, const std::string& out) {
  return {ProgramPath("examples/train_gpt"),
          "--data=text.txt",
          "--layers=1",
          "--heads=2",
          "--width=16",
          "--block=16",
          "--batch=12",
          absl::StrCat("--steps=", steps),
          "--save_every=50",
          "--resume=auto",
          "--out=" + out};
}

// Of rank 0's last line.
double ValidationLoss(const TestProcess& process) {
  const std::vector<std::string> lines = LinesWith(process.out(), "[0] summary: ");
  EXPECT_EQ(lines.size(), 1u) << process.out() << process.err();
  double loss = 0;
  if (lines.empty()) return loss;
  const std::string field = "validation_loss=";
  const size_t begin = lines[0].find(field) + field.size();
  EXPECT_TRUE(absl::SimpleAtod(
      absl::string_view(lines[0]).substr(begin, lines[0].find(' ', begin) - begin), &loss));
  return loss;
}

// Whether the error of `rank`, of two on each host, says that one of the other host is gone.
bool NamesARankOfTheOtherHost(const std::string& error, int rank) {
  const int first = rank < 2 ? 2 : 0;
  for (const int other : {first, first + 1}) {
    for (const char* what : {" does not answer", " cannot be reached"}) {
      if (Contains(error, absl::StrCat("rank ", other, what))) return true;
    }
  }
  return false;
}

class HostsTrainingTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = Hosts::WhyNot(); !reason.empty()) GTEST_SKIP() << reason;
    WriteTrainingText(folder_);
    std::ofstream(folder_ / "token") << "a token for tests";
    fs::permissions(folder_ / "token", fs::perms::owner_read | fs::perms::owner_write);
  }

  // Two ranks on each host.
  std::vector<std::unique_ptr<TestProcess>> Launch(const Hosts& hosts, int count,
                                                   const std::vector<std::string>& training) {
    std::vector<std::unique_ptr<TestProcess>> launchers;
    for (int host = 0; host < count; ++host) {
      const std::vector<std::string> launch = {ProgramPath(kLaunch),
                                               "--nproc=2",
                                               absl::StrCat("--nnodes=", count),
                                               absl::StrCat("--node_rank=", host),
                                               "--rendezvous=" + hosts.Address(0) + ":29400",
                                               "--token_file=token",
                                               "--max_restarts=3"};
      launchers.push_back(std::make_unique<TestProcess>(
          "/bin/sh", hosts.Run(host, Joined(launch, training)), folder_));
    }
    return launchers;
  }

  TestFolder folder_;
};

TEST_F(HostsTrainingTest, SeveralHostsTrainAsOneDoes) {
  for (const int count : {2, 3}) {
    const std::string name = absl::StrCat(count);
    TestProcess one(kLaunch,
                    Joined({absl::StrCat("--nproc=", 2 * count)}, Training(20, "one" + name)),
                    folder_);
    ASSERT_EQ(one.Wait(), 0) << one.err();
    const Hosts hosts(count);
    const auto launchers = Launch(hosts, count, Training(20, "several" + name));
    for (const auto& launcher : launchers) EXPECT_EQ(launcher->Wait(), 0) << launcher->err();
    EXPECT_TRUE(Contains(launchers[0]->out(), "backend gloo")) << launchers[0]->out();
    EXPECT_NEAR(ValidationLoss(*launchers[0]), ValidationLoss(one), 1e-3);
    EXPECT_TRUE(folder_.NoneLeft());
  }
}

// Parameters are shared inside of each host, and gradients averaged between the two; or shared by
// all.
TEST_F(HostsTrainingTest, ShardedStrategiesTrainOverTwoHosts) {
  TestProcess one(kLaunch, Joined({"--nproc=4"}, Training(20, "one")), folder_);
  ASSERT_EQ(one.Wait(), 0) << one.err();
  for (const std::vector<std::string>& strategy : std::vector<std::vector<std::string>>{
           {"--strategy=hybrid", "--replicas=2"}, {"--strategy=fsdp"}}) {
    const Hosts hosts(2);
    const auto launchers =
        Launch(hosts, 2, Joined(Training(20, "two" + strategy[0].substr(11)), strategy));
    for (const auto& launcher : launchers) EXPECT_EQ(launcher->Wait(), 0) << launcher->err();
    EXPECT_TRUE(Contains(launchers[0]->out(), "backend gloo")) << launchers[0]->out();
    EXPECT_NEAR(ValidationLoss(*launchers[0]), ValidationLoss(one), 1e-3) << strategy[0];
    EXPECT_TRUE(folder_.NoneLeft());
  }
}

TEST_F(HostsTrainingTest, ACutLinkIsNamedByEachRankAndTheRestartFinishesWhenItIsBack) {
  constexpr int kSteps = 600;
  TestProcess one(kLaunch, Joined({"--nproc=4"}, Training(kSteps, "one")), folder_);
  ASSERT_EQ(one.Wait(), 0) << one.err();
  Hosts hosts(2);
  const auto launchers = Launch(hosts, 2, Training(kSteps, "two"));
  ASSERT_TRUE(WaitUntil([&] { return fs::exists(folder_ / "two/step-00000050"); }))
      << launchers[0]->err() << launchers[1]->err();
  hosts.CutLink(1);
  for (int rank = 0; rank < 4; ++rank) {
    const TestProcess& launcher = *launchers[static_cast<size_t>(rank / 2)];
    const std::string own = absl::StrCat("[", rank, "] train_gpt: rank ", rank, ": ");
    EXPECT_TRUE(launcher.WaitForErr(own)) << launcher.err();
    const std::vector<std::string> errors = LinesWith(launcher.err(), own);
    ASSERT_EQ(errors.size(), 1u) << launcher.err();
    EXPECT_TRUE(NamesARankOfTheOtherHost(errors[0], rank)) << errors[0];
  }
  hosts.RestoreLink(1);
  for (const auto& launcher : launchers) {
    EXPECT_EQ(launcher->Wait(), 0) << launcher->err();
    EXPECT_TRUE(Contains(launcher->err(), "starting all ranks again: attempt 1"))
        << launcher->err();
  }
  EXPECT_TRUE(Contains(launchers[0]->out(), "[0] resuming: ")) << launchers[0]->out();
  EXPECT_NEAR(ValidationLoss(*launchers[0]), ValidationLoss(one), 1e-2);
  EXPECT_TRUE(folder_.NoneLeft());
}

}  // namespace
}  // namespace lockstep::launch_test
