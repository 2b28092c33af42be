// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/state/safetensors_writer.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::state {

class SafetensorsFile::Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      const int code = errno;
      const std::string message = absl::StrCat("cannot open '", path, "': ", std::strerror(code));
      throw code == ENOENT ? NotFoundError(message) : FailedPreconditionError(message);
    }
    struct stat info;
    fstat(descriptor, &info);
    const bool regular = S_ISREG(info.st_mode);
    bytes_ = regular ? info.st_size : 0;
    if (bytes_ > 0) {
      data_ = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ, MAP_PRIVATE, descriptor, 0);
    }
    const int code = errno;
    close(descriptor);
    if (!regular || data_ == MAP_FAILED) {
      throw FailedPreconditionError(
          absl::StrCat("cannot read '", path, "': ", regular ? std::strerror(code) : "not a file"));
    }
  }
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  absl::string_view bytes() const {
    return absl::string_view(static_cast<const char*>(data_), static_cast<size_t>(bytes_));
  }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

SafetensorsFile SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.mapping_ = std::make_shared<Mapping>(path);
  const absl::string_view bytes = file.mapping_->bytes();
  try {
    file.header_ = ParseSafetensorsHeader(bytes, static_cast<int64_t>(bytes.size()));
  } catch (const Error& error) {
    throw error.WithContext(absl::StrCat("'", path, "'"));
  }
  return file;
}

bool SafetensorsFile::Contains(absl::string_view name) const {
  return std::any_of(header_.entries.begin(), header_.entries.end(),
                     [&](const auto& entry) { return entry.name == name; });
}

Tensor SafetensorsFile::LoadEntry(const SafetensorsHeader::Entry& entry) const {
  Tensor tensor = Empty(entry.shape, {.dtype = entry.dtype});
  if (tensor.bytes() > 0) {
    std::memcpy(MutableRawData(tensor),
                mapping_->bytes().data() + header_.data_begin_bytes + entry.begin_bytes,
                static_cast<size_t>(tensor.bytes()));
  }
  return tensor;
}

Tensor SafetensorsFile::Load(absl::string_view name) const {
  for (const SafetensorsHeader::Entry& entry : header_.entries) {
    if (entry.name == name) return LoadEntry(entry);
  }
  throw NotFoundError(absl::StrCat("'", path_, "' has no tensor '", name, "'; it has ",
                                   header_.entries.size(), " others"));
}

NamedTensors SafetensorsFile::LoadAll() const {
  NamedTensors tensors;
  for (const auto& entry : header_.entries) tensors.Insert(entry.name, LoadEntry(entry));
  return tensors;
}

bool SafetensorsFile::ChecksumIsRight() const {
  const auto found = header_.metadata.find(kSafetensorsChecksumKey);
  if (found == header_.metadata.end()) return true;
  const absl::string_view data =
      mapping_->bytes().substr(static_cast<size_t>(header_.data_begin_bytes));
  return found->second == absl::StrFormat("%016x", Hash64(data));
}

void WriteSafetensors(const std::string& path, const NamedTensors& tensors,
                      const Metadata& metadata) {
  std::vector<TensorDescription> descriptions;
  for (const auto& [name, tensor] : tensors) {
    const DeviceType type = tensor.device().type;
    if (type != DeviceType::kCpu && type != DeviceType::kHost) {
      throw InvalidArgumentError(absl::StrCat("WriteSafetensors: '", name, "' is ",
                                              tensor.DebugString(), "; move it with To(x, Cpu())"));
    }
    descriptions.push_back({name, tensor.dtype(), tensor.shape()});
  }
  SafetensorsWriter writer(path, std::move(descriptions), metadata);
  for (const auto& [name, tensor] : tensors) writer.Append(name, tensor);
  writer.Finish();
}

}  // namespace lockstep::state
