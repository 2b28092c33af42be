// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/byte_text.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::data {
namespace {

constexpr int64_t kChunkBytes = 16 << 10;
constexpr int64_t kValidationEvery = 20;

bool Matches(const std::filesystem::path& path, const ByteTextOptions& options) {
  if (options.extensions.empty()) return true;
  const std::string name = path.filename().string();
  return std::any_of(options.extensions.begin(), options.extensions.end(),
                     [&](const std::string& extension) {
                       return extension.empty() ? name.find('.') == std::string::npos
                                                : absl::EndsWith(name, extension);
                     });
}

// The regular files under `folder` that match, sorted.
std::vector<std::string> ListFiles(const std::string& folder, const ByteTextOptions& options) {
  std::vector<std::string> paths;
  std::error_code failure;
  std::filesystem::recursive_directory_iterator it(folder, failure), end;
  while (!failure && it != end) {
    std::error_code not_a_file;
    if (it->is_regular_file(not_a_file) && Matches(it->path(), options)) {
      paths.push_back(it->path().string());
    }
    it.increment(failure);
  }
  if (failure) {
    throw FailedPreconditionError(
        absl::StrCat("ByteText: cannot read folder ", folder, ": ", failure.message()));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::shared_ptr<const ByteText> ByteText::Open(const std::string& path,
                                               const ByteTextOptions& options) {
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status)) {
    throw NotFoundError(absl::StrCat("ByteText: cannot open '", path, "': ",
                                     failure ? failure.message() : "no such file or folder"));
  }
  std::vector<std::string> paths = {path};
  if (std::filesystem::is_directory(status)) {
    paths = ListFiles(path, options);
    if (paths.empty()) {
      throw NotFoundError(absl::StrCat("ByteText: no file under '", path, "'",
                                       options.extensions.empty() ? "" : " has such an extension"));
    }
  }
  std::shared_ptr<ByteText> text(new ByteText);
  for (const std::string& file : paths) text->Map(file);
  if (text->size_bytes() == 0) {
    throw InvalidArgumentError(absl::StrCat("ByteText: '", path, "' has no bytes"));
  }
  return text;
}

void ByteText::Map(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info;
  if (descriptor < 0 || fstat(descriptor, &info) != 0) {
    const int code = errno;
    if (descriptor >= 0) close(descriptor);
    throw FailedPreconditionError(
        absl::StrCat("ByteText: cannot read '", path, "': ", std::strerror(code)));
  }
  File file{nullptr, info.st_size};
  if (file.bytes > 0) {
    void* data =
        mmap(nullptr, static_cast<size_t>(file.bytes), PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) {
      const int code = errno;
      close(descriptor);
      throw FailedPreconditionError(
          absl::StrCat("ByteText: cannot map '", path, "': ", std::strerror(code)));
    }
    file.data = static_cast<const uint8_t*>(data);
  }
  close(descriptor);
  files_.push_back(file);
  starts_.push_back(starts_.back() + file.bytes);
}

ByteText::~ByteText() {
  for (const File& file : files_) {
    if (file.data != nullptr) {
      munmap(const_cast<uint8_t*>(file.data), static_cast<size_t>(file.bytes));
    }
  }
}

void ByteText::Read(int64_t begin, int64_t count, uint8_t* out) const {
  if (begin < 0 || count < 0 || begin > size_bytes() || count > size_bytes() - begin) {
    throw OutOfRangeError(
        absl::StrCat("ByteText::Read: ", count, " bytes at ", begin, " of ", size_bytes()));
  }
  size_t file = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) -
                                    starts_.begin() - 1);
  while (count > 0) {
    const int64_t within = begin - starts_[file];
    const int64_t part = std::min(count, files_[file].bytes - within);
    if (part > 0) std::memcpy(out, files_[file].data + within, static_cast<size_t>(part));
    out += part;
    begin += part;
    count -= part;
    ++file;
  }
}

uint64_t ByteText::Fingerprint() const {
  uint64_t hash = Hash64("");
  for (const File& file : files_) {
    hash = Hash64(absl::string_view(reinterpret_cast<const char*>(file.data),
                                    static_cast<size_t>(file.bytes)),
                  hash ^ static_cast<uint64_t>(file.bytes));
  }
  return hash;
}

ByteTextDataset::ByteTextDataset(std::shared_ptr<const ByteText> text, int64_t block, TextPart part)
    : text_(std::move(text)), block_(block) {
  if (!text_) throw InvalidArgumentError("ByteTextDataset: no text given");
  if (block < 1 || block >= kChunkBytes) {
    throw InvalidArgumentError(
        absl::StrCat("ByteTextDataset: block ", block, "; give 1 to ", kChunkBytes - 1));
  }
  const int64_t size = text_->size_bytes();
  for (int64_t begin = 0, chunk = 0; begin < size; begin += kChunkBytes, ++chunk) {
    const bool held_out = chunk % kValidationEvery == kValidationEvery - 1;
    if (held_out != (part == TextPart::kValidation)) continue;
    const int64_t windows = (std::min(kChunkBytes, size - begin) - 1) / block;
    chunk_begin_.push_back(begin);
    first_row_.push_back(first_row_.back() + windows);
  }
  if (this->size() == 0) {
    throw InvalidArgumentError(
        absl::StrCat("ByteTextDataset: ", size, " bytes have no ",
                     part == TextPart::kValidation ? "validation" : "training", " window of ",
                     block + 1, " bytes; ",
                     part == TextPart::kValidation
                         ? absl::StrCat("a held-out chunk needs more than ",
                                        kChunkBytes * (kValidationEvery - 1), " bytes of text")
                         : "give more text or a smaller block"));
  }
}

NamedTensors ByteTextDataset::Get(int64_t index, SampleContext&) const {
  if (index < 0 || index >= size()) {
    throw OutOfRangeError(absl::StrCat("ByteTextDataset: row ", index, " of ", size()));
  }
  const size_t chunk = static_cast<size_t>(
      std::upper_bound(first_row_.begin(), first_row_.end(), index) - first_row_.begin() - 1);
  std::vector<uint8_t> bytes(static_cast<size_t>(block_ + 1));
  text_->Read(chunk_begin_[chunk] + (index - first_row_[chunk]) * block_, block_ + 1, bytes.data());
  Tensor ids = Empty({block_}, {.dtype = DType::kInt64});
  Tensor targets = Empty({block_}, {.dtype = DType::kInt64});
  int64_t* id = MutableData<int64_t>(ids);
  int64_t* target = MutableData<int64_t>(targets);
  for (int64_t i = 0; i < block_; ++i) {
    id[i] = bytes[static_cast<size_t>(i)];
    target[i] = bytes[static_cast<size_t>(i + 1)];
  }
  return {{"ids", std::move(ids)}, {"targets", std::move(targets)}};
}

}  // namespace lockstep::data
