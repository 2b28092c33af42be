// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// SafetensorsReader: one tensor, or a part of one, at a time. Only what is asked for is read, into
// memory of its own.
//
//   const state::SafetensorsReader reader(path);
//   Tensor weight = reader.Load("wte.weight");
//   Tensor part = reader.LoadRange("wte.weight", 1000, 2000);   // float32[1000]
#ifndef LOCKSTEP_STATE_SAFETENSORS_READER_H_
#define LOCKSTEP_STATE_SAFETENSORS_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "lockstep/state/safetensors_header.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {

// An open file. Thread-safe. A file that is replaced or removed under its name stays readable here;
// one that is cut short by another program is DataLoss at the next read beyond its end.
class SafetensorsReader {
 public:
  // Reads and validates the header as SafetensorsFile does. Throws NotFound, FailedPrecondition
  // (unreadable) or DataLoss, each with the path.
  explicit SafetensorsReader(const std::string& path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  // In the order of the data.
  const std::vector<SafetensorsHeader::Entry>& entries() const { return header_.entries; }
  const Metadata& metadata() const { return header_.metadata; }
  bool Contains(absl::string_view name) const { return index_.contains(name); }
  // Throws NotFound.
  const SafetensorsHeader::Entry& At(absl::string_view name) const;

  // A tensor on the current device, in the thread's memory category. Throws NotFound, and DataLoss
  // or FailedPrecondition when the file cannot be read.
  Tensor Load(absl::string_view name) const;
  // Its elements [begin, end) in row-major order, in one dimension. Throws OutOfRange too.
  Tensor LoadRange(absl::string_view name, int64_t begin, int64_t end) const;

 private:
  void Read(int64_t offset, void* to, int64_t bytes) const;
  void ReadHeader();

  const std::string path_;
  int descriptor_ = -1;
  SafetensorsHeader header_;
  absl::flat_hash_map<std::string, size_t> index_;
};

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_SAFETENSORS_READER_H_
