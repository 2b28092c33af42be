// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/file_store_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {

void MakeStoreFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return;
  const std::string text =
      absl::StrCat("file store: cannot make the folder ", path, ": ", ErrnoText(errno));
  if (errno == ENOENT) throw NotFoundError(text);
  throw UnavailableError(text);
}

StoreFolder::StoreFolder(const std::string& path)
    : path_(path), folder_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!folder_.valid()) {
    throw UnavailableError(
        absl::StrCat("file store: cannot open the folder ", path, ": ", ErrnoText(errno)));
  }
}

void StoreFolder::Fail(absl::string_view what, const std::string& name, int error) const {
  const std::string text =
      absl::StrCat("file store: cannot ", what, " ", path_, "/", name, ": ", ErrnoText(error));
  if (error == ENOSPC || error == EDQUOT) throw ResourceExhaustedError(text);
  throw UnavailableError(text);
}

struct stat StoreFolder::Info() const {
  struct stat info = {};
  if (fstat(folder_.get(), &info) != 0) Fail("look at", "", errno);
  return info;
}

std::vector<std::string> StoreFolder::Names() const {
  UniqueFd again(openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again.valid()) Fail("list", "", errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(again.get()), closedir);
  if (stream == nullptr) Fail("list", "", errno);
  again.release();  // the stream closes it
  std::vector<std::string> names;
  while (const dirent* entry = readdir(stream.get())) {
    const absl::string_view name(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

bool StoreFolder::Exists(const std::string& name) const {
  if (faccessat(folder_.get(), name.c_str(), F_OK, 0) == 0) return true;
  if (errno != ENOENT) Fail("look for", name, errno);
  return false;
}

std::optional<std::string> StoreFolder::Read(const std::string& name, int64_t maximum_bytes) const {
  const UniqueFd file(
      openat(folder_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid()) {
    if (errno == ENOENT) return std::nullopt;
    Fail("open", name, errno);
  }
  std::string bytes;
  char chunk[16 << 10];
  for (;;) {
    const ssize_t n = read(file.get(), chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail("read", name, errno);
    if (n == 0) return bytes;
    bytes.append(chunk, static_cast<size_t>(n));
    if (static_cast<int64_t>(bytes.size()) > maximum_bytes) {
      throw DataLossError(absl::StrCat("file store: ", path_, "/", name, " has more than ",
                                       maximum_bytes, " bytes"));
    }
  }
}

void StoreFolder::WriteNew(const std::string& name, absl::string_view bytes) const {
  UniqueFd file(openat(folder_.get(), name.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) Fail("create", name, errno);
  int error = 0;
  while (!bytes.empty() && error == 0) {
    const ssize_t n = write(file.get(), bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  // A network file system may find only here that the bytes did not arrive.
  if (close(file.release()) != 0 && error == 0) error = errno;
  if (error == 0) return;
  unlinkat(folder_.get(), name.c_str(), 0);
  Fail("write", name, error);
}

bool StoreFolder::Publish(const std::string& name, absl::string_view bytes) const {
  const std::string temporary = absl::StrCat(kTemporaryPrefix, RandomName());
  WriteNew(temporary, bytes);
  int error =
      linkat(folder_.get(), temporary.c_str(), folder_.get(), name.c_str(), 0) == 0 ? 0 : errno;
  // Over NFS a request that was sent twice fails although the first one made the link.
  struct stat info = {};
  if (error != 0 && fstatat(folder_.get(), temporary.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      info.st_nlink == 2) {
    error = 0;
  }
  unlinkat(folder_.get(), temporary.c_str(), 0);
  if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK) {
    throw UnimplementedError(absl::StrCat("file store: the file system of ", path_,
                                          " has no hard links: ", ErrnoText(error),
                                          ": use another one, or a store over TCP"));
  }
  if (error != 0 && error != EEXIST) Fail("publish", name, error);
  return error == 0;
}

void StoreFolder::Empty(const std::string& name) const {
  const UniqueFd file(
      openat(folder_.get(), name.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW));
}

}  // namespace lockstep::comm
