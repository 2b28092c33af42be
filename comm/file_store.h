// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A store in a folder that all ranks see, for clusters where a common file system is simpler than
// an open port.
//
//   FileStore store({.folder = "/shared/jobs/1234-0", .rank = rank, .world_size = 4});
//   store.Set("address/0", "...", deadline);
//
// or, for a group, ProcessGroupOptions::rendezvous = "file:///shared/jobs/1234-0".
//
// A folder serves one start of one job: put the job's number and the attempt's into its name, and
// remove it when the job is over. The ranks meet in the constructor, which refuses a folder that
// has been used before, even one whose job died while its ranks were meeting.
//
// There are no locks. A file appears under its name by link(2), whole and only if nobody else has
// taken the name; each change of a key is a new file with the next number, which makes Add atomic.
// So a process may be killed anywhere: what it leaves is a temporary file that nobody reads. Older
// versions are emptied, yet their names stay: this is for rendezvous, not for frequent changes.
//
// Waiting is looking again, at most every 50 ms. Over NFS a change may show only when the client's
// attribute cache allows (a second or more); the folder is opened anew for each look, which makes
// close-to-open clients ask the server. A hung file system blocks calls beyond their deadline.
// Unlike a StoreServer, a folder does not notice when a rank dies.
#ifndef LOCKSTEP_COMM_FILE_STORE_H_
#define LOCKSTEP_COMM_FILE_STORE_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/file_store_folder.h"
#include "lockstep/comm/file_store_record.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm {

struct FileStoreOptions {
  std::string folder;  // made (mode 0700) if absent; the folder around it must exist
  int rank = 0;
  int world_size = 1;
  absl::Duration timeout = absl::Minutes(10);  // for the ranks to meet
};

// Calls throw as Store's do, and further Unavailable when the folder is gone or cannot be read,
// ResourceExhausted when it is full, DataLoss for a damaged file.
class FileStore final : public Store {
 public:
  // Returns when all ranks have come. Throws
  //   InvalidArgument     rank and size do not fit; the folder belongs to another user, is writable
  //                       for group or others, or holds other files;
  //   NotFound            the folder around it does not exist;
  //   FailedPrecondition  the folder is an earlier start's, or this rank is there already;
  //   DeadlineExceeded    names the ranks that have not come;
  //   Unimplemented       the file system has no hard links.
  explicit FileStore(const FileStoreOptions& options);

  void Set(absl::string_view key, absl::string_view value, Deadline deadline) override;
  std::string Get(absl::string_view key, Deadline deadline) override;
  void Wait(const std::vector<std::string>& keys, Deadline deadline) override;
  int64_t Add(absl::string_view key, int64_t delta, Deadline deadline) override;
  bool Delete(absl::string_view key, Deadline deadline) override;
  std::string Describe() const override;

 private:
  // A key's newest file: number 0 and deleted where there is none.
  struct Version {
    int64_t number = 0;
    FileRecord record = {};
  };

  // The folder as it is now. Throws Unavailable when it is not the one that we met in.
  StoreFolder Look() const;
  int64_t NewestNumber(const StoreFolder& folder, const std::string& key);
  Version Newest(const std::string& key);
  // False when another rank has written after `last`.
  bool Append(const Version& last, const FileRecord& record);
  // Calls `change` until it gives a result.
  template <typename Change>
  auto Retry(absl::string_view call, absl::string_view key, Deadline deadline,
             const Change& change);
  // The values, once all are there.
  std::vector<std::string> Await(absl::string_view call, const std::vector<std::string>& keys,
                                 Deadline deadline);

  std::string path_;
  std::mutex mutex_;
  std::map<std::string, int64_t> known_;  // numbers of keys' files that exist, as far as seen
  UniqueFd met_in_;  // the folder, held open so that its inode number is not given to another
};

// The folder of "file:///folder"; the rest is taken literally. Throws InvalidArgument for another
// form.
std::string FolderOfFileUrl(absl::string_view url);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_FILE_STORE_H_
