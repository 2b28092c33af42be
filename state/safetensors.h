// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Safetensors: the file format for named tensors that Hugging Face and others read and write.
//
//   state::WriteSafetensors("model.safetensors", module.StateDict(), {{"format", "pt"}});
//   state::SafetensorsFile file = state::SafetensorsFile::Open("model.safetensors");
//   Tensor weight = file.Load("wte.weight");
//
// Layout: 8 bytes length N of the header (little endian); N bytes of JSON, an object of
// name -> {"dtype", "shape", "data_offsets": [begin, end]} and optionally "__metadata__" -> object
// of strings; then the data. A file is validated whole before any tensor is made: lengths against
// the file, offsets against shapes and dtypes with overflow checks, no overlap and no hole, unique
// names. Source: the format description of the safetensors project, version 0.4.
#ifndef LOCKSTEP_STATE_SAFETENSORS_H_
#define LOCKSTEP_STATE_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {

using Metadata = std::map<std::string, std::string>;

// What a header says, in the order of the data. Pure: made from bytes, for readers of other media
// and for fuzzing.
struct SafetensorsHeader {
  struct Entry {
    std::string name;
    DType dtype = DType::kFloat32;
    Shape shape;
    int64_t begin_bytes = 0;  // from the start of the data
    int64_t end_bytes = 0;
  };
  std::vector<Entry> entries;
  Metadata metadata;
  int64_t data_begin_bytes = 0;  // from the start of the file
};

// The largest header that is accepted, as in the reference implementation.
inline constexpr int64_t kMaximumHeaderBytes = 100 << 20;

// Parses the beginning of a file of `file_bytes` bytes, of which `prefix` holds at least the
// header. Throws DataLoss naming the tensor and what is wrong. Allocates no more than a small
// multiple of the header's size.
SafetensorsHeader ParseSafetensorsHeader(absl::string_view prefix, int64_t file_bytes);

// An open file, mapped into memory. Immutable and thread-safe.
class SafetensorsFile {
 public:
  // Throws NotFound, FailedPrecondition (unreadable) or DataLoss, each with the path.
  static SafetensorsFile Open(const std::string& path);

  const std::vector<SafetensorsHeader::Entry>& entries() const { return header_.entries; }
  const Metadata& metadata() const { return header_.metadata; }
  bool Contains(absl::string_view name) const;

  // A tensor of its own (nothing refers to the file) on the current device, in the thread's memory
  // category. Throws NotFound.
  Tensor Load(absl::string_view name) const;
  NamedTensors LoadAll() const;

  // Whether the data has the checksum that WriteSafetensors put into the metadata. True for files
  // without one (other programs').
  bool ChecksumIsRight() const;

 private:
  class Mapping;
  Tensor LoadEntry(const SafetensorsHeader::Entry& entry) const;
  std::string path_;
  std::shared_ptr<const Mapping> mapping_;
  SafetensorsHeader header_;
};

// Writes `tensors` (of any strides, on CPU or host devices) to `path`, which is replaced at once
// when everything is on disk: a crash leaves the old file or the new one. Adds a checksum of the
// data to the metadata under "lockstep.xxh64". Throws InvalidArgument (a reserved or repeated name,
// a meta tensor), FailedPrecondition (cannot write: the message has the path and the system's
// reason).
void WriteSafetensors(const std::string& path, const NamedTensors& tensors,
                      const Metadata& metadata = {});

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_SAFETENSORS_H_
