// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/state_folder.h"

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/state/file_io.h"

namespace lockstep::state {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void MakeSteps(const std::string& root, const std::vector<int64_t>& steps) {
  for (const int64_t step : steps) fs::create_directories(StepFolder(root, step));
}

TEST(StateFolderTest, Names) {
  EXPECT_EQ(StepFolder("/runs/a", 2200), "/runs/a/step-00002200");
  EXPECT_EQ(RankFileName(3), "rank-00003.safetensors");
  EXPECT_EQ(RankFileName(123456), "rank-123456.safetensors");
}

TEST(StateFolderTest, ListsByStepWhatHasTheName) {
  const std::string root = NewFolder();
  EXPECT_THAT(ListStepFolders(root + "/none"), IsEmpty());
  MakeSteps(root, {123456789, 0, 99999999});
  for (const char* other : {"/step-1", "/step-0000000x", "/.saving-00000001", "/stop-00000001"}) {
    fs::create_directories(root + other);
  }
  EXPECT_THAT(ListStepFolders(root), ElementsAre(root + "/step-00000000", root + "/step-99999999",
                                                 root + "/step-123456789"));
}

TEST(StateFolderTest, KeepsTheNewestAndTheOneJustWritten) {
  const std::string root = NewFolder();
  MakeSteps(root, {1, 2, 3, 4});
  KeepNewest(root, StepFolder(root, 4), 0);
  EXPECT_EQ(ListStepFolders(root).size(), 4u);
  KeepNewest(root, StepFolder(root, 1), 2);
  EXPECT_THAT(ListStepFolders(root), ElementsAre(StepFolder(root, 1), StepFolder(root, 4)));
  KeepNewest(root, StepFolder(root, 1), 1);
  EXPECT_THAT(ListStepFolders(root), ElementsAre(StepFolder(root, 1)));
}

TEST(StateFolderTest, RefusesNegativeNumbers) {
  CheckSave("Call", 0, {.keep = 0});
  const Error error = ErrorOf([] { CheckSave("Call", 3, {.keep = -1}); });
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error.message(), "Call: keep -1, step 3; give both >= 0");
  EXPECT_THAT(MessageOf([] { CheckSave("Call", -2, {}); }), HasSubstr("step -2"));
}

TEST(StateFolderTest, ATemporaryFolderIsPublishedOrRemoved) {
  const std::string root = NewFolder() + "/run";
  const std::string target = StepFolder(root, 1);
  for (const char* text : {"old", "new"}) {
    TemporaryFolder folder("Call", MakeUniqueFolder("Call", root));
    WriteFile(folder.path() + "/file", text);
    folder.Publish(target);
  }
  { const TemporaryFolder unused("Call", MakeUniqueFolder("Call", root)); }
  EXPECT_EQ(ReadFile(target + "/file", 10), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(root), fs::directory_iterator()), 1);
  MakeEmptyFolder("Call", target);
  EXPECT_TRUE(fs::is_empty(target));
  WriteFile(root + "/file", "no folder");
  EXPECT_THAT(MessageOf([&] { MakeUniqueFolder("Call", root + "/file/x"); }),
              AllOf(HasSubstr("Call: cannot make"), HasSubstr(root + "/file/x")));
}

TEST(StateFolderTest, VerifiesFiles) {
  const std::string root = NewFolder();
  const std::string file = root + "/data";
  WriteFile(file, "contents");
  EXPECT_EQ(FileChecksum(file), TextChecksum("contents"));
  EXPECT_EQ(TextChecksum(""), "ef46db3751d8e999");  // of XXH64's reference implementation
  VerifyFile(file, TextChecksum("contents"), "index.json");
  const Error damaged = ErrorOf([&] { VerifyFile(file, TextChecksum("other"), "index.json"); });
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(damaged.message(), AllOf(HasSubstr(file), HasSubstr("not the one in index.json")));
  const Error missing = ErrorOf([&] { VerifyFile(file + "2", "", "index.json"); });
  EXPECT_EQ(missing.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(missing.message(), HasSubstr("data2' is missing"));

  EXPECT_EQ(ReadIndexFile(root, "data", "thing", 8), "contents");
  const Error large = ErrorOf([&] { ReadIndexFile(root, "data", "thing", 7); });
  EXPECT_EQ(large.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(large.message(), HasSubstr("'" + root + "' is no thing: "));
  EXPECT_EQ(ErrorOf([&] { ReadIndexFile(root + "/none", "data", "thing", 8); }).code(),
            absl::StatusCode::kNotFound);

  // What cannot be looked at is an Error too.
  const std::string long_name = root + "/" + std::string(300, 'x');
  EXPECT_THAT(
      MessageOf(absl::StatusCode::kDataLoss, [&] { ReadIndexFile(long_name, "data", "thing", 8); }),
      HasSubstr("/data': File name too long"));
  EXPECT_THAT(MessageOf(absl::StatusCode::kFailedPrecondition,
                        [&] { VerifyFile(long_name, "", "index.json"); }),
              HasSubstr("': File name too long"));
}

TEST(StateFolderTest, LoadsTheNewestGoodOne) {
  const std::string root = NewFolder();
  MakeSteps(root, {1, 2, 3});
  std::vector<std::string> skipped;
  const auto first_is_good = [&](const std::string& path) {
    if (path != StepFolder(root, 1)) throw DataLossError("bad " + path);
  };
  EXPECT_EQ(LoadNewest(root, "thing", first_is_good, skipped), StepFolder(root, 1));
  EXPECT_THAT(skipped, ElementsAre("bad " + StepFolder(root, 3), "bad " + StepFolder(root, 2)));

  skipped.clear();
  const auto not_for_this_run = [](const std::string&) { throw InvalidArgumentError("ranks"); };
  EXPECT_EQ(ErrorOf([&] { LoadNewest(root, "thing", not_for_this_run, skipped); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(skipped, IsEmpty());

  const auto none = [](const std::string& path) { throw DataLossError(path); };
  const Error error = ErrorOf([&] { LoadNewest(root, "thing", none, skipped); });
  EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("no thing under '" + root + "': "), HasSubstr(StepFolder(root, 1))));
}

}  // namespace
}  // namespace lockstep::state
