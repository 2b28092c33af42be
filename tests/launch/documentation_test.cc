// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The commands of docs/launch.md, run as they stand there but for smaller models, this host's names
// and programs of this build.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/socket.h"
#include "lockstep/docs/snippets.h"
#include "lockstep/tests/launch/test_process.h"
#include "lockstep/tools/launcher/options.h"

namespace lockstep::launch_test {
namespace {

namespace fs = std::filesystem;

constexpr char kPage[] = "docs/launch.md";

// The commands of each ```sh block, continued lines joined.
std::vector<std::vector<std::string>> CommandBlocks() {
  std::vector<std::vector<std::string>> blocks;
  bool inside = false;
  const std::string page = absl::StrReplaceAll(ReadAll(kPage), {{"\\\n", ""}});
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (line == "```sh") {
      inside = true;
      blocks.emplace_back();
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      blocks.back().emplace_back(line);
    }
  }
  return blocks;
}

int FreePort() { return comm::PortOf(comm::ListenTcp("127.0.0.1", 0).get()); }

TEST(LaunchDocumentationTest, EveryCommandRuns) {
  const std::vector<std::vector<std::string>> blocks = CommandBlocks();
  ASSERT_EQ(blocks.size(), 4u);
  for (const std::vector<std::string>& block : blocks) {
    if (absl::StartsWith(block[0], "mpirun") && !fs::exists("/usr/bin/mpirun")) continue;
    const TestFolder folder;
    WriteTrainingText(folder);
    std::ofstream(folder / "token") << "a token for tests";
    fs::permissions(folder / "token", fs::perms::owner_read | fs::perms::owner_write);
    const std::string port = absl::StrCat(FreePort());
    std::vector<std::unique_ptr<TestProcess>> processes;
    for (const std::string& command : block) {
      const std::string mine = absl::StrCat(
          absl::StrReplaceAll(command,
                              {{"./bazelw run //tools:launch --", ProgramPath("tools/launch")},
                               {"bazel-bin/examples/train_gpt", ProgramPath("examples/train_gpt")},
                               {"mpirun ", "mpirun --oversubscribe "},
                               {"node0:29400", "127.0.0.1:" + port},
                               {"MASTER_PORT=29500", "MASTER_PORT=" + port},
                               {"/shared/jobs/1234", folder / "job"}}),
          " --data=text.txt --steps=3 --layers=1 --heads=2 --width=16 --block=16");
      processes.push_back(std::make_unique<TestProcess>(
          "/bin/sh", std::vector<std::string>{"-c", "exec " + mine}, folder,
          std::map<std::string, std::string>{{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                             {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                             {"TMPDIR", "/tmp"}}));
    }
    for (size_t i = 0; i < block.size(); ++i) {
      EXPECT_EQ(processes[i]->Wait(), 0) << block[i] << "\n" << processes[i]->err();
    }
    EXPECT_TRUE(fs::exists(folder / "run/step-00000003")) << block[0];
    EXPECT_TRUE(Contains(processes[0]->out(), "ddp, 4 ranks")) << processes[0]->out();
    EXPECT_TRUE(folder.NoneLeft());
  }
}

TEST(LaunchDocumentationTest, ThePageHasEveryFlagAndVariable) {
  const std::string page = ReadAll(kPage);
  int flags = 0;
  for (const std::string& line : LinesWith(launcher::LaunchHelp(), "  --")) {
    const std::string flag = line.substr(0, line.find('='));
    EXPECT_TRUE(Contains(page, "| `--" + flag + "` |")) << flag;
    ++flags;
  }
  EXPECT_EQ(flags, 10);
  const TestFolder folder;
  TestProcess process("tools/launch", {"env"}, folder);
  TestProcess plain("/usr/bin/env", {}, folder);
  EXPECT_EQ(process.Wait(), 0) << process.err();
  EXPECT_EQ(plain.Wait(), 0);
  int variables = 0;
  for (const std::string& line : LinesWith(process.out(), "[0] ")) {
    const std::string name = line.substr(0, line.find('='));
    // (Lines of a value with several are none.)
    const bool is_name = name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == std::string::npos;
    if (!is_name || Contains(plain.out(), name + "=")) continue;
    EXPECT_TRUE(Contains(page, "`" + name + "`")) << name;
    ++variables;
  }
  EXPECT_EQ(variables, 15);
}

TEST(LaunchDocumentationTest, TheCodeCompiles) {
  const comm::Environment environment = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  if (comm::StartedAsRank(environment)) {  // read from `environ` in main
    auto world = comm::InitProcessGroup(comm::ProcessGroupOptionsFromEnvironment(environment));
    EXPECT_EQ(world->size(), 1);
  }
  docs::ExpectSnippetsCompiled(kPage, "tests/launch/documentation_test.cc");
}

}  // namespace
}  // namespace lockstep::launch_test
