// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Several layers in the user slot of dispatch: the slot takes one function in a program
// (RegisterLayer), and these scopes share it.
//
//   class CountOps : public UserLayer {
//    public:
//     TensorList Run(const OpCall& call, Below below) const override {
//       ++*count_;
//       return below(call);
//     }
//     ...
//   };
//   UserLayerScope scope(std::make_shared<CountOps>(&count));
//
// Layers are part of the thread's state, so threads and backward ops that take it over have them
// too, at the same time: Run() must be thread-safe.
#ifndef LOCKSTEP_TENSOR_USER_LAYER_H_
#define LOCKSTEP_TENSOR_USER_LAYER_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {

class UserLayer {
 public:
  using Below = absl::FunctionRef<TensorList(const OpCall&)>;

  virtual ~UserLayer() = default;
  // Does its part and calls `below`: the layers around it, then the slots below. Ops called inside
  // with Dispatch pass through all layers again.
  virtual TensorList Run(const OpCall& call, Below below) const = 0;
};

// Scope: this thread's ops pass through `layer` first.
class UserLayerScope {
 public:
  // Throws InvalidArgument for a null layer, AlreadyExists when the program has put a function of
  // its own into the user slot with RegisterLayer.
  explicit UserLayerScope(std::shared_ptr<const UserLayer> layer);
  ~UserLayerScope();
  UserLayerScope(const UserLayerScope&) = delete;
  UserLayerScope& operator=(const UserLayerScope&) = delete;

 private:
  std::shared_ptr<const LayerState> saved_;
  uint32_t saved_mask_;
};

// The innermost layer of this thread that `matches`, null when there is none.
const UserLayer* FindUserLayer(absl::FunctionRef<bool(const UserLayer&)> matches);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_USER_LAYER_H_
