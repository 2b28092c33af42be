// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/file_store.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/file_store_folder.h"
#include "lockstep/comm/file_store_meeting.h"
#include "lockstep/comm/store_values.h"

namespace lockstep::comm {
namespace {

constexpr absl::string_view kScheme = "file://";

// Keys may hold any bytes and be longer than a file's name.
std::string KeyFile(const std::string& key, int64_t number) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int digest_bytes = 0;
  if (EVP_Digest(key.data(), key.size(), digest, &digest_bytes, EVP_sha256(), nullptr) != 1) {
    throw InternalError("file store: OpenSSL refuses to compute a SHA-256");
  }
  const absl::string_view bytes(reinterpret_cast<const char*>(digest), digest_bytes);
  return absl::StrCat(kKeyFilePrefix, absl::BytesToHexString(bytes), ".", number);
}

}  // namespace

std::string FolderOfFileUrl(absl::string_view url) {
  if (!absl::StartsWith(url, absl::StrCat(kScheme, "/")) || url.size() <= kScheme.size() + 1) {
    throw InvalidArgumentError(
        absl::StrCat("rendezvous \"", url, "\" has another form than file:///absolute/folder"));
  }
  return std::string(url.substr(kScheme.size()));
}

FileStore::FileStore(const FileStoreOptions& options) : path_(options.folder) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    throw InvalidArgumentError(absl::StrCat("FileStore: rank ", options.rank, " is not in [0, ",
                                            options.world_size, "), the world size"));
  }
  if (path_.empty()) throw InvalidArgumentError("FileStore: no folder is given");
  MakeStoreFolder(path_);
  MeetInFolder(path_, options.rank, options.world_size, Deadline::After(options.timeout));
  met_in_ = UniqueFd(open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

std::string FileStore::Describe() const { return absl::StrCat("store in ", path_); }

StoreFolder FileStore::Look() const {
  StoreFolder folder(path_);
  const struct stat now = folder.Info();
  struct stat then = {};
  if (fstat(met_in_.get(), &then) != 0 || now.st_dev != then.st_dev || now.st_ino != then.st_ino) {
    throw UnavailableError(
        absl::StrCat("file store: the folder ", path_, " has been replaced by another one"));
  }
  return folder;
}

// Numbers have no gaps, so that doubling the step and halving it again finds the last one.
int64_t FileStore::NewestNumber(const StoreFolder& folder, const std::string& key) {
  int64_t number = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    number = known_[key];
  }
  int64_t step = 1;
  while (folder.Exists(KeyFile(key, number + step))) {
    number += step;
    step *= 2;
  }
  for (step /= 2; step >= 1; step /= 2) {
    if (folder.Exists(KeyFile(key, number + step))) number += step;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t& known = known_[key];
  known = std::max(known, number);
  return number;
}

FileStore::Version FileStore::Newest(const std::string& key) {
  for (;;) {
    const StoreFolder folder = Look();
    const int64_t number = NewestNumber(folder, key);
    if (number == 0) return {.record = {.key = key, .deleted = true}};
    const std::string bytes = folder.Read(KeyFile(key, number), kMaxFileRecordBytes).value_or("");
    try {
      Version version = {.number = number, .record = ParseFileRecord(bytes)};
      if (version.record.key == key) return version;
      throw DataLossError("file store: a record of another key");
    } catch (const Error& error) {
      // A writer that came in between has emptied it.
      if (folder.Exists(KeyFile(key, number + 1))) continue;
      throw error.WithContext(absl::StrCat("key ", key, " in ", path_));
    }
  }
}

bool FileStore::Append(const Version& last, const FileRecord& record) {
  const StoreFolder folder = Look();
  if (!folder.Publish(KeyFile(record.key, last.number + 1), EncodeFileRecord(record))) return false;
  if (last.number > 0) folder.Empty(KeyFile(record.key, last.number));
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t& known = known_[record.key];
  known = std::max(known, last.number + 1);
  return true;
}

// Somebody always gets through; it need not be us.
template <typename Change>
auto FileStore::Retry(absl::string_view call, absl::string_view key, Deadline deadline,
                      const Change& change) {
  const Stopwatch watch;
  for (;;) {
    if (auto result = change()) return *result;
    if (deadline.Expired()) {
      throw DeadlineExceededError(absl::StrCat("store: ", call, " of key ", key, ": other ranks ",
                                               "changed it in the ", Describe(), " all the ",
                                               WaitedText(watch.Elapsed())));
    }
  }
}

void FileStore::Set(absl::string_view key, absl::string_view value, Deadline deadline) {
  CheckStoreKey(key);
  CheckStoreValue(key, value);
  const FileRecord record = {.key = std::string(key), .value = std::string(value)};
  Retry("Set", key, deadline, [&] {
    return Append(Newest(record.key), record) ? std::optional<bool>(true) : std::nullopt;
  });
}

int64_t FileStore::Add(absl::string_view key, int64_t delta, Deadline deadline) {
  CheckStoreKey(key);
  const std::string name(key);
  return Retry("Add", key, deadline, [&]() -> std::optional<int64_t> {
    const Version last = Newest(name);
    StoreValues values;
    if (!last.record.deleted) values[name] = last.record.value;
    const int64_t sum = AddToStoreValue(values, name, delta);
    if (!Append(last, {.key = name, .value = values[name]})) return std::nullopt;
    return sum;
  });
}

bool FileStore::Delete(absl::string_view key, Deadline deadline) {
  CheckStoreKey(key);
  const std::string name(key);
  return Retry("Delete", key, deadline, [&]() -> std::optional<bool> {
    const Version last = Newest(name);
    if (last.record.deleted) return false;
    if (!Append(last, {.key = name, .deleted = true})) return std::nullopt;
    return true;
  });
}

std::vector<std::string> FileStore::Await(absl::string_view call,
                                          const std::vector<std::string>& keys, Deadline deadline) {
  for (const std::string& key : keys) CheckStoreKey(key);
  const Stopwatch watch;
  absl::Duration pause = absl::Milliseconds(1);
  for (;;) {
    std::vector<std::string> values;
    std::vector<std::string> missing;
    for (const std::string& key : keys) {
      Version version = Newest(key);
      if (version.record.deleted) missing.push_back(key);
      values.push_back(std::move(version.record.value));
    }
    if (missing.empty()) return values;
    if (deadline.Expired()) {
      throw DeadlineExceededError(MissingKeysText(call, missing, Describe(), watch.Elapsed()));
    }
    absl::SleepFor(std::min(pause, deadline.Remaining()));
    pause = std::min(pause * 2, absl::Milliseconds(50));
  }
}

std::string FileStore::Get(absl::string_view key, Deadline deadline) {
  return Await("Get", {std::string(key)}, deadline)[0];
}

void FileStore::Wait(const std::vector<std::string>& keys, Deadline deadline) {
  Await("Wait", keys, deadline);
}

}  // namespace lockstep::comm
