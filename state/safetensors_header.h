// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The header of a safetensors file: what lies where.
//
// Layout: 8 bytes length N of the header (little endian); N bytes of JSON, an object of
// name -> {"dtype", "shape", "data_offsets": [begin, end]} and optionally "__metadata__" -> object
// of strings; then the data. A file is validated whole before any tensor is made: lengths against
// the file, offsets against shapes and dtypes with overflow checks, no overlap and no hole, unique
// names. Source: the format description of the safetensors project, version 0.4.
#ifndef LOCKSTEP_STATE_SAFETENSORS_HEADER_H_
#define LOCKSTEP_STATE_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"

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

// The metadata key under which Lockstep keeps the XXH64 of the data, as 16 hexadecimal digits.
inline constexpr char kSafetensorsChecksumKey[] = "lockstep.xxh64";

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_SAFETENSORS_HEADER_H_
