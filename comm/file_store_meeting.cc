// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/file_store_meeting.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/file_store_folder.h"
#include "lockstep/comm/file_store_record.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/store_values.h"

namespace lockstep::comm {
namespace {

constexpr char kMembers[] = "members";
constexpr char kSize[] = "size";
constexpr char kReady[] = "ready";
constexpr char kRankPrefix[] = "rank.";
constexpr char kMetPrefix[] = "met.";

[[noreturn]] void ThrowUsed(const std::string& path, absl::string_view why) {
  throw FailedPreconditionError(absl::StrCat(
      "file store: the folder ", path, " is not this start's own: ", why,
      ": use a new folder for each start (with the job's number and the attempt's in its name)"));
}

// The value in a file that must hold `name` as its key; nothing when it is not there yet.
std::optional<std::string> ValueOf(const std::string& path, const std::string& name) {
  const auto bytes = StoreFolder(path).Read(name, kMaxFileRecordBytes);
  if (!bytes.has_value()) return std::nullopt;
  FileRecord record = ParseFileRecord(*bytes);
  if (record.key != name || record.deleted) {
    throw DataLossError(absl::StrCat("file store: ", path, "/", name, " holds something else"));
  }
  return record.value;
}

bool PublishValue(const std::string& path, const std::string& name, const std::string& value) {
  return StoreFolder(path).Publish(name, EncodeFileRecord({.key = name, .value = value}));
}

void CheckFolder(const std::string& path) {
  const StoreFolder folder(path);
  const mode_t mode = folder.Info().st_mode;
  if ((mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw InvalidArgumentError(
        absl::StrFormat("file store: others may write into the folder %s (mode %04o): make it "
                        "private, chmod 700",
                        path, static_cast<unsigned>(mode & 07777)));
  }
  for (const std::string& name : folder.Names()) {
    if (name != kMembers && name != kSize && name != kReady &&
        !absl::StartsWith(name, kRankPrefix) && !absl::StartsWith(name, kMetPrefix) &&
        !absl::StartsWith(name, kKeyFilePrefix) &&
        !absl::StartsWith(name, StoreFolder::kTemporaryPrefix)) {
      throw InvalidArgumentError(absl::StrCat("file store: the folder ", path,
                                              " holds other files (", name,
                                              "): give the store a folder of its own"));
    }
  }
}

void AgreeOnSize(const std::string& path, int world_size) {
  const std::string mine = absl::StrCat(world_size);
  if (PublishValue(path, kSize, mine)) return;
  const std::string theirs = ValueOf(path, kSize).value_or("");
  if (theirs != mine) {
    ThrowUsed(path, absl::StrCat("it is for ", theirs, " ranks, and this job has ", world_size));
  }
}

void TakeRank(const std::string& path, int rank, const std::string& name) {
  const std::string file = absl::StrCat(kRankPrefix, rank);
  if (!PublishValue(path, file, name)) {
    ThrowUsed(path, absl::StrCat("rank ", rank, " has been here already"));
  }
  // Compared as the file system sees us: a server may map users.
  const StoreFolder folder(path);
  struct stat mine = {};
  if (lstat(absl::StrCat(path, "/", file).c_str(), &mine) == 0 &&
      mine.st_uid != folder.Info().st_uid) {
    throw InvalidArgumentError(absl::StrCat("file store: the folder ", path, " belongs to user ",
                                            folder.Info().st_uid, ", and our files to user ",
                                            mine.st_uid, ": use a folder of this user's"));
  }
}

std::vector<int> RanksWithout(const std::string& path, const std::string& prefix, int world_size) {
  const StoreFolder folder(path);
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!folder.Exists(absl::StrCat(prefix, rank))) ranks.push_back(rank);
  }
  return ranks;
}

// Looks again until `ready`; then the error names the ranks without a file of that prefix.
void Await(const std::string& path, const std::string& prefix, int world_size, Deadline deadline,
           const std::function<bool()>& ready) {
  const Stopwatch watch;
  absl::Duration pause = absl::Milliseconds(1);
  while (!ready()) {
    if (deadline.Expired()) {
      const std::vector<int> missing = RanksWithout(path, prefix, world_size);
      throw DeadlineExceededError(absl::StrCat(
          "file store: of ", world_size, " ranks, rank ",
          missing.empty() ? "0" : absl::StrJoin(missing, ", "), " did not come to the folder ",
          path, " within ", WaitedText(watch.Elapsed()),
          prefix == kMetPrefix ? " (its name is there: is the folder an earlier start's?)" : ""));
    }
    absl::SleepFor(std::min(pause, deadline.Remaining()));
    pause = std::min(pause * 2, absl::Milliseconds(50));
  }
}

// The values in every rank's file of that prefix.
std::vector<std::string> AwaitRanks(const std::string& path, const std::string& prefix,
                                    int world_size, Deadline deadline) {
  std::vector<std::string> values;
  Await(path, prefix, world_size, deadline, [&] {
    // In order, so that each look reads only what is new.
    while (static_cast<int>(values.size()) < world_size) {
      auto value = ValueOf(path, absl::StrCat(prefix, values.size()));
      if (!value.has_value()) return false;
      values.push_back(*std::move(value));
    }
    return true;
  });
  return values;
}

void PublishOnce(const std::string& path, const std::string& name, const std::string& value) {
  if (!PublishValue(path, name, value)) ThrowUsed(path, "its ranks have met already");
}

}  // namespace

void MeetInFolder(const std::string& path, int rank, int world_size, Deadline deadline) {
  CheckFolder(path);
  AgreeOnSize(path, world_size);
  const std::string name = RandomName();
  TakeRank(path, rank, name);
  if (rank == 0) {
    PublishOnce(path, kMembers,
                absl::StrJoin(AwaitRanks(path, kRankPrefix, world_size, deadline), "\n"));
  }
  std::optional<std::string> members;
  Await(path, kRankPrefix, world_size, deadline, [&] {
    members = ValueOf(path, kMembers);
    return members.has_value();
  });
  if (ParseMembers(*members, world_size)[static_cast<size_t>(rank)] != name) {
    ThrowUsed(path, absl::StrCat("its ranks have met already, without this rank ", rank));
  }
  PublishOnce(path, absl::StrCat(kMetPrefix, rank), name);
  if (rank == 0) {
    AwaitRanks(path, kMetPrefix, world_size, deadline);
    PublishOnce(path, kReady, "");
  }
  Await(path, kMetPrefix, world_size, deadline, [&] { return ValueOf(path, kReady).has_value(); });
}

}  // namespace lockstep::comm
