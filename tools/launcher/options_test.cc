// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tools/launcher/options.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

TEST(ParseLaunchOptionsTest, EveryFlag) {
  const LaunchOptions options = ParseLaunchOptions(
      {"--nproc=4", "--nnodes=3", "--node_rank=2", "--rendezvous=[::1]:29400", "--max_restarts=5",
       "--token_file=/t", "--log_dir=/l", "--stop_grace=500ms", "--node_timeout=3s",
       "--join_timeout=2m", "train", "--nproc=9", "--", "x"});
  EXPECT_EQ(options.nproc, 4);
  EXPECT_EQ(options.nnodes, 3);
  EXPECT_EQ(options.node_rank, 2);
  EXPECT_EQ(options.rendezvous_host, "::1");
  EXPECT_EQ(options.rendezvous_port, 29400);
  EXPECT_EQ(options.max_restarts, 5);
  EXPECT_EQ(options.token_file, "/t");
  EXPECT_EQ(options.log_dir, "/l");
  EXPECT_EQ(options.stop_grace, absl::Milliseconds(500));
  EXPECT_EQ(options.node_timeout, absl::Seconds(3));
  EXPECT_EQ(options.join_timeout, absl::Minutes(2));
  EXPECT_EQ(options.program, "train");
  EXPECT_EQ(options.arguments, (std::vector<std::string>{"--nproc=9", "--", "x"}));
}

TEST(ParseLaunchOptionsTest, DefaultsAndForms) {
  const LaunchOptions plain = ParseLaunchOptions({"train"});
  EXPECT_EQ(plain.nproc, 1);
  EXPECT_EQ(plain.max_restarts, 0);
  EXPECT_TRUE(plain.arguments.empty());
  EXPECT_EQ(ParseLaunchOptions({"--", "-odd-name"}).program, "-odd-name");
  EXPECT_TRUE(ParseLaunchOptions({"--help"}).help);
  EXPECT_EQ(ParseLaunchOptions({"--rendezvous=file:///shared/job-1/", "p"}).rendezvous_folder,
            "/shared/job-1");
  EXPECT_EQ(ParseLaunchOptions({"--rendezvous=host-0.job:1", "p"}).rendezvous_host, "host-0.job");
  for (const char* flag : {"nproc", "nnodes", "node_rank", "rendezvous", "max_restarts",
                           "token_file", "log_dir", "stop_grace", "node_timeout", "join_timeout"}) {
    EXPECT_TRUE(absl::StrContains(LaunchHelp(), absl::StrCat("  --", flag, "="))) << flag;
  }
}

TEST(ParseLaunchOptionsTest, RefusalsNameValueAndRemedy) {
  const auto refusal = [](std::vector<std::string> arguments) {
    try {
      arguments.push_back("program");
      ParseLaunchOptions(arguments);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      return error.message();
    }
    return std::string("nothing was thrown");
  };
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--nproc=0"}, "--nproc=0: give a number from 1 to 1024"},
      {{"--nproc=1025"}, "--nproc=1025: give a number"},
      {{"--nproc="}, "--nproc=: give a number"},
      {{"--nproc=4x"}, "--nproc=4x: give a number"},
      {{"--nnodes=-1"}, "--nnodes=-1: give a number"},
      {{"--node_rank=1"}, "--node_rank=1: with --nnodes=1 it is 0 to 0"},
      {{"--max_restarts=-1"}, "--max_restarts=-1: give a number"},
      {{"--nnodes=2"}, "--nnodes=2: several nodes need --rendezvous"},
      {{"--nnodes=2", "--rendezvous=h:1"},
       "--rendezvous=h:1: the port is open to others: give --token_file"},
      {{"--rendezvous=file:///f", "--token_file=/t"}, "--token_file=/t: a rendezvous folder is"},
      {{"--rendezvous=h"}, "--rendezvous=h: give host:port"},
      {{"--rendezvous=h:0"}, "--rendezvous=h:0: give host:port"},
      {{"--rendezvous=h:65536"}, "--rendezvous=h:65536: give"},
      {{"--rendezvous=:1"}, "--rendezvous=:1: give"},
      {{"--rendezvous=[::1:1"}, "--rendezvous=[::1:1: give"},
      {{"--rendezvous=tcp://h:1"}, "--rendezvous=tcp://h:1: give"},
      {{"--rendezvous=file://f"}, "--rendezvous=file://f: give"},
      {{"--rendezvous=file:///"}, "--rendezvous=file:///: give"},
      {{"--stop_grace=0s"}, "--stop_grace=0s: give a time such as 500ms"},
      {{"--stop_grace=30"}, "--stop_grace=30: give a time"},
      {{"--join_timeout=inf"}, "--join_timeout=inf: give a time"},
      {{"--log_dir="}, "--log_dir=: give a path"},
      {{"--nprocs=2"}, "--nprocs=2: no such flag"},
      {{"--nproc", "2"}, "\"--nproc\" is not --flag=value"},
      {{"-n=2"}, "\"-n=2\" is not --flag=value"},
  };
  for (const auto& [arguments, text] : cases) {
    EXPECT_TRUE(absl::StrContains(refusal(arguments), text)) << refusal(arguments);
  }
  EXPECT_THROW(ParseLaunchOptions({}), Error);
  EXPECT_THROW(ParseLaunchOptions({"--nproc=2", "--"}), Error);
}

TEST(FindProgramTest, LooksWhereAShellDoes) {
  const std::string folder = NewFolder();
  for (const char* name : {"one/tool", "two/tool", "two/plain"}) {
    fs::create_directories(fs::path(folder + "/" + name).parent_path());
    std::ofstream(folder + "/" + name) << "#!/bin/sh\n";
    if (std::string(name) != "two/plain") {
      fs::permissions(folder + "/" + name, fs::perms::owner_all);
    }
  }
  const std::string path = folder + "/none:" + folder + "/two:" + folder + "/one";
  EXPECT_EQ(FindProgram("tool", folder, path), folder + "/two/tool");
  EXPECT_EQ(FindProgram("one/tool", folder, path), folder + "/one/tool");
  EXPECT_EQ(FindProgram("./one/../one/tool", folder, ""), folder + "/one/tool");
  EXPECT_EQ(FindProgram(folder + "/two/tool", "/", ""), folder + "/two/tool");
  const auto refusal = [&](const std::string& program) {
    try {
      FindProgram(program, folder, path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
      return error.message();
    }
    return std::string("nothing was thrown");
  };
  EXPECT_TRUE(absl::StrContains(refusal("plain"), "not in PATH")) << "not executable";
  EXPECT_TRUE(absl::StrContains(refusal("none"), "./none for one in this folder"));
  EXPECT_TRUE(absl::StrContains(refusal("one/none"), "no executable file, seen from " + folder));
  EXPECT_TRUE(absl::StrContains(refusal("./one"), "no executable file")) << "a folder";
}

}  // namespace
}  // namespace lockstep::launcher
