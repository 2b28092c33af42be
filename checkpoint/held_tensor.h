// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A tensor that a checkpoint keeps for a later backward. Internal.
#ifndef LOCKSTEP_CHECKPOINT_HELD_TENSOR_H_
#define LOCKSTEP_CHECKPOINT_HELD_TENSOR_H_

#include <cstdint>

#include "lockstep/tensor/tensor.h"

namespace lockstep::checkpoint::internal {

// Keeps the elements and no history, because the history may lead back to the checkpoint. Counts in
// autograd::SavedBytes() while it holds something. Not thread-safe.
class HeldTensor {
 public:
  HeldTensor() = default;
  explicit HeldTensor(const Tensor& tensor);
  ~HeldTensor() { Reset(); }
  HeldTensor(HeldTensor&& other) noexcept;
  HeldTensor& operator=(HeldTensor&& other) noexcept;

  bool defined() const { return tensor_.defined(); }
  // Whether an op has written to the elements since.
  bool modified() const { return tensor_.version() != version_; }
  // A new tensor over the same elements, without history.
  Tensor Get() const;
  void Reset();

 private:
  Tensor tensor_;
  int64_t version_ = 0;
};

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_HELD_TENSOR_H_
