// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// SafetensorsWriter: a safetensors file whose tensors come one at a time, so that no more than one
// of them is in memory.
//
//   state::SafetensorsWriter writer(path, {{"wte.weight", DType::kFloat32, {50257, 768}},
//                                          {"wpe.weight", DType::kFloat32, {1024, 768}}});
//   writer.Append("wte.weight", GatherWhole("wte.weight"));
//   for (const Tensor& part : parts) writer.AppendElements("wpe.weight", part);
//   writer.Finish();
//
// The file is the one that WriteSafetensors writes, byte for byte, checksum included.
#ifndef LOCKSTEP_STATE_SAFETENSORS_WRITER_H_
#define LOCKSTEP_STATE_SAFETENSORS_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/base/hash.h"
#include "lockstep/state/file_io.h"
#include "lockstep/state/safetensors_header.h"
#include "lockstep/state/tensor_description.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {

// Not thread-safe. All throw FailedPrecondition when the system cannot write, with the path and its
// reason. Until Finish() has returned, `path` stays as it was; without it nothing is left.
class SafetensorsWriter {
 public:
  // Writes the header. `tensors` are all that will come, in order. Throws InvalidArgument: a
  // reserved or repeated name or metadata key, a negative size.
  SafetensorsWriter(const std::string& path, std::vector<TensorDescription> tensors,
                    const Metadata& metadata = {});
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // The next tensor, of any strides, on the CPU or host. Throws InvalidArgument when it is not the
  // one described.
  void Append(absl::string_view name, const Tensor& tensor);
  // The next elements, in row-major order, of the tensor whose turn it is: of any shape, and not
  // more than are left of it.
  void AppendElements(absl::string_view name, const Tensor& elements);
  // Gives the file its name, when everything is on disk. Throws FailedPrecondition when tensors are
  // missing, naming the first.
  void Finish();

 private:
  void CheckTurn(absl::string_view call, absl::string_view name, const Tensor& tensor) const;
  void Write(const Tensor& tensor);

  std::vector<TensorDescription> tensors_;
  AtomicFile file_;
  Hasher64 hasher_;
  int64_t checksum_position_ = 0;  // of its digits, in the file
  size_t next_ = 0;                // the tensor whose turn it is
  int64_t left_ = 0;               // of its elements
};

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_SAFETENSORS_WRITER_H_
