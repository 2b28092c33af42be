// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// SafetensorsSource: the tensors of one safetensors file, or of several that belong together, as
// Hugging Face writes large models:
//
//   model.safetensors.index.json       {"weight_map": {"wte.weight": "model-00001-of-00002...",
//   ..}} model-00001-of-00002.safetensors   ...
//
//   const state::SafetensorsSource weights("gpt2/model.safetensors.index.json");
//   Tensor part = weights.LoadRange("wte.weight", 0, 1000);
#ifndef LOCKSTEP_STATE_SAFETENSORS_SOURCE_H_
#define LOCKSTEP_STATE_SAFETENSORS_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "lockstep/state/safetensors_reader.h"
#include "lockstep/state/tensor_description.h"
#include "lockstep/state/tensor_source.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {

// What the names of an index end in.
inline constexpr char kSafetensorsIndexSuffix[] = ".index.json";

// Thread-safe. The files stay open.
class SafetensorsSource final : public TensorSource {
 public:
  // `path`: a safetensors file, or an index, whose files lie beside it. Headers are read and
  // validated, and no data. Throws NotFound (a file that is not there), FailedPrecondition
  // (unreadable) and DataLoss (damaged; an index that names a file in another folder, or does not
  // have exactly the tensors of its files), each with the path.
  explicit SafetensorsSource(const std::string& path);

  const std::vector<TensorDescription>& tensors() const override { return descriptions_; }
  Tensor LoadRange(absl::string_view name, int64_t begin, int64_t end) const override;

 private:
  void AddFile(const std::string& path);
  void OpenIndex(const std::string& path);

  const std::string path_;
  std::vector<std::unique_ptr<SafetensorsReader>> readers_;
  std::vector<TensorDescription> descriptions_;
  absl::flat_hash_map<std::string, const SafetensorsReader*> reader_of_;
};

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_SAFETENSORS_SOURCE_H_
