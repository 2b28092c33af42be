// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Safetensors: the file format for named tensors that Hugging Face and others read and write.
//
//   state::WriteSafetensors("model.safetensors", module.StateDict(), {{"format", "pt"}});
//   state::SafetensorsFile file = state::SafetensorsFile::Open("model.safetensors");
//   Tensor weight = file.Load("wte.weight");
//
// safetensors_header.h has the layout and what of a file is checked. A file that does not fit into
// memory at once is written by safetensors_writer.h and read by safetensors_reader.h.
#ifndef LOCKSTEP_STATE_SAFETENSORS_H_
#define LOCKSTEP_STATE_SAFETENSORS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/state/safetensors_header.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {

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
