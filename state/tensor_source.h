// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// TensorSource: named tensors of which any range of elements can be had, without all of them being
// in memory: a file, several files, the weights of another library under other names.
//
//   const state::SafetensorsSource file("model.safetensors");
//   Tensor mine = file.LoadRange("wte.weight", begin, end);      // float32[end - begin]
//   module.LoadStateDict(state::LoadAll(file));                  // where there is room for all
//
// Whoever loads a part of a state asks for no more than that part; what stands between (a rename, a
// transposition: models/huggingface.h) does its work range by range.
#ifndef LOCKSTEP_STATE_TENSOR_SOURCE_H_
#define LOCKSTEP_STATE_TENSOR_SOURCE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/state/tensor_description.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {

// Immutable. Thread-safe where the implementation says so.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;

  // All there are, each name once, in an order that stays.
  virtual const std::vector<TensorDescription>& tensors() const = 0;
  // Elements [begin, end) of a tensor in row-major order, in one dimension, of its dtype. Throws
  // NotFound, OutOfRange, and what its medium throws (SafetensorsReader: DataLoss,
  // FailedPrecondition).
  virtual Tensor LoadRange(absl::string_view name, int64_t begin, int64_t end) const = 0;

 protected:
  TensorSource() = default;
};

// Null where there is none.
const TensorDescription* FindTensor(const TensorSource& source, absl::string_view name);

// Everything, in its shapes.
NamedTensors LoadAll(const TensorSource& source);

// Tensors that are in memory. Shares their storage; what is not row-major is copied when a range of
// it is asked for.
class NamedTensorsSource final : public TensorSource {
 public:
  explicit NamedTensorsSource(NamedTensors tensors);

  const std::vector<TensorDescription>& tensors() const override { return descriptions_; }
  Tensor LoadRange(absl::string_view name, int64_t begin, int64_t end) const override;

 private:
  const NamedTensors tensors_;
  std::vector<TensorDescription> descriptions_;
};

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_TENSOR_SOURCE_H_
