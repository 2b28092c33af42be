// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A tensor that a node keeps for its gradient. Internal.
#ifndef LOCKSTEP_AUTOGRAD_SAVED_TENSOR_H_
#define LOCKSTEP_AUTOGRAD_SAVED_TENSOR_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "lockstep/autograd/grad_state.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor_meta.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd::internal {

// Leaves that require gradients are held as themselves. Everything else is held as an alias without
// history, because the tensor's own history may come to contain the node (its outputs do at once,
// an input may after an in-place op), and the cycle would never be freed. The history is given back
// on unpacking, from the node's edges.
class SavedTensor {
 public:
  SavedTensor() = default;
  // Goes through the thread's saved-tensor hooks, which see `by`. An undefined tensor stays one.
  SavedTensor(const Tensor& tensor, const SavedBy& by);
  ~SavedTensor() { Release(); }
  SavedTensor(SavedTensor&& other) noexcept;
  SavedTensor& operator=(SavedTensor&& other) noexcept;

  // The tensor, with `history` if that is valid. `owner` is for messages: the op's name, and what
  // the tensor is to it ("input 0"). Throws FailedPrecondition when it was modified in place.
  Tensor Unpack(const Edge& history, absl::string_view owner, absl::string_view role) const;
  void Release();

  // The same contents for one Unpack(), which may take long or call back, outside of a lock.
  SavedTensor Peek() const;

 private:
  struct Packed {
    PackedTensor value;
    std::shared_ptr<const SavedHooks> hooks;
    TensorMeta meta;
  };

  Tensor tensor_;
  int64_t version_ = 0;
  bool is_leaf_ = false;
  bool counted_ = false;  // in SavedBytes()
  std::shared_ptr<const Packed> packed_;
};

}  // namespace lockstep::autograd::internal

#endif  // LOCKSTEP_AUTOGRAD_SAVED_TENSOR_H_
